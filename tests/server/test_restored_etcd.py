"""etcd is restored from a backup while the operator runs, so the API server's history goes back."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.control_planes import client_of, install_crd
from support.manifests import tfcluster
from support.objects import PODS, TFCLUSTERS, Objects
from support.operator_process import OperatorProcess
from support.waiting import eventually


@pytest.fixture
def process(own_server, tmp_path: Path) -> Iterator[OperatorProcess]:
    found = OperatorProcess(kubeconfig=Path(own_server.kubeconfig), log=tmp_path / "operator.log")
    yield found
    found.kill()


def test_operator_ends_when_etcd_was_restored(own_server, process, tmp_path):
    """The operator's data is newer than the API server's: it logs this and exits; after a restart it is correct."""
    objects = Objects(client_of(own_server))
    install_crd(objects)

    def pods() -> set[str]:
        return {pod["metadata"]["name"] for pod in objects.list(PODS, "default")}

    process.start()
    objects.create(TFCLUSTERS, "default", tfcluster("c").job("worker", replicas=2).build())
    eventually(pods, lambda found: found == {"c-worker-0", "c-worker-1"}, what="two pods")
    own_server.restart_server(lambda data: shutil.copytree(data, tmp_path / "backup"))
    scale = {"spec": {"jobs": {"worker": {"replicas": 4}}}}
    objects.request("PATCH", TFCLUSTERS.path("default", "c"), scale, content="application/merge-patch+json")
    eventually(pods, lambda found: len(found) == 4, what="four pods")
    for number in range(100):  # a server that starts writes objects, too, and its history must not catch up
        objects.patch(PODS, "default", "c-worker-0", {"metadata": {"annotations": {"edit": str(number)}}})
    assert process.running

    def go_back(data: Path) -> None:
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "backup", data)

    own_server.restart_server(go_back)

    eventually(lambda: process.exit_code, lambda code: code is not None, what="the operator ends")
    assert process.exit_code == 1
    assert "was etcd restored from a backup?" in process.tail()
    process.start()
    objects.request("PATCH", TFCLUSTERS.path("default", "c"), scale, content="application/merge-patch+json")
    eventually(pods, lambda found: len(found) == 4, what="four pods again")
