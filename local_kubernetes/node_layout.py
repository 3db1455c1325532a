"""The paths and the processes of the one-node cluster on the machine. Read-only."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from local_kubernetes import processes
from local_kubernetes.components import Addresses
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.node_files import CGROUP, Network

STATE = Path("/var/lib/tfcluster-kubernetes")
"""On a disk, as it holds images of gigabytes."""

LOCK = Path("/run/tfcluster-kubernetes.lock")
COMPLETE = STATE / "complete"
"""Written at the end of a start."""

UNHEALTHY_DEVICES = STATE / "unhealthy-devices"
"""Holds a file for each device that the plugin shall report as unhealthy."""

CABLE = "tfcluster-host"
"""The machine's end of the cable into the node."""

MOUNT_POINTS = (Path("/var/lib/kubelet"), Path("/var/lib/cni"))
"""Folders that must exist for the node to mount its own over them."""

CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
DEVICES = tuple(f"GPU-{index:04}" for index in range(8))
NETWORK = Network()
ADDRESSES = Addresses(
    host=NETWORK.node_end,
    bind="0.0.0.0",  # noqa: S104 - of the node's own network namespace
    advertise=NETWORK.node,
    api_port=6443,
    etcd_port=2379,
    etcd_peer_port=2380,
    service_range=NETWORK.services,
)
PROGRAMS = frozenset(
    {
        "containerd",
        "coredns",
        "etcd",
        "fake-gpu-plugin",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubelet",
        "namespaces",
    }
)
"""What runs in a whole cluster."""


def plane() -> ControlPlane:
    """Return the node's control plane, whether it runs or not."""
    return ControlPlane(STATE / "control-plane", ADDRESSES)


def running() -> list[processes.Program]:
    """Return all processes of the cluster outside of pods."""
    return [*processes.running(STATE), *processes.running(plane().state)]


def first_process() -> int | None:
    """Return the process ID, outside, of process 1 of the node's PID namespace; None if the node does not run."""
    return next((program.pid for program in processes.running(STATE) if is_first(program)), None)


def enter(first: int) -> tuple[str, ...]:
    """Return the command that runs its arguments inside the node's namespaces."""
    return ("nsenter", f"--target={first}", "--mount", "--net", "--pid", "--ipc")


def is_first(program: processes.Program) -> bool:
    """Return whether a process is number 1 of the node's PID namespace."""
    with suppress(OSError):
        return program.name == "namespaces" and Path(f"/proc/{program.pid}/exe").readlink().name == "pause"
    return False


def cgroup_folders() -> list[Path]:
    """Return the paths of our control group: in the one tree of version 2, in each tree of version 1."""
    return list(_cgroup_folders(Path("/sys/fs/cgroup")))


def _cgroup_folders(root: Path) -> Iterator[Path]:
    if (root / "cgroup.controllers").exists():
        yield root / CGROUP
        return
    for tree in root.iterdir():
        if (tree / "cgroup.procs").exists() and not tree.is_symlink():
            yield tree / CGROUP
