"""Typical TFJobs, converted and applied: their programs train unchanged."""

import json
import subprocess
from collections.abc import Callable

import pytest
from click.testing import CliRunner
from live_world import LiveWorld
from support.objects import PODS
from support.tf_config_programs import COORDINATED, GRAPH, MIRRORED
from support.waiting import eventually

from tfcluster.commands.root import root
from tfcluster.errors import ExitCode

pytestmark = pytest.mark.exhaustive

#: A typical file: the programs, and three TFJobs of three versions of the API.
BUNDLE = """\
# The programs of all three.
apiVersion: v1
kind: ConfigMap
metadata: {name: programs}
data: PROGRAMS
---
apiVersion: kubeflow.org/v1beta1
kind: TFJob
metadata: {name: graph}
spec:
  cleanPodPolicy: None
  tfReplicaSpecs:
    MASTER:
      template: &task
        spec:
          volumes: [{name: programs, configMap: {name: programs}}]
          containers: [{TASK, command: [python3, /programs/graph.py]}]
    Ps: {template: *task}
    Worker: {template: *task}
---
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mirrored}
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          volumes: [{name: programs, configMap: {name: programs}}]
          containers:
            - {TASK, command: [python3, /programs/mirrored.py], ports: [{name: tfjob-port, containerPort: 5000}]}
---
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: coordinated}
spec:
  runPolicy: {cleanPodPolicy: Running}
  tfReplicaSpecs:
    Chief: &replica
      restartPolicy: OnFailure
      template:
        spec:
          terminationGracePeriodSeconds: 1  # else a ps, which hears no SIGTERM, is there for 30 seconds more
          volumes: [{name: programs, configMap: {name: programs}}]
          containers: [{TASK, command: [python3, /programs/coordinated.py]}]
    PS: {<<: *replica, replicas: 2}
    Worker: *replica
    Evaluator: *replica
"""
#: The fields that all its containers share.
TASK = (
    "name: tensorflow, image: 'IMAGE', volumeMounts: [{name: programs, mountPath: /programs}], "
    "resources: {requests: {cpu: 20m, memory: 128Mi}}"
)


def test_programs_of_tfjobs_train_unchanged(
    world: LiveWorld, kubectl: Callable[..., subprocess.CompletedProcess[str]], training_image: str
) -> None:
    programs = {"graph.py": GRAPH, "mirrored.py": MIRRORED, "coordinated.py": COORDINATED}
    bundle = BUNDLE.replace("PROGRAMS", json.dumps(programs)).replace("TASK", TASK).replace("IMAGE", training_image)

    converted = CliRunner().invoke(root, ["convert", "-f", "-"], input=bundle)
    assert converted.exit_code == ExitCode.LOSSY, converted.stderr
    applied = kubectl("-n", world.namespace, "apply", "-f", "-", stdin=converted.stdout)
    assert applied.returncode == 0, applied.stderr

    for name in ("graph", "mirrored", "coordinated"):
        world.await_success(name)
        assert world.status(name)["restarts"] == 0
    assert "master 0 of 1 workers, 3 jobs, loss 0.0000\ndone\n" in world.logs("graph-master-0")
    assert [f"worker {i} of 2, loss" in world.logs(f"mirrored-worker-{i}") for i in (0, 1)] == [True, True]
    said = world.logs("coordinated-chief-0")
    assert "chief of 1 workers and 2 ps, ['chief', 'ps', 'worker']\nweight 3.00, kept by ps 0 and 1\ndone\n" in said
    assert "evaluator of ['chief', 'evaluator', 'ps', 'worker']" in world.logs("coordinated-evaluator-0")
    # cleanPodPolicy None keeps a running ps, Running deletes it.
    assert world.demand(PODS, "graph-ps-0")["status"]["phase"] == "Running"
    eventually(lambda: world.get(PODS, "coordinated-ps-0"), lambda pod: pod is None, what="the ps is gone")
