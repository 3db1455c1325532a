"""The comments of a YAML text, taken out of one and put into another whose nodes have other places.

A comment on a line of its own is about the node that follows, one at the end of a line about the node on that line.
YAML's own libraries keep a comment with what stands before it, so that it is lost where that is.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tfcluster.convert.verdicts import Path, spelled

_COMMENT: Final = re.compile(r"(?:^|(?<=[ \t]))#.*$")


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its ``#``, or an empty line; ``path`` is the node that it is about, None at the end."""

    text: str
    alone: bool
    path: Path | None


def taken_out(text: str) -> tuple[str, list[Comment]]:
    """Take the comments and empty lines out of the text of one document."""
    root = YAML(typ="safe", pure=True).compose(text)
    lines, inside = text.splitlines(), _scalar_lines(root)
    starts = _starts(root)
    numbers = sorted(starts)
    kept: list[str] = []
    found: list[Comment] = []
    for number, line in enumerate(lines):
        spans = inside.get(number, ())
        at = next((m.start() for m in _comments(line) if not _within(m.start(), spans)), None)
        bare = line if at is None else line[:at].rstrip()
        alone = not bare.strip() and not spans
        if alone:
            following = bisect_left(numbers, number)
            path = starts[numbers[following]][0] if following < len(numbers) else None
            found.append(Comment(line[at:] if at is not None else "", alone=True, path=path))
            continue
        if at is not None:
            paths = starts.get(number)
            found.append(Comment(line[at:], alone=paths is None, path=paths[-1] if paths else None))
        kept.append(bare)
    return "\n".join(kept) + "\n", found


def put_in(text: str, comments: list[Comment], target: Callable[[Path], tuple[Path, bool]]) -> str:
    """Put comments into the text of another document.

    Returns:
        The text with them.  A comment about a node that is not there names it.
    """
    places = {
        path: number for number, paths in _starts(YAML(typ="safe", pure=True).compose(text)).items() for path in paths
    }
    lines = text.splitlines()
    above: dict[int, list[str]] = {}
    behind: dict[int, list[str]] = {}
    last: list[str] = []
    for comment in comments:
        if comment.path is None:
            last.append(comment.text)
            continue
        path, there = target(comment.path)
        while path and path not in places:
            path, there = path[:-1], False
        number = places.get(path, 0)
        if comment.text and not there:
            above.setdefault(number, []).append(f"# {spelled(comment.path)}: {comment.text.lstrip('# ')}")
        elif comment.alone:
            if comment.text or there:
                above.setdefault(number, []).append(comment.text)
        else:
            behind.setdefault(number, []).append(comment.text)
    written: list[str] = []
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        written += [f"{indent}{one}" if one else "" for one in above.get(number, ())]
        written.append("  ".join([line, *behind.get(number, ())]))
    return "\n".join([*written, *last]).rstrip("\n") + "\n"


def _comments(line: str) -> Iterator[re.Match[str]]:
    position = 0
    while (match := _COMMENT.search(line, position)) is not None:
        yield match
        position = match.start() + 1


def _within(column: int, spans: Any) -> bool:
    return any(first <= column < last for first, last in spans)


def _scalar_lines(root: Node | None) -> dict[int, list[tuple[int, float]]]:
    """Tell which columns of which lines belong to scalars."""
    inside: dict[int, list[tuple[int, float]]] = {}
    for node in _scalars(root, set()):
        first, last = node.start_mark, node.end_mark
        block = node.style in ("|", ">")
        # NB: behind the | of a block there may be a comment.
        for number in range(first.line + block, last.line + 1):
            begin = first.column if number == first.line else 0
            end = last.column if number == last.line else float("inf")
            if end > begin:
                inside.setdefault(number, []).append((begin, end))
    return inside


def _scalars(node: Node | None, seen: set[int]) -> Iterator[ScalarNode]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for one in node.value:
            yield from _scalars(one, seen)
    elif isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _scalars(key, seen)
            yield from _scalars(value, seen)


def _starts(root: Node | None) -> dict[int, list[Path]]:
    """Give the nodes that begin on each line, the outer ones first."""
    starts: dict[int, list[Path]] = {}
    for path, mark_of in _marked(root, (), set()):
        starts.setdefault(mark_of, []).append(path)
    return starts


def _marked(node: Node | None, path: Path, seen: set[int]) -> Iterator[tuple[Path, int]]:
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            yield inner, key.start_mark.line
            yield from _marked(value, inner, seen)
    elif isinstance(node, SequenceNode):
        for index, value in enumerate(node.value):
            inner = (*path, index)
            yield inner, value.start_mark.line
            yield from _marked(value, inner, seen)
