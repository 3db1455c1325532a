"""What the other objects of a file have to do with a TFJob in it: they stay as they are, and may need a hand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.templates import addresses_in, labels_in, texts
from tfcluster.convert.tfjob import TFJob
from tfcluster.convert.verdicts import Path, spelled
from tfcluster_operator.declaration import naming

#: A TFJob in a text of YAML or JSON.
_IN_TEXT: Final = re.compile(r"\bkind[\"']?:\s*[\"']?TFJob\b", re.IGNORECASE)
#: A count of TFJob's status, as workflow engines read it.
_COUNTS: Final = re.compile(r"\bstatus\.replicaStatuses\.(\w+)(?:\.(\w+))?")
#: The field of a TFCluster where its name or meaning differs.
_COUNTED_AS: Final = {"active": "ready", "failed": "failed, which also counts tasks that will be restarted"}
_CONVERT: Final = "this TFJob is not converted: "
_BY_ITSELF: Final = (
    "convert it separately and put the result here. The account that creates it needs permission for "
    f"{naming.PLURAL}.{naming.GROUP}"
)
#: What to do with a TFJob, by the kind that holds it.
_HOLDERS: Final = {
    "Template": "run oc process first, and convert what it writes",
    **dict.fromkeys(
        ("Experiment", "Trial"),
        f"{_BY_ITSELF}. Add {naming.KIND}.{naming.VERSION}.{naming.GROUP} to trialResources in KatibConfig. Set "
        "successCondition and failureCondition in trialTemplate (the conditions have the same names), and "
        f"primaryPodLabels ({naming.LABEL_JOB} and {naming.LABEL_TASK_INDEX} select one pod)",
    ),
}


def remarks(document: Mapping[str, Any], jobs: list[TFJob]) -> Iterator[str]:
    """Say what has to change in an object when TFJobs beside it become TFClusters."""
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
    others = (labels_in(document, ()), _inner(document, (), str(kind)), _counts(document), _permissions(document))
    for path, words in itertools.chain(*others):
        yield f"{who}, {spelled(path)}: {words}"


def _counts(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for path, text in texts(document, ()):
        for match in _COUNTS.finditer(text):
            field = f".{_COUNTED_AS.get(match[2], match[2])}" if match[2] else ""
            yield path, f"write status.jobs.{match[1].lower()}{field}"


def _permissions(document: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    rules = document.get("rules")
    for index, rule in enumerate(rules) if isinstance(rules, list) else ():
        named = rule.get("resources") if isinstance(rule, Mapping) else None
        if isinstance(named, list) and any(str(one).partition("/")[0] == "tfjobs" for one in named):
            yield ("rules", index), f"write {naming.PLURAL} of the API group {naming.GROUP} instead of tfjobs"


def _inner(node: Any, path: Path, holder: str) -> Iterator[tuple[Path, str]]:
    """Find what names or holds a TFJob: a workflow, an experiment, a target of an autoscaler."""
    words = _CONVERT + _HOLDERS.get(holder, _BY_ITSELF)
    if isinstance(node, Mapping):
        if path and tfjob.is_tfjob(node):
            target = f"write {naming.KIND} of {naming.API_VERSION} instead of TFJob"
            yield path, words if "spec" in node else target
        for key, value in node.items():
            yield from _inner(value, (*path, key), holder)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _inner(value, (*path, index), holder)
    elif isinstance(node, str) and _IN_TEXT.search(node):
        yield path, words
