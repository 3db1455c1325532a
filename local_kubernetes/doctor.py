"""The requirements of each kind of cluster, and how to meet those that the machine does not meet.

Every check is practical: it runs the command or tries the kernel's feature.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from local_kubernetes.go_toolchain import GO_WHEEL, go_on_path
from local_kubernetes.node_layout import CNI_FOLDERS
from local_kubernetes.progress import LocalKubernetesError, tell

PACKAGES = {
    "openssl": "openssl",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
}
"""Commands of the one-node cluster and the Debian packages that have them."""

CNI_PACKAGE = "containernetworking-plugins"
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
CGROUP_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
KERNEL_TRIALS = {
    "kernel: overlay file system": "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay top",
    "kernel: bridge": "ip link add trial type bridge",
    "kernel: veth": "ip link add trial type veth peer name trial2",
    "kernel: iptables NAT": "iptables -w -t nat -A POSTROUTING -m comment --comment trial -j MASQUERADE",
    "kernel: iptables conntrack": "iptables -w -A FORWARD -m conntrack --ctstate RELATED -j ACCEPT",
}
"""What a fresh set of namespaces must be able to do, as shell commands."""


@dataclass(frozen=True, slots=True)
class Check:
    """One checked requirement."""

    name: str
    present: bool
    remedy: str
    """What to do if it is missing."""
    package: str = ""
    """The Debian package that has it."""

    def __str__(self) -> str:
        return f"{'ok     ' if self.present else 'MISSING'} {self.name}" + ("" if self.present else f": {self.remedy}")


def control_plane_checks() -> Iterator[Check]:
    """Check the requirements of a control plane on loopback."""
    yield Check("Linux", sys.platform == "linux", "use a Linux machine, or one where Docker and kind run")
    yield Check(
        f"Go ({go_on_path() or f'none on PATH: PyPI package {GO_WHEEL} will be used'})",
        go_on_path() is not None or shutil.which("pip") is not None or _has_module("venv"),
        "install Go 1.26 and put it on PATH",
    )
    yield _command("openssl")


def node_checks() -> Iterator[Check]:
    """Check the additional requirements of the one-node cluster."""
    root = os.geteuid() == 0
    yield Check("root", root, "run as root (sudo), or use `control-plane up`, which needs no root and has no node")
    for command in PACKAGES:
        if command != "openssl":
            yield _command(command)
    for plugin in CNI_PLUGINS:
        found = any((folder / plugin).exists() for folder in CNI_FOLDERS)
        yield Check(f"CNI plugin {plugin}", found, _apt_line(CNI_PACKAGE), CNI_PACKAGE)
    controllers = cgroup_controllers()
    for controller in CGROUP_CONTROLLERS:
        remedy = "mount it, or enable it in cgroup.subtree_control of the group this machine gives you"
        yield Check(f"control group controller {controller}", controller in controllers, remedy)
    if root:
        for name, script in KERNEL_TRIALS.items():
            yield Check(name, _works_in_namespaces(script), "needs a kernel or a container that allows it")


def current_checks() -> Iterator[Check]:
    """Check the requirements for using an existing cluster of the user."""
    kubectl = "install it: https://kubernetes.io/docs/tasks/tools"
    yield Check("command kubectl", shutil.which("kubectl") is not None, kubectl)
    helm = shutil.which("helm") is not None or go_on_path() is not None or _has_module("venv")
    yield Check("command helm, or Go to build it", helm, "install it: https://helm.sh/docs/intro/install")
    pushes = shutil.which("skopeo") is not None or docker_answers()
    yield Check("command skopeo or docker, to push images", pushes, _apt_line("skopeo"), "skopeo")


def examine(*, node: bool) -> list[Check]:
    """Check everything."""
    return [*control_plane_checks(), *(node_checks() if node else ())]


def install_missing(*, node: bool, commands: Sequence[str] = ()) -> None:
    """Install missing Debian packages if that is possible; raise if something is missing still.

    Raises:
        LocalKubernetesError: It says what is missing and what to do.
    """

    def look() -> list[Check]:
        return [check for check in (*examine(node=node), *map(_command, commands)) if not check.present]

    missing = look()
    packages = sorted({check.package for check in missing if check.package})
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        tell(f"installing missing Debian packages: {' '.join(packages)}")
        _apt_install(packages)
        missing = look()
    if missing:
        raise LocalKubernetesError("this machine lacks:\n" + "\n".join(dict.fromkeys(map(str, missing))))


def test_commands() -> tuple[str, ...]:
    """Return the commands that tests need on any machine, also with a cluster of another kind."""
    build = () if docker_answers() else ("buildah", "debootstrap")
    return ("openssl", "iptables", "ip", "unshare", "mount", "skopeo", *build)


def docker_answers() -> bool:
    """Return whether Docker can be used: the command alone is not enough without a running daemon."""
    asked = ["docker", "info"]
    return bool(shutil.which("docker")) and subprocess.run(asked, check=False, capture_output=True).returncode == 0


def install_command(name: str) -> bool:
    """Install the Debian package of a command that is not there, if that is possible.

    Returns:
        Whether the command is there now.
    """
    if not shutil.which(name) and os.geteuid() == 0 and shutil.which("apt-get"):
        tell(f"installing the Debian package {name}")
        _apt_install([name])
    return shutil.which(name) is not None


def cgroup_controllers() -> set[str]:
    """Return the control group controllers that are mounted, of either version."""
    root = Path("/sys/fs/cgroup")
    found: set[str] = set()
    with suppress(OSError):
        found |= set((root / "cgroup.controllers").read_text().split())
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.rpartition(" - ")[2].split()
        if fields[0] == "cgroup":
            found |= set(fields[2].split(","))
    return found


def _apt_install(packages: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The services of these packages are not needed, and a policy of 101 keeps them from starting.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
            asked = ["apt-get", "--quiet=2", "--option=Acquire::Retries=3", *command]
            subprocess.run(asked, check=True, capture_output=True, env=environment)
    finally:
        if ours:
            policy.unlink()


def _apt_line(package: str) -> str:
    return f"apt-get install --no-install-recommends {package}"


def _command(name: str) -> Check:
    package = PACKAGES.get(name, name)
    return Check(f"command {name}", shutil.which(name) is not None, _apt_line(package), package)


def _has_module(name: str) -> bool:
    command = [sys.executable, "-c", f"import {name}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _works_in_namespaces(script: str) -> bool:
    # /var/lib, because the cluster's own overlays will be there.
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="tfcluster-doctor-") as folder:
        prepare = "mkdir lower upper work top"
        command = ["unshare", "--mount", "--net", "sh", "-ec", f"{prepare}; {script}"]
        return subprocess.run(command, check=False, capture_output=True, cwd=folder).returncode == 0
