"""No writes while nothing changes, in every state of a cluster; and few events for many tasks."""

from collections import Counter
from datetime import timedelta

import pytest
from support import clock
from support.lives import await_another_pass, await_asked_to_go, await_time, launch_running, note_failures_in_a_row
from support.manifests import RECREATE, pod_template
from support.objects import TFCLUSTERS
from support.rbac import OPERATOR_USER
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def resting(world, kubelet) -> list[str]:
    """Create a cluster in each state that requires only waiting."""
    on_delete = {"updateStrategy": {"type": "OnDelete"}}
    launch_running(world, kubelet, "ready", {"worker": {"replicas": 2}}, activeDeadlineSeconds=3600)
    launch_running(world, kubelet, "succeeded", {"worker": {}}, ttlSecondsAfterFinished=3600)
    launch_running(world, kubelet, "failed", {"worker": {"replicas": 2, "restartPolicy": "Never"}})
    launch_running(world, kubelet, "kept", {"chief": {}, "worker": {}}, cleanPodPolicy="None")
    launch_running(world, kubelet, "backs-off", {"worker": {"replicas": 2}}, backoffLimit=9)
    launch_running(world, kubelet, "scope", {"worker": {"replicas": 2, "restartScope": "Job"}})
    launch_running(world, kubelet, "outdated", {"worker": {}}, **on_delete)
    launch_running(world, kubelet, "drains", {"worker": {"replicas": 2, "drainTimeoutSeconds": 3600}})
    world.launch("suspended", {"worker": {"replicas": 2}}, suspend=True, activeDeadlineSeconds=1)
    world.launch("waits", {"worker": {"startAfter": ["ps"]}, "ps": {}})
    world.launch("pends", {"worker": {"replicas": 2}})
    for name in ("scope", "backs-off"):
        world.await_condition(name, "Ready", status="True")

    kubelet.succeed("succeeded-worker-0", "kept-chief-0")
    kubelet.fail("failed-worker-0")
    note_failures_in_a_row(world, "backs-off", 8, index=1)
    note_failures_in_a_row(world, "scope", 8)
    kubelet.fail("backs-off-worker-1", "scope-worker-0")
    world.edit("outdated", {"jobs": {"worker": {"template": pod_template(image="registry.test/train:2")}}})
    world.scale("drains", replicas=1)
    await_asked_to_go(world, "scope-worker-1", "failed-worker-1")
    kubelet.stop("scope-worker-1", "failed-worker-1")

    world.await_ended("succeeded", "Succeeded")
    world.await_ended("kept", "Succeeded")
    world.await_ended("failed", "Failed")
    world.await_condition("ready", "Ready", status="True")
    world.await_condition("backs-off", "Ready", status="False", reason="BackingOff")
    world.await_condition("scope", "Ready", status="False", reason="BackingOff")
    world.await_condition("outdated", "UpToDate", status="False", reason="WaitingForDelete")
    world.await_event("drains", "Draining")
    world.await_condition("suspended", "Suspended", status="True")
    world.await_condition("waits", "Ready", status="False", reason="WaitingForJob")
    return [cluster["metadata"]["name"] for cluster in world.objects.list(TFCLUSTERS, world.namespace)]


def test_steady_state_does_not_write(world, resting, audit, operator):
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    await_another_pass(world, *resting)
    operator.stop()
    operator.start()
    await_another_pass(world, *resting)

    written = Counter(
        (w.verb, w.target, w.name) for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    )
    assert written == {("patch", "tfclusters/status", name): 2 for name in resting}, "one answer to each edit, no more"


def test_creation_in_several_parts_is_reported_once(world, audit):
    """One reconcile creates a thousand objects at most."""
    position = audit.position()
    world.launch("c", {"worker": {"replicas": 1_100}})
    world.await_settled("c")
    audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    calls = audit.since(position, user=OPERATOR_USER, namespace=world.namespace)
    made = Counter((call.verb, call.target) for call in calls)
    assert made.pop(("create", "pods")) == 1_100
    assert made == {
        ("create", "services"): 1,
        ("create", "configmaps"): 2,
        ("create", "networkpolicies"): 1,
        ("patch", "tfclusters/status"): 1,
        ("create", "events"): 1,
    }


def test_tasks_that_become_ready_together_are_reported_once(world, kubelet, audit):
    world.launch("c", {"worker": {"replicas": 3}})
    world.await_settled("c")
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    await_time(clock.now() + timedelta(seconds=1))  # so that the last report does not delay the next one
    for index in range(3):
        kubelet.run(f"c-worker-{index}")
        await_time(clock.now() + timedelta(seconds=0.4))
    world.await_condition("c", "Ready", status="True")
    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    assert [w.target for w in writes if w.resource == "tfclusters"] == ["tfclusters/status"]


def test_many_tasks_make_few_events(world):
    """The start, an edit and the suspension of three hundred tasks are reported in tens of events with the counts."""
    world.launch("c", {"worker": {"replicas": 300}}, **RECREATE)
    world.await_settled("c")
    world.edit("c", {"jobs": {"worker": {"template": pod_template(image="registry.test/train:2")}}})
    world.await_event("c", "TemplateChanged")
    world.await_settled("c")
    world.edit("c", {"suspend": True})
    world.await_pods_of("c", [])
    world.await_event("c", "Suspended")

    events = world.events("c")
    assert len(events) <= 30
    told = " ".join(event["message"] for event in events)
    assert "created 300 Pods" in told
    assert {"Created", "TemplateChanged", "Suspended"} <= {event["reason"] for event in events}


def test_many_failures_make_few_events(world, kubelet, audit):
    """Thirty tasks that fail and are replaced cause a few events, after the status that reports them."""
    names = list(launch_running(world, kubelet, "c", {"worker": {"replicas": 30}}, backoffLimit=100))
    world.await_condition("c", "Ready", status="True")
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    kubelet.fail(*names)
    world.await_event("c", "PodFailed")
    status = eventually(
        lambda: world.status("c"),
        lambda s: s["restarts"] == 30 and s["jobs"]["worker"]["failed"] == 0,
        what="thirty restarts are counted and done",
    )

    assert status["jobs"]["worker"]["restarts"] == 30
    assert len(world.events("c")) <= 20
    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    told = min(w.received for w in writes if w.resource == "events")
    assert min(w.finished for w in writes if w.target == "tfclusters/status") <= told
