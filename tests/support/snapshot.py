"""Everything a TFCluster consists of, with what may differ between two runs masked: equal worlds compare equal."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .objects import Object
from .waiting import eventually
from .world import World

#: The server's own book-keeping: it differs between any two objects and says nothing about the operator.
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
#: Parts of the status that two runs of the same steps do not share.
_UNREPEATABLE = ("startTime", "completionTime", "restart_at", "counted", "disruptions")
_VIEW_DIGEST = "tfcluster.dev/view"
#: What a pod tells of the lost one in whose place it came.
_REPLACEMENT = "tfcluster.dev/replacement"


def snapshot(world: World, cluster: str) -> dict[str, Any]:
    """Read all objects of one TFCluster and its status.

    Masked are the server's book-keeping, timestamps, the namespace's and the cluster's identity, a pod's own status
    and the message of Ready, which quotes it (other components write it, in their own time).  So is how many pods
    were replaced, and which pod came in place of another: that is a report, and an operator that dies after a
    deletion of its own cannot tell whose it was.  View digests depend on the identity, so they become the number of
    the view among the digests of the cluster.
    """
    owner = world.cluster(cluster)
    label = f"tfcluster.dev/cluster={cluster}"
    listed = {
        "Service": {n: o for n, o in world.services().items() if n == cluster},
        "NetworkPolicy": _labelled(world.network_policies(), label),
        "ConfigMap": _labelled(world.config_maps(), label),
        "Pod": _labelled(world.pods(), label),
    }
    digests: dict[str, str] = {}
    masked = {f"{kind}/{name}": _mask(found, digests) for kind, all_ in listed.items() for name, found in all_.items()}
    masked["status"] = _mask_status(owner.get("status", {}))
    text = json.dumps(masked, sort_keys=True)
    for name, pod in world.pods().items():
        # What the chief's view calls the pod: a view that names another one differs.
        text = text.replace(hashlib.sha256(pod["metadata"]["uid"].encode()).hexdigest()[:6], f"POD {name}")
    return json.loads(text.replace(owner["metadata"]["uid"], "UID").replace(world.namespace, "NAMESPACE"))


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Tell where two snapshots differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for key in [*wanted, *(key for key in found if key not in wanted)]
            for line in differences(wanted.get(key), found.get(key), f"{path}.{key}" if path else key)
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [line for i, (one, other) in pairs for line in differences(one, other, f"{path}[{i}]")]
    return [] if wanted == found else [f"{path} should be {_brief(wanted)}, and is {_brief(found)}"]


def await_snapshot(world: World, cluster: str, wanted: dict[str, Any], *, what: str) -> None:
    """Return when the world equals a snapshot; else say where it differs."""
    eventually(lambda: differences(wanted, snapshot(world, cluster)), lambda different: not different, what=what)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"


def _labelled(found: dict[str, Object], label: str) -> dict[str, Object]:
    key, value = label.split("=")
    return {name: found[name] for name in sorted(found) if found[name]["metadata"].get("labels", {}).get(key) == value}


def _mask(found: Object, digests: dict[str, str]) -> Object:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVER_FIELDS}
    annotations = dict(metadata.get("annotations", {}))
    if annotations.pop(_REPLACEMENT, None) is not None:
        metadata["annotations"] = annotations
    if _VIEW_DIGEST in annotations:
        annotations[_VIEW_DIGEST] = digests.setdefault(annotations[_VIEW_DIGEST], f"view-{len(digests)}")
        metadata["annotations"] = annotations
    masked = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    return {**masked, "metadata": metadata}


def _mask_status(status: Object) -> Object:
    conditions = [{k: v for k, v in c.items() if k != "lastTransitionTime"} for c in status.get("conditions", [])]
    for condition in conditions:
        if condition["type"] == "Ready":
            condition.pop("message")
    jobs = {
        name: {key: value for key, value in job.items() if key not in _UNREPEATABLE}
        for name, job in status.get("jobs", {}).items()
    }
    remembered = {
        name: {key: value for key, value in job.items() if key not in _UNREPEATABLE}
        for name, job in status.get("internal", {}).get("jobs", {}).items()
    }
    kept = {key: value for key, value in status.items() if key not in _UNREPEATABLE}
    return {
        **kept,
        "jobs": jobs,
        "internal": {**status.get("internal", {}), "jobs": remembered},
        "conditions": sorted(conditions, key=lambda c: c["type"]),
    }
