"""How tasks end on a real node, and what the cluster makes of it: exit codes, memory, deadlines, success."""

from __future__ import annotations

from typing import Any

from live_world import POD_DEADLINE_SECONDS, LiveWorld
from support.objects import EVENTS, PODS, TFCLUSTERS, Kind, Object
from support.waiting import eventually
from task_programs import END_ON_DEMAND, FINISH, LISTEN, pod_template

SLICES = Kind("discovery.k8s.io/v1", "endpointslices")


def await_pods_left(world: LiveWorld, *names: str) -> None:
    eventually(
        lambda: sorted(world.pods()), lambda left: left == sorted(names), what=f"the pods that are left are {names}"
    )


def await_end(world: LiveWorld, kind: str, kubectl: Any) -> Object:
    """Return the condition that ended a cluster, once ``kubectl wait`` has seen it."""
    waited = kubectl("-n", world.namespace, "wait", "tfc/c", f"--for=condition={kind}", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    return world.condition("c", kind)


def test_task_that_uses_too_much_memory_is_named_and_restarted(world):
    """The kernel kills a task at its memory limit; it is started again, and the status says OOMKilled."""
    template = pod_template(world.image, END_ON_DEMAND, resources={"limits": {"memory": "64Mi"}})
    world.launch("c", {"worker": {"template": template}})
    world.await_ready("c")
    uid = world.uids()["c-worker-0"]

    world.end("c-worker-0", "eat")
    world.await_replaced("c-worker-0", uid)

    world.await_ready("c")
    status = world.status("c")
    last = status["lastRestart"]
    assert (last["task"], last["reason"], last["exitCode"]) == ("worker-0", "OOMKilled", 137)
    assert (status["restarts"], status["jobs"]["worker"]["restarts"]) == (1, 1)
    assert status["jobs"]["worker"]["disruptions"] == 0


def test_chief_that_ends_well_ends_the_cluster(world, kubectl):
    """The chief's end is the cluster's: its log stays readable, the ps goes, and the TTL takes the rest."""
    chief = {"template": pod_template(world.image, FINISH), "startAfter": ["ps"]}
    world.launch("c", {"chief": chief, "ps": {"template": pod_template(world.image, LISTEN), "replicas": 2}})

    succeeded = await_end(world, "Succeeded", kubectl)

    assert succeeded["reason"] == "TasksSucceeded"
    await_pods_left(world, "c-chief-0")
    assert kubectl("-n", world.namespace, "logs", "c-chief-0").stdout == "the result is 42\n"
    assert world.status("c")["jobs"]["chief"]["succeeded"] == 1
    assert_dashboard(world, kubectl)
    assert_one_event_of(world, "TasksSucceeded")

    world.edit("c", {"ttlSecondsAfterFinished": 0})
    eventually(lambda: world.get(TFCLUSTERS, "c"), lambda found: found is None, what="the TFCluster is deleted")
    eventually(lambda: world.get(PODS, "c-chief-0"), lambda pod: pod is None, what="its last pod is gone")


def assert_dashboard(world: LiveWorld, kubectl: Any) -> None:
    """``kubectl get tfc`` shows how far the cluster is, in columns."""
    # The status counts the pods a moment after they are gone.
    shown = eventually(
        lambda: [line.split() for line in kubectl("-n", world.namespace, "get", "tfc").stdout.splitlines()],
        lambda rows: rows[1][2] == "0",
        what="no task is ready any more",
    )
    assert shown[0] == ["NAME", "TASKS", "READY", "REASON", "RESTARTS", "AGE"]
    assert shown[1][:5] == ["c", "3", "0", "Succeeded", "0"]


def assert_one_event_of(world: LiveWorld, reason: str) -> None:
    def posted() -> list[str]:
        found = world.objects.list(EVENTS, world.namespace)
        return [e["message"] for e in found if e["reason"] == reason and e["involvedObject"]["kind"] == "TFCluster"]

    eventually(posted, what=f"an event {reason} is posted", within=POD_DEADLINE_SECONDS)
    assert len(posted()) == 1


def test_log_of_a_failed_pod_outlives_the_restart(world):
    """The task continues in another pod: its name is found in DNS there and nowhere else, and the old log is read."""
    template = pod_template(world.image, END_ON_DEMAND)
    world.launch("c", {"worker": {"replicas": 2, "template": template}}, failedPodsHistoryLimit=1)
    world.await_ready("c")
    (host,), address = world.hosts(["c-worker-0"]), world.address("c-worker-0")

    world.end("c-worker-0", 3)
    eventually(lambda: world.get(PODS, "c-worker-0-r1"), what="the task has its next pod")
    world.await_ready("c")

    assert world.status("c")["lastRestart"]["pod"] == "c-worker-0"
    assert world.logs("c-worker-0") == "ends with 3\n"
    eventually(
        lambda: world.resolve("c-worker-1", [host]),
        lambda found: found == {host: [world.ip("c-worker-0-r1")]},
        what="the name leads to the pod at work alone",
    )
    assert world.call("c-worker-1", [address]) == {address: "c-worker-0"}, "the host name is the first pod's"
    slices = world.objects.list(SLICES, world.namespace, selector="kubernetes.io/service-name=c")
    targets = {one["targetRef"]["name"] for found in slices for one in found.get("endpoints") or ()}
    assert targets == {"c-worker-0-r1", "c-worker-1"}

    world.end("c-worker-0-r1", 4)
    await_pods_left(world, "c-worker-0-r1", "c-worker-0-r2", "c-worker-1")
    assert world.logs("c-worker-0-r1") == "ends with 4\n"
