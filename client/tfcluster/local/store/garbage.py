"""The garbage collector: it deletes objects without owners, and obeys foreground and orphan deletion."""

import asyncio
from typing import Any, Final

from tfcluster.local.store import writing
from tfcluster.local.store.core import Actor, Core
from tfcluster.local.store.deleting import FINALIZERS, DeleteOptions, delete
from tfcluster.local.store.refusals import Refusal
from tfcluster.local.store.state import Change, Version

Object = dict[str, Any]
#: Plural, namespace, name and UID of an object.
Identity = tuple[str, str, str, str]

_USER: Final = "system:serviceaccount:kube-system:generic-garbage-collector"
_ACTOR: Final = Actor(_USER, _USER)


async def collect(core: Core, *, delay: float) -> None:
    """Collect forever."""
    collector = _Collector(core)
    woken = asyncio.Event()

    def note(change: Change) -> None:
        collector.note(change.type, change.resource, change.object)
        woken.set()

    core.state.subscribers.append(note)
    try:
        for storage in tuple(core.state.storages.values()):
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
        core.state.subscribers.remove(note)


class _Collector:
    def __init__(self, core: Core) -> None:
        self._core = core
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
                    self.suspects[self._living[owner]] = None
            self.suspects.update(dict.fromkeys(self._owned.get(uid, ())))
            return
        self._living[uid] = identity
        for owner in owners:
            self._owned.setdefault(owner, {})[identity] = None
        if owners and not all(owner in self._living for owner in owners):
            self.suspects[identity] = None
        if "deletionTimestamp" in metadata and set(metadata.get("finalizers") or ()) & set(FINALIZERS.values()):
            self.suspects[identity] = None

    def settle(self) -> None:
        """Look at the objects that were suspected until now."""
        suspects, self.suspects = self.suspects, {}
        for identity in suspects:
            try:
                self._look_at(identity)
            except Refusal as refusal:
                if refusal.status not in (404, 409):
                    self.suspects[identity] = None  # tried again after the next delay, as the real one does

    def _look_at(self, identity: Identity) -> None:
        version = self._find(identity)
        if version is None:
            return
        metadata = version.body["metadata"]
        if "deletionTimestamp" in metadata:
            self._finalize(identity, metadata)
            return
        owners = metadata.get("ownerReferences") or []
        kept = [one for one in owners if one["uid"] in self._living]
        if owners and not kept:
            self._delete(identity, version, "Background")
        elif len(kept) < len(owners):
            self._patch(identity, ownerReferences=kept)

    def _find(self, identity: Identity) -> Version | None:
        plural, namespace, name, uid = identity
        storage = self._core.state.storages.get(plural)
        found = storage.find(namespace, name) if storage is not None else None
        return found if found is not None and found.body["metadata"]["uid"] == uid else None

    def _delete(self, identity: Identity, version: Version, propagation: str) -> None:
        storage = self._core.state.storages[identity[0]]
        delete(self._core, storage, version, DeleteOptions(uid=identity[3], propagation=propagation), _ACTOR)

    def _patch(self, identity: Identity, **metadata: Any) -> None:
        plural, namespace, name, uid = identity
        change = {"metadata": {"uid": uid, **metadata}}
        storage = self._core.state.storages[plural]
        writing.patch(self._core, storage, (namespace, name), change, subresource="", actor=_ACTOR)

    def _finalize(self, identity: Identity, metadata: Object) -> None:
        finalizers = metadata.get("finalizers") or []
        uid = identity[3]
        owned = [(one, self._reference(one, uid)) for one in self._owned.get(uid, ())]
        dependants = [(one, reference) for one, reference in owned if reference]
        if FINALIZERS["Orphan"] in finalizers:
            for one, _ in dependants:
                version = self._find(one)
                references = version.body["metadata"]["ownerReferences"] if version is not None else ()
                self._patch(one, ownerReferences=[other for other in references if other["uid"] != uid] or None)
            self._remove_finalizer(identity, finalizers, FINALIZERS["Orphan"])
        elif FINALIZERS["Foreground"] in finalizers:
            for one, _ in dependants:
                if (version := self._find(one)) is not None:
                    self._delete(one, version, "Foreground")
            if not any((self._reference(one, uid) or {}).get("blockOwnerDeletion") for one, _ in dependants):
                self._remove_finalizer(identity, finalizers, FINALIZERS["Foreground"])

    def _reference(self, dependant: Identity, uid: str) -> Object | None:
        version = self._find(dependant)
        references = version.body["metadata"].get("ownerReferences") or () if version is not None else ()
        return next((one for one in references if one["uid"] == uid), None)

    def _remove_finalizer(self, identity: Identity, finalizers: list[str], which: str) -> None:
        self._patch(identity, finalizers=[one for one in finalizers if one != which] or None)
