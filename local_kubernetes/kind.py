"""A cluster by kind (https://kind.sigs.k8s.io), where Docker runs.

The node is a container, and what our own node has is brought into it: fake GPUs, and images by import.
"""

import os
import shutil
import subprocess
from pathlib import Path

from local_kubernetes import binaries, checkout
from local_kubernetes.doctor import docker_answers
from local_kubernetes.progress import LocalKubernetesError

NAME = "tfcluster"
NODE = f"{NAME}-control-plane"
IMAGE_VARIABLE = "TFCLUSTER_KIND_IMAGE"
"""Names the image of the node, such as kindest/node:v1.36.1@sha256:…; by default that of the installed kind."""
UNHEALTHY = "/var/lib/tfcluster-unhealthy-devices"
PLUGIN = "/usr/local/bin/fake-gpu-plugin"


def usable() -> bool:
    """Return whether Docker answers and kind is installed."""
    return shutil.which("kind") is not None and docker_answers()


def running() -> bool:
    """Return whether the cluster exists."""
    done = subprocess.run(["kind", "get", "clusters"], check=True, capture_output=True, text=True)
    return NAME in done.stdout.split()


def up() -> None:
    """Create the cluster, or find it, and leave its kubeconfig in the checkout."""
    checkout.LOCAL.mkdir(exist_ok=True)
    image = os.environ.get(IMAGE_VARIABLE)
    create = ("create", "cluster", "--wait=3m", *([f"--image={image}"] if image else []))
    verb = ("export", "kubeconfig") if running() else create
    subprocess.run(["kind", *verb, f"--name={NAME}", f"--kubeconfig={checkout.KUBECONFIG}"], check=True)
    if not _succeeds(*_in_node("test", "-e", PLUGIN)):
        subprocess.run(["docker", "cp", "--quiet", binaries.hyperkube(), f"{NODE}:{PLUGIN}"], check=True)
    if not _succeeds(*_in_node("pgrep", "-f", PLUGIN)):
        start = ("docker", "exec", "--detach", NODE, PLUGIN, f"--unhealthy-dir={UNHEALTHY}")
        subprocess.run(start, check=True)


def down() -> None:
    """Delete the cluster."""
    subprocess.run(["kind", "delete", "cluster", f"--name={NAME}", f"--kubeconfig={checkout.KUBECONFIG}"], check=True)


def load_image(archive: Path, name: str | None) -> None:
    """Import an image into the node."""
    naming = ("--index-name", name) if name else ()
    with archive.open("rb") as data:
        done = subprocess.run(
            ["docker", "exec", "--interactive", NODE, "ctr", "--namespace=k8s.io", "images", "import", *naming, "-"],
            stdin=data,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise LocalKubernetesError(f"the kind node did not import {archive}: {done.stderr}")


def set_device(device: str, *, healthy: bool) -> None:
    """Make the device plugin report a device's health."""
    command = ("rm", "-f") if healthy else ("touch",)
    subprocess.run(_in_node(*command, f"{UNHEALTHY}/{device}"), check=True)


def _in_node(*command: str) -> list[str]:
    return ["docker", "exec", NODE, *command]


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
