"""A file of manifests: its TFJobs are converted, all other objects stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.conversion import Conversion, convert
from tfcluster.errors import ManifestError
from tfcluster.manifest.yaml import Document, ProblemError, documents, write

_TABS: Final = "YAML does not permit tabs for indentation: use spaces."
_CORRECT: Final = "Correct it there."
_TEMPLATES: Final = (
    "If this is a Helm template, run `helm template` first. Otherwise write a value for {{…}}, convert, and restore it."
)
#: No line is folded.
_WIDTH: Final = 1 << 20
_LISTS: Final = ("List", "TFJobList")


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of converting a file.

    ``objects`` are those of the new file, None for a rejected TFJob; ``conversions`` are its TFJobs in their order.
    """

    objects: tuple[Any, ...]
    conversions: tuple[Conversion, ...]

    @property
    def text(self) -> str:
        return write(*self.objects, width=_WIDTH)


def convert_text(text: str, name: str) -> Stream:
    objects = [item for document in _documents(text, name) for item in _items(document.value)]
    found = [convert(one) if tfjob.is_tfjob(one) else one for one in objects]
    conversions = tuple(one for one in found if isinstance(one, Conversion))
    if not conversions:
        hint = f"Name a file with an object of kind {tfjob.KIND}, or - for standard input, or --from-cluster NAME."
        raise ManifestError(f"no TFJob found in {name}", hint=hint)
    return Stream(tuple(one.cluster if isinstance(one, Conversion) else one for one in found), conversions)


def convert_object(manifest: Mapping[str, Any]) -> Stream:
    """Convert one TFJob that was read elsewhere, such as from an API server."""
    conversion = convert(manifest)
    return Stream((conversion.cluster,), (conversion,))


def _documents(text: str, name: str) -> list[Document]:
    try:
        return documents(text.encode())
    except ProblemError as error:
        wrong = text.splitlines()[error.line - 1 : error.line]
        hint = _TABS if any("\t" in one for one in wrong) else _TEMPLATES if "{{" in text else _CORRECT
        raise ManifestError(f"{name}:{error.line}: {error.words}", hint=hint) from error


def _items(document: Any) -> list[Any]:
    """Return the objects of a document: itself, or those of a List."""
    if isinstance(document, Mapping) and document.get("kind") in _LISTS and isinstance(document.get("items"), list):
        return [_named(item, document) for item in document["items"]]
    return [document]


def _named(item: Any, within: Mapping[str, Any]) -> Any:
    """Add the kind to an item of a list: the API server omits it in lists of one kind."""
    if within["kind"] == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    item["apiVersion"], item["kind"] = within.get("apiVersion"), tfjob.KIND
    return item
