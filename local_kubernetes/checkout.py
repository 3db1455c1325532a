"""The files that the tool puts into the checkout: `.local/kubeconfig` and `.local/bin`."""

import os
import shutil
import subprocess
from pathlib import Path

from local_kubernetes import binaries
from local_kubernetes.kubeconfig import write_private
from local_kubernetes.progress import LocalKubernetesError

LOCAL = Path(__file__).resolve().parent.parent / ".local"
KUBECONFIG = LOCAL / "kubeconfig"


def link_tools() -> None:
    """Put kubectl and helm of our own cluster's version into .local/bin."""
    _link(kubectl=binaries.kubectl(), helm=binaries.helm())


def link_users_tools() -> None:
    """Put the user's own kubectl and helm into .local/bin; helm is built if PATH does not have version 4.

    Raises:
        LocalKubernetesError: kubectl is missing; ours is a part of Kubernetes that would take long to build.
    """
    kubectl = _users("kubectl")
    if not kubectl:
        raise LocalKubernetesError("kubectl is not on PATH: install it (https://kubernetes.io/docs/tasks/tools)")
    _link(kubectl=kubectl, helm=_users_helm() or binaries.helm())


def kubectl(*arguments: str) -> list[str]:
    """Return a command line for the cluster of .local/kubeconfig."""
    return [str(LOCAL / "bin" / "kubectl"), f"--kubeconfig={KUBECONFIG}", *arguments]


def leave_kubeconfig(source: Path) -> None:
    """Copy a kubeconfig to .local/kubeconfig; an identical file is not touched, so that it keeps its timestamp."""
    text = source.read_text()
    if not KUBECONFIG.is_file() or KUBECONFIG.read_text() != text:
        write_private(KUBECONFIG, text)


def _users(program: str) -> Path | None:
    # .local/bin can be on PATH itself, and a link must not point at itself.
    folders = os.environ.get("PATH", "").split(os.pathsep)
    elsewhere = [folder for folder in folders if folder and Path(folder).resolve() != (LOCAL / "bin").resolve()]
    found = shutil.which(program, path=os.pathsep.join(elsewhere))
    return Path(found).absolute() if found else None


def _users_helm() -> Path | None:
    found = _users("helm")
    if found:
        told = subprocess.run([found, "version", "--short"], check=False, capture_output=True, text=True).stdout
        if told.startswith("v4."):  # version 3 lacks options that `make install` uses
            return found
    return None


def _link(**targets: Path) -> None:
    (LOCAL / "bin").mkdir(parents=True, exist_ok=True)
    for name, target in targets.items():
        link = LOCAL / "bin" / name
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
