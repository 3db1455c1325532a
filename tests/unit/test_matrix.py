"""What ``matrix`` prints: which task sees which and by which filter, and what this task cannot know."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.resolver_world import GPU, be_task, publish, view_of

from tfcluster_resolver import contract
from tfcluster_resolver.__main__ import main
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import matrix
from tfcluster_resolver.contract import FilterRange

VIEW = view_of(
    {"chief": ("c0:1",), "ps": ("p0:1", "p1:1"), "worker": ("w0:1", "w1:1", "w2:1")},
    epoch=4,
    device_filters={
        "ps": (FilterRange(0, 4, ("/job:worker", "/job:chief")),),
        "worker": (FilterRange(0, 2, ("/job:ps/task:0", "/job:chief")), FilterRange(2, 5, ("/task:1", "/job:ps"))),
    },
)


@pytest.fixture
def in_pod(tmp_path, monkeypatch):
    publish(tmp_path, VIEW)
    be_task(monkeypatch, "chief", 0, "c0:1", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("in_pod")
def test_matrix_prints_text(capsys):
    assert main(["matrix"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "n/c, epoch 4: each task sees itself, and",
        "/job:chief/task:0 sees every task: no device filters",
        "/job:ps/task:0-1 sees",
        "  /job:chief/task:0     by /job:chief",
        "  /job:worker/task:0-2  by /job:worker",
        "  not /job:ps/task:0-1",
        "/job:worker/task:0-1 sees",
        "  /job:chief/task:0  by /job:chief",
        "  /job:ps/task:0     by /job:ps/task:0",
        "  not /job:ps/task:1, /job:worker/task:0-2",
        "/job:worker/task:2 sees",
        "  /job:ps/task:0      by /job:ps",
        "  /job:ps/task:1      by /task:1, /job:ps",
        "  /job:worker/task:1  by /task:1",
        "  not /job:chief/task:0, /job:worker/task:0",
    ]


def test_filter_for_a_type_of_devices_shows_the_tasks_that_hold_one():
    held = {"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 0}})}
    filters = {"chief": (FilterRange(0, 1, ("/device:GPU:1", "/job:ps")),)}
    view = replace(VIEW, device_filters=filters, accelerators=held)
    assert list(matrix.lines(Membership(view=view, own=Task("worker", 0, "w0:1"))))[1:6] == [
        "/job:chief/task:0 sees",
        "  /job:ps/task:0-1    by /job:ps",
        "  /job:worker/task:0  by /device:GPU:1",
        "  /job:worker/task:2  by /device:GPU:1",
        "  not /job:worker/task:1",
    ]


@pytest.mark.parametrize(
    ("own", "complete"), [(Task("chief", 0, "c0:1"), True), (Task("worker", 1, "w1:1"), False), (None, False)]
)
def test_view_of_a_task_with_filters_says_that_it_may_be_incomplete(own, complete):
    *_, last = matrix.lines(Membership(view=VIEW, own=own))
    assert last.startswith("Tasks that this one does not see") is not complete


def test_task_that_its_view_does_not_show_has_no_description(in_pod, monkeypatch, capsys):
    view = replace(VIEW, jobs={"ps": ("p0:1", "p1:1")}, device_filters={"ps": (FilterRange(0, 2, ("/job:none",)),)})
    publish(in_pod, view)
    monkeypatch.setenv(contract.ENV_JOB, "worker")
    assert main(["matrix"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "n/c, epoch 4: each task sees itself, and",
        "/job:ps/task:0-1 sees",
        "  no other task",
        "  not /job:ps/task:0-1, /job:worker/task:0",
    ]


def test_filter_that_tensorflow_refuses_is_an_error(in_pod, capsys):
    publish(in_pod, replace(VIEW, device_filters={"chief": (FilterRange(0, 1, ("ps",)),)}))
    assert main(["matrix"]) == 65
    assert "'ps'" in capsys.readouterr().err
