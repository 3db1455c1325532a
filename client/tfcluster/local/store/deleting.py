"""Deleting: preconditions, finalizers, the grace of pods, and whole namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from tfcluster.local.store import refusals
from tfcluster.local.store.core import Actor, Core
from tfcluster.local.store.state import Storage, Version

Object = dict[str, Any]

#: The finalizers that request foreground or orphan deletion from the garbage collector.
FINALIZERS: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_DEFAULT_GRACE: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How to delete.

    Args:
        uid: the object must have this UID.
        resource_version: the object must be in this version.
        grace: the seconds that a pod gets, or None for its own.
        propagation: Background, Foreground, Orphan, or "" for the default.
    """

    uid: str | None = None
    resource_version: str | None = None
    grace: int | None = None
    propagation: str = ""

    @classmethod
    def read(cls, body: Mapping[str, Any] | None, params: Mapping[str, str]) -> "DeleteOptions":
        """Read them from a request's body and query."""
        told = body or {}
        preconditions = told.get("preconditions") or {}
        grace = told.get("gracePeriodSeconds", params.get("gracePeriodSeconds"))
        return cls(
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            grace=None if grace is None else int(grace),
            propagation=told.get("propagationPolicy") or params.get("propagationPolicy", ""),
        )


def delete(
    core: Core, storage: Storage, version: Version, options: DeleteOptions, actor: Actor
) -> tuple[Version, bool]:
    """Delete an object, or begin to."""
    _check_preconditions(storage, version, options)
    core.admit(storage, verb="delete", actor=actor, subresource="", old=version, new=None)
    if actor.dry_run:
        return version, False
    if storage.resource.plural == "namespaces":
        return _delete_namespace(core, storage, version, actor)
    metadata = dict(version.body["metadata"])
    if storage.resource.graceful:
        if "deletionTimestamp" not in metadata:
            _mark(core, metadata, _grace_of(version.body, options))
        elif not _shorten(core, metadata, options):
            return version, False
    _tell_collector(metadata, options)
    if metadata.get("finalizers") and not storage.resource.graceful:
        _mark(core, metadata, 0)
    if metadata != version.body["metadata"] and (metadata.get("finalizers") or storage.resource.graceful):
        # A pod that is deleted immediately is marked first, too: its watchers see a MODIFIED before the DELETED.
        version = core.state.commit(storage, "MODIFIED", {**version.body, "metadata": metadata}, version)
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return version, False
    return core.remove(storage, version), True


def _check_preconditions(storage: Storage, version: Version, options: DeleteOptions) -> None:
    metadata = version.body["metadata"]
    if options.uid is not None and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise refusals.failed_precondition(storage.resource, metadata["name"], why)
    wanted = options.resource_version
    if wanted is not None and wanted != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise refusals.failed_precondition(storage.resource, metadata["name"], why)


def _grace_of(body: Object, options: DeleteOptions) -> int:
    # An unscheduled or ended pod does not need a kubelet to stop it.
    if not body["spec"].get("nodeName") or body["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = options.grace
    if grace is None:
        grace = int(body["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE))
    return grace if grace >= 0 else 1


def _shorten(core: Core, metadata: Object, options: DeleteOptions) -> bool:
    known = metadata.get("deletionGracePeriodSeconds", 0)
    if options.grace is None or options.grace >= known:
        return False
    grace = max(options.grace, 0)
    first = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - known
    left = first + grace - int(core.wall())
    if left < 0:
        left, grace = 0, min(grace, 1)
    metadata["deletionTimestamp"] = core.timestamp(left)
    metadata["deletionGracePeriodSeconds"] = grace
    return True


def _mark(core: Core, metadata: Object, grace: int) -> None:
    if "deletionTimestamp" in metadata:
        return
    metadata["deletionTimestamp"] = core.timestamp(grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1


def _tell_collector(metadata: Object, options: DeleteOptions) -> None:
    if not options.propagation:
        return
    wanted = FINALIZERS.get(options.propagation)
    known = metadata.get("finalizers") or []
    kept = [one for one in known if one not in FINALIZERS.values()]
    finalizers = [*kept, wanted] if wanted else kept
    if finalizers == known:
        return
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _delete_namespace(core: Core, storage: Storage, version: Version, actor: Actor) -> tuple[Version, bool]:
    name = version.body["metadata"]["name"]
    if "deletionTimestamp" not in version.body["metadata"]:
        metadata = dict(version.body["metadata"])
        _mark(core, metadata, 0)
        body = {**version.body, "metadata": metadata, "status": {"phase": "Terminating"}}
        version = core.state.commit(storage, "MODIFIED", body, version)
        controller = replace(actor, user="system:serviceaccount:kube-system:namespace-controller")
        for held, one in list(core.state.in_namespace(name)):
            found = held.find(name, one.body["metadata"]["name"])
            if found is not None:
                delete(core, held, found, DeleteOptions(propagation="Background"), controller)
        core.end_namespace(name)
    return version, storage.find("", name) is None
