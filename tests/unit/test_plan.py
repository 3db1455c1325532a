"""The planner, decision by decision: what exists, what is declared, and the exact plan."""

from __future__ import annotations

from typing import Any

import pytest
from unit.in_memory import CLUSTER_UID, NOW, TEMPLATE, InMemoryWorld, groups_of, make_cluster, settled

from tfcluster_operator.model import naming, reasons, story, tasks
from tfcluster_operator.model.actions import Action, CreateConfigMap, Delete, Finding, Patch, Plan
from tfcluster_operator.model.ledger import Failing
from tfcluster_operator.model.spec import TFCluster

OTHER_IMAGE = {"spec": {**TEMPLATE["spec"], "containers": [{"name": "task", "image": "image:2"}]}}
GPU_TEMPLATE = {
    "spec": {"containers": [{"name": "task", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
}


def brief(action: Action) -> str:
    """Shorten an action to "verb Kind name reason"."""
    verb = "Create" if type(action).__name__.startswith("Create") else type(action).__name__
    kind = getattr(action, "kind", type(action).__name__.removeprefix("Create"))
    name = action.views.name if isinstance(action, CreateConfigMap) else action.name
    return f"{verb} {kind} {name} {action.reason}"


def groups(cluster: TFCluster, world: InMemoryWorld) -> list[list[str]]:
    """Plan, and shorten every action of each group."""
    return [[brief(action) for action in group] for group in groups_of(world.plan(cluster))]


def only_action(cluster: TFCluster, world: InMemoryWorld) -> Any:
    """Plan, and give the one action of the plan."""
    (action,) = world.plan(cluster).actions
    return action


def owned_by(uid: str, name: str, kind: str = naming.KIND) -> dict[str, Any]:
    """Make metadata that hands an object to another controller."""
    return {"metadata": {"ownerReferences": [{"uid": uid, "name": name, "kind": kind, "controller": True}]}}


# --- from nothing


def test_plan_knows_what_tasks_wait_for():
    """The views of a pod that is to come hold it up; a budget does not, nor the views of pods that run."""
    cluster = make_cluster({"worker": {"replicas": 2, "disruptionBudget": {"minAvailable": 1}}})
    new, running = InMemoryWorld().plan(cluster), settled(cluster).plan(cluster)

    def holds_up(planned: Plan, gate: str) -> bool:
        return planned.holds_up_tasks(Finding(reasons.REJECTED, "no", gate))

    assert holds_up(new, story.views_gate("worker"))
    assert holds_up(new, "")
    assert not holds_up(new, story.object_gate("PodDisruptionBudget", "demo-worker"))
    assert holds_up(running, story.SERVICE)
    assert not holds_up(running, story.views_gate("worker"))


def test_a_new_cluster_gets_foundations_first_and_then_pods():
    """The first group creates the Service and the ConfigMaps, the second the pods, in the order of jobs and indices."""
    assert groups(make_cluster(), InMemoryWorld()) == [
        [
            "Create Service demo Created",
            "Create ConfigMap demo-chief Created",
            "Create ConfigMap demo-worker Created",
        ],
        ["Create Pod demo-chief-0 Created", "Create Pod demo-worker-0 Created", "Create Pod demo-worker-1 Created"],
    ]


def test_a_settled_cluster_needs_nothing():
    """Where all is as declared the plan has no group, no finding and no time to wake."""
    cluster = make_cluster()

    planned = settled(cluster).plan(cluster)

    assert (planned.groups, planned.findings, planned.wake_after) == ((), (), None)


def test_an_absent_pod_is_created_with_the_digest_of_its_view():
    """A pod that somebody deleted is made again, told of the published view, with no failures counted."""
    cluster = make_cluster()
    world = settled(cluster)
    told = world.read("Pod", "demo-worker-1").told
    world.objects.pop(("Pod", "demo-worker-1"))

    action = only_action(cluster, world)

    assert ("demo-worker-1", told, 0, reasons.POD_DISRUPTED, "") == (
        action.name,
        action.view_digest,
        action.attempt,
        action.reason,
        action.replaces,
    )


def test_a_job_of_no_tasks_still_has_its_views():
    """A job with 0 replicas has a ConfigMap, so that an autoscaler can start its first task."""
    cluster = make_cluster({"worker": 0})
    world = settled(cluster)

    assert {"demo-worker"} == world.names("ConfigMap")
    assert set() == world.names("Pod")


# --- what is not ours

FOREIGN = {
    "nobody's": {"metadata": {"ownerReferences": None}},
    "another controller's": owned_by("uid-rs", "demo", "ReplicaSet"),
    "another TFCluster's": owned_by("uid-other", "other"),
}


@pytest.mark.parametrize("change", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("key", [("Service", "demo"), ("ConfigMap", "demo-worker"), ("Pod", "demo-worker-1")])
def test_a_taken_name_is_told_and_left_alone(key, change):
    """An object of our name that we do not control gives NameTaken with its kind and name, and no action."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit(*key, change)

    planned = world.plan(cluster)

    assert planned.actions == ()
    assert [finding.reason for finding in planned.findings] == [reasons.NAME_TAKEN]
    assert planned.findings[0].message.startswith(f"{key[0]} {key[1]} exists and is not controlled by this TFCluster")


@pytest.mark.parametrize("key", [("Service", "demo"), ("ConfigMap", "demo-worker"), ("Pod", "demo-worker-1")])
def test_an_object_of_a_deleted_cluster_of_our_name_is_waited_for(key):
    """What an earlier TFCluster of the same name left behind is the garbage collector's, not a conflict."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit(*key, owned_by("uid-before", "demo"))

    planned = world.plan(cluster)

    assert planned.actions == ()
    assert [finding.reason for finding in planned.findings] == [reasons.WAITING_FOR_PREDECESSOR]


def test_a_foreign_pod_that_terminates_still_holds_its_name():
    """A pod of somebody else is in the way until it is gone, and the message says what can be done."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-1", FOREIGN["nobody's"])
    world.delete("Pod", "demo-worker-1")

    planned = world.plan(cluster)
    world.end_graceful_deletions()

    assert planned.actions == ()
    assert [finding.reason for finding in planned.findings] == [reasons.NAME_TAKEN]
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodDisrupted"]]


def test_a_terminating_pod_of_a_predecessor_is_waited_for():
    """A pod of a deleted TFCluster of the same name is no conflict: its name will be free."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-1", owned_by("uid-before", "demo"))
    world.delete("Pod", "demo-worker-1")

    planned = world.plan(cluster)

    assert planned.actions == ()
    assert [finding.reason for finding in planned.findings] == [reasons.WAITING_FOR_PREDECESSOR]


@pytest.mark.parametrize(
    ("key", "created"),
    [
        (("Service", "demo"), []),
        (("ConfigMap", "demo-chief"), ["demo-worker-1"]),
        (("ConfigMap", "demo-worker"), ["demo-chief-0"]),
    ],
)
def test_a_taken_foundation_holds_up_the_pods_that_need_it_and_no_other(key, created):
    """Without the Service no pod would have a name, without its view no pod of that job would know the others."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit(*key, FOREIGN["nobody's"])
    world.objects.pop(("Pod", "demo-chief-0"))
    world.objects.pop(("Pod", "demo-worker-1"))

    assert [action.name for action in world.plan(cluster).actions] == created


def test_a_taken_pod_name_stops_no_other_pod():
    """One task whose name is taken does not keep the others from being made."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-0", FOREIGN["nobody's"])
    world.objects.pop(("Pod", "demo-worker-1"))

    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodDisrupted"]]


# --- our own pods


def test_a_terminating_pod_is_left_to_end():
    """While our own pod terminates nothing is done but to look again when it would be stuck."""
    cluster = make_cluster()
    world = settled(cluster)
    world.delete("Pod", "demo-worker-1")

    planned = world.plan(cluster)
    world.end_graceful_deletions()

    assert (planned.actions, planned.findings, planned.wake_after) == ((), (), 10.0)
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodDisrupted"]]


@pytest.mark.parametrize(
    "edit",
    [
        {"chief": 1, "worker": {"replicas": 2, "template": OTHER_IMAGE}},
        {"chief": 1, "worker": {"replicas": 2, "port": 3333}},
    ],
    ids=["another template", "another port"],
)
def test_an_edit_that_a_pod_is_made_from_replaces_the_pods_of_that_job(edit):
    """A changed template or port deletes the job's pods by UID, and no other job's."""
    world = settled(make_cluster())

    deleted = [one for one in world.plan(make_cluster(edit, generation=2)).actions if isinstance(one, Delete)]

    assert [
        Delete("Pod", name, world.read("Pod", name).meta.uid, reasons.TEMPLATE_CHANGED)
        for name in ("demo-worker-0", "demo-worker-1")
    ] == deleted


def test_another_cluster_domain_replaces_every_pod():
    """Every task's address changes with the cluster domain, so every pod is replaced."""
    world = settled(make_cluster())

    planned = world.plan(make_cluster(clusterDomain="cluster.local", generation=2))

    assert world.names("Pod") == {one.name for one in planned.actions if isinstance(one, Delete)}


@pytest.mark.parametrize(
    "edit",
    [
        {"worker": {"replicas": 2, "deviceFilters": ["/job:worker"]}},
        {"worker": {"replicas": 2, "maxReplicas": 9}},
        {"worker": {"replicas": 3}},
    ],
    ids=["filters", "maxReplicas", "replicas"],
)
def test_an_edit_of_the_membership_costs_no_pod(edit):
    """Filters and sizes change the views alone: no running pod is deleted."""
    world = settled(make_cluster({"worker": 2}))

    planned = world.plan(make_cluster(edit, generation=2))

    assert [one for one in planned.actions if isinstance(one, Delete)] == []


@pytest.mark.parametrize("label", [*naming.task_labels("demo", "worker", 1)])
@pytest.mark.parametrize("value", [None, "other"], ids=["removed", "altered"])
def test_each_label_of_a_pod_is_put_right(label, value):
    """A label of ours that was removed or altered is patched back, alone."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-1", {"metadata": {"labels": {label: value}}})

    action = only_action(cluster, world)

    wanted = {"metadata": {"labels": {label: naming.task_labels("demo", "worker", 1)[label]}}}
    uid = world.read("Pod", "demo-worker-1").meta.uid
    assert Patch("Pod", "demo-worker-1", uid, wanted, reasons.REPAIRED) == action


def test_the_labels_of_others_stay():
    """A label that is none of ours is nobody's business but its author's."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-1", {"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}}})

    assert world.plan(cluster).actions == ()


@pytest.mark.parametrize("told", [None, "0123456789abcdef"], ids=["removed", "stale"])
def test_a_pod_with_a_stale_view_digest_is_told(told):
    """A pod whose annotation is not the published view's digest is touched, so that the kubelet delivers."""
    cluster = make_cluster()
    world = settled(cluster)
    right = world.read("Pod", "demo-worker-1").told
    world.edit("Pod", "demo-worker-1", {"metadata": {"annotations": {naming.ANNOTATION_VIEW: told}}})

    action = only_action(cluster, world)

    assert {"metadata": {"annotations": {naming.ANNOTATION_VIEW: right}}} == action.change
    assert action.reason == reasons.VIEW_CHANGED


@pytest.mark.parametrize("phase", ["Succeeded", "Unknown"])
def test_a_pod_that_no_longer_listens_is_not_told(phase):
    """No program reads the view in a pod that has ended or cannot be reached."""
    cluster = make_cluster()
    world = settled(cluster)
    stale = {"metadata": {"annotations": {naming.ANNOTATION_VIEW: "stale"}}, "status": {"phase": phase}}
    world.edit("Pod", "demo-worker-1", stale)

    assert world.plan(cluster).actions == ()


def test_a_succeeded_pod_stays():
    """A task that has finished its work is not started again."""
    cluster = make_cluster()
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Succeeded")

    assert world.plan(cluster).actions == ()


# --- failed pods


@pytest.mark.parametrize(
    ("attempt", "delay"),
    [(0, 1), (1, 2), (2, 4), (5, 32), (8, 256), (9, 300), (40, 300), (10**9, 300)],
)
def test_the_delay_before_a_failed_pod_is_replaced_doubles_up_to_five_minutes(attempt, delay):
    """Each failure in a row doubles the delay, from one second to 300, and jitter adds up to a quarter of it."""
    cluster = make_cluster()
    world = settled(cluster)
    world.ledger = world.ledger.with_job("worker", failing={1: Failing(attempt, NOW - 9)})
    world.pod_ends("demo-worker-1", "Failed")

    planned = world.plan(cluster)
    wait = planned.wake_after
    world.now += wait - 0.25
    almost = world.plan(cluster)
    world.now += 0.25

    assert planned.actions == ()
    assert delay <= wait <= 1.25 * delay
    assert (almost.wake_after, almost.actions) == (pytest.approx(0.25), ())
    (finding,) = planned.findings
    assert finding.reason == reasons.BACKING_OFF
    assert finding.message.startswith(f"worker-1 failed: exit code 1; next try in {wait:.0f} s, at 08:0")
    assert [brief(one) for one in world.plan(cluster).actions] == [
        "Patch Pod demo-worker-1 FailedPodKept",
        "Create Pod demo-worker-1-r1 PodFailed",
    ]


@pytest.mark.parametrize(
    ("since", "before", "after"),
    [(1.0, 0, 1), (1.0, 4, 5), (599.0, 4, 5), (600.0, 4, 1), (7200.0, 4, 1)],
)
def test_failures_in_a_row_are_counted_until_ten_minutes_after_the_last_try(since, before, after):
    """One more failure is known of the task; one that comes 600 seconds after the last try is the first again."""
    cluster = make_cluster(failedPodsHistoryLimit=0)
    world = settled(cluster)
    world.ledger = world.ledger.with_job("worker", failing={1: Failing(before, NOW - since)})
    world.pod_ends("demo-worker-1", "Failed")
    uid = world.read("Pod", "demo-worker-1").meta.uid
    world.now += world.plan(cluster).wake_after

    action = only_action(cluster, world)

    assert (action.reason, action.replaces) == (reasons.POD_FAILED, uid)
    assert world.ledger.of("worker").failing[1].in_row == after


def test_a_failure_is_forgotten_when_its_task_has_worked_for_ten_minutes():
    """The plan wakes for that moment, and the next failure costs the shortest pause."""
    cluster = make_cluster()
    world = settled(cluster)
    world.ledger = world.ledger.with_job("worker", failing={1: Failing(4, NOW - 590)})
    waits = world.plan(cluster).wake_after
    known = dict(world.ledger.of("worker").failing)
    world.now += waits

    assert (waits, set(known)) == (10.0, {1})
    assert world.plan(cluster).wake_after is None
    assert world.ledger.of("worker").failing == {}


def test_a_failed_pod_that_somebody_deletes_is_not_tried_again_sooner():
    """The pause is the task's, not the pod's: it is known though the pod is gone."""
    cluster = make_cluster()
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Failed")
    world.plan(cluster)
    world.objects.pop(("Pod", "demo-worker-1"))

    waiting = world.plan(cluster)
    world.now += waiting.wake_after

    assert (waiting.actions, [finding.reason for finding in waiting.findings]) == ((), [reasons.BACKING_OFF])
    assert groups(cluster, world) == [["Create Pod demo-worker-1 PodFailed"]]
    assert (world.ledger.restarts, world.ledger.of("worker").replaced) == (1, 0)


@pytest.mark.parametrize(
    "status",
    [
        {"reason": "Evicted"},
        {"reason": "NodeShutdown"},
        {"conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ],
    ids=["evicted", "node shut down", "disruption target"],
)
def test_a_disrupted_pod_is_replaced_at_once_and_is_no_failure(status):
    """A pod that was taken away did not fail by itself: no delay the first time, and no failure is counted."""
    cluster = make_cluster()
    world = settled(cluster)
    world.pod_ends("demo-worker-1", "Failed", **status)

    action = only_action(cluster, world)
    world.apply(action, cluster)

    assert (action.reason, action.attempt) == (reasons.POD_DISRUPTED, 1)
    assert (world.ledger.restarts, world.ledger.of("worker").replaced) == (0, 1)


def test_a_pod_that_is_turned_away_again_and_again_waits_longer_each_time():
    """A node that has no room would otherwise be asked in a loop."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Pod", "demo-worker-1", {"metadata": {"annotations": {naming.ANNOTATION_ATTEMPT: "3"}}})
    world.pod_ends("demo-worker-1", "Failed", reason="OutOfcpu", containerStatuses=None)

    planned = world.plan(cluster)

    assert planned.actions == ()
    assert 4.0 <= planned.wake_after <= 5.0
    assert "was not let run" in planned.findings[0].message


def test_a_failed_pod_of_an_old_template_is_replaced_without_delay():
    """The edit that should cure a crash is not made to wait for the crash's delay."""
    world = settled(make_cluster())
    world.pod_ends("demo-worker-1", "Failed")

    planned = world.plan(make_cluster({"chief": 1, "worker": {"replicas": 2, "template": OTHER_IMAGE}}, generation=2))

    assert "Delete Pod demo-worker-1 TemplateChanged" in map(brief, planned.actions)
    assert None is planned.wake_after


def test_the_first_of_several_delays_wakes():
    """With several failed pods the plan wakes for the one whose delay ends first."""
    cluster = make_cluster()
    world = settled(cluster)
    world.ledger = world.ledger.with_job("worker", failing={1: Failing(4, NOW - 9)})
    world.pod_ends("demo-worker-1", "Failed")
    world.pod_ends("demo-worker-0", "Failed")

    assert 1.0 <= world.plan(cluster).wake_after <= 1.25


# --- views that change


def test_a_changed_view_is_written_before_the_pods_are_told_and_these_before_pods_go():
    """On scale-down: rewrite, touch the survivors, then delete the surplus, highest index first."""
    world = settled(make_cluster({"chief": 1, "worker": 4}))

    assert groups(make_cluster({"chief": 1, "worker": 1}, generation=2), world) == [
        ["Patch ConfigMap demo-chief ViewChanged", "Patch ConfigMap demo-worker ViewChanged"],
        ["Patch Pod demo-chief-0 ViewChanged", "Patch Pod demo-worker-0 ViewChanged"],
        [
            "Delete Pod demo-worker-3 ScaledDown",
            "Delete Pod demo-worker-2 ScaledDown",
            "Delete Pod demo-worker-1 ScaledDown",
        ],
    ]


def test_surplus_pods_go_in_numerical_order():
    """Index 10 goes before index 9, though it sorts before it as text."""
    world = settled(make_cluster({"worker": 12}))

    *_, deleted = groups(make_cluster({"worker": 8}, generation=2), world)

    assert [f"Delete Pod demo-worker-{i} ScaledDown" for i in (11, 10, 9, 8)] == deleted


def test_more_workers_touch_only_those_who_see_them():
    """Workers that see the ps alone are not told of another worker."""
    workers = {"deviceFilters": ["/job:ps"]}
    world = settled(make_cluster({"ps": 1, "worker": {"replicas": 2, **workers}}))

    assert groups(make_cluster({"ps": 1, "worker": {"replicas": 3, **workers}}, generation=2), world) == [
        ["Patch ConfigMap demo-ps ViewChanged"],
        ["Patch Pod demo-ps-0 ViewChanged"],
        ["Create Pod demo-worker-2 Created"],
    ]


@pytest.mark.parametrize("state", ["immutable", "terminating", "taken"])
def test_a_view_that_cannot_be_written_holds_up_no_pod_that_goes(state):
    """A scale-down frees what it frees; who stays is told when the view is there."""
    world = settled(make_cluster({"worker": 3}))
    change: dict[str, Any] = {
        "immutable": {"immutable": True},
        "terminating": {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}},
        "taken": {"metadata": {"ownerReferences": None}},
    }[state]
    world.edit("ConfigMap", "demo-worker", change)

    planned = world.plan(make_cluster({"worker": 1}, generation=2))

    assert [brief(one) for one in planned.actions if one.kind == "Pod"] == [
        "Delete Pod demo-worker-2 ScaledDown",
        "Delete Pod demo-worker-1 ScaledDown",
    ]


def test_a_removed_job_takes_its_pods_and_its_views_along():
    """Whoever stays is told first; then all that belonged to the job goes."""
    world = settled(make_cluster({"chief": 1, "ps": 2}))

    assert groups(make_cluster({"chief": 1}, generation=2), world) == [
        ["Patch ConfigMap demo-chief ViewChanged"],
        ["Patch Pod demo-chief-0 ViewChanged"],
        ["Delete Pod demo-ps-1 JobRemoved", "Delete Pod demo-ps-0 JobRemoved", "Delete ConfigMap demo-ps JobRemoved"],
    ]


def test_suspend_deletes_the_pods_and_keeps_the_rest():
    """A suspended cluster has no pods; its Service and views stay, only that the chief's names no pods any more."""
    world = settled(make_cluster())

    published, deleted = groups(make_cluster(suspend=True, generation=2), world)

    assert published == ["Patch ConfigMap demo-chief ViewRefreshed"]

    assert {f"Delete Pod {name} Suspended" for name in ("demo-chief-0", "demo-worker-0", "demo-worker-1")} == set(
        deleted
    )
    assert deleted[0] == "Delete Pod demo-worker-1 Suspended"


def test_suspend_leaves_a_pod_of_others_alone():
    """A pod under our name that another controls stays when the cluster rests."""
    world = settled(make_cluster())
    world.edit("Pod", "demo-worker-1", FOREIGN["another controller's"])

    actions = world.plan(make_cluster(suspend=True, generation=2)).actions

    deleted = [one for one in actions if isinstance(one, Delete)]
    assert {one.name for one in deleted} == {"demo-chief-0", "demo-worker-0"}


def test_a_suspended_cluster_comes_back():
    """Ending the suspension makes every pod again and rewrites no view."""
    world = settled(make_cluster())
    world.settle(make_cluster(suspend=True, generation=2))

    planned = world.plan(make_cluster(generation=3))

    assert [type(one).__name__ for one in planned.actions] == ["CreatePod"] * 3


# --- foundations


def test_a_service_of_the_wrong_kind_is_created_again_before_any_pod():
    """A cluster IP cannot be edited: the Service is deleted, and no pod is created until it is back."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Service", "demo", {"spec": {"clusterIP": "10.0.0.1"}})
    world.objects.pop(("Pod", "demo-chief-0"))

    first = groups(cluster, world)
    world.apply_all(world.plan(cluster).actions, cluster)

    assert first == [["Delete Service demo Recreated"]]
    assert groups(cluster, world) == [["Create Service demo Created"], ["Create Pod demo-chief-0 PodDisrupted"]]


def test_an_immutable_config_map_that_is_right_stays():
    """Somebody froze a ConfigMap that says what it should: there is nothing to do yet."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("ConfigMap", "demo-worker", {"immutable": True})

    assert world.plan(cluster).actions == ()


def test_an_immutable_config_map_that_must_change_is_created_again():
    """A frozen ConfigMap whose view changed is deleted by UID and created again by the next plan."""
    world = settled(make_cluster({"worker": 2}))
    world.edit("ConfigMap", "demo-worker", {"immutable": True})
    after = make_cluster({"worker": 3}, generation=2)

    first = groups(after, world)
    world.apply_all(world.plan(after).actions, after)

    assert first == [["Delete ConfigMap demo-worker Recreated"]]
    assert groups(after, world)[0][0] == "Create ConfigMap demo-worker Created"


@pytest.mark.parametrize("key", [("Service", "demo"), ("ConfigMap", "demo-chief")])
def test_foundations_that_terminate_are_waited_for(key):
    """While our own Service or ConfigMap is on its way out, no pod that needs it is created, and it is told."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit(*key, {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})
    world.objects.pop(("Pod", "demo-chief-0"))

    planned = world.plan(cluster)

    message = f"{key[0]} {key[1]} is being deleted and is created again when it is gone"
    assert (planned.actions, planned.findings) == ((), (Finding(reasons.TASKS_NOT_READY, message),))


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Pod"])
def test_a_surplus_object_under_our_control_goes_once(kind):
    """What we control and do not declare is deleted; while it terminates it is not deleted again."""
    cluster = make_cluster()
    world = settled(cluster)
    labels = naming.cluster_labels("demo")
    world.create(kind, {"metadata": {"name": "stray", "labels": labels, **owned_by(CLUSTER_UID, "demo")["metadata"]}})

    action = only_action(cluster, world)
    world.edit(kind, "stray", {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}})

    assert Delete(kind, "stray", world.read(kind, "stray").meta.uid, action.reason) == action
    assert world.plan(cluster).actions == ()


# --- devices


def test_a_lost_device_rewrites_the_views_that_show_the_task():
    """When a GPU of a worker fails, whoever sees that worker is told of one healthy device less."""
    seen = {"deviceFilters": ["/job:chief"]}
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 1, "template": GPU_TEMPLATE, **seen}})
    world = settled(cluster)
    world.pod_holds("demo-worker-0", "nvidia.com/gpu", "Healthy", "Unhealthy")

    planned = world.plan(cluster)

    assert [one.name for one in planned.actions] == ["demo-chief", "demo-worker", "demo-chief-0", "demo-worker-0"]


def test_creations_beyond_what_one_pass_carries_out_change_no_plan(monkeypatch):
    """They are not worked out; a task that waits for its next try still says so, wherever it stands."""
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
    assert [brief(action) for action in world.plan(cluster).actions if "worker" in brief(action)] == [
        "Create ConfigMap demo-worker Created",
        *(f"Create Pod demo-worker-{index} Created" for index in range(3)),
    ]
