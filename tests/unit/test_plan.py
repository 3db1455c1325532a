"""The planner, decision by decision: existing objects, the declaration, and the exact plan."""

from __future__ import annotations

from operator import methodcaller as does
from typing import Any

import pytest
from unit.in_memory import (
    CLUSTER_UID,
    LEAVING,
    NOW,
    OTHERS,
    PREDECESSORS,
    RECREATE,
    TEMPLATE,
    InMemoryWorld,
    groups_of,
    make_cluster,
    owned_by,
    running,
    settled,
)

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Failing
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan import story, tasks
from tfcluster_operator.plan.actions import Action, Delete, Finding, Patch, Plan

OTHER_IMAGE = {"spec": {**TEMPLATE["spec"], "containers": [{"name": "task", "image": "image:2"}]}}
GPU_TEMPLATE = {
    "spec": {"containers": [{"name": "task", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
}
CHIEF, WORKER = "demo-chief-0", "demo-worker-1"
SERVICE, VIEW, POD = ("Service", "demo"), ("ConfigMap", "demo-worker"), ("Pod", WORKER)


def brief(action: Action) -> str:
    return f"{type(action).__name__} {action.kind} {action.name} {action.reason}"


def groups(cluster: TFCluster, world: InMemoryWorld) -> list[list[str]]:
    """Plan, and abbreviate every action of each group."""
    return [[brief(action) for action in group] for group in groups_of(world.plan(cluster))]


def only_action(cluster: TFCluster, world: InMemoryWorld) -> Any:
    (action,) = world.plan(cluster).actions
    return action


def lost(name: str) -> Any:
    return does("delete", "Pod", name, force=True)


def views_changed(*jobs: str) -> list[str]:
    return [f"Patch ConfigMap demo-{job} ViewChanged" for job in jobs]


def pods_touched(*pods: str) -> list[str]:
    return [f"Patch Pod demo-{pod} ViewChanged" for pod in pods]


def pods_deleted(reason: str, job: str, *indices: int) -> list[str]:
    return [f"Delete Pod demo-{job}-{index} {reason}" for index in indices]


def test_plan_knows_what_tasks_wait_for():
    cluster, world = running({"worker": {"replicas": 2, "disruptionBudget": {"minAvailable": 1}}})
    new, old = InMemoryWorld().plan(cluster), world.plan(cluster)

    def holds_up(planned: Plan, gate: str) -> bool:
        return planned.holds_up_tasks(Finding(reasons.REJECTED, "no", gate))

    assert holds_up(new, story.views_gate("worker"))
    assert holds_up(new, "")
    assert not holds_up(new, story.object_gate("PodDisruptionBudget", "demo-worker"))
    assert holds_up(old, story.SERVICE)
    assert not holds_up(old, story.views_gate("worker"))


def test_a_new_cluster_gets_foundations_first_and_then_pods():
    assert groups(make_cluster(), InMemoryWorld()) == [
        ["Create Service demo Created", "Create ConfigMap demo-chief Created", "Create ConfigMap demo-worker Created"],
        ["Create Pod demo-chief-0 Created", "Create Pod demo-worker-0 Created", "Create Pod demo-worker-1 Created"],
    ]


FILTERED = {"deviceFilters": ["/job:ps"]}
IMMUTABLE = does("edit", *VIEW, {"immutable": True})


@pytest.mark.parametrize(
    ("before", "after", "planned"),
    [
        # The views are written, then the remaining pods are touched, then the surplus is deleted, highest index first.
        (
            {"chief": 1, "worker": 4},
            {"chief": 1, "worker": 1},
            [
                views_changed("chief", "worker"),
                pods_touched("chief-0", "worker-0"),
                pods_deleted("ScaledDown", "worker", 3, 2, 1),
            ],
        ),
        (
            {"worker": 12},
            {"worker": 8},
            [
                views_changed("worker"),
                pods_touched(*(f"worker-{index}" for index in range(8))),
                pods_deleted("ScaledDown", "worker", 11, 10, 9, 8),
            ],
        ),
        # Workers that see only the ps do not see another worker.
        (
            {"ps": 1, "worker": {"replicas": 2, **FILTERED}},
            {"ps": 1, "worker": {"replicas": 3, **FILTERED}},
            [views_changed("ps"), pods_touched("ps-0"), ["Create Pod demo-worker-2 Created"]],
        ),
        (
            {"chief": 1, "ps": 2},
            {"chief": 1},
            [
                views_changed("chief"),
                pods_touched("chief-0"),
                [*pods_deleted("JobRemoved", "ps", 1, 0), "Delete ConfigMap demo-ps JobRemoved"],
            ],
        ),
    ],
    ids=["scaled down", "by number and not as text", "scaled up", "a job is removed"],
)
def test_edit_of_the_jobs_changes_views_first_and_pods_last(before, after, planned):
    assert groups(make_cluster(after, generation=2), settled(make_cluster(before))) == planned


@pytest.mark.parametrize(
    "happens",
    [
        does("plan", make_cluster()),
        does("edit", *POD, {"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}}}),
        does("pod_ends", WORKER, "Succeeded"),
        IMMUTABLE,
    ],
    ids=["nothing", "labels of others", "a pod succeeds", "a right view is immutable"],
)
def test_settled_cluster_gives_an_empty_plan(happens):
    cluster, world = running()
    happens(world)
    planned = world.plan(cluster)
    assert (planned.groups, planned.findings, planned.wake_after) == ((), (), None)


@pytest.mark.parametrize(("key", "created"), [(SERVICE, []), (("ConfigMap", "demo-chief"), [WORKER]), (VIEW, [CHIEF])])
def test_a_taken_foundation_holds_up_the_pods_that_need_it_and_no_other(key, created):
    cluster, world = running()
    world.edit(*key, OTHERS["nobody's"])
    lost(CHIEF)(world)
    lost(WORKER)(world)
    assert [action.name for action in world.plan(cluster).actions] == created


def test_taken_pod_name_does_not_block_other_pods():
    cluster, world = running()
    world.edit("Pod", "demo-worker-0", OTHERS["nobody's"])
    lost(WORKER)(world)
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodDisrupted"]]


@pytest.mark.parametrize(
    ("phase", "told"), [("Running", True), ("Pending", True), ("Succeeded", False), ("Unknown", False)]
)
@pytest.mark.parametrize("digest", [None, "0123456789abcdef"], ids=["removed", "stale"])
def test_a_pod_with_a_stale_view_digest_is_touched_while_it_listens(phase, told, digest):
    """So that the kubelet updates the file; in a pod that has ended or is unreachable, no program reads it."""
    cluster, world = running()
    right = world.read(*POD).told
    world.edit(*POD, {"metadata": {"annotations": {naming.ANNOTATION_VIEW: digest}}, "status": {"phase": phase}})
    wanted = [({"metadata": {"annotations": {naming.ANNOTATION_VIEW: right}}}, reasons.VIEW_CHANGED)]
    assert [(one.change, one.reason) for one in world.plan(cluster).actions] == (wanted if told else [])


def test_an_absent_pod_is_created_with_the_digest_of_its_view():
    cluster, world = running()
    told = world.read(*POD).told
    lost(WORKER)(world)
    action = only_action(cluster, world)
    made = action.build()["metadata"]["annotations"]
    digest, attempt = made[naming.ANNOTATION_VIEW], int(made[naming.ANNOTATION_ATTEMPT])
    found = (action.name, digest, attempt, action.reason, action.replaces)
    assert found == (WORKER, told, 0, reasons.POD_DISRUPTED, "")


def test_a_job_of_no_tasks_still_has_its_views():
    world = settled(make_cluster({"worker": 0}))
    assert (world.names("ConfigMap"), world.names("Pod")) == ({"demo-worker"}, set())


# --- objects of other owners
@pytest.mark.parametrize("terminates", [False, True])
@pytest.mark.parametrize("change", [*OTHERS.values(), PREDECESSORS], ids=[*OTHERS, "a predecessor's"])
@pytest.mark.parametrize("key", [SERVICE, VIEW, POD])
def test_a_taken_name_is_left_alone(key, change, terminates):
    cluster, world = running()
    world.edit(*key, change)
    if terminates and key == POD:
        world.delete(*key)
    planned = world.plan(cluster)
    assert planned.actions == ()
    taken = change is not PREDECESSORS
    (finding,) = planned.findings
    assert finding.reason == (reasons.NAME_TAKEN if taken else reasons.WAITING_FOR_PREDECESSOR)
    words = f"{key[0]} {key[1]} exists and is not controlled by this TFCluster"
    assert not taken or finding.message.startswith(words)


# --- our own pods
@pytest.mark.parametrize(("change", "wakes"), [({}, 10.0), (OTHERS["nobody's"], None)], ids=["ours", "nobody's"])
def test_a_terminating_pod_holds_its_name_until_it_has_ended(change, wakes):
    cluster, world = running()
    world.edit(*POD, change)
    world.delete(*POD)
    planned = world.plan(cluster)
    assert (planned.actions, planned.wake_after, bool(planned.findings)) == ((), wakes, wakes is None)
    world.end_graceful_deletions()
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodDisrupted"]]


@pytest.mark.parametrize(
    ("jobs", "spec", "replaced"),
    [
        ({"chief": 1, "worker": {"replicas": 2, "template": OTHER_IMAGE}}, {}, {"demo-worker-0", WORKER}),
        ({"chief": 1, "worker": {"replicas": 2, "port": 3333}}, {}, {"demo-worker-0", WORKER}),
        (None, {"clusterDomain": "cluster.local"}, {CHIEF, "demo-worker-0", WORKER}),
        ({"chief": 1, "worker": {"replicas": 2, "deviceFilters": ["/job:worker"]}}, {}, set()),
        ({"chief": 1, "worker": {"replicas": 2, "maxReplicas": 9}}, {}, set()),
        ({"chief": 1, "worker": {"replicas": 3}}, {}, set()),
    ],
    ids=["another template", "another port", "another domain", "filters", "maxReplicas", "replicas"],
)
def test_edit_replaces_the_affected_pods(jobs, spec, replaced):
    world = settled(make_cluster())
    planned = world.plan(make_cluster(jobs, generation=2, **RECREATE, **spec))
    deleted = {one for one in planned.actions if isinstance(one, Delete)}
    assert deleted == {Delete("Pod", n, world.read("Pod", n).meta.uid, reasons.TEMPLATE_CHANGED) for n in replaced}


@pytest.mark.parametrize("label", [*naming.task_labels("demo", "worker", 1)])
@pytest.mark.parametrize("value", [None, "other"], ids=["removed", "altered"])
def test_each_label_of_a_pod_is_repaired(label, value):
    cluster, world = running()
    world.edit(*POD, {"metadata": {"labels": {label: value}}})
    wanted = {"metadata": {"labels": {label: naming.task_labels("demo", "worker", 1)[label]}}}
    uid = world.read(*POD).meta.uid
    assert Patch("Pod", WORKER, uid, wanted, reasons.REPAIRED) == only_action(cluster, world)


def test_deleting_a_failed_pod_does_not_shorten_its_back_off():
    cluster, world = running()
    world.pod_ends(WORKER, "Failed")
    world.plan(cluster)
    lost(WORKER)(world)
    waiting = world.plan(cluster)
    world.now += waiting.wake_after
    assert (waiting.actions, [finding.reason for finding in waiting.findings]) == ((), [reasons.BACKING_OFF])
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodFailed"]]
    assert (world.ledger.restarts, world.ledger.of("worker").replaced) == (1, 0)


# --- views that change
@pytest.mark.parametrize(
    "change", [{"immutable": True}, LEAVING, OTHERS["nobody's"]], ids=["immutable", "leaving", "taken"]
)
def test_unwritable_view_does_not_block_scale_down(change):
    world = settled(make_cluster({"worker": 3}))
    world.edit(*VIEW, change)
    planned = world.plan(make_cluster({"worker": 1}, generation=2))
    deleted = [brief(one) for one in planned.actions if one.kind == "Pod"]
    assert deleted == pods_deleted("ScaledDown", "worker", 2, 1)


def test_suspend_deletes_the_pods_and_keeps_the_rest():
    world = settled(make_cluster())
    published, deleted = groups(make_cluster(suspend=True, generation=2), world)
    assert published == ["Patch ConfigMap demo-chief ViewRefreshed"]
    assert sorted(deleted) == pods_deleted("Suspended", "chief", 0) + pods_deleted("Suspended", "worker", 0, 1)
    assert deleted[0] == "Delete Pod demo-worker-1 Suspended"
    world.edit(*POD, OTHERS["another controller's"])
    _, without = groups(make_cluster(suspend=True, generation=2), world)
    assert without == deleted[1:]


def test_a_suspended_cluster_comes_back():
    world = settled(make_cluster())
    world.settle(make_cluster(suspend=True, generation=2))
    planned = world.plan(make_cluster(generation=3))
    assert [type(one).__name__ for one in planned.actions] == ["Create"] * 3


# --- foundations
def test_a_service_of_the_wrong_kind_is_created_again_before_any_pod():
    """The cluster IP is immutable."""
    cluster, world = running()
    world.edit(*SERVICE, {"spec": {"clusterIP": "10.0.0.1"}})
    lost(CHIEF)(world)
    assert groups(cluster, world) == [["Delete Service demo Recreated"]]
    world.apply_all(world.plan(cluster).actions, cluster)
    assert groups(cluster, world) == [["Create Service demo Created"], ["Create Pod demo-chief-0 PodDisrupted"]]


def test_an_immutable_config_map_that_must_change_is_created_again():
    world, after = settled(make_cluster({"worker": 2})), make_cluster({"worker": 3}, generation=2)
    IMMUTABLE(world)
    assert groups(after, world) == [["Delete ConfigMap demo-worker Recreated"]]
    world.apply_all(world.plan(after).actions, after)
    assert groups(after, world)[0][0] == "Create ConfigMap demo-worker Created"


@pytest.mark.parametrize("key", [SERVICE, ("ConfigMap", "demo-chief")])
def test_foundations_that_terminate_are_waited_for(key):
    cluster, world = running()
    world.edit(*key, LEAVING)
    lost(CHIEF)(world)
    planned = world.plan(cluster)
    message = f"{key[0]} {key[1]} is being deleted and will be re-created"
    assert (planned.actions, planned.findings) == ((), (Finding(reasons.TASKS_NOT_READY, message),))


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Pod"])
def test_a_surplus_object_under_our_control_goes_once(kind):
    cluster, world = running()
    owned = owned_by(CLUSTER_UID, "demo")["metadata"]
    world.create(kind, {"metadata": {"name": "stray", "labels": naming.cluster_labels("demo"), **owned}})
    action = only_action(cluster, world)
    world.edit(kind, "stray", LEAVING)
    assert Delete(kind, "stray", world.read(kind, "stray").meta.uid, action.reason) == action
    assert world.plan(cluster).actions == ()


# --- devices
def test_a_lost_device_rewrites_the_views_that_show_the_task():
    worker = {"replicas": 1, "template": GPU_TEMPLATE, "deviceFilters": ["/job:chief"]}
    cluster, world = running({"chief": 1, "worker": worker})
    world.pod_holds("demo-worker-0", "nvidia.com/gpu", "Healthy", "Unhealthy")
    names = [one.name for one in world.plan(cluster).actions]
    assert names == ["demo-chief", "demo-worker", "demo-chief-0", "demo-worker-0"]


def test_creations_beyond_one_reconcile_do_not_change_the_plan(monkeypatch):
    cluster, world = make_cluster({"ps": 2, "worker": 6}), InMemoryWorld()
    world.plan(cluster)
    failing = {5: Failing(1, NOW + 60)}
    world.ledger = world.ledger.with_job("worker", failing=failing, started=frozenset({5}))
    monkeypatch.setattr(story, "MOST_STEPS", 7)
    everything = world.plan(cluster)
    monkeypatch.setattr(tasks, "MOST_STEPS", 3)
    cut = world.plan(cluster)
    assert cut.partial == everything.partial
    assert cut.findings == everything.findings != ()
    assert [brief(action) for action in cut.actions] == [brief(action) for action in everything.actions]
    monkeypatch.setattr(story, "MOST_STEPS", 1_000)
    pods = [f"Create Pod demo-worker-{index} Created" for index in range(3)]
    created = [brief(action) for action in world.plan(cluster).actions if "worker" in brief(action)]
    assert created == ["Create ConfigMap demo-worker Created", *pods]
