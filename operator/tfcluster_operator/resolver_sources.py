"""Reads the resolver's files from the installed package, which the operator delivers into the pods."""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from tfcluster_operator.objects.config_map import ResolverArchive, build_archive


@cache
def read_archive() -> ResolverArchive:
    """Pack the resolver of this operator's version; the result is cached."""
    return build_archive(dict(files_of(resources.files("tfcluster_resolver"))))


def files_of(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Read the files of a folder and its subfolders."""
    for entry in folder.iterdir():
        # Skip files that Python or an editor leaves beside the sources.
        if entry.name == "__pycache__" or entry.name.startswith(".") or entry.name.endswith((".pyc", "~")):
            continue
        if entry.is_dir():
            yield from files_of(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
