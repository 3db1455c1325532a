"""Files in one compressed archive, the same ones always in the same order and form."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping


def pack(folder: str, files: Mapping[str, bytes], *, time: int) -> bytes:
    """Pack files.

    Returns:
        A tar.gz.
    """
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(files):
            about = tarfile.TarInfo(f"{folder}/{path}")
            about.size, about.mtime, about.mode = len(files[path]), time, 0o644
            archive.addfile(about, io.BytesIO(files[path]))
    return packed.getvalue()
