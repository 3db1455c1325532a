"""A cluster of one real node on this machine: containerd, kubelet, kube-proxy, CoreDNS and fake GPUs.

All of it runs in its own mount, network, PID and IPC namespaces. The kernel then does the clean-up: when the first
process of the PID namespace ends, all others are killed, and with the last one the mounts and the network are
removed, however the run ended. Only folders and control groups are left, which clear() removes. There is at most one
such cluster on a machine, in STATE, whichever checkout started it. Needs root.
"""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from local_kubernetes import node_layout, processes
from local_kubernetes.api_client import POLL_SECONDS
from local_kubernetes.cache import locked
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.node_layout import CABLE, COMPLETE, LOCK, MOUNT_POINTS, PROGRAMS, STATE, UNHEALTHY_DEVICES
from local_kubernetes.node_start import NodeStart, import_image
from local_kubernetes.progress import LocalKubernetesError, tell


def up() -> ControlPlane:
    """Find the cluster, or start it.

    Raises:
        LocalKubernetesError: It does not start.
    """
    _check_root()
    with locked(LOCK):
        trouble = whats_wrong()
        if trouble:
            if STATE.exists():
                tell(f"starting the cluster anew: {trouble}")
            clear()
            NodeStart().run()
    return node_layout.plane()


def down() -> None:
    """Stop the cluster and remove it completely."""
    _check_root()
    with locked(LOCK):
        clear()


def whats_wrong() -> str:
    """Return why the cluster cannot be used, or ""."""
    if not COMPLETE.exists():
        return "an earlier start did not come to its end" if STATE.exists() else "it is not running"
    if os.geteuid() != 0:
        return "only root can use it"
    dead = PROGRAMS - {program.name for program in node_layout.running()}
    if dead:
        return f"not running: {', '.join(sorted(dead))}"
    plane = node_layout.plane()
    if plane.authority.expires_within(24 * 3600):
        return "its certificates end within a day"
    try:
        status, _ = plane.api.request("GET", "/readyz")
    except OSError as error:
        return f"the API server does not answer: {error}"
    return "" if status == 200 else f"the API server is not ready: status {status}"


def clear() -> None:
    """Stop all programs of the cluster, complete or not, and remove their files."""
    programs = node_layout.running()
    # The first process of the PID namespace is killed first, and with it all others; its parent outside reaps it.
    processes.stop(program for program in programs if node_layout.is_first(program))
    processes.stop(programs)
    if Path("/sys/class/net", CABLE).exists():
        subprocess.run(
            ["ip", "link", "delete", CABLE], check=False, capture_output=True
        )  # it can disappear by itself now
    for folder in node_layout.cgroup_folders():
        _remove_cgroup(folder)
    if STATE.exists():
        shutil.rmtree(STATE)
    for folder in MOUNT_POINTS:
        with suppress(OSError):  # it does not exist, or it is in use
            folder.rmdir()


def load_image(archive: Path, name: str | None) -> None:
    """Import an image for pods."""
    import_image(archive, name)


def set_device(device: str, *, healthy: bool) -> None:
    """Make the device plugin report a device's health."""
    mark = UNHEALTHY_DEVICES / device
    if healthy:
        mark.unlink(missing_ok=True)
    else:
        mark.touch()


def _check_root() -> None:
    if os.geteuid() != 0:
        raise LocalKubernetesError("the one-node cluster belongs to root: use sudo")


def _remove_cgroup(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        for _ in range(100):  # a killed process leaves its group a moment after its end
            try:
                Path(path).rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(POLL_SECONDS)
            else:
                break
