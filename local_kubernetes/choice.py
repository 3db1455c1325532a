"""The three kinds of cluster that `up` starts or finds, with the same commands for each.

The order is fixed: the cluster of $KUBECONFIG if the user says so, kind if Docker runs, else our own node.
The choice is saved in the checkout, so that `down` never removes another cluster.
"""

import os
import subprocess
from pathlib import Path
from typing import Protocol

from local_kubernetes import checkout, cluster_registry, kind, network_policies, node, registry
from local_kubernetes.doctor import install_missing
from local_kubernetes.kubeconfig import write_private
from local_kubernetes.node_layout import STATE
from local_kubernetes.progress import LocalKubernetesError, tell

VARIABLE = "TFCLUSTER_KUBERNETES"
CHOSEN = checkout.LOCAL / "cluster"


class Cluster(Protocol):
    """A kind of cluster."""

    name: str

    def up(self) -> None:
        """Start or find it, and put its kubeconfig into the checkout."""

    def down(self) -> None:
        """Remove it."""

    def status(self) -> str:
        """Return one line; it begins with `running` if the cluster can be used."""

    def load_image(self, archive: Path, name: str | None) -> str:
        """Load an image archive onto the nodes; return the name that pods use for it."""

    def set_device(self, device: str, *, healthy: bool) -> None:
        """Set a fake device healthy or unhealthy."""

    def set_network_policies(self, *, enforced: bool) -> None:
        """Enable or disable the enforcement of NetworkPolicies on the nodes."""


class NodeCluster:
    """Our own cluster of one node."""

    name = "node"

    def up(self) -> None:
        """Start or find it."""
        plane = node.up()
        checkout.leave_kubeconfig(plane.kubeconfig)
        link = checkout.LOCAL / "audit.log"
        link.unlink(missing_ok=True)
        link.symlink_to(plane.audit_log)

    def down(self) -> None:
        """Remove it completely."""
        node.down()
        (checkout.LOCAL / "audit.log").unlink(missing_ok=True)

    def status(self) -> str:
        """Return one line."""
        trouble = node.whats_wrong()
        return f"not usable: {trouble}" if trouble else f"running: one node on this machine, state in {STATE}"

    def load_image(self, archive: Path, name: str | None) -> str:
        """Import it into containerd."""
        node.load_image(archive, name)
        return name or ""

    def set_device(self, device: str, *, healthy: bool) -> None:
        """Change it in the device plugin."""
        node.set_device(device, healthy=healthy)

    def set_network_policies(self, *, enforced: bool) -> None:
        """Start or stop the program that enforces them."""
        if enforced:
            network_policies.enforce()
        else:
            network_policies.ignore()


class KindCluster:
    """A cluster of kind."""

    name = "kind"

    def up(self) -> None:
        """Start or find it."""
        kind.up()

    def down(self) -> None:
        """Delete it."""
        kind.down()

    def status(self) -> str:
        """Return one line."""
        return f"running: kind cluster {kind.NAME}" if kind.running() else "not usable: it is not running"

    def load_image(self, archive: Path, name: str | None) -> str:
        """Import it into the kind node."""
        kind.load_image(archive, name)
        return name or ""

    def set_device(self, device: str, *, healthy: bool) -> None:
        """Change it in the device plugin of the kind node."""
        kind.set_device(device, healthy=healthy)

    def set_network_policies(self, *, enforced: bool) -> None:
        """Leave it to kind's network, which enforces them from kind 0.24 on."""
        tell(f"kind's own network enforces network policies, or does not: {enforced=} changes nothing")


class CurrentCluster:
    """The cluster of the user's own kubeconfig, whose nodes must not be changed."""

    name = "current"

    def up(self) -> None:
        """Copy the kubeconfig's current context."""
        view: list[str | Path] = [
            checkout.LOCAL / "bin" / "kubectl",
            "config",
            "view",
            "--raw",
            "--flatten",
            "--minify",
        ]
        done = subprocess.run(view, check=False, capture_output=True, text=True)
        if done.returncode:
            raise LocalKubernetesError(f"{VARIABLE}=current, but $KUBECONFIG has no cluster: {done.stderr.strip()}")
        source = checkout.LOCAL / "kubeconfig.current"
        write_private(source, done.stdout)
        checkout.leave_kubeconfig(source)
        source.unlink()
        if not self._answers():
            raise LocalKubernetesError(f"{VARIABLE}=current, but the cluster of $KUBECONFIG does not answer")

    def down(self) -> None:
        """Remove the registry if load_image() started one; leave everything else as it is."""
        if checkout.KUBECONFIG.exists():
            cluster_registry.remove()
        tell("the cluster is your own: it is kept, and so is everything that was installed in it")

    def status(self) -> str:
        """Return one line."""
        return "running: the cluster of $KUBECONFIG" if self._answers() else "not usable: it does not answer"

    def load_image(self, archive: Path, name: str | None) -> str:
        """Push it to the registry of the user, or else to one in the cluster."""
        if not name:
            raise LocalKubernetesError(f"{VARIABLE}=current: give {archive} a name, by which it is pushed")
        if registry.given():
            pushed = registry.name_in(registry.given(), name)
            registry.push(archive, pushed)
            return pushed
        inside = cluster_registry.start()
        with cluster_registry.forwarded() as outside:
            registry.push(archive, registry.name_in(outside, name))
        return registry.name_in(inside, name)

    def set_device(self, device: str, *, healthy: bool) -> None:
        """Reject the command."""
        state = "healthy" if healthy else "unhealthy"
        raise LocalKubernetesError(f"{VARIABLE}=current: {device} cannot be made {state}, no fake devices run there")

    def set_network_policies(self, *, enforced: bool) -> None:
        """Leave it to the cluster's network."""
        tell(f"the cluster's own network enforces network policies, or does not: {enforced=} changes nothing")

    def _answers(self) -> bool:
        answer = subprocess.run(checkout.kubectl("get", "--raw=/readyz"), check=False, capture_output=True)
        return answer.returncode == 0


CLUSTERS: dict[str, type[Cluster]] = {"node": NodeCluster, "kind": KindCluster, "current": CurrentCluster}


def choose() -> Cluster:
    """Return the kind of cluster for this machine and user.

    Raises:
        LocalKubernetesError: $TFCLUSTER_KUBERNETES has another value than current, kind or node.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted and wanted not in CLUSTERS:
        raise LocalKubernetesError(f"{VARIABLE}={wanted}: known are {', '.join(CLUSTERS)}, or leave it unset")
    return CLUSTERS[wanted or ("kind" if kind.usable() else "node")]()


def chosen() -> Cluster:
    """Return the kind of cluster that `up` chose in this checkout; before the first `up`, the one it would choose."""
    if os.environ.get(VARIABLE) or not CHOSEN.exists():
        return choose()
    return CLUSTERS[CHOSEN.read_text().strip()]()


def up() -> Cluster:
    """Start or find a cluster; put its kubeconfig, kubectl and helm into the checkout."""
    cluster = choose()
    if cluster.name == "current":
        checkout.link_users_tools()
    else:
        if cluster.name != "node" or node.whats_wrong():
            install_missing(node=cluster.name == "node")
        checkout.link_tools()
    cluster.up()
    CHOSEN.write_text(cluster.name)
    return cluster


def down() -> None:
    """Remove the cluster and the files that `up` put into the checkout, except kubectl and helm."""
    chosen().down()
    for path in (checkout.KUBECONFIG, CHOSEN):
        path.unlink(missing_ok=True)
