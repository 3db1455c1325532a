"""The examples, applied as by a reader, and the results that each promises.

All run in a namespace that enforces the Pod Security Standard `restricted`. One run of each serves all its tests,
because a pod with TensorFlow takes long to start.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from live_world import TRAINING_DEADLINE_SECONDS, LiveWorld, restarts, who_reaches
from support.objects import PODS
from support.waiting import eventually
from support.world import task_names
from task_programs import PEERS, PORT

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
GPU_EXAMPLE, MIRRORED, PARAMETER_SERVER = "gpu.yaml", "multi-worker-mirrored.yaml", "parameter-server.yaml"
#: test_live_resize.py covers its resizes.
ELASTIC = "elastic-parameter-server.yaml"
#: Those of test_examples_on_volumes.py and test_examples_of_workers.py.
ELSEWHERE = {
    "checkpoints.yaml",
    "evaluator.yaml",
    "tensorboard.yaml",
    "tf-config.yaml",
    "custom-image.yaml",
    "data-service.yaml",
    "hpa.yaml",
}
CHIEF = "digits-chief-0"

# The README and the examples must work on networks that enforce a cluster's, or the operator's, policies.
pytestmark = [pytest.mark.usefixtures("network_policies"), pytest.mark.alone]

Apply = Callable[[str], LiveWorld]


def numbers(name: str, log: str) -> list[float]:
    return [float(number) for number in re.findall(rf"{name}[ =:]+(\d+\.\d+)", log)]


def test_every_example_is_tested_here():
    tested = {GPU_EXAMPLE, MIRRORED, PARAMETER_SERVER, ELASTIC} | ELSEWHERE
    assert {path.name for path in EXAMPLES.glob("*.yaml")} == tested


def test_first_cluster_of_the_readme_trains_and_succeeds(world: LiveWorld, kubectl, training_image: str):
    text = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    (manifest, wait) = (
        re.search(found, text, re.DOTALL)[1] for found in (r"```yaml\n(.*?)```", r"\$ kubectl (wait [^\n]*)")
    )
    manifest = re.sub(r"docker.io/tensorflow/tensorflow:[\d.]+", training_image, manifest)
    applied = kubectl("-n", world.namespace, "apply", "-f", "-", stdin=manifest)
    assert applied.returncode == 0, applied.stderr

    # In steps, because the runner limits a command to three minutes.
    command = ["-n", world.namespace, *wait.split()[:-1], "--timeout=5s"]
    eventually(lambda: kubectl(*command).returncode, lambda rc: rc == 0, what=wait, within=TRAINING_DEADLINE_SECONDS)

    assert wait.split()[-1].startswith("--timeout=")
    assert "the factor is 3.00" in world.logs("first-worker-0")


@pytest.fixture(scope="module")
def gpu_example(apply_example: Apply) -> LiveWorld:
    world = apply_example(GPU_EXAMPLE)
    if world.allocatable("nvidia.com/gpu") < 2:
        pytest.skip("no node of this cluster offers two nvidia.com/gpu")
    world.await_ready("digits-gpu")
    return world


@pytest.mark.exhaustive
def test_gpu_example_counts_a_gpu_in_each_worker(gpu_example):
    for index, pod in enumerate(task_names("digits-gpu", worker=2)):
        gpu_example.await_log(
            pod, lambda log, i=index: f"worker {i} holds {{'GPU': 1}}" in log, what=f"{pod} counts its GPU"
        )

    gpu_example.await_status("digits-gpu", lambda s: s["accelerators"] == 2, what="the status counts two GPUs")


@pytest.mark.exhaustive
def test_mirrored_example_learns_and_ends(apply_example):
    """Two equal workers train together and exit 0: both report an accuracy of at least 0.8, the cluster succeeds."""
    world = apply_example(MIRRORED)
    pods = task_names("digits-mirrored", worker=2)

    status = eventually(
        lambda: world.status("digits-mirrored"),
        lambda s: s.get("jobs", {}).get("worker", {}).get("succeeded") == 2,
        what="both workers have succeeded",
        within=TRAINING_DEADLINE_SECONDS,
    )

    assert all(max(numbers("accuracy", world.logs(pod)), default=0) >= 0.8 for pod in pods)
    assert {pod: restarts(world.demand(PODS, pod)) for pod in pods} == dict.fromkeys(pods, 0)
    assert (status["jobs"]["worker"]["failed"], status["restarts"]) == (0, 0)
    world.await_condition("digits-mirrored", "Succeeded", status="True", reason="TasksSucceeded")


@pytest.fixture(scope="module")
def training(apply_example: Apply, kubectl) -> LiveWorld:
    world = apply_example(PARAMETER_SERVER)
    waited = kubectl("-n", world.namespace, "wait", "--for=condition=Ready", "tfcluster/digits", "--timeout=300s")
    assert waited.returncode == 0, waited.stderr
    return world


def test_parameter_server_example_learns(training):
    """The chief trains on the digits across workers and ps: the loss decreases, and the accuracy reaches 0.8."""
    log = training.await_log(
        CHIEF, lambda log: max(numbers("accuracy", log), default=0) >= 0.8, what="the accuracy is 0.8"
    )

    losses = numbers("loss", log)
    assert len(losses) >= 2
    assert losses[-1] < losses[0]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("enforced_policies")
def test_parameter_server_example_is_isolated_while_it_trains(training):
    workers = task_names("digits", worker=2)
    addresses = {f"{training.ip(name)}:{PORT}": name for name in workers}

    found = who_reaches(addresses, dict.fromkeys((CHIEF, *workers), training))

    assert {addresses[address]: callers for address, callers in found.items()} == {
        name: {CHIEF, name} for name in workers
    }


def test_parameter_server_example_sees_added_workers(training, kubectl):
    """During the training, ``kubectl scale`` adds a worker, and the chief's program reports the new epoch."""
    uid = training.uids()[CHIEF]
    workers = training.cluster("digits")["spec"]["jobs"]["worker"]["replicas"]
    scaled = kubectl("-n", training.namespace, "scale", "tfcluster/digits", f"--replicas={workers + 1}")
    assert scaled.returncode == 0, scaled.stderr
    epoch = training.cluster("digits")["metadata"]["generation"]

    assert len(training.await_epoch(CHIEF, epoch)["jobs"]["worker"]) == workers + 1
    training.await_log(CHIEF, lambda log: f"cluster epoch {epoch}: " in log, what="the chief reports the epoch")
    training.await_ready("digits")

    assert (training.uids()[CHIEF], restarts(training.demand(PODS, CHIEF))) == (uid, 0)


def test_parameter_server_example_survives_the_loss_of_a_worker(training):
    """A worker whose pod is deleted returns at its address and rejoins: the chief continues, in the same process."""
    uids = training.uids()

    training.delete(PODS, "digits-worker-1")
    training.await_replaced("digits-worker-1", uids["digits-worker-1"])
    eventually(
        lambda: training.python("digits-worker-1", PEERS, str(PORT)),
        lambda peers: training.ip(CHIEF) in peers,
        what="the chief is connected to the worker's new pod",
    )
    seen = len(numbers("loss", training.logs(CHIEF)))
    training.await_log(CHIEF, lambda log: len(numbers("loss", log)) >= seen + 3, what="the chief trains on")

    assert (training.uids()[CHIEF], restarts(training.demand(PODS, CHIEF))) == (uids[CHIEF], 0)
