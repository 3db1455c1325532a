"""How a manifest is written: quotes, blocks, flow style, anchors, so that what is carried over looks as it did.

What a value *is* Kubernetes' reading says (``manifest_text``); how it looks is ruamel.yaml's.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, PlainScalarString, ScalarString

from tfcluster.manifest_text import ProblemError, documents, reads_as_text

#: A list under its key, and how far it is indented.
_LIST: Final = re.compile(
    r"^( *)(?:- +)?[\w.\"'-]+:[ \t]*(?:&\w+[ \t]*)?(?:#.*)?\n(?: *(?:#.*)?\n)*( *)- ", re.MULTILINE
)
#: What must be escaped: not even all readers agree on what ends a line.
_ODD: Final = re.compile(r"[^\n\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
#: Spaces that a block would lose, or take for its indentation.
_NO_BLOCK: Final = re.compile(r"[ \t](?:\n|\Z)|\A\n*[ \t]")


def as_written(text: str, value: Any) -> Any:
    """Give a value the looks of its text.

    Returns:
        A value that equals this one, in ruamel.yaml's types.  Merge keys (``<<``) are written out, because what comes
        by one cannot be taken out of a mapping; what an alias stands for is one object, as in ``value``.
    """
    try:
        looks = _yaml().load(text)
    except (YAMLError, ValueError):
        return value
    return _styled(looks, value, {})


def dump(document: Any, *, like: str = "") -> str:
    """Write a document."""
    writer = _yaml()
    match = _LIST.search(like)
    if match is not None and len(match[2]) > len(match[1]):
        writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(_Plain().of(document), stream)
    text = stream.getvalue()
    try:
        if documents(text.encode())[0].value == _plain(document):
            return text
    except ProblemError:
        pass
    # NB: JSON is YAML too, ugly and always right; but what YAML takes for the end of a line must be escaped.
    text = json.dumps(_plain(document), indent=2, ensure_ascii=False)
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


def _plain(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(one) for one in node]
    return str(node) if isinstance(node, str) else node
