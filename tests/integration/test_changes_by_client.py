"""What the client changes, on a real API server with the real operator and whoever else acts on the same TFCluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from support.fault_proxy import Fault, FaultProxy
from support.objects import MERGE, TFCLUSTERS

from tfcluster import Client, ConflictError, Job, TFCluster
from tfcluster.changes import suspension
from tfcluster.commands.root import root
from tfcluster.kube.api import CONFIG_MAPS
from tfcluster.kube.api import TFCLUSTERS as CLUSTERS

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
    """Kinds that the client does not know are found by discovery; a second apply changes nothing."""
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


def test_nothing_comes_of_a_file_whose_cluster_is_refused(cli, client, tmp_path):
    """The API server's words name the field; no ConfigMap is left behind."""
    body = DIGITS.with_changes(workers=Job(replicas=9, max_replicas=4)).to_manifest()
    file = tmp_path / "digits.yaml"
    script = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script"}}
    file.write_text(yaml.safe_dump_all([script, body]))
    shown = cli("apply", "-f", str(file))
    assert shown.exit_code == 1
    assert "maxReplicas" in shown.stderr
    assert "digits.yaml:6: TFCluster digits" in shown.stderr
    assert not any(one["metadata"]["name"] == "script" for one in client.api.list(CONFIG_MAPS))


def test_fields_of_others_are_taken_over_only_when_asked(cli, client, world, objects, tmp_path):
    """A number that `kubectl scale` or an autoscaler set is not undone unsaid."""
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


def test_a_restart_survives_an_apply(cli, client, world, tmp_path):
    """The mark of a restart is nobody's field: the next apply of the file replaces no pod again."""
    file = written(tmp_path)
    cli("apply", "-f", str(file))
    world.await_pods(["digits-worker-0", "digits-worker-1"])
    before = {name: pod["metadata"]["uid"] for name, pod in world.pods().items()}
    assert cli("restart", "digits").exit_code == 0
    for name, uid in before.items():
        world.await_replaced(name, uid)
    generation = client.get("digits")["metadata"]["generation"]
    assert cli("apply", "-f", str(file)).stdout == "tfcluster/digits unchanged\n"
    assert client.get("digits")["metadata"]["generation"] == generation


def test_changes_reach_no_later_cluster_of_the_name(client):
    client.apply(DIGITS)
    first = client.get("digits")
    client.delete("digits")
    client.apply(DIGITS)
    with pytest.raises(ConflictError, match="created again meanwhile"):
        client._change(first, suspension(first), dry_run=False, tell=print)
    with pytest.raises(ConflictError):
        client.delete("digits", uid=first["metadata"]["uid"])
    assert client.get("digits")["spec"]["suspend"] is False


def test_dry_runs_change_nothing(cli, client, world):
    """The API server judges each."""
    client.apply(DIGITS)
    world.await_pods(["digits-worker-0", "digits-worker-1"])
    before = client.get("digits")["metadata"]["generation"]
    for line in ("scale digits 3", "suspend digits", "restart digits", "restart digits worker/0", "delete digits"):
        shown = cli(*line.split(), "--dry-run")
        assert (shown.exit_code, "dry run" in shown.stdout) == (0, True), shown.stderr
    assert client.get("digits")["metadata"]["generation"] == before
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods().values())


def test_who_may_not_is_told_so(cli, control_plane):
    """The words name the right, and the hint what to do; no traceback."""
    nobody = str(control_plane.kubeconfig_for("somebody-without-rights"))
    for line in ("scale digits 3", "delete digits", "events digits", "wait digits", "apply -f -"):
        shown = cli(*line.split(), kubeconfig=nobody, stdin=DIGITS.to_yaml())
        assert shown.exit_code == 1
        assert "cannot" in shown.stderr
        assert "Ask an administrator" in shown.stderr


def test_waiting_outlives_what_befalls_a_watch(control_plane, client, world, tmp_path):
    """A watch that is rejected, too old or broken is made again; the change in the meantime is not missed."""
    client.apply(DIGITS.with_changes(suspend=True))
    proxy = FaultProxy(control_plane.kubeconfig, tmp_path)
    try:
        with Client.connect(kubeconfig=proxy.kubeconfig, namespace=world.namespace) as behind:
            told: list[str] = []
            with (
                proxy.fault(Fault("refuse", resource="tfclusters", watch=True, times=1, status=410)),
                proxy.fault(Fault("refuse", resource="tfclusters", watch=True, times=2, skip=1, status=503)),
            ):
                later = threading.Timer(1.0, client.resume, ["digits"])
                later.start()
                behind.wait("digits", "condition=Suspended=False", timeout=30, tell=told.append)
            assert told
    finally:
        proxy.close()


def test_blocks_that_begin_together_have_one_owner(control_plane, world):
    created: list[bool] = []
    barrier = threading.Barrier(4)

    def create() -> None:
        with Client.connect(kubeconfig=control_plane.kubeconfig, namespace=world.namespace) as own:
            barrier.wait()
            created.append(own.api.apply(CLUSTERS, DIGITS.to_manifest(), world.namespace)[1])

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(created) == [False, False, False, True]
