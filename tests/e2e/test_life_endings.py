"""The end of tasks on a real node: the kernel kills one, and a failed pod keeps its log."""

from live_world import LiveWorld
from support.objects import PODS, Kind
from support.waiting import eventually
from task_programs import END_ON_DEMAND, pod_template

SLICES = Kind("discovery.k8s.io/v1", "endpointslices")


def await_pods_left(world: LiveWorld, *names: str) -> None:
    eventually(
        lambda: sorted(world.pods()), lambda left: left == sorted(names), what=f"the pods that are left are {names}"
    )


def test_task_that_uses_too_much_memory_is_named_and_restarted(world):
    """The kernel kills a task at its memory limit; it is restarted, and the status says OOMKilled."""
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


def test_log_of_a_failed_pod_outlives_the_restart(world):
    """The task continues in another pod: DNS resolves its name only to that pod, and the old log can be read."""
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
