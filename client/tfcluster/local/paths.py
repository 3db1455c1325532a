"""Paths in a container, and where they are on this machine.

A process has no mounts of its own.  So a path below a mount is rewritten wherever the manifest names it: in commands,
arguments, working directories and environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: What may stand before a path without being a part of it.
_BEFORE = r"(?:(?<![\w./~$)}\]-])|(?<=file://))"


@dataclass(frozen=True, slots=True)
class Mapping:
    """A path in the container and the folder or file on this machine that stands for it."""

    there: str
    here: Path


class PathMap:
    """Rewrites paths; the longest that fits wins, as of several mounts the innermost does.

    Args:
        mappings: the mounts, and what else of the image is on this machine.
    """

    def __init__(self, mappings: Iterable[Mapping]) -> None:
        kept = {one.there.rstrip("/"): one for one in mappings if one.there.rstrip("/")}
        self.mappings = [kept[there] for there in sorted(kept, key=len, reverse=True)]
        alternatives = "|".join(re.escape(one.there.rstrip("/")) for one in self.mappings)
        self._pattern = re.compile(rf"{_BEFORE}({alternatives})(?![\w.-])") if self.mappings else None
        self._here = {one.there.rstrip("/"): str(one.here) for one in self.mappings}

    def rewrite(self, text: str) -> str:
        """Rewrite every path that stands in a text."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._here[match[1]], text)
