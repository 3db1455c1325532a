"""buildah for machines without Docker, and its base image from Debian's packages, without a registry.

The same packages yield the same base, bit for bit: traces of the time and order of their installation are removed.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from local_kubernetes.cache import cache_root, cached, content_hash
from local_kubernetes.progress import tell

DEBIAN: Final = "bookworm"
PACKAGES: Final = "python3,python3-venv,ca-certificates"

_BASE: Final = "localhost/tfcluster-base"
_TOOLS: Final = ("buildah", "debootstrap")
#: Debian's keys, which other systems do not have by default.
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Files that a container does not need, and files with the time or order of the installation.
_UNNEEDED: Final = (
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
#: Python's own modules, compiled without a timestamp: every file of the base gets the same time.
_COMPILE: Final = "-m compileall -q --invalidation-mode unchecked-hash /usr/lib/python3.11 /usr/lib/python3"


def command() -> list[str]:
    """Return the start of a buildah command line, with its storage in the cache."""
    state = cache_root() / "buildah"
    return ["buildah", "--storage-driver", "overlay", "--root", str(state / "root"), "--runroot", str(state / "run")]


def install(*programs: str) -> None:
    """Install programs from Debian packages of the same names, if they are missing; this needs root."""
    missing = [program for program in programs or _TOOLS if shutil.which(program) is None]
    if not programs and not _KEYRING.is_file():
        missing.append(_KEYRING.stem)
    if missing:
        tell(f"installing {', '.join(missing)}: they build or copy the images where there is no Docker")
        retrying = "--option=Acquire::Retries=3"
        _run(["apt-get", "update", "-q", retrying], quiet=True)
        _run(["apt-get", "install", "-qy", retrying, "--no-install-recommends", *missing], quiet=True)


def debian_base(architecture: str) -> str:
    """Build the base image, if it does not exist.

    Args:
        architecture: as Debian and OCI name it, such as ``amd64``. Another one than the machine's needs an emulator
            that the kernel can use (Debian's qemu-user-static, registered with binfmt_misc).
    """

    def make(partial: Path) -> None:
        rootfs = partial / "rootfs"
        options = ["--force-check-gpg", f"--keyring={_KEYRING}", f"--arch={architecture}"]
        options += ["--variant=minbase", f"--include={PACKAGES}"]
        _run(["debootstrap", *options, DEBIAN, rootfs], quiet=True)
        _remove_what_differs(rootfs)
        order = ["--sort=name", "--mtime=@0", "--format=gnu", "--numeric-owner", "--exclude=./dev/*"]
        _run(["tar", "-C", rootfs, *order, "-cf", partial / "base.tar", "."])
        shutil.rmtree(rootfs)
        (partial / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")

    key = content_hash(DEBIAN, PACKAGES, *_UNNEEDED, _COMPILE, architecture)
    name = f"debian-base-{architecture}"
    folder = cached(name, key, make, usually="a minute", why="the base of our images where no registry is")
    tag = f"{_BASE}-{architecture}:{key}"
    if subprocess.run([*command(), "inspect", "--type", "image", tag], check=False, capture_output=True).returncode:
        _run([*command(), "bud", "--quiet", "--timestamp", "0", "--arch", architecture, "-t", tag, folder], quiet=True)
    return tag


def _remove_what_differs(rootfs: Path) -> None:
    for unneeded in _UNNEEDED:
        # Keep the folders: programs expect them.
        for path in (rootfs / unneeded).glob("*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    # Backups of the last edit, and the machine's ID.
    for pattern in ("etc/*-", "var/lib/dpkg/*-old", "etc/machine-id", "var/lib/dbus/machine-id"):
        for path in rootfs.glob(pattern):
            path.unlink()
    # Names of this machine, which debootstrap copies.
    for path in (rootfs / "etc" / "hostname", rootfs / "etc" / "resolv.conf", rootfs / "etc" / "apt" / "sources.list"):
        path.unlink(missing_ok=True)
    # The day when each account got its (locked) password.
    shadow = rootfs / "etc" / "shadow"
    accounts = (line.split(":") for line in shadow.read_text().splitlines())
    shadow.write_text("".join(":".join((name, lock, "", *rest)) + "\n" for name, lock, _, *rest in accounts))
    for compiled in list(rootfs.glob("usr/lib/python3*/**/__pycache__")):
        shutil.rmtree(compiled)
    _run(["chroot", rootfs, "env", "PYTHONHASHSEED=0", "/usr/bin/python3", *_COMPILE.split()])


def _run(command: Sequence[str | Path], *, quiet: bool = False) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL if quiet else None)
