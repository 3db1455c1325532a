"""Training across pods that follows changes of the cluster: resizes, and the loss of an equal worker."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from live_world import BROOM, TRAINING_DEADLINE_SECONDS, LiveWorld, restarts
from resize_programs import END_AMID, stock_template, with_folder
from support.objects import NODES
from support.waiting import eventually

pytestmark = pytest.mark.exhaustive

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "elastic-parameter-server.yaml"
CHIEF, CLUSTER = "digits-elastic-chief-0", "digits-elastic"
SERVERS = [f"{CLUSTER}-ps-0", f"{CLUSTER}-worker-0", f"{CLUSTER}-worker-1"]
#: The example gives a leaving worker this many seconds; the chief releases it long before.
DRAIN_SECONDS = 120.0


def passes(log: str) -> list[int]:
    return [int(number) for number in re.findall(r"^pass (\d+):", log, re.MULTILINE)]


# Parameter servers.


@pytest.fixture
def elastic(world: LiveWorld, kubectl, training_image: str) -> LiveWorld:
    text = EXAMPLE.read_text(encoding="utf-8").replace("localhost/tfcluster-training:dev", training_image)
    applied = kubectl("-n", world.namespace, "apply", "-f", "-", stdin=text)
    assert applied.returncode == 0, applied.stderr
    world.await_log(CHIEF, lambda log: 3 in passes(log), what="the chief trains")
    return world


def resize(world: LiveWorld, kubectl, workers: int) -> tuple[str, float]:
    """Scale the example until it trains on that number of workers; return the new log, and the seconds needed."""
    before = len(world.logs(CHIEF))
    asked = datetime.now(UTC)
    scaled = kubectl("-n", world.namespace, "scale", f"tfcluster/{CLUSTER}", f"--replicas={workers}")
    assert scaled.returncode == 0, scaled.stderr
    epoch = world.cluster(CLUSTER)["metadata"]["generation"]
    told = f"cluster epoch {epoch}: "
    log = world.await_log(
        CHIEF, lambda log: len(passes(log.partition(told)[2])) > 1, what=f"the chief trains on {workers} workers"
    )
    stamped = kubectl("-n", world.namespace, "logs", CHIEF, "--timestamps")
    changed = re.findall(rf"^(\S+)\.(\d+)Z {told}", stamped.stdout, re.MULTILINE)
    assert changed, stamped.stdout + stamped.stderr
    day, fraction = changed[-1]
    when = datetime.fromisoformat(f"{day}.{fraction[:6].ljust(6, '0')}+00:00")
    return log[before:], (when - asked).total_seconds()


def test_parameter_server_training_follows_a_resize(elastic, kubectl, record_testsuite_property):
    """No process restarts, no step is lost, and a worker leaves when the chief released it, not at its deadline."""
    uids = elastic.uids()

    _, took = resize(elastic, kubectl, 4)
    record_testsuite_property("seconds from the request until the new workers train", took)
    eventually(
        lambda: set(re.findall(r"\+worker/\d", elastic.logs(CHIEF))),
        lambda found: found == {"+worker/2", "+worker/3"},
        what="both new workers train",
        within=TRAINING_DEADLINE_SECONDS,
    )

    asked = time.monotonic()
    shrunk, took = resize(elastic, kubectl, 2)
    record_testsuite_property("seconds from the request until the leaving workers are let go of", took)
    assert {"-worker/2", "-worker/3"} <= set(re.findall(r"-worker/\d", shrunk))
    after = elastic.await_pods([CHIEF, *SERVERS])
    assert time.monotonic() - asked < DRAIN_SECONDS

    made = passes(elastic.logs(CHIEF))
    assert made == list(range(1, len(made) + 1))
    assert elastic.logs(CHIEF).count("training with 2 workers") == 1
    assert re.search(r"accuracy 0\.[89]", shrunk)
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == uids
    assert {restarts(pod) for pod in after.values()} == {0}
    assert elastic.await_ready(CLUSTER)["status"]["restarts"] == 0


# Equal workers.


@pytest.fixture
def mirrored(world: LiveWorld, training_image: str) -> Iterator[LiveWorld]:
    """Two equal workers with checkpoints on one node, training; the folder is deleted afterwards."""
    folder = f"/kept/tfcluster-{world.namespace}"
    node = world.objects.list(NODES)[0]["metadata"]["labels"]["kubernetes.io/hostname"]
    program = ["/opt/examples/train_digits_multiworker.py", "--epochs", "40", "--checkpoints", folder]
    template = stock_template(training_image, command=["python3", "-c", END_AMID, *program])
    world.launch(
        "c", {"worker": {"replicas": 2, "restartScope": "Cluster", "template": with_folder(template, node=node)}}
    )
    for pod in ("c-worker-0", "c-worker-1"):
        world.await_log(pod, lambda log: max(passes(log), default=0) >= 3, what=f"{pod} trains")
    yield world
    world.launch_broom(node=node)
    world.run(BROOM, "rm", "-rf", folder)


def test_equal_workers_start_again_together_from_a_checkpoint(mirrored):
    uids = mirrored.uids()
    made = max(passes(mirrored.logs("c-worker-0")))

    mirrored.end("c-worker-1", 137)
    mirrored.await_success("c")

    assert not {uids[pod] for pod in ("c-worker-0", "c-worker-1")} & set(mirrored.uids().values())
    assert mirrored.status("c")["restarts"] == 1
    logs = [mirrored.logs(f"c-worker-{index}") for index in (0, 1)]
    assert passes(logs[0]) == passes(logs[1])
    # The last reported step might not have a checkpoint.
    assert (passes(logs[0])[0] >= made, passes(logs[0])[-1]) == (True, 40)
