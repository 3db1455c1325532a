"""Writing manifests that people read and edit: YAML with comments."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from tfcluster.convert.notation import scalar
from tfcluster.rules import Where

#: A text that may stand between brackets: readers differ in what they take there without quotes.
_WORD: Final = re.compile(r"[\w./-][\w./=+@ -]*")


def write_yaml(body: Mapping[str, Any], comments: Mapping[Where, str], *, head: str = "") -> str:
    """Write an object as YAML.

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
            made[scalar(key)] = _commented(inner, comments, (*where, key))
            if (words := comments.get((*where, key))) is not None:
                made.yaml_set_comment_before_after_key(key, before=words, indent=2 * len(where))
        return made
    if isinstance(value, list):
        if value and all(isinstance(inner, str) for inner in value):
            listed = CommentedSeq(
                scalar(inner) if _WORD.fullmatch(inner) else DoubleQuotedScalarString(inner) for inner in value
            )
            listed.fa.set_flow_style()
            return listed
        return CommentedSeq(_commented(inner, comments, (*where, index)) for index, inner in enumerate(value))
    return scalar(value)
