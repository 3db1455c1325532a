"""Simulated nodes stay Ready and delete pods as a kubelet does: measurements and scale tests depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kubernetes import client, config
from support.manifests import pod_template
from support.objects import LEASES, NODES, PODS, SERVICE_ACCOUNTS, Objects
from support.waiting import eventually

from local_kubernetes.control_plane import start

pytestmark = pytest.mark.exhaustive

#: Enough nodes to make the simulated kubelet lag.
_PODS = 300


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Objects]:
    with start(tmp_path / "control-plane", kwok_nodes=2) as plane:
        configuration = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        yield Objects(client.ApiClient(configuration))


def test_simulated_nodes_renew_their_leases(nodes: Objects) -> None:
    """Each node has a Lease that is renewed within 50 s; after that its pods would not be Ready."""
    names = {node["metadata"]["name"] for node in nodes.list(NODES, "")}
    leases = eventually(
        lambda: {lease["metadata"]["name"]: lease["spec"] for lease in nodes.list(LEASES, "kube-node-lease")},
        lambda found: set(found) == names,
        what="every simulated node has a Lease",
    )
    assert names == {"fake-0", "fake-1"}
    # The kubelet and kwok renew after a quarter of the duration.
    assert {spec["leaseDurationSeconds"] / 4 <= 30 for spec in leases.values()} == {True}


def test_pod_in_the_place_of_one_deleted_by_force_stays(nodes: Objects) -> None:
    """The simulator (kwok) identifies pods by name, but must not delete a new one instead of a deleted one."""
    eventually(lambda: nodes.get(SERVICE_ACCOUNTS, "default", "default"), what="the namespace can hold pods")
    names = [f"pod-{number}" for number in range(_PODS)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: _create(nodes, name), names))
        _await_ready(nodes, len(names))

        def replace(name: str) -> str:
            nodes.delete(PODS, "default", name, grace_seconds=0)
            return _create(nodes, name)

        made = set(pool.map(replace, names))
        assert _await_ready(nodes, len(names)) == made
        list(pool.map(lambda name: nodes.delete(PODS, "default", name), names))
    eventually(lambda: nodes.list(PODS, "default"), lambda pods: not pods, what="pods end that are told to")


def _create(nodes: Objects, name: str) -> str:
    """Create a pod on a node without the scheduler; return its UID."""
    body = {"metadata": {"name": name}, **pod_template(spec={"nodeName": "fake-0"})}
    uid: str = nodes.create(PODS, "default", body)["metadata"]["uid"]
    return uid


def _await_ready(nodes: Objects, count: int) -> set[str]:
    pods = eventually(
        lambda: [pod for pod in nodes.list(PODS, "default") if pod["status"].get("phase") == "Running"],
        lambda running: len(running) == count,
        what=f"{count} pods run",
    )
    return {pod["metadata"]["uid"] for pod in pods}
