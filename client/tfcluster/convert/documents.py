"""A file of manifests: its TFJobs are converted, everything else stays letter by letter."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import admission, beside, comments, notation, tfjob
from tfcluster.convert.conversion import Conversion, convert
from tfcluster.convert.verdicts import Path
from tfcluster.errors import ManifestError
from tfcluster.manifest_text import ProblemError, documents

_SEPARATOR: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_HEAD: Final = re.compile(r"---[^\n]*\n")
_TABS: Final = "YAML takes no tabs for indentation: use spaces."
_CORRECT: Final = "Correct it there."
_TEMPLATES: Final = (
    "If this is a Helm template, run `helm template` first. Otherwise write a value for {{…}}, convert, and restore it."
)
_LISTS: Final = ("List", "TFJobList")


@dataclass(frozen=True, slots=True)
class Stream:
    """What became of a file.

    ``text`` is the new file, whole only if nothing was refused; ``conversions`` are its TFJobs in their order;
    ``beside`` says what has to change in other objects of it.
    """

    text: str
    conversions: tuple[Conversion, ...]
    beside: tuple[str, ...]


def convert_text(text: str, name: str) -> Stream:
    """Convert the TFJobs of a file.

    Returns:
        The new text and the verdicts.

    Raises:
        ManifestError: the text is no YAML, or there is no TFJob in it.
    """
    written: list[str] = []
    found: list[Conversion] = []
    others: list[Mapping[str, Any]] = []
    for part in _parts(text, name):
        items = _items(part.value)
        jobs = [item for item in items if tfjob.is_tfjob(item)]
        others += [item for item in items if isinstance(item, Mapping) and not tfjob.is_tfjob(item)]
        if not jobs:
            written.append(part.text)
            continue
        new, conversions = _convert(part)
        found += conversions
        written.append(new)
    if not found:
        hidden = _remarks(others, [])
        raise ManifestError(
            f"there is no TFJob in {name}" + (", but:" if hidden else ""),
            hidden,
            hint=f"Name a file with an object of kind {tfjob.KIND}, or - for standard input, or --from-cluster NAME.",
        )
    return Stream("".join(written), tuple(found), tuple(_remarks(others, [one.job for one in found])))


def _remarks(others: list[Mapping[str, Any]], jobs: list[tfjob.TFJob]) -> list[str]:
    """Say each remark once: objects without a name look the same."""
    return list(dict.fromkeys(words for other in others for words in beside.remarks(other, jobs)))


def convert_object(manifest: Mapping[str, Any]) -> Stream:
    """Convert one TFJob that was read elsewhere, such as from an API server."""
    conversion = _judged(convert(manifest))
    return Stream(notation.dump(conversion.cluster), (conversion,), ())


@dataclass(frozen=True, slots=True)
class _Part:
    """One document: its text with the separator before it, what Kubernetes reads in it, and whether it is YAML."""

    text: str
    value: Any
    is_yaml: bool


def _parts(text: str, name: str) -> Iterator[_Part]:
    starts = [match.start() for match in _SEPARATOR.finditer(text)]
    # NB: directives of YAML stand before the separator of their document.
    starts = [start for start in starts if not text[:start].rstrip().rpartition("\n")[2].startswith("%")]
    cuts = sorted({0, *starts, len(text)})
    for first, last in itertools.pairwise(cuts):
        part = text[first:last]
        try:
            found = documents(part.encode())
        except ProblemError as error:
            line = text.count("\n", 0, first) + error.line
            wrong = part.splitlines()[error.line - 1 : error.line]
            hint = _TABS if any("\t" in one for one in wrong) else _TEMPLATES if "{{" in part else _CORRECT
            raise ManifestError(f"{name}:{line}: {error.words}", hint=hint) from error
        if len(found) == 1:
            yield _Part(part, found[0].value, found[0].node is not None)
        else:
            for one in found:
                yield _Part(f"---\n{json.dumps(one.value, indent=2)}\n", one.value, is_yaml=False)
            if not found:
                yield _Part(part, None, is_yaml=True)


def _items(document: Any) -> list[Any]:
    """Give the objects of a document: itself, or those of a List."""
    if isinstance(document, Mapping) and document.get("kind") in _LISTS and isinstance(document.get("items"), list):
        return [_named(item, document) for item in document["items"]]
    return [document]


def _named(item: Any, within: Mapping[str, Any]) -> Any:
    """Give an item of a list its kind: the API server leaves it out in lists of one kind."""
    if within["kind"] == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    item["apiVersion"], item["kind"] = within.get("apiVersion"), tfjob.KIND
    return item


def _convert(part: _Part) -> tuple[str, list[Conversion]]:
    """Convert the TFJobs of one document, and put the comments of its text into the new one."""
    bare, found = comments.taken_out(part.text) if part.is_yaml else ("", [])
    document = notation.as_written(bare, part.value) if part.is_yaml else part.value
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
    text = notation.dump(result, like=part.text if part.is_yaml else "")
    head = _HEAD.match(part.text)
    return (head[0] if head is not None else "") + _with_comments(text, found, moved), conversions


def _with_comments(text: str, found: list[comments.Comment], moved: Mapping[Path, Path]) -> str:
    def target(path: Path) -> tuple[Path, bool]:
        for length in range(len(path), 0, -1):
            if (to := moved.get(path[:length])) is not None:
                return (*to, *path[length:]), True
        return (), False

    woven = comments.put_in(text, found, target) if found else text
    if _value(woven) == _value(text):
        return woven
    # NB: a line that cannot take a comment is rare; all of them before the document are better than a broken one.
    return "".join(f"{one.text}\n" for one in found if one.text) + text


def _value(text: str) -> Any:
    try:
        return documents(text.encode())[0].value
    except ProblemError:
        return None


def _judged(conversion: Conversion) -> Conversion:
    return conversion if conversion.cluster is None else admission.judged(conversion)
