"""The output of ``matrix``: which task sees which, the filter that decides, and what is unknown to this task."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from unit.resolver_world import GPU, be_task, publish, view_of

from tfcluster_resolver import contract
from tfcluster_resolver.__main__ import main
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import matrix
from tfcluster_resolver.commands.matrix import Row, Sight
from tfcluster_resolver.contract import FilterRange

VIEW = view_of(
    {"chief": ("c0:1",), "ps": ("p0:1", "p1:1"), "worker": ("w0:1", "w1:1", "w2:1")},
    epoch=4,
    device_filters={
        "ps": (FilterRange(0, 4, ("/job:worker", "/job:chief")),),
        "worker": (FilterRange(0, 2, ("/job:ps/task:0", "/job:chief")), FilterRange(2, 5, ("/task:1", "/job:ps"))),
    },
)
CHIEF = Task("chief", 0, "c0:1")


def rows(view: contract.View = VIEW, own: Task | None = CHIEF) -> list[Row]:
    return matrix.rows(Membership(view=view, own=own))


def filtered(*filters: str, **parts: object) -> contract.View:
    return replace(VIEW, device_filters={"chief": (FilterRange(0, 1, filters),)}, **parts)


def text(view: contract.View = VIEW, own: Task | None = CHIEF) -> list[str]:
    return matrix.as_text(Membership(view=view, own=own)).splitlines()


def test_filter_may_show_some_devices_of_a_task():
    """A filter for a type of devices shows only these, and hides tasks that do not have any; all have a CPU."""
    held = {"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 0}})}
    assert text(filtered("/device:GPU:1", "/job:ps", accelerators=held))[1:6] == [
        "/job:chief/task:0 sees",
        "  /job:ps/task:0-1    by /job:ps",
        "  /job:worker/task:0  by /device:GPU:1  (GPU:1 alone)",
        "  /job:worker/task:2  by /device:GPU:1  (GPU:1 alone)",
        "  not /job:worker/task:1",
    ]
    by_cpu = ("/device:CPU:0",)
    assert rows(filtered(*by_cpu))[0].sees == (Sight("ps", 0, 2, by_cpu), Sight("worker", 0, 3, by_cpu))


def test_view_of_a_task_without_filters_is_complete():
    """The view of a task does not include tasks that filters hide; outside of the pods this is unknown."""
    filtered_task, hidden_task = Task("worker", 1, "w1:1"), Task("worker", 7, "w7:1")
    assert matrix.is_complete(Membership(view=VIEW, own=CHIEF))
    for own in (filtered_task, hidden_task, Task("evaluator", 0, "e:1"), None):
        assert not matrix.is_complete(Membership(view=VIEW, own=own))


@pytest.mark.parametrize("own", [Task("worker", 7, "w7:1"), Task("evaluator", 0, "e:1")])
def test_own_filters_that_the_view_does_not_hold_are_unknown(own):
    """A task that its view hides sees other tasks, with unknown filters."""
    (mine,) = [one for one in rows(own=own) if (one.job, one.start) == (own.job, own.index)]
    assert (mine.filters, mine.hidden, {one.by for one in mine.sees}) == (None, (), {()})


def test_sparse_view_has_rows_for_what_it_shows():
    view = replace(VIEW, jobs={"chief": ("c0:1",), "worker": {0: "w0:1", 3: "w3:1"}}, device_filters={})
    found = [(one.job, one.start, one.stop) for one in rows(view)]
    assert found == [("chief", 0, 1), ("worker", 0, 1), ("worker", 3, 4)]
    assert rows(view)[0].sees == (Sight("worker", 0, 1), Sight("worker", 3, 4))


def test_a_lone_task_is_not_in_its_own_row():
    """The row of one task leaves it out of the range that contains it, at any position."""
    by_job = ("/job:worker",)
    middle = view_of({"worker": ("w0:1", "w1:1", "w2:1")}, device_filters={"worker": (FilterRange(1, 2, by_job),)})
    assert rows(middle, None)[1].sees == (Sight("worker", 0, 1, by_job), Sight("worker", 2, 3, by_job))


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


def test_matrix_prints_what_it_does_not_know(in_pod, monkeypatch, capsys):
    view = replace(VIEW, jobs={"ps": ("p0:1", "p1:1")}, device_filters={"ps": (FilterRange(0, 2, ("/job:none",)),)})
    publish(in_pod, view)
    monkeypatch.setenv(contract.ENV_JOB, "worker")
    assert main(["matrix"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith("Tasks that this one does not see, and their device filters, can be missing here")
    assert lines == [
        "n/c, epoch 4: each task sees itself, and",
        "/job:ps/task:0-1 sees",
        "  no other task",
        "  not /job:ps/task:0-1, /job:worker/task:0",
        "/job:worker/task:0 sees, by device filters that its view does not hold",
        "  /job:ps/task:0-1",
    ]


@pytest.mark.usefixtures("in_pod")
def test_matrix_prints_json(capsys):
    assert main(["matrix", "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["cluster"] == {"name": "c", "namespace": "n", "uid": "u"}
    assert (shown["epoch"], shown["complete"], shown["rows"][0]["filters"]) == (4, True, [])
    by_chief = {"job": "chief", "tasks": [0, 1], "by": ["/job:chief"]}
    by_ps = {"job": "ps", "tasks": [0, 1], "by": ["/job:ps/task:0"]}
    assert shown["rows"][2] == {
        "job": "worker",
        "tasks": [0, 2],
        "filters": ["/job:ps/task:0", "/job:chief"],
        "sees": [by_chief, by_ps],
        "hidden": [{"job": "ps", "tasks": [1, 2]}, {"job": "worker", "tasks": [0, 3]}],
    }


def test_filter_that_tensorflow_rejects_is_an_error(in_pod, capsys):
    publish(in_pod, filtered("ps"))
    assert main(["matrix"]) == 65
    assert "'ps'" in capsys.readouterr().err


# isolation

ISOLATED = replace(VIEW, isolation="DeviceFilters")


def test_policies_block_only_tasks_hidden_from_each_other():
    """Rows split where the network treats tasks differently: worker 2 sees worker 1, but not worker 0."""
    found = rows(ISOLATED)

    assert {(one.job, one.start): one.hidden for one in found} == {
        ("chief", 0): (),
        ("ps", 0): (Sight("ps", 1, 2, blocked=True),),
        ("ps", 1): (Sight("ps", 0, 1, blocked=True),),
        ("worker", 0): (Sight("ps", 1, 2), Sight("worker", 1, 3, blocked=True)),
        ("worker", 1): (Sight("ps", 1, 2), Sight("worker", 0, 1, blocked=True), Sight("worker", 2, 3)),
        ("worker", 2): (Sight("chief", 0, 1), Sight("worker", 0, 1, blocked=True)),
    }


def test_within_the_cluster_no_other_isolation_blocks():
    assert rows() == rows(replace(VIEW, isolation="Cluster")) == rows(replace(VIEW, isolation=""))


def test_matrix_shows_filtered_and_blocked_tasks():
    shown = text(ISOLATED)
    last = json.loads(matrix.as_json(Membership(view=ISOLATED, own=CHIEF)))["rows"][-1]

    assert shown[0] == "n/c, epoch 4, isolation DeviceFilters: each task sees itself, and"
    assert shown[-2:] == [
        "  not /job:chief/task:0  (hidden by filter)",
        "  not /job:worker/task:0  (hidden by filter, blocked by policy)",
    ]
    assert last["hidden"] == [{"job": "chief", "tasks": [0, 1]}, {"job": "worker", "tasks": [0, 1], "blocked": True}]
