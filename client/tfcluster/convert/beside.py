"""What the other objects of a file have to do with a TFJob in it: they stay as they are, and may need a hand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.templates import addresses_in, label_words, selected_labels
from tfcluster.convert.tfjob import TFJob
from tfcluster.convert.verdicts import Path, spelled
from tfcluster_operator.model import naming

#: A TFJob in a text of YAML or JSON.
_IN_TEXT: Final = re.compile(r"\bkind[\"']?:\s*[\"']?TFJob\b", re.IGNORECASE)


def remarks(document: Mapping[str, Any], jobs: list[TFJob]) -> Iterator[str]:
    """Say what has to change in an object when TFJobs beside it become TFClusters.

    Args:
        document: the object; it is no TFJob.
        jobs: the TFJobs.

    Yields:
        One "what: what to do" each.
    """
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
    for path, label in selected_labels(document, ()):
        yield f"{who}, {spelled(path)}: {label_words(label)}"
    for path in _inner(document, ()):
        words = "a TFJob in here is not converted: convert it by itself, and put the result in its place"
        yield f"{who}, {spelled(path)}: {words}"


def _inner(node: Any, path: Path) -> Iterator[Path]:
    """Find what names or holds a TFJob: a workflow, an experiment, a target of an autoscaler."""
    if isinstance(node, Mapping):
        if path and tfjob.is_tfjob(node):
            yield path
        for key, value in node.items():
            yield from _inner(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _inner(value, (*path, index))
    elif isinstance(node, str) and _IN_TEXT.search(node):
        yield path
