"""A file of manifests: its TFJobs are converted, all other objects stay as they are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.conversion import Conversion, convert
from tfcluster.convert.templates import addresses_in, labels_in
from tfcluster.convert.tfjob import Path, TFJob
from tfcluster.errors import ManifestError
from tfcluster.manifest.shaping import nodes
from tfcluster.manifest.yaml import Document, ProblemError, documents, write
from tfcluster.terminal import spelled
from tfcluster_operator.declaration import naming

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

    ``objects`` are those of the new file, None for a rejected TFJob; ``conversions`` are its TFJobs in their order;
    ``beside`` says what has to change in other objects of it.
    """

    objects: tuple[Any, ...]
    conversions: tuple[Conversion, ...]
    beside: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return write(*self.objects, width=_WIDTH)


def convert_text(text: str, name: str) -> Stream:
    objects = [item for document in _documents(text, name) for item in _items(document.value)]
    others = [one for one in objects if isinstance(one, Mapping) and not tfjob.is_tfjob(one)]
    found = [convert(one) if tfjob.is_tfjob(one) else one for one in objects]
    conversions = tuple(one for one in found if isinstance(one, Conversion))
    if not conversions:
        hidden = _remarks(others, [])
        raise ManifestError(
            f"no TFJob found in {name}" + (":" if hidden else ""),
            hidden,
            hint=f"Name a file with an object of kind {tfjob.KIND}, or - for standard input, or --from-cluster NAME.",
        )
    converted = tuple(one.cluster if isinstance(one, Conversion) else one for one in found)
    return Stream(converted, conversions, tuple(_remarks(others, [one.job for one in conversions])))


def _remarks(others: list[Mapping[str, Any]], jobs: list[tfjob.TFJob]) -> list[str]:
    """Report each remark once: objects without a name look the same."""
    return list(dict.fromkeys(words for other in others for words in remarks(other, jobs)))


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


_IN_TEXT: Final = re.compile(r"\bkind[\"']?:\s*[\"']?TFJob\b", re.IGNORECASE)
_BY_ITSELF: Final = (
    "this TFJob is not converted: convert it separately and put the result here. The account that creates it needs "
    f"permission for {naming.PLURAL}.{naming.GROUP}"
)
_OF_KATIB: Final = (
    f". Add {naming.KIND}.{naming.VERSION}.{naming.GROUP} to trialResources in KatibConfig. Set successCondition and "
    "failureCondition in trialTemplate (the conditions have the same names), and primaryPodLabels "
    f"({naming.LABEL_JOB} and {naming.LABEL_TASK_INDEX} select one pod)"
)


def remarks(document: Mapping[str, Any], jobs: list[TFJob]) -> Iterator[str]:
    """Report what has to change in an object when the TFJobs beside it become TFClusters."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    kind = document.get("kind")
    who = f"{kind or 'an object'} {name or ''}".strip()
    for job in jobs:
        views = [naming.view_name(job.name, one.job) for one in job.replicas]
        if (kind, name) == ("Service", naming.service_name(job.name)) or (kind == "ConfigMap" and name in views):
            yield f"{who}: the TFCluster needs this name for its own {kind}: rename one of them"
        for path, words in addresses_in(document, (), job):
            yield f"{who}, {spelled(path)}: {words}"
    others = (labels_in(document, ()), _inner(document), _permissions(document))
    for path, words in itertools.chain(*others):
        yield f"{who}, {spelled(path)}: {words}"


def _permissions(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    rules = document.get("rules")
    for index, rule in enumerate(rules) if isinstance(rules, list) else ():
        named = rule.get("resources") if isinstance(rule, Mapping) else None
        if isinstance(named, list) and any(str(one).partition("/")[0] == "tfjobs" for one in named):
            yield ("rules", index), f"write {naming.PLURAL} of the API group {naming.GROUP} instead of tfjobs"


def _inner(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Find objects that refer to or contain a TFJob: a workflow, an experiment, a target of an autoscaler."""
    words = _BY_ITSELF + (_OF_KATIB if document.get("kind") in ("Experiment", "Trial") else "")
    for path, node in nodes(document):
        if (isinstance(node, str) and _IN_TEXT.search(node)) or (path and tfjob.is_tfjob(node) and "spec" in node):
            yield path, words
        elif path and tfjob.is_tfjob(node):
            yield path, f"write {naming.KIND} of {naming.API_VERSION} instead of TFJob"
