"""The garbage collector: what has lost all its owners goes, and what its owners wait for goes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from memory_kubernetes.deleting import FINALIZERS
from memory_kubernetes.refusals import Refusal
from memory_kubernetes.state import Change

if TYPE_CHECKING:
    from memory_kubernetes.server import MemoryKubernetes

Object = dict[str, Any]
#: Plural, namespace, name and UID of an object.
Identity = tuple[str, str, str, str]

USER: Final = "system:serviceaccount:kube-system:generic-garbage-collector"


async def collect(kube: MemoryKubernetes, *, delay: float) -> None:
    """Collect for ever."""
    collector = _Collector(kube)
    woken = asyncio.Event()

    def note(change: Change) -> None:
        collector.note(change.type, change.resource, change.object)
        woken.set()

    kube.subscribers.append(note)
    try:
        for storage in tuple(kube.state.storages.values()):
            for version in storage.every(None):
                collector.note("ADDED", storage.resource.plural, version.body)
        while True:
            woken.clear()
            if not collector.suspects:
                await woken.wait()
                continue
            await asyncio.sleep(delay)
            collector.settle()
    finally:
        kube.subscribers.remove(note)


class _Collector:
    """Knows who owns what, and whom to look at."""

    def __init__(self, kube: MemoryKubernetes) -> None:
        self._kube = kube
        self._living: dict[str, Identity] = {}
        self._owned: dict[str, dict[Identity, None]] = {}
        self.suspects: dict[Identity, None] = {}

    def note(self, kind: str, plural: str, body: Object) -> None:
        """Take in one change."""
        metadata = body["metadata"]
        uid = metadata["uid"]
        identity = (plural, metadata.get("namespace", ""), metadata["name"], uid)
        owners = [one["uid"] for one in metadata.get("ownerReferences") or ()]
        if kind == "DELETED":
            self._living.pop(uid, None)
            for owner in owners:
                self._owned.get(owner, {}).pop(identity, None)
                if owner in self._living:
                    self._suspect_waiting(owner)
            self.suspects.update(dict.fromkeys(self._owned.get(uid, ())))
            return
        self._living[uid] = identity
        for owner in owners:
            self._owned.setdefault(owner, {})[identity] = None
        if owners and not all(owner in self._living for owner in owners):
            self.suspects[identity] = None
        if "deletionTimestamp" in metadata and set(metadata.get("finalizers") or ()) & set(FINALIZERS.values()):
            self.suspects[identity] = None

    def _suspect_waiting(self, owner: str) -> None:
        self.suspects[self._living[owner]] = None

    def settle(self) -> None:
        """Do what is to be done about the objects that were suspected until now."""
        suspects, self.suspects = self.suspects, {}
        for identity in suspects:
            try:
                self._look_at(identity)
            except Refusal as refusal:
                if refusal.status not in (404, 409):
                    self.suspects[identity] = None  # tried again after the next delay, as the real one does

    def _look_at(self, identity: Identity) -> None:
        plural, namespace, name, uid = identity
        if plural not in self._kube.state.storages:
            return
        body = self._kube.get(plural, namespace, name)
        if body is None or body["metadata"]["uid"] != uid:
            return
        metadata = body["metadata"]
        if "deletionTimestamp" in metadata:
            self._finalize(identity, metadata)
            return
        owners = metadata.get("ownerReferences") or []
        kept = [one for one in owners if one["uid"] in self._living]
        if owners and not kept:
            self._kube.delete(plural, namespace, name, uid=uid, propagation="Background", user=USER)
        elif len(kept) < len(owners):
            change = {"metadata": {"uid": uid, "ownerReferences": kept}}
            self._kube.patch(plural, namespace, name, change, user=USER)

    def _finalize(self, identity: Identity, metadata: Object) -> None:
        """Do for an object that is being deleted what its finalizers ask of the collector."""
        finalizers = metadata.get("finalizers") or []
        uid = identity[3]
        dependants = [one for one in self._owned.get(uid, ()) if self._owner_of(one, uid)]
        if FINALIZERS["Orphan"] in finalizers:
            for plural, namespace, name, own in dependants:
                owners = (self._kube.get(plural, namespace, name) or {})["metadata"]["ownerReferences"]
                kept = [one for one in owners if one["uid"] != uid]
                change = {"metadata": {"uid": own, "ownerReferences": kept or None}}
                self._kube.patch(plural, namespace, name, change, user=USER)
            self._remove_finalizer(identity, finalizers, FINALIZERS["Orphan"])
        elif FINALIZERS["Foreground"] in finalizers:
            for plural, namespace, name, own in dependants:
                self._kube.delete(plural, namespace, name, uid=own, propagation="Foreground", user=USER)
            if not any(self._blocks(one, uid) for one in dependants):
                self._remove_finalizer(identity, finalizers, FINALIZERS["Foreground"])

    def _owner_of(self, dependant: Identity, uid: str) -> Object | None:
        """Give a living dependant's reference to its owner."""
        plural, namespace, name, own = dependant
        if plural not in self._kube.state.storages:
            return None
        body = self._kube.get(plural, namespace, name)
        if body is None or body["metadata"]["uid"] != own:
            return None
        references = body["metadata"].get("ownerReferences") or ()
        return next((one for one in references if one["uid"] == uid), None)

    def _blocks(self, dependant: Identity, uid: str) -> bool:
        reference = self._owner_of(dependant, uid)
        return reference is not None and bool(reference.get("blockOwnerDeletion"))

    def _remove_finalizer(self, identity: Identity, finalizers: list[str], which: str) -> None:
        plural, namespace, name, uid = identity
        kept = [one for one in finalizers if one != which]
        self._kube.patch(plural, namespace, name, {"metadata": {"uid": uid, "finalizers": kept or None}}, user=USER)
