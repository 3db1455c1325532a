"""Gangs with the PodGroups of scheduler-plugins and of Volcano: the same plans, in another form."""

from typing import Any

import msgspec
import pytest
from decisions.in_memory import InMemoryWorld, creates, make_body

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.gang_schedulers import (
    KUBERNETES,
    SCHEDULER_PLUGINS,
    VOLCANO,
    GangScheduler,
    gang_scheduler,
)
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects.kinds import KINDS, kinds_for
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.pod_group import PodGroup
from tfcluster_operator.plan.actions import Delete

NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
METADATA = {"name": "x", "namespace": "default", "uid": "u-1", "resourceVersion": "1"}
GROUP = ("PodGroup", "demo.0")
elsewhere = pytest.mark.parametrize("scheduler", [SCHEDULER_PLUGINS, VOLCANO], ids=lambda one: one.kind)
everywhere = pytest.mark.parametrize("scheduler", [KUBERNETES, SCHEDULER_PLUGINS, VOLCANO], ids=lambda one: one.kind)


def gang(scheduler: GangScheduler, jobs: Any = None, **spec: Any) -> TFCluster:
    body = make_body(jobs or {"chief": 1, "worker": 3}, **{"scheduling": {"gang": {}}, **spec})
    return parse(body, gang_scheduler=scheduler)


def started(scheduler: GangScheduler, jobs: Any = None, **spec: Any) -> tuple[TFCluster, InMemoryWorld]:
    """Build a gang, and a world with all objects that are created before the gang is scheduled."""
    cluster, world = gang(scheduler, jobs, **spec), InMemoryWorld(scheduler)
    world.settle(cluster)
    return cluster, world


def with_places(scheduler: GangScheduler) -> tuple[TFCluster, InMemoryWorld]:
    cluster, world = started(scheduler)
    world.all_pods_run()
    world.settle(cluster)
    return cluster, world


def workers(replicas: int, **spec: Any) -> dict[str, Any]:
    return {"worker": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "t"}], **spec}}}}


def members(world: InMemoryWorld) -> dict[str, str]:
    """Return the PodGroup of each pod as the scheduler reads it, "" without one."""
    found = {}
    for name in world.names("Pod"):
        metadata = world.objects["Pod", name]["metadata"]
        by_annotation = metadata["annotations"].get("scheduling.k8s.io/group-name", "")
        assert metadata["annotations"].get("scheduling.volcano.sh/group-name", "") == by_annotation
        assert "schedulingGroup" not in world.objects["Pod", name]["spec"]
        found[name] = metadata["labels"].get("scheduling.x-k8s.io/pod-group", "") or by_annotation
    return found


def schedulers(world: InMemoryWorld) -> dict[str, str]:
    return {name: world.objects["Pod", name]["spec"].get("schedulerName", "") for name in world.names("Pod")}


def lose(world: InMemoryWorld, *names: str) -> None:
    for name in names:
        world.delete("Pod", name, force=True)


@pytest.mark.parametrize(
    ("scheduler", "api", "name", "spec"),
    [
        (KUBERNETES, "scheduling.k8s.io/v1beta1", "", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
        (SCHEDULER_PLUGINS, "scheduling.x-k8s.io/v1alpha1", "scheduler-plugins-scheduler", {"minMember": 4}),
        (VOLCANO, "scheduling.volcano.sh/v1beta1", "volcano", {"minMember": 4}),
        (gang_scheduler("Volcano", "mine"), "scheduling.volcano.sh/v1beta1", "mine", {"minMember": 4}),
    ],
)
def test_pods_and_their_group_have_the_form_that_the_scheduler_reads(scheduler, api, name, spec):
    cluster = gang(scheduler)
    kinds = [one.kind for one in InMemoryWorld(scheduler).plan(cluster).actions]
    assert kinds.index("PodGroup") < kinds.index("Pod")
    _, world = started(scheduler)
    body = world.objects[GROUP]
    assert (body["apiVersion"], body["kind"], body["spec"]) == (api, "PodGroup", spec)
    assert body["metadata"]["ownerReferences"][0]["kind"] == "TFCluster"
    assert scheduler is KUBERNETES or set(members(world).values()) == {"demo.0"}
    assert set(schedulers(world).values()) == {name}


@elsewhere
def test_scheduler_of_the_template_wins(scheduler):
    other = workers(2, schedulerName="other")
    _, world = started(scheduler, other)
    assert set(schedulers(world).values()) == {"other"}
    with pytest.raises(InvalidSpecError, match=f"'other' in worker, '{scheduler.name}' in chief"):
        gang(scheduler, {"chief": 1, **other})


@elsewhere
def test_phase_of_a_group_does_not_count_as_placement(scheduler):
    cluster, world = started(scheduler, {"chief": 1, "worker": {"replicas": 2, "minReplicas": 1}})
    for phase in ("Scheduling", "Scheduled", "Inqueue", "Running"):
        world.edit(*GROUP, {"status": {"phase": phase, "running": 2}})
        assert world.plan(cluster).actions == ()
    assert members(world) == {"demo-chief-0": "demo.0", "demo-worker-0": "demo.0"}
    world.pod_runs("demo-chief-0")
    world.settle(cluster)
    assert members(world) == {"demo-chief-0": "demo.0", "demo-worker-0": "demo.0", "demo-worker-1": ""}
    assert world.objects[GROUP]["spec"] == {"minMember": 2}


@everywhere
def test_gang_that_had_its_places_waits_for_them_no_longer(scheduler):
    """The status records it, so each pod is replaced without a gang; Kubernetes' own PodGroups record it themselves."""
    cluster, world = started(scheduler)
    assert naming.ANNOTATION_PLACED not in world.objects[GROUP]["metadata"].get("annotations", {})
    cluster, world = with_places(scheduler)
    placed = world.objects[GROUP]["metadata"].get("annotations", {}).get(naming.ANNOTATION_PLACED)
    assert placed == (None if scheduler is KUBERNETES else "true")
    if scheduler is not KUBERNETES:
        lose(world, *world.names("Pod"))
        world.settle(cluster)
        assert set(members(world).values()) == {""}
        assert world.objects[GROUP]["spec"] == {"minMember": 4}


@elsewhere
def test_pod_that_lost_its_group_is_replaced_while_it_waits(scheduler):
    cluster, world = started(scheduler)
    bare = {"scheduling.x-k8s.io/pod-group": None}
    unmarked = {"scheduling.k8s.io/group-name": None, "scheduling.volcano.sh/group-name": None}
    world.edit("Pod", "demo-worker-1", {"metadata": {"labels": bare, "annotations": unmarked}})
    (deletion,) = (one for one in world.plan(cluster).actions if isinstance(one, Delete))
    assert (deletion.name, deletion.reason) == ("demo-worker-1", reasons.GANG_CHANGED)
    world.settle(cluster)
    assert set(members(world).values()) == {"demo.0"}


@elsewhere
def test_waiting_gang_is_reported_with_the_message_of_its_pods(scheduler):
    cluster, world = started(scheduler)
    assert world.plan(cluster).findings == ()
    _judge(world, "demo-worker-0", "pre-filter pod cannot find enough sibling pods")
    assert world.plan(cluster).findings == ()
    _judge(world, "demo-worker-1", "0/1 nodes are available: 1 optimistic rejection in PostFilter.")
    (finding,) = world.plan(cluster).findings
    assert finding.message.endswith(": 0/1 nodes are available: 1 optimistic rejection in PostFilter.")
    _judge(world, "demo-worker-2", NO_ROOM)
    (finding,) = world.plan(cluster).findings
    assert finding.reason == reasons.WAITING_FOR_GANG
    assert finding.message == (
        f"gang demo.0 (scheduler {scheduler.name}) waits until 4 tasks can be scheduled together: {NO_ROOM}"
    )


def _judge(world: InMemoryWorld, pod: str, message: str) -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    told["lastTransitionTime"] = "2026-01-01T10:00:00Z"
    world.edit("Pod", pod, {"status": {"conditions": [told]}})


def test_group_of_volcano_says_itself_why_it_waits():
    cluster, world = started(VOLCANO)
    words = "4/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable"
    told = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": words}
    world.edit(*GROUP, {"status": {"phase": "Pending", "conditions": [told]}})
    (finding,) = world.plan(cluster).findings
    assert finding.message.endswith(f": {words}")
    world.all_pods_run()
    assert world.plan(cluster).findings == ()


def test_pod_that_volcano_put_in_a_group_of_its_own_stays():
    cluster, world = with_places(VOLCANO)
    lose(world, "demo-worker-0", "demo-worker-1")
    world.settle(cluster)
    for pod, maker in (("demo-worker-0", cluster.uid), ("demo-worker-1", "")):
        uid = maker or world.objects["Pod", pod]["metadata"]["uid"]
        own = {"scheduling.k8s.io/group-name": f"podgroup-{uid}"}
        world.edit("Pod", pod, {"metadata": {"annotations": own}})
    assert world.plan(cluster).actions == ()


@everywhere
def test_group_is_replaced_where_it_has_the_priority_of_its_pods(scheduler):
    """Those of scheduler-plugins do not have one."""
    low, high = (workers(2, priorityClassName=name) for name in ("low", "high"))
    replaced = scheduler is not SCHEDULER_PLUGINS
    _, world = started(scheduler, low)
    before = world.objects[GROUP]
    world.settle(gang(scheduler, high))
    after = world.objects[GROUP]
    assert (after["metadata"]["uid"] != before["metadata"]["uid"]) == replaced
    priorities = [one["spec"].get("priorityClassName", "") for one in (before, after)]
    assert priorities == (["low", "high"] if replaced else ["", ""])


@elsewhere
def test_missing_api_is_named_with_its_remedy(scheduler):
    cluster, world = gang(scheduler), InMemoryWorld(scheduler)
    world.stores.of["PodGroup"].have_none("not served", None)
    planned = world.plan(cluster)
    remedy = "install Volcano" if scheduler is VOLCANO else "install scheduler-plugins with its plugin Coscheduling"
    assert {one.reason for one in planned.findings} == {reasons.GANG_UNAVAILABLE}
    assert all(words in planned.findings[0].message for words in (scheduler.api, remedy))
    assert not [one for one in planned.actions if creates(one, "Pod")]


PLUGINS_LABEL, VOLCANO_ANNOTATION = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"


@pytest.mark.parametrize(
    ("metadata", "spec", "field"),
    [
        ({}, {"schedulingGroup": {"podGroupName": "mine"}}, "spec.schedulingGroup"),
        ({"labels": {PLUGINS_LABEL: "mine"}}, {}, f"metadata.labels[{PLUGINS_LABEL}]"),
        ({"annotations": {VOLCANO_ANNOTATION: "mine"}}, {}, f"metadata.annotations[{VOLCANO_ANNOTATION}]"),
    ],
)
def test_template_with_its_own_group_is_rejected(metadata, spec, field):
    """For every scheduler, so that a manifest that is accepted here is accepted elsewhere."""
    template = {"metadata": metadata, "spec": {"containers": [{"name": "t"}], **spec}}
    for scheduler in (KUBERNETES, SCHEDULER_PLUGINS, VOLCANO):
        with pytest.raises(InvalidSpecError) as refused:
            gang(scheduler, {"worker": {"template": template}})
        assert f"spec.jobs.worker.template.{field}: spec.scheduling.gang makes the PodGroups" in str(refused.value)
        gang(scheduler, {"worker": {"template": template, "minReplicas": 0}})


def test_name_of_a_group_is_the_value_of_a_label():
    names = [naming.gang_name("c" * 50, number, "job") for number in (0, 9, 1_000_000, 99_999_999_999)]
    assert names[:3] == [f"{'c' * 50}.job.{number}" for number in (0, 9, 1_000_000)]
    assert [len(name) for name in names[3:]] == [63]
    long = [naming.gang_name("c" * 56, number, "job") for number in range(10, 200)]
    assert max(map(len, long)) == 63
    assert len(set(long)) == len(long)


def test_groups_are_read_as_they_are_served():
    plugins, volcano = kinds_for(SCHEDULER_PLUGINS), kinds_for(VOLCANO)
    assert plugins["PodGroup"].path("ns", "g") == "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/g"
    assert volcano["PodGroup"].path("ns", "g") == "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/g"
    body = msgspec.json.encode({"metadata": METADATA, "spec": {"minMember": 3, "priorityClassName": "p"}})
    found = plugins["PodGroup"].read(body), volcano["PodGroup"].read(body)
    read = [(one.min_count, one.priority_class) for one in found if isinstance(one, PodGroup)]
    assert read == [(3, None), (3, "p")]
    labels, annotations = {"scheduling.x-k8s.io/pod-group": "a"}, {"scheduling.volcano.sh/group-name": "b"}
    pod = {"metadata": {**METADATA, "labels": labels, "annotations": annotations}}
    pod["spec"] = {"containers": [], "schedulingGroup": {"podGroupName": "c"}}
    read = [one["Pod"].read(msgspec.json.encode(pod)) for one in (plugins, volcano, KINDS)]
    assert [one.group for one in read if isinstance(one, Pod)] == ["a", "b", "c"]


@everywhere
def test_pods_without_a_node_follow_a_change_of_the_scheduler(scheduler):
    wrong, right = gang(gang_scheduler(scheduler.kind, "wrong")), gang(scheduler)
    world = InMemoryWorld(scheduler)
    world.settle(wrong)
    world.settle(right)
    assert set(schedulers(world).values()) == {scheduler.name}
    world.all_pods_run()
    lose(world, "demo-worker-1")
    world.settle(wrong)
    chosen = schedulers(world)
    assert chosen.pop("demo-worker-1") == "wrong"
    assert set(chosen.values()) == {scheduler.name}
    world.settle(right)
    assert schedulers(world)["demo-worker-1"] == scheduler.name


@elsewhere
def test_scheduler_that_admission_puts_in_is_left_alone(scheduler):
    """The requested scheduler is compared, not that of the pod: another pod would get the same again."""
    cluster, world = started(scheduler)
    for pod in world.names("Pod"):
        world.objects["Pod", pod]["spec"]["schedulerName"] = "of-a-policy"
    assert world.plan(cluster).actions == ()
