"""What ``matrix`` tells: who sees whom and by which filter, and what this task cannot know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tfcluster_resolver import contract
from tfcluster_resolver.__main__ import main
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.commands import matrix, sight
from tfcluster_resolver.commands.sight import Row, Sight
from tfcluster_resolver.contract import FilterRange

GPU = "nvidia.com/gpu"
VIEW = contract.View(
    name="c",
    namespace="n",
    uid="u",
    epoch=4,
    rpc_layer="grpc",
    jobs={"chief": ("c0:1",), "ps": ("p0:1", "p1:1"), "worker": ("w0:1", "w1:1", "w2:1")},
    device_filters={
        "ps": (FilterRange(0, 4, ("/job:worker", "/job:chief")),),
        "worker": (FilterRange(0, 2, ("/job:ps/task:0", "/job:chief")), FilterRange(2, 5, ("/task:1", "/job:ps"))),
    },
)
CHIEF = Task("chief", 0, "c0:1")
INCOMPLETE = (
    "Tasks that this one does not see, and their device filters, may be missing here: ask a task without device "
    "filters, such as the chief."
)


def rows(view: contract.View = VIEW, own: Task | None = CHIEF) -> list[Row]:
    return sight.rows(Membership(view=view, own=own))


def row(job: str, view: contract.View = VIEW, own: Task | None = CHIEF) -> Row:
    """Give the first row of a job."""
    return next(one for one in rows(view, own) if one.job == job)


def filtered(*filters: str, view: contract.View = VIEW) -> contract.View:
    """Give the chief device filters."""
    return replace(view, device_filters={"chief": (FilterRange(0, 1, filters),)})


def test_each_run_of_equal_filters_is_a_row():
    """Neighbours with equal filters are one row, the tasks that do not exist yet are none."""
    assert [(one.job, one.start, one.stop, one.filters) for one in rows()] == [
        ("chief", 0, 1, ()),
        ("ps", 0, 2, ("/job:worker", "/job:chief")),
        ("worker", 0, 2, ("/job:ps/task:0", "/job:chief")),
        ("worker", 2, 3, ("/task:1", "/job:ps")),
    ]


def test_task_without_filters_sees_everything():
    """No filters show every task, by none."""
    assert row("chief") == Row("chief", 0, 1, (), sees=(Sight("ps", 0, 2), Sight("worker", 0, 3)), hidden=())


def test_filters_show_what_they_match():
    """Each task that is shown is shown by the filters that match it, and the rest is hidden."""
    assert row("worker") == Row(
        "worker",
        0,
        2,
        ("/job:ps/task:0", "/job:chief"),
        sees=(Sight("chief", 0, 1, ("/job:chief",)), Sight("ps", 0, 1, ("/job:ps/task:0",))),
        hidden=(Sight("ps", 1, 2), Sight("worker", 0, 3)),
    )


def test_all_filters_that_match_are_named():
    """A task that two filters show is shown by both, in the order in which they are declared."""
    last = rows()[-1]

    assert last.sees == (
        Sight("ps", 0, 1, ("/job:ps",)),
        Sight("ps", 1, 2, ("/task:1", "/job:ps")),
        Sight("worker", 1, 2, ("/task:1",)),
    )
    assert last.hidden == (Sight("chief", 0, 1), Sight("worker", 0, 1))


def test_filter_may_show_some_devices_of_a_task():
    """A filter for a type of devices shows these alone, and tasks that hold none of them not at all."""
    held = {"worker": contract.JobAccelerators(limits={GPU: 2}, tasks={1: {GPU: 0}})}

    seen = row("chief", filtered("/device:GPU:1", "/job:ps", view=replace(VIEW, accelerators=held)))

    assert seen.sees == (
        Sight("ps", 0, 2, ("/job:ps",)),
        Sight("worker", 0, 1, ("/device:GPU:1",), ("GPU:1",)),
        Sight("worker", 2, 3, ("/device:GPU:1",), ("GPU:1",)),
    )
    assert seen.hidden == (Sight("worker", 1, 2),)


def test_every_task_has_a_cpu():
    """A filter for the CPU shows all of a task that has no accelerators."""
    assert row("chief", filtered("/device:CPU:0")).sees == (
        Sight("ps", 0, 2, ("/device:CPU:0",)),
        Sight("worker", 0, 3, ("/device:CPU:0",)),
    )


def test_view_of_a_task_without_filters_is_complete():
    """A task that is in its own view without filters sees the whole cluster."""
    assert sight.is_complete(Membership(view=VIEW, own=CHIEF))


@pytest.mark.parametrize(
    "own",
    [Task("worker", 1, "w1:1"), Task("worker", 7, "w7:1"), Task("evaluator", 0, "e:1"), None],
    ids=["a filtered task", "a hidden task", "an evaluator", "no task"],
)
def test_other_views_may_be_incomplete(own):
    """What filters hide from a task, its view does not hold; and outside of the pods nobody knows."""
    assert not sight.is_complete(Membership(view=VIEW, own=own))


@pytest.mark.parametrize("own", [Task("worker", 7, "w7:1"), Task("evaluator", 0, "e:1")])
def test_own_filters_that_the_view_does_not_hold_are_unknown(own):
    """A task that its view does not show sees what is there, by filters that are not."""
    mine = rows(own=own)[-1] if own.job == "worker" else row("evaluator", own=own)

    assert (mine.job, mine.start, mine.filters, mine.hidden) == (own.job, own.index, None, ())
    assert [one.by for one in mine.sees] == [()] * len(mine.sees)


def test_sparse_view_has_rows_for_what_it_shows():
    """A gap in the indices ends a row, and what the view does not show is not in it."""
    view = replace(VIEW, jobs={"chief": ("c0:1",), "worker": {0: "w0:1", 3: "w3:1"}}, device_filters={})

    assert [(one.job, one.start, one.stop) for one in rows(view)] == [
        ("chief", 0, 1),
        ("worker", 0, 1),
        ("worker", 3, 4),
    ]
    assert [(one.job, one.start, one.stop) for one in row("chief", view).sees] == [
        ("worker", 0, 1),
        ("worker", 3, 4),
    ]


def test_a_lone_task_is_not_told_of_itself():
    """A row of one task leaves that task out of the range that it is in, wherever it stands there."""
    middle = replace(
        VIEW,
        jobs={"worker": ("w0:1", "w1:1", "w2:1")},
        device_filters={"worker": (FilterRange(1, 2, ("/job:worker",)),)},
    )

    assert rows(middle, None)[1].sees == (
        Sight("worker", 0, 1, ("/job:worker",)),
        Sight("worker", 2, 3, ("/job:worker",)),
    )


@pytest.fixture
def in_pod(tmp_path, monkeypatch):
    """This process is the pod of the chief."""
    (tmp_path / "cluster.json").write_text(contract.dump(VIEW))
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path))
    monkeypatch.setenv(contract.ENV_JOB, "chief")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "0")
    monkeypatch.setenv(contract.ENV_ADDRESS, "c0:1")
    return tmp_path


@pytest.mark.usefixtures("in_pod")
def test_matrix_tells_people(capsys):
    """``matrix`` prints each row with what it sees, by which filter, and what it does not."""
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


def test_matrix_tells_people_what_it_does_not_know(in_pod, monkeypatch, capsys):
    """A filtered task prints what its view holds, and says that there may be more."""
    view = replace(VIEW, jobs={"ps": ("p0:1", "p1:1")}, device_filters={"ps": (FilterRange(0, 2, ("/job:none",)),)})
    (in_pod / "cluster.json").write_text(contract.dump(view))
    monkeypatch.setenv(contract.ENV_JOB, "worker")

    assert main(["matrix"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "n/c, epoch 4: each task sees itself, and",
        "/job:ps/task:0-1 sees",
        "  no other task",
        "  not /job:ps/task:0-1, /job:worker/task:0",
        "/job:worker/task:0 sees, by device filters that its view does not hold",
        "  /job:ps/task:0-1",
        INCOMPLETE,
    ]


def test_matrix_tells_people_of_single_devices(in_pod, capsys):
    """Where filters show some devices of a task, these are named."""
    held = {"worker": contract.JobAccelerators(limits={GPU: 1})}
    view = filtered("/job:worker/device:GPU:0", view=replace(VIEW, accelerators=held))
    (in_pod / "cluster.json").write_text(contract.dump(view))

    assert main(["matrix"]) == 0

    assert "  /job:worker/task:0-2  by /job:worker/device:GPU:0  (GPU:0 alone)" in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("in_pod")
def test_matrix_tells_programs(capsys):
    """``matrix --json`` tells the same as one JSON object."""
    assert main(["matrix", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in ("cluster", "epoch", "complete")} == {
        "cluster": {"name": "c", "namespace": "n", "uid": "u"},
        "epoch": 4,
        "complete": True,
    }
    assert told["rows"][2] == {
        "job": "worker",
        "tasks": [0, 2],
        "filters": ["/job:ps/task:0", "/job:chief"],
        "sees": [
            {"job": "chief", "tasks": [0, 1], "by": ["/job:chief"]},
            {"job": "ps", "tasks": [0, 1], "by": ["/job:ps/task:0"]},
        ],
        "hidden": [{"job": "ps", "tasks": [1, 2]}, {"job": "worker", "tasks": [0, 3]}],
    }
    assert told["rows"][0]["filters"] == []


def test_filter_that_tensorflow_refuses_is_an_error(in_pod, capsys):
    """A view with a filter that TensorFlow cannot read is malformed, and the filter is named."""
    (in_pod / "cluster.json").write_text(contract.dump(filtered("ps")))

    assert main(["matrix"]) == 65
    assert "'ps'" in capsys.readouterr().err


# --- isolation


def isolated(mode: str, view: contract.View = VIEW) -> contract.View:
    """Give the view of a cluster whose ports are closed to strangers."""
    return replace(view, isolation=mode)


def test_policies_block_only_tasks_of_which_neither_sees_the_other():
    """Rows split where the network treats tasks differently: worker 2 sees worker 1, and not worker 0."""
    found = rows(isolated("DeviceFilters"))

    assert {(one.job, one.start): one.hidden for one in found} == {
        ("chief", 0): (),
        ("ps", 0): (Sight("ps", 1, 2, blocked=True),),
        ("ps", 1): (Sight("ps", 0, 1, blocked=True),),
        ("worker", 0): (Sight("ps", 1, 2), Sight("worker", 1, 3, blocked=True)),
        ("worker", 1): (Sight("ps", 1, 2), Sight("worker", 0, 1, blocked=True), Sight("worker", 2, 3)),
        ("worker", 2): (Sight("chief", 0, 1), Sight("worker", 0, 1, blocked=True)),
    }


@pytest.mark.parametrize("mode", ["", "Cluster"])
def test_within_the_cluster_no_other_isolation_blocks(mode):
    """Under mode Cluster all tasks reach each other, whatever their filters hide."""
    assert rows(isolated(mode)) == rows()


def test_matrix_tells_what_is_hidden_by_a_filter_and_what_is_blocked_by_a_policy():
    """As text and as JSON; without isolation nothing is said of the network."""
    told = matrix.as_text(Membership(view=isolated("DeviceFilters"), own=CHIEF)).splitlines()
    plain = matrix.as_text(Membership(view=VIEW, own=CHIEF))
    last = json.loads(matrix.as_json(Membership(view=isolated("DeviceFilters"), own=CHIEF)))["rows"][-1]

    assert told[0] == "n/c, epoch 4, isolation DeviceFilters: each task sees itself, and"
    assert told[-2:] == [
        "  not /job:chief/task:0  (hidden by filter)",
        "  not /job:worker/task:0  (hidden by filter, blocked by policy)",
    ]
    assert last["hidden"] == [
        {"job": "chief", "tasks": [0, 1]},
        {"job": "worker", "tasks": [0, 1], "blocked": True},
    ]
    assert "policy" not in plain
    assert "isolation" not in plain
