"""All objects of a TFCluster, with the parts masked that differ between runs: equal worlds compare equal."""

import json
from typing import Any

from simulation.snapshot import differences

from .objects import Object
from .waiting import eventually
from .world import World

#: The server's bookkeeping: it differs between any two objects and is independent of the operator.
_SERVER_FIELDS = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink")
#: Parts of the status that differ between two runs of the same steps.
_UNREPEATABLE = ("startTime", "completionTime", "restart_at", "counted", "disruptions")
_VIEW_DIGEST = "tfcluster.dev/view"
_REPLACEMENT = "tfcluster.dev/replacement"


def snapshot(world: World, cluster: str) -> dict[str, Any]:
    """Read all objects of one TFCluster and its status.

    Masked: the server's bookkeeping, timestamps, the identities of the namespace and the cluster, a pod's own status
    and the message of Ready, which quotes it (other components write it, in their own time). Also masked: how many pods
    were replaced, which an operator that dies can forget, and which. View digests depend on the identity, so each
    becomes the number of the view among the digests of the cluster.
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
    return json.loads(text.replace(owner["metadata"]["uid"], "UID").replace(world.namespace, "NAMESPACE"))


def await_snapshot(world: World, cluster: str, wanted: dict[str, Any], *, what: str) -> None:
    """Wait until the world equals a snapshot; otherwise report the differences."""
    eventually(lambda: list(differences(wanted, snapshot(world, cluster))), lambda different: not different, what=what)


def _labelled(found: dict[str, Object], label: str) -> dict[str, Object]:
    key, value = label.split("=")
    return {name: found[name] for name in sorted(found) if found[name]["metadata"].get("labels", {}).get(key) == value}


def _mask(found: Object, digests: dict[str, str]) -> Object:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVER_FIELDS}
    annotations = dict(metadata.get("annotations", {}))
    if annotations.pop(_REPLACEMENT, None) is not None:
        metadata["annotations"] = annotations
    if _VIEW_DIGEST in annotations:
        digest = annotations[_VIEW_DIGEST].partition("-")[0]
        annotations[_VIEW_DIGEST] = digests.setdefault(digest, f"view-{len(digests)}")
        metadata["annotations"] = annotations
    masked = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    if "cluster.json" in masked.get("data", {}):
        masked["data"] = {name: _without_pods(text) for name, text in masked["data"].items()}
    return {**masked, "metadata": metadata}


def _without_pods(text: str) -> Object | str:
    """Return a view without the pods that replaced others."""
    try:
        view = json.loads(text)
    except ValueError:
        return text
    return {key: value for key, value in view.items() if key != "incarnations"} if isinstance(view, dict) else text


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
