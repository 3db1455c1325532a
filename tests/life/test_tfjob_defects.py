"""The eleven defects of TFJob in docs/tfjob.md: each test would fail on an operator that behaves as TFJob does."""

from __future__ import annotations

import pytest
from support.admission import refusal
from support.kubernetes_minor import require_kubernetes
from support.lives import await_all_replaced, await_another_pass, launch_running
from support.manifests import pod_template, tfcluster
from support.objects import PODS, TFCLUSTERS
from support.pods import StandInKubelet
from support.rbac import OPERATOR_USER
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

POLICIES = ("OnFailure", "Always", "ExitCode", "Never")
GPU = pod_template(resources={"limits": {"nvidia.com/gpu": "2"}})


@pytest.fixture
def world(shared_world: World) -> World:
    """One namespace for all of them: every test has clusters of its own in it."""
    return shared_world


@pytest.fixture
def kubelet(shared_kubelet: StandInKubelet) -> StandInKubelet:
    return shared_kubelet


def test_defect_01_a_deleted_pod_fails_nothing(world, kubelet):
    """A running pod that is deleted is replaced under every policy; the cluster does not fail."""
    old = {
        policy: launch_running(
            world, kubelet, f"d01-{policy.lower()}", {"worker": {"replicas": 2, "restartPolicy": policy}}
        )
        for policy in POLICIES
    }
    for policy in POLICIES:
        world.delete(PODS, f"d01-{policy.lower()}-worker-1")  # it terminates: its node has not confirmed it
    await_another_pass(world, *(f"d01-{policy.lower()}" for policy in POLICIES))
    for policy in POLICIES:
        name = f"d01-{policy.lower()}"
        assert world.condition(name, "Failed")["status"] == "False", policy
        kubelet.fail(f"{name}-worker-1", exit_code=143)
        kubelet.stop(f"{name}-worker-1")

    for policy in POLICIES:
        name = f"d01-{policy.lower()}"
        world.await_replaced(f"{name}-worker-1", old[policy][f"{name}-worker-1"])
        kubelet.run(f"{name}-worker-1")
        world.await_condition(name, "Ready", status="True")
        status = world.await_status(name, lambda s: s["jobs"]["worker"]["replaced"] == 1, what="it was replaced")
        assert (status["restarts"], world.condition(name, "Failed")["status"]) == (0, "False")


def test_defect_04_running_pods_hear_of_a_scaling(world, kubelet):
    """Scaling rewrites the view of the pods that run, and each of them is told: none is restarted for it."""
    uids = launch_running(world, kubelet, "d04", {"worker": {"replicas": 2}, "ps": {}})
    world.await_condition("d04", "Ready", status="True")
    told = {n: p["metadata"]["annotations"]["tfcluster.dev/view"] for n, p in world.pods_of("d04").items()}

    generation = world.scale("d04", replicas=3)
    world.await_status("d04", lambda s: s["observedGeneration"] == generation, what="the edit was seen")
    world.await_condition("d04", "MembershipPublished", status="True")

    pods = world.pods_of("d04")
    assert [len(world.view("d04", job)["jobs"]["worker"]) for job in ("worker", "ps")] == [3, 3]
    assert all(pods[n]["metadata"]["annotations"]["tfcluster.dev/view"] != digest for n, digest in told.items())
    assert {n: pods[n]["metadata"]["uid"] for n in uids} == uids


def test_defect_05_every_role_sees_its_part(world):
    """Chief, master, worker, ps and evaluator each see what their filters show, at the right indices, as they grow."""
    jobs = {
        "chief": {},
        "worker": {"replicas": 3, "maxReplicas": 4, "deviceFilters": ["/job:ps", "/job:chief"]},
        "ps": {"replicas": 2, "deviceFilters": ["/job:worker", "/job:chief"], "taskDeviceFilters": {"1": ["/job:ps"]}},
        "evaluator": {},
    }
    world.launch("d05", jobs)
    world.launch("d05-old", {"master": {}, "worker": {"replicas": 2}})
    world.await_settled("d05")
    world.await_settled("d05-old")
    world.scale("d05", replicas=4)
    world.await_settled("d05")

    def seen(job: str, file: str = "cluster.json") -> dict[str, int]:
        return {name: len(tasks) for name, tasks in world.view("d05", job, file)["jobs"].items()}

    whole = {"chief": 1, "worker": 4, "ps": 2}
    assert (seen("chief"), seen("evaluator")) == (whole, whole)
    assert seen("worker") == {"chief": 1, "ps": 2}
    assert (seen("ps"), seen("ps", "task-1.json")) == ({"chief": 1, "worker": 4}, {"ps": 2})
    assert {name: len(tasks) for name, tasks in world.view("d05-old", "master")["jobs"].items()} == {
        "master": 1,
        "worker": 2,
    }


def test_defect_06_the_evaluator_is_in_nobodys_cluster(world, kubelet):
    """No task's view holds the evaluator, so no strategy waits for it; the evaluator itself sees the others."""
    launch_running(world, kubelet, "d06", {"chief": {}, "worker": {}, "ps": {}, "evaluator": {}})
    world.await_settled("d06")

    for job in ("chief", "worker", "ps", "evaluator"):
        assert sorted(world.view("d06", job)["jobs"]) == ["chief", "ps", "worker"]
    assert world.status("d06")["ready"].endswith("/3")


@pytest.mark.server
def test_defect_07_a_request_a_replica(world, audit):
    """A hundred workers cost one request each to start and one each to suspend, many of them under way at once."""
    position = audit.position()
    world.launch("d07", {"worker": {"replicas": 100}})
    world.await_settled("d07")
    position, started = audit.position(), audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    world.edit("d07", {"suspend": True})
    world.await_pods_of("d07", [])
    audit.await_quiet(OPERATOR_USER, namespace=world.namespace)  # a pod is gone before its deletion is logged
    stopped = audit.since(position, user=OPERATOR_USER, namespace=world.namespace)

    created = [w for w in started if (w.verb, w.target) == ("create", "pods")]
    deleted = [r for r in stopped if (r.verb, r.target) == ("delete", "pods")]
    assert (len(created), len(deleted)) == (100, 100)
    assert len(started) <= 100 + 15, "Service, views, resolver, status and events are a handful together"
    assert [str(r) for r in stopped if r.verb == "get"] == [], "nothing is read again before it is deleted"
    at_once = max(sum(w.received <= one.received < w.finished for w in created) for one in created)
    assert at_once > 1, "creates wait for each other"


def test_defect_08_running_is_not_succeeded(world, kubelet):
    """At success the pods that still run are reported as what they are, and under None they are said to be ready."""
    jobs = {"chief": {}, "worker": {"replicas": 2}, "ps": {"replicas": 2}}
    launch_running(world, kubelet, "d08", jobs, cleanPodPolicy="None")
    world.await_condition("d08", "Ready", status="True")
    kubelet.succeed("d08-chief-0")
    world.await_ended("d08", "Succeeded")

    status = world.await_status("d08", lambda s: s["jobs"]["chief"]["ready"] == 0, what="the chief is at rest")
    found = {job: (status["jobs"][job]["succeeded"], status["jobs"][job]["ready"]) for job in jobs}
    assert found == {"chief": (1, 0), "worker": (0, 2), "ps": (0, 2)}


#: What TFJob takes and then cannot carry out, each with the path that our refusal names.
INVALID = {
    "a name whose pods would have 64 letters": (tfcluster("d" * 56).job("worker"), "spec.jobs.worker"),
    "a name of 64 letters": (tfcluster("d" * 64).job("w"), "metadata.name"),
    "a name that is no DNS label": (tfcluster("1st").job("worker"), "metadata.name"),
    "negative replicas": (tfcluster("c").job("worker", replicas=-1), "spec.jobs.worker.replicas"),
    "a job with a capital letter": (tfcluster("c").job("Worker"), "spec.jobs"),
    "an unknown restartPolicy": (tfcluster("c").job("worker", restartPolicy="Sometimes"), "restartPolicy"),
    "an unknown cleanPodPolicy": (tfcluster("c").job("worker").spec(cleanPodPolicy="Some"), "cleanPodPolicy"),
    "an unknown successPolicy": (tfcluster("c").job("worker").spec(successPolicy={"tasks": "Most"}), "successPolicy"),
    "a success of jobs that are not there": (
        tfcluster("c").job("worker").spec(successPolicy={"jobs": ["chief"]}),
        "successPolicy",
    ),
}


@pytest.mark.server
@pytest.mark.parametrize("fact", INVALID)
def test_defect_09_what_cannot_be_is_refused(objects, fact):
    """A spec that cannot be carried out is refused when it is created, with the path of what is wrong."""
    builder, path = INVALID[fact]

    assert path in refusal(objects, builder.build())


def test_defect_09_the_longest_name_works(world):
    """A cluster whose pods' names have all 63 letters gets its pods, its Service and its status."""
    name = "d" * (63 - len("-worker-0"))
    world.launch(name, {"worker": {}})
    world.await_settled(name)

    assert (list(world.pods_of(name)), name in world.services()) == ([f"{name}-worker-0"], True)


def test_defect_10_one_of_many_is_not_running(world, kubelet):
    """Ready is True when every task is, not when the first one is; until then it says how many are."""
    world.launch("d10", {"worker": {"replicas": 3}})
    world.await_pods_of("d10", task_names("d10", worker=3))
    kubelet.run("d10-worker-0")
    world.await_status("d10", lambda s: s["ready"] == "1/3", what="one of three is ready")
    assert world.condition("d10", "Ready")["status"] == "False"
    assert "1 of 3 tasks are ready" in world.condition("d10", "Ready")["message"]

    kubelet.run("d10-worker-1", "d10-worker-2")
    world.await_condition("d10", "Ready", status="True")


def test_defect_11_what_tfjob_lacks(world, kubelet, kubectl):
    """Filters, GPU counts, the resolver, readiness, a restart of all together, and /scale: each is there."""
    require_kubernetes("1.36", "device health")
    jobs = {
        "worker": {
            "replicas": 2,
            "maxReplicas": 3,
            "deviceFilters": ["/job:ps"],
            "template": GPU,
            "restartScope": "Cluster",
        },
        "ps": {},
    }
    uids = launch_running(world, kubelet, "d11", jobs)
    world.await_condition("d11", "Ready", status="True")
    kubelet.run("d11-worker-0", devices={"nvidia.com/gpu": [("GPU-0", "Healthy"), ("GPU-1", "Unhealthy")]})
    world.await_status("d11", lambda s: s["accelerators"] == "3 nvidia.com/gpu", what="three healthy GPUs are counted")
    assert (sorted(world.view("d11", "worker")["jobs"]), sorted(world.view("d11", "ps")["jobs"])) == (
        ["ps"],
        ["ps", "worker"],
    )
    assert world.view("d11", "ps")["deviceFilters"]
    assert len(world.resolver_copies()) == 1

    kubelet.fail("d11-worker-1")
    new = await_all_replaced(world, kubelet, "d11", uids)
    assert sorted(new) == task_names("d11", ps=1, worker=2)
    assert world.await_status("d11", lambda s: s["restarts"] == 1, what="it was one restart")

    scaled = kubectl("scale", "tfc/d11", "--replicas=3", "-n", world.namespace)
    assert scaled.returncode == 0, scaled.stderr
    world.await_pods_of("d11", task_names("d11", ps=1, worker=3))
    scale = world.objects.get(TFCLUSTERS, world.namespace, "d11", "scale")
    assert scale["spec"]["replicas"] == 3
    too_many = kubectl("scale", "tfc/d11", "--replicas=4", "-n", world.namespace)
    assert "maxReplicas" in too_many.stderr
