"""Image archives into a registry, for a cluster whose nodes are not ours to load images into."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from local_kubernetes.doctor import docker_answers, install_command
from local_kubernetes.progress import LocalKubernetesError, tell

VARIABLE = "TFCLUSTER_REGISTRY"
"""The registry and the path in it, such as registry.example/team; unset: one that is started in the cluster."""

PLAIN_HTTP = "TFCLUSTER_REGISTRY_INSECURE"
"""`true` or `1` if that registry speaks plain HTTP, or HTTPS with a certificate that nobody checks."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def given() -> str:
    """Return the registry that the user configured, or ""."""
    return os.environ.get(VARIABLE, "").strip().removeprefix("https://").strip("/")


def name_in(registry: str, name: str) -> str:
    """Return the name of one of our images in a registry."""
    return f"{registry}/{name.removeprefix('localhost/')}"


def push(archive: Path, name: str) -> None:
    """Copy an image into a registry, with skopeo or else with Docker, using their stored credentials.

    Raises:
        LocalKubernetesError: Neither program is installed, or the registry rejected the image.
    """
    if not shutil.which("skopeo") and docker_answers():
        tell(f"pushing {name}, by Docker")
        loaded = _run("docker", "load", "--quiet", "--input", archive)
        # "Loaded image: NAME", or "Loaded image ID: DIGEST" if the archive does not name the image.
        _run("docker", "tag", loaded.strip().rpartition(": ")[2], name)
        _run("docker", "push", "--quiet", name)
        return
    if not install_command("skopeo"):
        raise LocalKubernetesError(f"pushing {name} needs skopeo (apt-get install skopeo) or Docker")
    tell(f"pushing {name}")
    kind = "docker-archive" if _is_docker_archive(archive) else "oci-archive"
    checked = str(not _is_insecure(name)).lower()
    _run("skopeo", "copy", "--quiet", f"--dest-tls-verify={checked}", f"{kind}:{archive}", f"docker://{name}")


def _is_docker_archive(archive: Path) -> bool:
    with tarfile.open(archive) as files:
        return any(entry.name == "manifest.json" for entry in files)


def _is_insecure(name: str) -> bool:
    host = name.partition("/")[0].rpartition(":")[0]
    return host in LOOPBACK or os.environ.get(PLAIN_HTTP, "").lower() in ("1", "true")


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command[:2]))
        raise LocalKubernetesError(f"`{words}` failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
