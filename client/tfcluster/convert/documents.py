"""A file of manifests: its TFJobs are converted, everything else stays letter by letter."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from tfcluster.convert import admission, beside, comments, tfjob
from tfcluster.convert.conversion import Conversion, convert
from tfcluster.convert.verdicts import Path
from tfcluster.errors import ManifestError

_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
#: Beyond that many values, aliases counted as often as they stand, a file is no manifest but an attack.
_MOST_VALUES: Final = 1_000_000
_LISTS: Final = ("List", "TFJobList")


@dataclass(frozen=True, slots=True)
class Stream:
    """What became of a file.

    ``text`` is the new file, whole only if nothing was refused; ``conversions`` are its TFJobs in their order; ``beside``
    says what has to change in other objects of it.
    """

    text: str
    conversions: tuple[Conversion, ...]
    beside: tuple[str, ...]


def convert_text(text: str, name: str) -> Stream:
    """Convert the TFJobs of a file.

    Args:
        text: YAML of one or more documents, or JSON of one.
        name: the file's, for messages.

    Returns:
        The new text and the verdicts.

    Raises:
        ManifestError: the text is no YAML, or there is no TFJob in it.
    """
    read = [(part, _load(part, name)) for part in _parts(text)]
    written: list[str] = []
    found: list[Conversion] = []
    others: list[Mapping[str, Any]] = []
    for part, document in read:
        items = _items(document)
        jobs = [item for item in items if tfjob.is_tfjob(item)]
        others += [item for item in items if isinstance(item, Mapping) and not tfjob.is_tfjob(item)]
        if not jobs:
            written.append(part)
            continue
        new, conversions = _convert(part, document)
        found += conversions
        written.append(new)
    if not found:
        raise ManifestError(
            f"there is no TFJob in {name}",
            hint=f"Name a file with an object of kind {tfjob.KIND}, or - for standard input, or --from-cluster NAME.",
        )
    said = [words for other in others for words in beside.remarks(other, [one.job for one in found])]
    return Stream("".join(written), tuple(found), tuple(said))


def convert_object(manifest: Mapping[str, Any]) -> Stream:
    """Convert one TFJob that was read elsewhere, such as from an API server."""
    conversion = _judged(convert(manifest))
    return Stream(_dump(conversion.cluster, indented=False), (conversion,), ())


def _parts(text: str) -> list[str]:
    """Cut a stream into the texts of its documents, each with the separator before it."""
    starts = [match.start() for match in _SEPARATOR.finditer(text)]
    cuts = sorted({0, *starts, len(text)})
    return [text[first:last] for first, last in zip(cuts, cuts[1:], strict=False)]


def _load(part: str, name: str) -> Any:
    if part.lstrip().startswith(("{", "[")):
        try:
            return json.loads(part, object_pairs_hook=_without_repetition)
        except json.JSONDecodeError:
            pass  # flow style of YAML, or worse
        except _RepeatedKeyError as error:
            raise ManifestError(f"{name} has the key {error} twice in one object") from error
    try:
        document = _yaml().load(comments.taken_out(part)[0])
    except YAMLError as error:
        raise ManifestError(f"{name} is no YAML: {_shortened(error, part)}", hint=_hint(error)) from error
    except RecursionError as error:
        raise ManifestError(f"{name} is nested too deeply") from error
    if _size(document, {}) > _MOST_VALUES:
        raise ManifestError(f"{name} holds too much, or something that holds itself: its aliases never end")
    return _flat(document, {})


class _RepeatedKeyError(ValueError):
    """An object of JSON has a key twice."""


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(name for name in names if names.count(name) > 1))
    return found


def _yaml() -> YAML:
    reader = YAML()
    reader.preserve_quotes = True
    reader.width = 1 << 20
    return reader


def _shortened(error: YAMLError, part: str) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(problem)
    # NB: comments and empty lines are out when it is read, so that only the first reading knows the line.
    lines = part.splitlines()
    near = lines[mark.line].strip() if mark.line < len(lines) else ""
    return f"{problem}, near line {mark.line + 1} of its document" + (f": {near}" if near else "")


def _hint(error: YAMLError) -> str:
    words = str(error)
    if "\\t" in words:
        return "YAML takes no tabs for indentation: use spaces."
    if "duplicate key" in words:
        return "Keep one of them: which of them counts depends on who reads the file."
    return "Check it by `kubectl create --dry-run=client -f FILE`; a template of Helm is to be rendered first."


def _size(node: Any, known: dict[int, int]) -> int:
    """Count the values of a document, those behind an alias as often as they stand."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES + 1  # whoever comes here again is inside of itself
        values = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_size(value, known) for value in values)
    return known[id(node)]


def _flat(node: Any, known: dict[int, Any]) -> Any:
    """Write out merge keys (``<<``): what comes by one cannot be taken out of a mapping."""
    if not isinstance(node, CommentedMap | CommentedSeq):
        return node
    if id(node) in known:
        return known[id(node)]
    if isinstance(node, CommentedSeq):
        known[id(node)] = node
        node[:] = [_flat(value, known) for value in node]
        return node
    flat = CommentedMap()
    if node.fa.flow_style():
        flat.fa.set_flow_style()
    if (anchor := node.yaml_anchor()) is not None and anchor.value:
        flat.yaml_set_anchor(anchor.value)
    known[id(node)] = flat
    for key in node:
        flat[str(key)] = _flat(node[key], known)
    return flat


def _items(document: Any) -> list[Any]:
    """Give the objects of a document: itself, or those of a List."""
    if isinstance(document, Mapping) and document.get("kind") in _LISTS and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _convert(part: str, document: Any) -> tuple[str, list[Conversion]]:
    """Convert the TFJobs of one document, and put the comments of its text into the new one."""
    moved: dict[Path, Path] = {}
    if tfjob.is_tfjob(document):
        conversions = [_judged(convert(document))]
        moved |= conversions[0].moved
        result: Any = conversions[0].cluster
    else:
        conversions, items = [], []
        for index, item in enumerate(document["items"]):
            moved["items", index] = ("items", index)
            if tfjob.is_tfjob(item):
                one = _judged(convert(item))
                conversions.append(one)
                moved |= {("items", index, *path): ("items", index, *to) for path, to in one.moved.items()}
                items.append(one.cluster)
            else:
                items.append(item)
        moved |= {("apiVersion",): ("apiVersion",), ("kind",): ("kind",), ("items",): ("items",)}
        rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "items", "metadata")}
        result = {"apiVersion": "v1", "kind": "List", **rest, "items": items}
    if any(one.cluster is None for one in conversions):
        return "", conversions
    text = _dump(result, indented=_is_indented(part))
    if not isinstance(document, CommentedMap):
        return text, conversions
    head = re.match(r"---[^\n]*\n", part)
    separator = head[0] if head is not None else ""
    return separator + _with_comments(text, part, moved), conversions


def _with_comments(text: str, part: str, moved: Mapping[Path, Path]) -> str:
    found = comments.taken_out(part)[1]

    def target(path: Path) -> tuple[Path, bool]:
        for length in range(len(path), 0, -1):
            if (to := moved.get(path[:length])) is not None:
                return (*to, *path[length:]), True
        return (), False

    woven = comments.put_in(text, found, target)
    plain = YAML(typ="safe", pure=True)
    if plain.load(woven) == plain.load(text):
        return woven
    # NB: a line that cannot take a comment is rare; all of them before the document are better than a broken one.
    return "".join(f"{one.text}\n" for one in found if one.text) + text


def _judged(conversion: Conversion) -> Conversion:
    return conversion if conversion.cluster is None else admission.judged(conversion)


def _is_indented(part: str) -> bool:
    """Tell whether lists stand deeper than the key before them, as their author likes it."""
    match = re.search(r"^( *)(?:- +)?[\w.-]+:[ \t]*(?:#.*)?\n(?: *(?:#.*)?\n)*( *)- ", part, re.MULTILINE)
    return match is not None and len(match[2]) > len(match[1])


def _dump(document: Any, *, indented: bool) -> str:
    writer = _yaml()
    if indented:
        writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(document, stream)
    return stream.getvalue()
