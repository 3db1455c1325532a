"""Tar archives that depend only on their content: one order, one owner, one time."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def write_tar(archive: Path, files: Mapping[str, Path], *, epoch: int) -> None:
    """Write files into a tar archive."""
    plain = io.BytesIO() if archive.suffix.endswith("gz") else archive.open("wb")
    with plain, tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = files[name].stat().st_size, epoch, 0o644
            with files[name].open("rb") as content:
                tar.addfile(entry, content)
        tar.close()
        if isinstance(plain, io.BytesIO):
            # gzip.compress does not write a file name; the level and the time are fixed.
            archive.write_bytes(gzip.compress(plain.getvalue(), compresslevel=9, mtime=epoch))


def files_below(folder: Path) -> dict[str, Path]:
    """Return all files in a folder and its subfolders, by their relative paths."""
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
