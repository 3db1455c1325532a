"""The snippets of a guide, as its reader sees them, and what a snippet says that it prints.

It decides how a guide's fences are read: the word after the language says where a snippet runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block.

    Attributes:
        language: "python", "console" or "yaml".
        place: what follows the language, such as "as=chief"; empty if nothing does.
        text: what is between the fences.
        line: where it begins in the guide.
        guide: the name of the guide's file.
    """

    language: str
    place: str
    text: str
    line: int
    guide: str

    def __str__(self) -> str:
        return f"{self.guide} line {self.line}"

    def proof(self, folder: str = "e2e") -> str:
        """Name the test of this folder that proves a snippet which cannot run where it is tested; else empty."""
        return self.place.partition(f"{folder}=")[2]

    def printed(self) -> list[str]:
        """Give what the lines of a Python snippet say that they print, in their order; "…" stands for anything."""
        return re.findall(r"^\s*print\(.*\)  # (.+)$", self.text, re.MULTILINE)

    def commands(self) -> list[tuple[str, list[str]]]:
        """Give the commands of a console snippet, each with the lines that it prints."""
        told: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
        return told


def snippets(guide: Path) -> list[Snippet]:
    """Read a guide's snippets."""
    text = guide.read_text(encoding="utf-8")
    found = [(match, text[: match.start()].count("\n") + 1) for match in _FENCE.finditer(text)]
    assert len(found) * 2 == len(re.findall(r"^\s*```", text, re.MULTILINE)), f"{guide.name} has fences not understood"
    return [Snippet(match[1], match[2] or "", match[3], line, guide.name) for match, line in found]


def agrees(printed: list[str], told: list[str]) -> bool:
    """Say whether lines were printed as a guide tells of them, in that order; a line "…" stands for any number."""
    patterns = [".*" if line == "…" else ".*".join(re.escape(part) for part in line.split("…")) for line in told]
    joined = "".join("(?:.*\n)*" if pattern == ".*" else f"{pattern}\n" for pattern in patterns)
    return re.fullmatch(joined, "".join(f"{line.rstrip()}\n" for line in printed)) is not None
