"""The world at rest as comparable data; what differs from run to run is masked, with the reason beside each mask."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from simulation import dialect
from simulation.plans import stable

KINDS: Final = (
    "tfclusters",
    "services",
    "networkpolicies",
    "poddisruptionbudgets",
    "podgroups",
    "workloads",
    "configmaps",
    "pods",
)
#: The API server counts these over all writes, including those of a fault; and managed fields.
_METADATA: Final = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "generation"}
)
#: Times depend on the fault's time and on jitter. Only their presence is compared.
_TIMES: Final = frozenset(
    {
        *("startTime", "completionTime", "finishedAt", "restart_at", "retry_at", "lastTransitionTime"),
        *("waitingSince", "tfcluster.dev/surplus-since"),
    }
)
#: A time of day in a message.
_CLOCK: Final = re.compile(r"\d\d:\d\d:\d\d")
#: The field that an edit changed: an operator that starts after the edit cannot report it.
_EDITED: Final = re.compile(r" \([^ )]+ changed\)")
#: A UID: the API server counts them over all objects.
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: The resolver's archive: its content changes with its sources, which unit tests check.
_DIGEST: Final = re.compile(r"tfcluster-resolver-[0-9a-f]+")


def snapshot(kube: Any) -> dict[str, Any]:
    """Return the objects of the namespace, by kind and name."""
    digests: dict[str, int] = {}
    found: dict[str, Any] = {}
    pods = _pods(kube)
    for kind in KINDS:
        try:
            objects = kube.list(kind, dialect.NAMESPACE)
        except Exception as refusal:  # noqa: BLE001 - the kind may not be served: that is what the snapshot tells
            found[kind] = str(getattr(refusal, "status", "?"))
            continue
        for one in objects:
            if one["metadata"]["name"].startswith("huge"):
                continue  # only its neighbour is compared: it is still being created
            found[f"{kind}/{stable(kind, one['metadata']['name'])}"] = _masked(kind, one, digests, pods)
    return found


def without_reports(found: dict[str, Any]) -> dict[str, Any]:
    """Remove the numbers of lost and replaced pods, and the tasks that failed lately.

    The former include the losses that a plan causes, and an operator that dies can forget one. The latter are removed
    ten minutes later, and some plans take as long. Undisturbed runs compare both.
    """
    kept = dict(found)
    for name in [one for one in found if one.startswith("tfclusters/")]:
        status = found[name]["status"]
        jobs = {
            job: {k: v for k, v in told.items() if k != "disruptions"} for job, told in status.get("jobs", {}).items()
        }
        notes = (status.get("internal") or {}).get("jobs") or {}
        notes = {job: {k: v for k, v in told.items() if k not in {"failing", "lost"}} for job, told in notes.items()}
        notes = {job: told for job, told in notes.items() if told}
        kept[name] = {**found[name], "status": {**status, "jobs": jobs, "internal": {"jobs": notes}}}
    return kept


def disruptions(found: dict[str, Any]) -> Counter[str]:
    """Return the number of replaced pods by TFCluster and job."""
    statuses = {name: one["status"] for name, one in found.items() if name.startswith("tfclusters/")}
    return Counter(
        {
            f"{name} {job}": told.get("disruptions", 0)
            for name, status in statuses.items()
            for job, told in status.get("jobs", {}).items()
        }
    )


class _Pod(NamedTuple):
    """The name of a pod in a view, and whether it replaced another one."""

    name: str
    replaces: bool


def _pods(kube: Any) -> dict[str, _Pod]:
    """Return the pods by their task's hostname, without failed pods that are kept."""
    return {
        one["spec"].get("hostname", ""): _Pod(
            hashlib.sha256(one["metadata"]["uid"].encode()).hexdigest()[:6],
            dialect.ANNOTATION_REPLACEMENT in (one["metadata"].get("annotations") or {}),
        )
        for one in kube.list("pods", dialect.NAMESPACE)
        if dialect.LABEL_KEPT not in (one["metadata"].get("labels") or {})
    }


def _known_pods(text: str, pods: Mapping[str, _Pod]) -> str:
    """Mask the pods that a view names, if it is right: a chief's view names each that replaced another."""
    try:
        view = json.loads(text)
        named = view.pop("incarnations", {})
        jobs = view["jobs"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text
    expected: dict[str, dict[str, str]] = {}
    for job, tasks in jobs.items():
        for index in tasks if isinstance(tasks, dict) else range(len(tasks)):
            pod = pods.get(f"{view['cluster']['name']}-{job.replace('_', '-')}-{index}")
            if pod is not None and pod.replaces and job not in {"chief", "evaluator"}:
                expected.setdefault(job, {})[str(index)] = pod.name
    for job, of_job in named.items():  # a task without a pod keeps the last one
        for index, name in of_job.items():
            if f"{view['cluster']['name']}-{job.replace('_', '-')}-{index}" not in pods:
                expected.setdefault(job, {})[index] = name
    if named != expected:
        view["wrong pods"] = named
    return json.dumps(view, sort_keys=True, separators=(",", ":")) + "\n"


def _masked(kind: str, one: Mapping[str, Any], digests: dict[str, int], pods: Mapping[str, _Pod]) -> dict[str, Any]:
    metadata = {name: value for name, value in one["metadata"].items() if name not in _METADATA}
    annotations = dict(metadata.get("annotations") or {})
    if dialect.ANNOTATION_ASKED_AT in annotations:
        annotations[dialect.ANNOTATION_ASKED_AT] = "time"
        metadata["annotations"] = annotations
    if annotations.pop(dialect.ANNOTATION_REPLACEMENT, None) is not None:
        metadata["annotations"] = annotations
    if dialect.ANNOTATION_VIEW in annotations:
        # A digest depends on the cluster's UID: which pods got the same view is compared, without the pods in it.
        view = annotations[dialect.ANNOTATION_VIEW].partition("-")[0]
        annotations[dialect.ANNOTATION_VIEW] = digests.setdefault(view, len(digests))
        metadata["annotations"] = annotations
    rest: dict[str, Any] = {
        name: value for name, value in one.items() if name not in {"metadata", "apiVersion", "kind"}
    }
    if kind == "pods":
        # Of the pod's status, only whether it runs is compared. The unit tests of the builders check how the pod
        # follows from its template: no fault changes it.
        images = {of["name"]: of["image"] for of in one["spec"]["containers"]}
        rest = {"images": images, "phase": one["status"].get("phase")}
    elif kind == "configmaps":
        if "binaryData" in one:
            rest["binaryData"] = sorted(one["binaryData"])
        if "data" in one:
            told = pods if one["metadata"]["name"].endswith("-chief") else {}
            rest["data"] = {name: _known_pods(file, told) for name, file in one["data"].items()}
    text = json.dumps({"metadata": metadata, **rest}, sort_keys=True)
    text = _DIGEST.sub("tfcluster-resolver-*", _CLOCK.sub("HH:MM:SS", _UID.sub("UID", _EDITED.sub("", text))))
    masked: dict[str, Any] = _without_times(json.loads(text))
    if kind == "tfclusters":
        masked["status"] = _status(masked.get("status") or {})
    return masked


def _status(status: dict[str, Any]) -> dict[str, Any]:
    by_type = {one["type"]: {k: v for k, v in one.items() if k != "type"} for one in status.get("conditions") or ()}
    return {**status, "conditions": by_type}


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "time" if name in _TIMES else _without_times(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_times(one) for one in value]
    return value


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Return the paths of all differences between two snapshots."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name in sorted({*wanted, *found}):
            if name not in found:
                yield f"{path}.{name} is missing"
            elif name not in wanted:
                yield f"{path}.{name} is new: {str(found[name])[:120]}"
            else:
                yield from differences(wanted[name], found[name], f"{path}.{name}")
    elif wanted != found:
        yield f"{path} is {str(found)[:120]}, not {str(wanted)[:120]}"


def change(before: Any, after: Any) -> Any:
    """Return the changes between two snapshots as a merge patch, the format of references."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return after
    changed = {name: change(before.get(name), value) for name, value in after.items() if before.get(name) != value}
    return {**changed, **{name: None for name in before if name not in after}}


def changed(before: Any, patch: Any) -> Any:
    """Apply a merge patch from :func:`change`."""
    if not isinstance(patch, dict):
        return patch
    result = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = changed(result.get(name), value)
    return result
