"""What the tool leaves in the checkout: `.local/kubeconfig` and `.local/bin`."""

from __future__ import annotations

from pathlib import Path

from local_kubernetes import binaries
from local_kubernetes.kubeconfig import write_private

LOCAL = Path(__file__).resolve().parent.parent / ".local"
KUBECONFIG = LOCAL / "kubeconfig"


def link_tools() -> None:
    """Put kubectl and helm into .local/bin."""
    (LOCAL / "bin").mkdir(parents=True, exist_ok=True)
    # hyperkube is whatever program it is called by.
    for name, target in (("kubectl", binaries.hyperkube()), ("helm", binaries.helm())):
        link = LOCAL / "bin" / name
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)


def leave_kubeconfig(source: Path) -> None:
    """Copy a kubeconfig to .local/kubeconfig.

    Args:
        source: The administrator's kubeconfig of the cluster.
    """
    write_private(KUBECONFIG, source.read_text())
