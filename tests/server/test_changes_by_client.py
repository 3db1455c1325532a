"""Changes by the client, on a real API server with the real operator and other field managers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from support.objects import MERGE, TFCLUSTERS

from tfcluster import Client, Job, TFCluster
from tfcluster.commands.root import root

pytestmark = pytest.mark.usefixtures("operator")

IMAGE = "registry.k8s.io/pause:3.10"
DIGITS = TFCluster("digits", image=IMAGE, workers=Job(replicas=2, max_replicas=4))


@pytest.fixture
def client(control_plane, world) -> Iterator[Client]:
    with Client.connect(kubeconfig=control_plane.kubeconfig, namespace=world.namespace) as found:
        yield found


@pytest.fixture
def cli(control_plane, world) -> Callable[..., Result]:
    def run(command: str, *arguments: str, kubeconfig: str = "", stdin: str | None = None) -> Result:
        place = ["--kubeconfig", kubeconfig or str(control_plane.kubeconfig), "-n", world.namespace]
        return CliRunner().invoke(root, [command, *place, *arguments], input=stdin)

    return run


def written(folder: Path) -> Path:
    file = folder / "digits.yaml"
    file.write_text(DIGITS.to_yaml())
    return file


def test_apply_brings_what_a_cluster_needs(cli, world, tmp_path):
    """Kinds that the client does not include are found with discovery; a second apply has no effect."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    others = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"}, "spec": claim},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"token": "x"}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "download"}, "spec": job_spec()},
    ]
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump_all([DIGITS.to_manifest(), *others]))
    expected = ["persistentvolumeclaim/checkpoints", "secret/key", "job/download", "tfcluster/digits"]
    first, second = (cli("apply", "-f", str(file)) for _ in range(2))
    assert first.stdout.splitlines() == [f"{name} created" for name in expected], first.stderr
    told = second.stdout.splitlines()
    assert (told[0], told[2:]) == (f"{expected[0]} unchanged", [f"{name} unchanged" for name in expected[2:]])
    world.await_pods(["digits-worker-0", "digits-worker-1"])


def job_spec():
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": IMAGE}]}}
    return {"suspend": True, "template": template}


def test_fields_of_others_are_taken_over_only_when_asked(cli, client, world, objects, tmp_path):
    """A number that `kubectl scale` or an autoscaler set is not silently reverted."""
    file = written(tmp_path)
    assert cli("apply", "-f", str(file)).exit_code == 0
    scale = {"spec": {"replicas": 3}}
    objects.request("PATCH", TFCLUSTERS.path(world.namespace, "digits", "scale"), scale, content=MERGE)
    shown = cli("apply", "-f", str(file))
    assert shown.exit_code == 1
    assert ".spec.jobs.worker.replicas" in shown.stderr
    assert "--force-conflicts" in shown.stderr
    assert client.get("digits")["spec"]["jobs"]["worker"]["replicas"] == 3
    assert cli("apply", "-f", str(file), "--force-conflicts").exit_code == 0
    assert client.get("digits")["spec"]["jobs"]["worker"]["replicas"] == 2


def test_missing_permission_is_reported(cli, control_plane):
    nobody = str(control_plane.kubeconfig_for("somebody-without-rights"))
    for line in ("scale digits 3", "delete digits", "events digits", "wait digits", "apply -f -"):
        shown = cli(*line.split(), kubeconfig=nobody, stdin=DIGITS.to_yaml())
        assert shown.exit_code == 1
        assert "cannot" in shown.stderr
        assert "Ask an administrator" in shown.stderr
