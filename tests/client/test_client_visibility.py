"""Which task sees which, the filter that decides, and what the network blocks."""

from dataclasses import replace

from resolver.resolver_world import GPU, view_of

from tfcluster import visibility
from tfcluster.visibility import Row, Sight
from tfcluster_resolver import contract
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.contract import FilterRange

VIEW = view_of(
    {"chief": ("c0:1",), "ps": ("p0:1", "p1:1"), "worker": ("w0:1", "w1:1", "w2:1")},
    epoch=4,
    device_filters={
        "ps": (FilterRange(0, 4, ("/job:worker", "/job:chief")),),
        "worker": (FilterRange(0, 2, ("/job:ps/task:0", "/job:chief")), FilterRange(2, 5, ("/task:1", "/job:ps"))),
    },
)


def rows(view: contract.View = VIEW) -> list[Row]:
    return visibility.rows(Membership(view, None))


def filtered(*filters: str, **parts: object) -> contract.View:
    return replace(VIEW, device_filters={"chief": (FilterRange(0, 1, filters),)}, **parts)


def text(view: contract.View = VIEW) -> list[str]:
    return visibility.as_text(Membership(view, None)).splitlines()


def test_filter_may_show_some_devices_of_a_task():
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


def test_a_lone_task_is_not_in_its_own_row():
    by_job = ("/job:worker",)
    middle = view_of({"worker": ("w0:1", "w1:1", "w2:1")}, device_filters={"worker": (FilterRange(1, 2, by_job),)})
    assert rows(middle)[1].sees == (Sight("worker", 0, 1, by_job), Sight("worker", 2, 3, by_job))


def test_text_names_the_filters():
    assert text() == [
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


def test_document_names_the_filters():
    shown = visibility.as_document(Membership(VIEW, None))
    assert shown["cluster"] == {"name": "c", "namespace": "n", "uid": "u"}
    assert (shown["epoch"], shown["isolation"], shown["rows"][0]["filters"]) == (4, None, ())
    by_chief = {"job": "chief", "tasks": [0, 1], "by": ("/job:chief",)}
    by_ps = {"job": "ps", "tasks": [0, 1], "by": ("/job:ps/task:0",)}
    assert shown["rows"][2] == {
        "job": "worker",
        "tasks": [0, 2],
        "filters": ("/job:ps/task:0", "/job:chief"),
        "sees": [by_chief, by_ps],
        "hidden": [{"job": "ps", "tasks": [1, 2]}, {"job": "worker", "tasks": [0, 3]}],
    }


def test_task_whose_filters_show_nothing():
    assert text(filtered("/job:none"))[1:4] == [
        "/job:chief/task:0 sees",
        "  no other task",
        "  not /job:ps/task:0-1, /job:worker/task:0-2",
    ]


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


def test_text_and_document_show_filtered_and_blocked_tasks():
    shown = text(ISOLATED)
    last = visibility.as_document(Membership(ISOLATED, None))["rows"][-1]

    assert shown[0] == "n/c, epoch 4, isolation DeviceFilters: each task sees itself, and"
    assert shown[-2:] == [
        "  not /job:chief/task:0  (hidden by filter)",
        "  not /job:worker/task:0  (hidden by filter, blocked by policy)",
    ]
    assert last["hidden"] == [{"job": "chief", "tasks": [0, 1]}, {"job": "worker", "tasks": [0, 1], "blocked": True}]
