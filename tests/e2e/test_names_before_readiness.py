"""Names resolve before readiness: TensorFlow's tasks wait for each other, so otherwise none would become ready."""

import pytest
from live_world import POD_DEADLINE_SECONDS, LiveWorld
from support.objects import PODS
from support.waiting import eventually
from support.world import task_names
from task_programs import pod_template

GATED = {"exec": {"command": ["test", "-e", "/tmp/open"]}}  # noqa: S108 - a path in the pod
WORKERS = task_names("c", worker=2)


@pytest.fixture
def unready(world: LiveWorld) -> LiveWorld:
    """Two workers that listen but are unready until a test opens their gate."""
    template = pod_template(world.image, readinessProbe={**GATED, "periodSeconds": 1})
    world.launch("c", {"worker": {"replicas": 2, "template": template}})
    for pod in WORKERS:
        eventually(
            lambda pod=pod: world.get(PODS, pod),
            lambda found: found and found["status"]["phase"] == "Running",
            what=f"{pod} runs",
            within=POD_DEADLINE_SECONDS,
        )
    return world


def test_unready_tasks_are_found_and_reached(unready):
    wanted = {unready.address(pod): pod for pod in WORKERS}

    eventually(
        lambda: [unready.call(caller, wanted) for caller in WORKERS],
        lambda answers: answers == [wanted, wanted],
        what="unready tasks reach each other",
    )

    status = unready.await_status("c", lambda s: s["observedGeneration"] == 1, what="the cluster is reported on")
    assert status["jobs"]["worker"]["ready"] == 0


def test_cluster_domain_completes_the_names(world):
    """With clusterDomain the addresses are complete names, which resolve without a search path."""
    world.launch_listeners("c", {"worker": {}})
    world.await_ready("c")
    search = next(line for line in world.read("c-worker-0", "/etc/resolv.conf").splitlines() if "search" in line)
    domain = next(word for word in search.split() if word.startswith("svc.")).removeprefix("svc.")

    world.launch_listeners("d", {"worker": {"replicas": 2}}, clusterDomain=domain)
    world.await_ready("d")
    wanted = {f"d-worker-{i}.d.{world.namespace}.svc.{domain}:2222": f"d-worker-{i}" for i in range(2)}

    assert world.view("d", "worker")["jobs"]["worker"] == list(wanted)
    assert world.call("c-worker-0", [f"{a.partition(':')[0]}.:2222" for a in wanted]) == {
        f"{address.partition(':')[0]}.:2222": pod for address, pod in wanted.items()
    }
