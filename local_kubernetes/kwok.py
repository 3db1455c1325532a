"""Simulated nodes for a control plane: kwok plays the kubelets, and 8 GPUs of each node are numbers in its status."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from local_kubernetes import binaries, processes

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

POD_RANGE = "198.18.0.0/16"
"""The addresses kwok gives to pods; nothing routes them."""

RESOURCES = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
MARK = "kwok.x-k8s.io/node"

_DELETION = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-obeys-deletion
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
    - key: '.metadata | select(.deletionTimestamp != null and .deletionGracePeriodSeconds != 0) | .name'
      operator: Exists
  next:
    delete: true
"""
"""How a pod ends. One without a period of grace is gone at once. kwok deletes by the name alone, and late where it has
much to do: it would delete the pod that was made in its place meanwhile. A kubelet names the UID."""


def simulate_nodes(plane: ControlPlane, count: int, *, owner: str = "") -> None:
    """Start kwok and create nodes; returns when all are Ready."""
    folder = binaries.kwok()
    stages = plane.state / "kwok-stages.yaml"
    stages.write_text((folder / "stages.yaml").read_text() + _DELETION)
    processes.launch(
        [
            folder / "kwok",
            f"--kubeconfig={plane.write_component_kubeconfig('kwok', 'kwok', groups=('system:masters',))}",
            f"--config={stages}",
            "--enable-crds=",  # its rules come from the file above and not from objects
            f"--manage-nodes-with-annotation-selector={MARK}=fake",
            f"--cidr={POD_RANGE}",
            "--node-ip=127.0.0.1",
            "--node-port=0",
            "--server-address=",
            # It does not renew leases by itself, and nodes without them are NotReady after 50 s: renewed every 30 s.
            "--node-lease-duration-seconds=120",
            "--v=WARN",  # at INFO it writes a line for every patch
        ],
        name="kwok",
        state=plane.state,
        owner=owner,
    )
    api = plane.api
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: api.create("/api/v1/nodes", node(f"fake-{index}")), range(count)))

    def all_ready(nodes: dict[str, Any]) -> bool:
        ready = [c for n in nodes["items"] for c in n["status"].get("conditions", []) if c["type"] == "Ready"]
        ready_count: int = sum(condition["status"] == "True" for condition in ready)
        return ready_count >= count

    api.wait_for("/api/v1/nodes", all_ready, what=f"{count} simulated nodes", alive=plane.check_alive)


def node(name: str) -> dict[str, Any]:
    """Return a Node that kwok manages."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {MARK: "fake"}},
        "status": {"capacity": RESOURCES, "allocatable": RESOURCES},
    }
