"""The state and the clock, which all requests use."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tfcluster.local.store import refusals
from tfcluster.local.store.resources import Resource
from tfcluster.local.store.state import State, Storage, Version

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of a write, the field manager for server-side apply, and whether it is only a dry run."""

    user: str
    manager: str
    dry_run: bool = False


class Core:
    """The state of one API server.

    Args:
        wall: the time in seconds since the epoch, for every timestamp.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.wall = wall
        self.state = State()
        #: The last applied configuration, by the object's UID and the manager.
        self.last_applied: dict[tuple[str, str], Object] = {}
        self._timestamps: dict[int, str] = {}

    def timestamp(self, after: float = 0.0) -> str:
        """Return the time, or that of ``after`` seconds later, as the API writes it."""
        second = int(self.wall() + after)
        text = self._timestamps.get(second)
        if text is None:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._timestamps[second] = text
        return text

    def admit(  # tests override it
        self, _storage: Storage, *, new: Object | None, **_write: Any
    ) -> Object | None:
        """Return a write after admission; this store does not have admission."""
        return new

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Reject a create in a namespace that does not exist or is being deleted."""
        if not resource.namespaced:
            return
        namespaces = self.state.demand("namespaces")
        found = namespaces.demand("", namespace)
        if "deletionTimestamp" in found.body["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise refusals.forbidden(resource, name, why, causes=[cause])

    def remove(self, storage: Storage, version: Version) -> Version:
        """Remove an object, and its namespace if that is being deleted and now empty."""
        body = {**version.body, "metadata": {**version.body["metadata"]}}
        removed = self.state.commit(storage, "DELETED", body, version)
        if storage.resource.namespaced:
            self.end_namespace(body["metadata"]["namespace"])
        return removed

    def end_namespace(self, namespace: str) -> None:
        """Remove a namespace that is being deleted and is empty."""
        namespaces = self.state.demand("namespaces")
        found = namespaces.find("", namespace)
        if found is None or "deletionTimestamp" not in found.body["metadata"]:
            return
        if next(self.state.in_namespace(namespace), None) is None:
            self.remove(namespaces, found)
