"""The objects, their versions and what changed: what etcd and the watch cache are to a real API server.

A stored object is never changed in place: lists, watches, patches and the history share it and its encoding.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tfcluster.local.store import refusals
from tfcluster.local.store.resources import Resource

Object = dict[str, Any]

#: The revision before the first write.
FIRST_REVISION: Final = 1000

_revision_of = attrgetter("revision")


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encode(body: Any) -> bytes:
    """Encode as compact JSON."""
    return _encode(body).encode()


def private_copy(body: Any) -> Any:
    """Copy a JSON value; other values are rejected with a TypeError or ValueError."""
    return json.loads(_encode(body))


class Change(NamedTuple):
    """One write, for subscribers: ``type`` is ADDED, MODIFIED or DELETED, ``resource`` the plural."""

    revision: int
    type: str
    resource: str
    object: Object


class Version:
    """One state of one object, encoded once for all readers."""

    __slots__ = ("_encoded", "body", "key")

    def __init__(self, body: Object) -> None:
        self.body = body
        metadata = body["metadata"]
        self.key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """Return the object as JSON."""
        if self._encoded is None:
            self._encoded = encode(self.body)
        return self._encoded

    def copy(self) -> Object:
        """Return a private copy of the object."""
        copied: Object = json.loads(self.encoded)
        return copied


class Entry:
    """One change of one storage, with the state before it."""

    __slots__ = ("_left", "_line", "after", "before", "revision", "type")

    def __init__(self, revision: int, kind: str, *, after: Version, before: Version | None) -> None:
        self.revision = revision
        self.type = kind
        self.after = after
        self.before = before
        self._line: bytes | None = None
        self._left: bytes | None = None

    def line(self, kind: str) -> bytes:
        """Return the watch line of this change as an ADDED, MODIFIED or DELETED."""
        if kind != self.type:
            return self._other_line(kind)
        if self._line is None:
            self._line = watch_line(kind, self.after.encoded)
        return self._line

    def _other_line(self, kind: str) -> bytes:
        if kind != "DELETED" or self.before is None:
            return watch_line(kind, self.after.encoded)
        if self._left is None:
            # A watch whose selector no longer matches gets the previous state, with the version of the change.
            metadata = {**self.before.body["metadata"], "resourceVersion": str(self.revision)}
            self._left = watch_line(kind, encode({**self.before.body, "metadata": metadata}))
        return self._left


def watch_line(kind: str, encoded: bytes) -> bytes:
    """Build one line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), encoded)


class Storage:
    """The objects of one kind, and the log of their changes.

    Args:
        resource: the kind.
        floor: the oldest revision whose changes are kept.
    """

    def __init__(self, resource: Resource, floor: int) -> None:
        self.resource = resource
        self.objects: dict[str, dict[str, Version]] = {}
        self.log: list[Entry] = []
        #: A watch from before this revision is rejected.
        self.floor = floor
        #: The newest change that was trimmed from the log.
        self.trimmed = 0
        #: Called after every change, and when the storage ends. A dict keeps the order of insertion; that of a set
        #: differs from run to run.
        self.wakers: dict[Callable[[], None], None] = {}
        #: Set when the kind is no longer served.
        self.ended = False
        #: The beginning of every encoded object, which a list of a built-in kind omits from its items.
        self.prefix = b'{"kind":"%s","apiVersion":"%s",' % (resource.kind.encode(), resource.api_version.encode())

    def find(self, namespace: str, name: str) -> Version | None:
        """Find an object by namespace ("" for cluster-scoped kinds) and name."""
        names = self.objects.get(namespace)
        return names.get(name) if names is not None else None

    def demand(self, namespace: str, name: str) -> Version:
        """Find an object; raises 404 if it does not exist."""
        found = self.find(namespace, name)
        if found is None:
            raise refusals.not_found(self.resource, name)
        return found

    def every(self, namespace: str | None) -> list[Version]:
        """List the objects of a namespace, or (None) of all, in the order of their keys."""
        spaces = self.objects.values() if namespace is None else (self.objects.get(namespace, {}),)
        return sorted((one for names in spaces for one in names.values()), key=attrgetter("key"))

    def every_at(self, revision: int, namespace: str | None) -> list[Version]:
        """Return the objects at a revision that is still kept."""
        found = {one.key: one for one in self.every(namespace)}
        for entry in reversed(self.since(revision)):
            if namespace is not None and entry.after.body["metadata"].get("namespace", "") != namespace:
                continue
            if entry.before is None:
                del found[entry.after.key]
            else:
                found[entry.after.key] = entry.before
        return [found[key] for key in sorted(found)]

    def since(self, revision: int) -> list[Entry]:
        """Return the changes after a revision."""
        log = self.log
        if not log or log[-1].revision <= revision:
            return []
        return log[bisect_right(log, revision, key=_revision_of) :]

    def take(self, entry: Entry) -> None:
        """Record a change and wake the waiting watches."""
        metadata = entry.after.body["metadata"]
        namespace = metadata.get("namespace", "")
        if entry.type == "DELETED":
            del self.objects[namespace][metadata["name"]]
        else:
            self.objects.setdefault(namespace, {})[metadata["name"]] = entry.after
        self.log.append(entry)
        self.wake()

    def wake(self) -> None:
        """Wake the waiting watches."""
        for waker in tuple(self.wakers):
            waker()

    def trim(self, revision: int) -> None:
        """Drop the changes up to a revision."""
        kept = self.since(revision)
        if len(kept) < len(self.log):
            self.trimmed = self.log[len(self.log) - len(kept) - 1].revision
            self.log = kept
        self.floor = max(self.floor, revision)


class State:
    """All storages, and the one revision that all writes increment."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.storages: dict[str, Storage] = {}
        self.subscribers: list[Callable[[Change], None]] = []
        self._uids = 0

    def new_uid(self) -> str:
        """Return a new UID, which is a counter."""
        self._uids += 1
        return f"00000000-0000-4000-8000-{self._uids:012x}"

    def demand(self, plural: str) -> Storage:
        """Find the storage of a kind; raises 404 if it is not served."""
        found = self.storages.get(plural)
        if found is None:
            raise refusals.NotServed
        return found

    def commit(self, storage: Storage, kind: str, body: Object, before: Version | None) -> Version:
        """Write: increment the revision, store, notify."""
        self.revision += 1
        body["metadata"]["resourceVersion"] = str(self.revision)
        version = Version(body)
        storage.take(Entry(self.revision, kind, after=version, before=before))
        change = Change(self.revision, kind, storage.resource.plural, body)
        for subscriber in tuple(self.subscribers):
            subscriber(change)
        return version

    def in_namespace(self, namespace: str) -> Iterator[tuple[Storage, Version]]:
        """Return all objects in a namespace."""
        for storage in tuple(self.storages.values()):
            if storage.resource.namespaced:
                for version in storage.every(namespace):
                    yield storage, version
