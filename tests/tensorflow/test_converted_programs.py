"""Programs that were written for TFJob run unchanged with the TF_CONFIG of the TFCluster that their TFJob becomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fork_server import ENVIRONMENT, Forked
from loopback_cluster import DEADLINE, ROOT, free_ports
from support.tf_config_programs import COORDINATED, GRAPH, MIRRORED

sys.path[:0] = [str(ROOT / "client"), str(ROOT / "operator")]

from tfcluster.convert.check import texts_of  # noqa: E402 - likewise
from tfcluster.convert.conversion import convert  # noqa: E402 - after the path

pytestmark = pytest.mark.exhaustive


class Converted:
    """The replicas of a converted TFJob as processes on loopback.

    Args:
        folder: where what they say is written.
        counts: how many replicas of each type.
        spec: further fields of the TFJob's spec.
    """

    def __init__(self, folder: Path, counts: dict[str, int], **spec: Any) -> None:
        self.folder = folder
        template = {"spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["run"]}]}}
        replicas = {key: {"replicas": count, "template": template} for key, count in counts.items()}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist"}}
        conversion = convert({**job, "spec": {**spec, "tfReplicaSpecs": replicas}})
        assert conversion.cluster is not None
        self.texts = texts_of(conversion.cluster)
        ports = iter(free_ports(len(self.texts)))
        self._local = {f"mnist-{job}-{index}.mnist.default.svc:2222": next(ports) for job, index in self.texts}
        self.processes: dict[tuple[str, int], subprocess.Popen[str]] = {}

    def start(self, program: str) -> None:
        """Start all replicas."""
        for (job, index), text in self.texts.items():
            assert text is not None
            for address, port in self._local.items():
                text = text.replace(f'"{address}"', f'"127.0.0.1:{port}"')  # noqa: PLW2901 - address by address
            environment = {**os.environ, **ENVIRONMENT, "TF_CONFIG": text}
            self.processes[job, index] = Forked(
                [sys.executable, "-c", program],
                env=environment,
                stdout=(self.folder / f"{job}-{index}.out").open("w"),
                stderr=(self.folder / f"{job}-{index}.log").open("w"),
                text=True,
            )

    def said(self, job: str, index: int = 0) -> str:
        """Give what a replica printed, once it has ended well."""
        code = self.processes[job, index].wait(DEADLINE)
        logs = "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))
        assert code == 0, logs
        return (self.folder / f"{job}-{index}.out").read_text()

    def end(self) -> None:
        """End all replicas, as the operator does when the cluster has succeeded."""
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def tfjob(tmp_path: Path) -> Iterator[Callable[..., Converted]]:
    """Makes converted TFJobs whose processes end with the test."""
    made: list[Converted] = []

    def make(program: str, counts: dict[str, int], **spec: Any) -> Converted:
        made.append(Converted(tmp_path, counts, **spec))
        made[-1].start(program)
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_graph_of_tensorflow_1(tfjob: Callable[..., Converted]) -> None:
    """Servers, a graph between them and MonitoredTrainingSession train to the end, led by the master."""
    running = tfjob(GRAPH, {"Master": 1, "PS": 2, "Worker": 1})
    assert "master 0 of 1 workers, 3 jobs, loss 0.0000\ndone\n" in running.said("master")
    assert running.processes["ps", 0].poll() is None


def test_equal_workers(tfjob: Callable[..., Converted]) -> None:
    running = tfjob(MIRRORED, {"Worker": 2})
    said = [running.said("worker", index) for index in (0, 1)]
    losses = [one.partition("loss ")[2].split()[0] for one in said]
    assert [one.partition(", ")[0] for one in said] == ["worker 0 of 2", "worker 1 of 2"]
    assert losses[0] == losses[1]
    assert float(losses[0]) < 0.01


def test_parameter_servers_of_tensorflow_2(tfjob: Callable[..., Converted]) -> None:
    """ParameterServerStrategy trains with an evaluator beside it and workers that may come and go.

    With TFJob it does not: the chief's cluster is empty then.
    """
    counts = {"Chief": 1, "PS": 2, "Worker": 1, "Evaluator": 1}
    running = tfjob(COORDINATED, counts, enableDynamicWorker=True)
    said = running.said("chief")
    assert "chief of 1 workers and 2 ps, ['chief', 'ps', 'worker']\nweight 3.00, kept by ps 0 and 1\ndone\n" in said
    assert "evaluator of ['chief', 'evaluator', 'ps', 'worker']\ndone\n" in running.said("evaluator")
    seen = json.loads(running.texts["worker", 0] or "")["cluster"]
    assert {job: len(tasks) for job, tasks in seen.items()} == {"ps": 2, "worker": 1}
