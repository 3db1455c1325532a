"""The shape of the API as the simulation uses it: the only file that changes when a field moves."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from tfcluster_operator.resolver_sources import read_archive

#: Actions of plans with two operators and leader election; other plans have one operator without election.
ELECTED: Final = frozenset({"leader dies", "leader hands over", "second operator"})
#: The operator's user name at the API server.
OPERATOR: Final = "operator"
NAMESPACE: Final = "default"
CLUSTER: Final = "c"
LABEL_CLUSTER: Final = "tfcluster.dev/cluster"
LABEL_JOB: Final = "tfcluster.dev/job"
LABEL_INDEX: Final = "tfcluster.dev/task-index"
LABEL_KEPT: Final = "tfcluster.dev/kept"
ANNOTATION_VIEW: Final = "tfcluster.dev/view"
ANNOTATION_REPLACEMENT: Final = "tfcluster.dev/replacement"
ANNOTATION_ASKED_AT: Final = "tfcluster.dev/asked-at"


#: The delivered resolver, and the ConfigMap that all pods of a namespace mount; it does not have an owner reference.
ARCHIVE: Final = read_archive().content
RESOLVER: Final = f"tfcluster-resolver-{hashlib.sha256(ARCHIVE).hexdigest()[:32]}"


def is_our_copy(body: Mapping[str, Any]) -> bool:
    """Return whether a ConfigMap holds the resolver as the operator delivers it."""
    files = {name: base64.b64decode(text) for name, text in (body.get("binaryData") or {}).items()}
    return files == {"tfcluster_resolver.zip": ARCHIVE} and not body.get("data") and body.get("immutable") is True


def rolling_update(max_unavailable: int | str) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max_unavailable}}


def record_of(status: Mapping[str, Any], job: str) -> dict[str, Any]:
    """Return the whole status of a job, including the operator's own records."""
    notes = ((status.get("internal") or {}).get("jobs") or {}).get(job) or {}
    return {**((status.get("jobs") or {}).get(job) or {}), **notes}


def completed(record: Mapping[str, Any]) -> set[int]:
    """Parse the complete tasks of a job from the form "0-2,5"."""
    told = record.get("completed") or ""
    parts = told.split(",") if isinstance(told, str) else [str(one) for one in told]
    found: set[int] = set()
    for first, _, last in (part.partition("-") for part in parts if part):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def condition(cluster: Mapping[str, Any] | None, kind: str) -> dict[str, Any]:
    told = ((cluster or {}).get("status") or {}).get("conditions") or ()
    return next((one for one in told if one["type"] == kind), {})


def reason(status: Mapping[str, Any], kind: str) -> str:
    return next((str(one["reason"]) for one in status.get("conditions") or () if one["type"] == kind), "")


def verdict(status: Mapping[str, Any]) -> tuple[str, str] | None:
    for one in status.get("conditions") or ():
        if one["type"] in {"Succeeded", "Failed"} and one["status"] == "True":
            return one["type"], one["reason"]
    return None
