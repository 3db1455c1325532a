"""A running cluster from inside its pods: names, addresses, and each task's view. These tests only read."""

import json

import pytest
import yaml
from live_world import LiveWorld
from support.objects import Object
from support.world import task_names
from task_programs import pod_template

JOBS = {
    "chief": {},
    "worker": {
        "replicas": 2,
        "maxReplicas": 4,
        "deviceFilters": ["/job:ps", "/job:chief"],
        "taskDeviceFilters": {"1": ["/job:ps", "/job:worker/task:0"]},
    },
    "ps": {"deviceFilters": ["/job:worker", "/job:chief"]},
}
TASKS = task_names("c", chief=1, ps=1, worker=2)


@pytest.fixture(scope="module")
def running(shared_world: LiveWorld, kubectl) -> LiveWorld:
    """A cluster with all kinds of views, applied with kubectl and ready."""
    template = pod_template(shared_world.image)
    manifest = {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "metadata": {"name": "c"},
        "spec": {"jobs": {job: {**fields, "template": template} for job, fields in JOBS.items()}},
    }
    applied = kubectl("-n", shared_world.namespace, "apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    assert applied.returncode == 0, applied.stderr
    waited = kubectl("-n", shared_world.namespace, "wait", "--for=condition=Ready", "tfcluster/c", "--timeout=120s")
    assert waited.returncode == 0, waited.stderr
    return shared_world


def addresses(world: LiveWorld, *pods: str) -> list[str]:
    return [world.address(pod) for pod in pods]


@pytest.mark.parametrize("caller", TASKS)
def test_every_task_reaches_every_task_at_its_address(running, caller):
    answers = running.call(caller, addresses(running, *TASKS))

    assert answers == {running.address(pod): pod for pod in TASKS}


def test_pods_lack_api_server_credentials(running):
    """A task does not need permissions, so its pod lacks a token and environment variables of Services."""
    program = """
import json, os, pathlib
print(json.dumps([pathlib.Path("/var/run/secrets/kubernetes.io").exists(), "C_SERVICE_HOST" in os.environ]))
"""

    assert running.python("c-chief-0", program) == [False, False]


def shown(world: LiveWorld, pod: str) -> Object:
    return json.loads(world.run(pod, "python3", "-m", "tfcluster_resolver", "show", "--json"))


def test_resolver_in_the_pod_reads_the_tasks_own_file(running):
    """``show --json`` of a task with its own filters lists the tasks that they show, and the task itself."""
    assert shown(running, "c-worker-1")["jobs"] == {
        "ps": addresses(running, "c-ps-0"),
        "worker": addresses(running, "c-worker-0", "c-worker-1"),
    }
