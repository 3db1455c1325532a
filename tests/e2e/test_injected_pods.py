"""Unmodified images without the resolver: the operator delivers it, and also the command of a task."""

import json

import pytest
from live_world import POD_DEADLINE_SECONDS, LiveWorld, is_pod_ready
from resize_programs import stock_template
from support.waiting import eventually
from support.world import task_names

ZIP = "/opt/tfcluster-resolver/tfcluster_resolver.zip"
#: Prints the path of the imported package, or that it is missing.
WHERE = """
import json
try:
    import tfcluster_resolver
    print(json.dumps(tfcluster_resolver.__file__))
except ImportError as error:
    print(json.dumps(type(error).__name__))
"""


@pytest.fixture(scope="module")
def stocked(shared_world: LiveWorld, training_image: str) -> LiveWorld:
    """Two workers and a chief with a stock TensorFlow image, which run the task server, ready."""
    serving = {"taskServer": True, "template": stock_template(training_image, grace=30)}
    shared_world.launch("c", {"chief": serving, "worker": {"replicas": 2, **serving}})
    eventually(
        lambda: {name: is_pod_ready(pod) for name, pod in shared_world.pods().items()},
        lambda ready: ready == dict.fromkeys(task_names("c", chief=1, worker=2), True),
        what="three task servers listen",
        # TensorFlow is imported three times on a busy machine.
        within=2 * POD_DEADLINE_SECONDS,
    )
    return shared_world


def test_stock_image_does_not_have_the_resolver(stocked):
    """Without the operator's PYTHONPATH the image lacks the package: the other tests prove the delivery."""
    assert (
        stocked.run("c-worker-0", "env", "-u", "PYTHONPATH", "python3", "-c", WHERE).strip() == '"ModuleNotFoundError"'
    )


def test_stock_image_gets_the_resolver(stocked):
    assert stocked.python("c-worker-0", WHERE) == f"{ZIP}/bundled/tfcluster_resolver/__init__.py"


def test_task_server_serves(stocked):
    for index, pod in enumerate(task_names("c", worker=2)):
        assert f"serving /job:worker/task:{index} of {stocked.namespace}/c" in stocked.logs(pod)


def test_doctor_finds_the_pod_well(stocked):
    told = json.loads(stocked.run("c-worker-0", "python3", "-m", "tfcluster_resolver", "doctor", "--json"))

    found = {check["name"]: check["verdict"] for check in told["checks"]}
    wanted = ("package", "task", "view", "own name", "own port", "peers")
    assert {name: found[name] for name in wanted} == dict.fromkeys(wanted, "ok"), told


def test_wait_and_exec_work_in_a_pod(stocked):
    assert stocked.run("c-chief-0", "python3", "-m", "tfcluster_resolver", "wait", "--timeout", "60") == (
        "2 other tasks listen\n"
    )
    told = json.loads(
        stocked.run("c-chief-0", "python3", "-m", "tfcluster_resolver", "exec", "--", "printenv", "TF_CONFIG")
    )

    assert told["cluster"] == {
        "chief": [stocked.address("c-chief-0")],
        "worker": [stocked.address(pod) for pod in task_names("c", worker=2)],
    }
    assert told["task"] == {"type": "chief", "index": 0}


def test_task_server_exits_on_sigterm(world, training_image):
    world.launch("c", {"worker": {"taskServer": True, "template": stock_template(training_image, grace=30)}})
    world.await_ready("c")
    since = world.pods_version()

    world.remove("c")

    ends = [
        state["terminated"]["exitCode"]
        for pod in world.pod_history(since, gone=["c-worker-0"])
        for status in pod["status"].get("containerStatuses", [])
        if (state := status["state"]).get("terminated")
    ]
    # Killed after the grace period, it would be 137.
    assert set(ends) == {143}
