"""`tfcluster local run` trains the unmodified examples, with real TensorFlow and without Kubernetes."""

import hashlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from local.local_world import Api, Run, processes_with
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
#: TensorFlow in four processes on a busy machine of two cores; no test asserts it.
DEADLINE = 240.0


@pytest.fixture(scope="session")
def tensorflow() -> Path:
    """An interpreter with TensorFlow: the one that `make local-tests` names, or created before."""
    pinned = (ROOT / "requirements" / "tensorflow-test.txt").read_bytes()
    cache = Path(os.environ.get("TFCLUSTER_CACHE", Path.home() / ".cache" / "tfcluster"))
    made = cache / f"tensorflow-{hashlib.sha256(pinned).hexdigest()[:16]}" / "bin" / "python"
    found = Path(os.environ.get("TFCLUSTER_TENSORFLOW_PYTHON", made))
    assert found.exists(), "there is no environment with TensorFlow: run `make local-tests`"
    return found


@pytest.fixture
def play(tmp_path: Path, tensorflow: Path) -> Iterator[Run]:
    made: list[Run] = []

    def start(example: str | Path) -> Run:
        options = ("--python", str(tensorflow), "--map", f"/opt/examples={ROOT / 'examples'}")
        made.append(Run(tmp_path, ROOT / "examples" / example, options=options))
        return made[-1]

    yield start
    for run in made:
        run.process.kill()
        run.process.wait()


def test_equal_workers_train_together_to_the_end(play) -> None:
    """MultiWorkerMirroredStrategy runs its ten steps on two workers with equal results, and the run succeeds."""
    run = play("multi-worker-mirrored.yaml")

    assert run.process.wait(DEADLINE) == 0, run.err + run.out[-4000:]
    for worker in ("worker-0", "worker-1"):
        assert f"{worker} | done" in run.out
    last = {line.partition("| ")[2] for line in run.out.splitlines() if "pass 10:" in line}
    assert len(last) == 1
    assert float(re.search(r"accuracy ([0-9.]+)", last.pop())[1]) > 0.8


@pytest.mark.exhaustive
def test_equal_workers_are_resized_in_their_pods(play, tmp_path) -> None:
    """Two workers become three and two again: each step runs once, and no pod restarts."""
    manifest = yaml.safe_load((ROOT / "examples" / "multi-worker-mirrored.yaml").read_text())
    worker = manifest["spec"]["jobs"]["worker"]
    worker["drainTimeoutSeconds"] = int(DEADLINE)
    folder = str(tmp_path / "checkpoints")
    worker["template"]["spec"]["containers"][0]["command"] += ["--epochs", "1000000", "--checkpoints", folder]
    resizable = tmp_path / "resizable.yaml"
    resizable.write_text(yaml.safe_dump(manifest))
    run = play(resizable)

    def await_pass(starts: int, replicas: int) -> None:
        """Wait until the first worker has started this often, and run a step among this number of workers."""
        said = (
            rf"(?s)(worker-0 \| worker 0 of \d.*){{{starts - 1}}}worker-0 \| worker 0 of {replicas}.*worker-0 \| pass"
        )
        eventually(
            lambda: re.search(said, run.out),
            bool,
            what=f"a pass of {replicas} workers after start {starts}; {run.err}{run.out[-3000:]}",
            within=DEADLINE,
        )

    await_pass(1, 2)
    for starts, replicas in ((2, 3), (3, 2)):
        Api(run, "digits-mirrored").patch({"jobs": {"worker": {"replicas": replicas}}})
        await_pass(starts, replicas)

    passes = [int(number) for number in re.findall(r"worker-0 \| pass (\d+):", run.out)]
    assert passes == list(range(1, len(passes) + 1))
    assert "starts again" not in run.err
    run.signal(signal.SIGINT)
    assert run.end() == 130


@pytest.mark.exhaustive
def test_parameter_server_training_recovers_and_scales_up(play) -> None:
    """ParameterServerStrategy continues while a worker is killed and two more are added; Ctrl-C leaves nothing."""
    run = play("parameter-server.yaml")

    def await_passes(count: int) -> None:
        eventually(
            lambda: len(re.findall(r"chief-0 +\| pass ", run.out)),
            lambda passes: passes >= count,
            what=f"the chief made {count} passes; {run.err}{run.out[-3000:]}",
            within=DEADLINE,
        )

    await_passes(1)
    assert run.tfcluster("local", "kill", "worker-1").returncode == 0
    Api(run, "digits").patch({"jobs": {"worker": {"replicas": 4}}})
    eventually(
        lambda: "cluster epoch 2" in run.out, what="the running program is told of the new workers", within=DEADLINE
    )
    waited = run.tfcluster("wait", "digits", "--for", "ready", "--local", "--timeout", "200s", within=DEADLINE)
    assert waited.returncode == 0, waited.stderr
    assert "worker-1 starts again" in run.err
    await_passes(len(re.findall(r"chief-0 +\| pass ", run.out)) + 1)

    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert list(processes_with(str(run.state))) == []
