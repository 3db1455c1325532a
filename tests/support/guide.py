"""The code fences of a guide with the word of where each runs, and the output that they claim."""

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block; ``place`` is the text after the language, ``line`` its first line in ``guide``."""

    language: str
    place: str
    text: str
    line: int
    guide: str

    def __str__(self) -> str:
        return f"{self.guide} line {self.line}"

    def proof(self, folder: str = "e2e") -> str:
        """Name the test in this folder that covers a snippet which cannot run in the guide's test; else empty."""
        return self.place.partition(f"{folder}=")[2]

    def printed(self) -> list[str]:
        """Return the output that a Python snippet claims, in order; "…" stands for any text."""
        return re.findall(r"^\s*print\(.*\)  # (.+)$", self.text, re.MULTILINE)

    def commands(self) -> list[tuple[str, list[str]]]:
        told: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
        return told


def snippets(guide: Path) -> list[Snippet]:
    text = guide.read_text(encoding="utf-8")
    found = [(match, text[: match.start()].count("\n") + 1) for match in _FENCE.finditer(text)]
    assert len(found) * 2 == len(re.findall(r"^\s*```", text, re.MULTILINE)), f"{guide.name} has fences not understood"
    return [Snippet(match[1], match[2] or "", match[3], line, guide.name) for match, line in found]


def agrees(printed: list[str], told: list[str]) -> bool:
    """Return whether lines were printed as a guide claims, in that order; a line "…" stands for any number of lines."""
    patterns = [".*" if line == "…" else ".*".join(re.escape(part) for part in line.split("…")) for line in told]
    joined = "".join("(?:.*\n)*" if pattern == ".*" else f"{pattern}\n" for pattern in patterns)
    return re.fullmatch(joined, "".join(f"{line.rstrip()}\n" for line in printed)) is not None
