"""Simulated nodes stay Ready: measurements and tests of scale go on for longer than a node may be silent."""

from __future__ import annotations

from pathlib import Path

from kubernetes import client, config
from support.objects import LEASES, NODES, Objects
from support.waiting import eventually

from local_kubernetes.control_plane import start


def test_simulated_nodes_renew_their_leases(tmp_path: Path) -> None:
    """Each node has a Lease, renewed before the 50 s are over after which its pods would not be Ready any more."""
    with start(tmp_path / "control-plane", kwok_nodes=2) as plane:
        configuration = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        objects = Objects(client.ApiClient(configuration))
        names = {node["metadata"]["name"] for node in objects.list(NODES, "")}

        leases = eventually(
            lambda: {lease["metadata"]["name"]: lease["spec"] for lease in objects.list(LEASES, "kube-node-lease")},
            lambda found: set(found) == names,
            what="every simulated node has a Lease",
        )

    assert names == {"fake-0", "fake-1"}
    # The kubelet and kwok renew after a quarter of it.
    assert {spec["leaseDurationSeconds"] / 4 <= 30 for spec in leases.values()} == {True}
