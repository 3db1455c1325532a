"""Reading the resolver's files from the installed package: what the operator delivers into the pods."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from tfcluster_operator.objects.resolver_copy import ResolverArchive, build_archive


@cache
def read_archive() -> ResolverArchive:
    """Pack the resolver that this operator brings, once in a process.

    Returns:
        The archive; an unchanged installation gives the same bytes at every start.

    Raises:
        ValueError: the installed package is not a whole resolver, or too large.
    """
    return build_archive(dict(files_of(resources.files("tfcluster_resolver"))))


def files_of(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Read a folder and those in it."""
    for entry in folder.iterdir():
        # What Python or an editor leaves beside the sources is no part of them.
        if entry.name == "__pycache__" or entry.name.startswith(".") or entry.name.endswith((".pyc", "~")):
            continue
        if entry.is_dir():
            yield from files_of(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
