"""Writing manifests that people read and edit: YAML with comments."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from tfcluster.rules import Where


def write_yaml(body: Mapping[str, Any], comments: Mapping[Where, str], *, head: str = "") -> str:
    """Write an object as YAML.

    Args:
        body: the object.
        comments: comments, by the place that they stand before.
        head: a comment above it all.

    Returns:
        The text; texts of several lines stand as they are, lists of short texts on one line.
    """
    writer = YAML()
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.width = 110
    commented = _commented(body, comments, ())
    stream = io.StringIO()
    writer.dump(commented, stream)
    lines = "".join(f"# {line}\n" for line in head.splitlines())
    return lines + stream.getvalue()


def _commented(value: Any, comments: Mapping[Where, str], where: Where) -> Any:
    if isinstance(value, Mapping):
        made = CommentedMap()
        for key, inner in value.items():
            made[key] = _commented(inner, comments, (*where, key))
            if (words := comments.get((*where, key))) is not None:
                made.yaml_set_comment_before_after_key(key, before=words, indent=2 * len(where))
        return made
    if isinstance(value, list):
        listed = CommentedSeq(_commented(inner, comments, (*where, index)) for index, inner in enumerate(value))
        if value and all(isinstance(inner, str) for inner in value):
            listed.fa.set_flow_style()
        return listed
    if isinstance(value, str) and "\n" in value and _can_stand(value):
        return LiteralScalarString(value)
    return value


def _can_stand(text: str) -> bool:
    """Tell whether YAML's literal style gives a text back as it is."""
    return all(one.isprintable() or one == "\n" for one in text) and not any(
        line != line.rstrip() for line in text.split("\n")
    )
