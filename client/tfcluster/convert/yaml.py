"""How a manifest is written: quotes, blocks, anchors and comments, so that what is carried over looks as it did.

What a value *is* Kubernetes' reading says (``manifest.yaml``); how it looks is ruamel.yaml's.  A comment on a line of
its own is about the node that follows, one at the end of a line about the node on that line: YAML's own libraries keep
a comment with what stands before it, so that it is lost where that is.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, PlainScalarString, ScalarString

from tfcluster.convert.tfjob import Path, spelled
from tfcluster.manifest.yaml import ProblemError, documents, reads_as_text

_LIST: Final = re.compile(
    r"^( *)(?:- +)?[\w.\"'-]+:[ \t]*(?:&\w+[ \t]*)?(?:#.*)?\n(?: *(?:#.*)?\n)*( *)- ", re.MULTILINE
)
#: What must be escaped: not even all readers agree on what ends a line.
_ODD: Final = re.compile(r"[^\n\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
#: Spaces that a block would lose, or take for its indentation.
_NO_BLOCK: Final = re.compile(r"[ \t](?:\n|\Z)|\A\n*[ \t]")


def as_written(text: str, value: Any) -> Any:
    try:
        looks = _yaml().load(text)
    except (YAMLError, ValueError):
        return value
    return _styled(looks, value, {})


def dump(document: Any, *, like: str = "") -> str:
    writer = _yaml()
    match = _LIST.search(like)
    if match is not None and len(match[2]) > len(match[1]):
        writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(_Plain().of(document), stream)
    text = stream.getvalue()
    try:
        if documents(text.encode())[0].value == plain(document):
            return text
    except ProblemError:
        pass
    # NB: JSON is YAML too, ugly and always right; but what YAML takes for the end of a line must be escaped.
    text = json.dumps(plain(document), indent=2, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda one: f"\\u{ord(one[0]):04x}", text) + "\n"


def _yaml() -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    return yaml


def _styled(looks: Any, value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, dict):
        return _styled_mapping(looks if isinstance(looks, CommentedMap) else CommentedMap(), value, known)
    if isinstance(value, list):
        if id(value) not in known:
            shown = looks if isinstance(looks, CommentedSeq) and len(looks) == len(value) else CommentedSeq(value)
            known[id(value)] = found = CommentedSeq()
            _take_style(shown, found)
            found.extend(_styled(look, one, known) for look, one in zip(shown, value, strict=True))
        return known[id(value)]
    same = looks == value and isinstance(looks, bool) == isinstance(value, bool)
    return looks if same and isinstance(looks, str) == isinstance(value, str) else value


def _styled_mapping(looks: CommentedMap, value: dict[str, Any], known: dict[int, Any]) -> CommentedMap:
    if id(value) not in known:
        known[id(value)] = found = CommentedMap()
        _take_style(looks, found)
        named = {str(key): look for key, look in looks.items()}
        for key in (*(key for key in named if key in value), *(key for key in value if key not in named)):
            found[key] = _styled(named.get(key), value[key], known)
    styled: CommentedMap = known[id(value)]
    return styled


def _take_style(looks: CommentedMap | CommentedSeq, found: CommentedMap | CommentedSeq) -> None:
    if looks.fa.flow_style():
        found.fa.set_flow_style()
    anchor = looks.yaml_anchor()
    if anchor is not None and anchor.value:
        found.yaml_set_anchor(anchor.value)


class _Plain:
    """Makes of a document what ruamel.yaml writes as Kubernetes reads it."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._anchors: set[str] = set()

    def of(self, node: Any) -> Any:
        """Give a node for writing; what is one object stays one."""
        if isinstance(node, dict | list):
            if id(node) not in self._known:
                self._known[id(node)] = self._collection(node)
            return self._known[id(node)]
        return scalar(node)

    def _collection(self, node: dict[str, Any] | list[Any]) -> Any:
        found: Any = CommentedMap() if isinstance(node, dict) else CommentedSeq()
        if isinstance(node, CommentedMap | CommentedSeq):
            _take_style(node, found)
            anchor = found.yaml_anchor()
            # NB: templates are copied one by one, with the anchors within: of each name one may stay.
            if anchor is not None and anchor.value in self._anchors:
                found.yaml_set_anchor(None)
            elif anchor is not None:
                self._anchors.add(anchor.value)
        if isinstance(node, dict):
            found.update({scalar(key): self.of(value) for key, value in node.items()})
        else:
            found.extend(self.of(value) for value in node)
        return found


def scalar(node: Any) -> Any:
    """Quote a text that would read as something else, write one of lines as a block, and drop an anchor."""
    if isinstance(node, PlainScalarString) or (isinstance(node, str) and not isinstance(node, ScalarString)):
        text = str(node)
        odd = _ODD.search(text)
        if "\n" in text and not odd and not _NO_BLOCK.search(text):
            return LiteralScalarString(text)
        return DoubleQuotedScalarString(text) if odd or not reads_as_text(text) else text
    if isinstance(node, ScalarString):
        return node if node.yaml_anchor() is None else type(node)(str(node))
    return int(node) if isinstance(node, int) and not isinstance(node, bool) else node


def plain(node: Any) -> Any:
    """Return a value in Python's own types."""
    if isinstance(node, Mapping):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(one) for one in node]
    return str(node) if isinstance(node, str) else node


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
    """Put comments into the text of another document."""
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
