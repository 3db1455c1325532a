"""A cache of slow builds, by the hash of their sources.

The cache is outside the checkout, so `make clean` keeps it and checkouts share it. Each entry is built in a temporary
folder and renamed at the end, so that a reader always finds it complete.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from local_kubernetes.progress import tell


def cache_root() -> Path:
    """Return the folder of the cache: $TFCLUSTER_CACHE, or ~/.cache/tfcluster."""
    return Path(os.environ.get("TFCLUSTER_CACHE") or Path.home() / ".cache" / "tfcluster").absolute()


def content_hash(*parts: str | bytes | Path) -> str:
    """Name a content.

    Returns:
        16 hexadecimal digits; parts that differ only in where one ends and the next begins differ here too.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel releases it when this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # The previous holder can have removed the file: then other processes lock another file.
            if os.fstat(descriptor).st_nlink:
                try:
                    yield
                finally:
                    path.unlink()
                return
        finally:
            os.close(descriptor)


def cached(name: str, key: str, make: Callable[[Path], None], *, usually: str, why: str) -> Path:
    """Return the folder of an entry, which is built on first use."""
    place = cache_root() / f"{name}-{key}"
    if place.is_dir():
        return place
    with locked(place.with_name(f"{place.name}.lock")):
        if place.is_dir():
            return place
        tell(f"building {name}: usually {usually}, once per version; it is {why}")
        partial = place.with_name(f"{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # of a build that was killed
        partial.mkdir()
        make(partial)
        partial.rename(place)
    return place
