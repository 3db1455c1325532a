"""What every request works on: the state, the clock, admission and quota."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from memory_kubernetes import refusals
from memory_kubernetes.admission import Admission, AdmissionHook
from memory_kubernetes.resources import Resource
from memory_kubernetes.state import State, Storage, Version, private_copy

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who writes, under which name for managedFields, and whether it is only a trial."""

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
        #: Looked at in order before every write; see Admission.
        self.admission: list[AdmissionHook] = []
        #: Limits by namespace and counted resource; see check_quota.
        self.quota: dict[str, Mapping[str, int]] = {}
        #: What each manager applied last, by the object's UID and the manager.
        self.last_applied: dict[tuple[str, str], Object] = {}
        self._spelled: dict[int, str] = {}

    def timestamp(self, after: float = 0.0) -> str:
        """Spell the time, or that of ``after`` seconds later, as the API does."""
        second = int(self.wall() + after)
        spelled = self._spelled.get(second)
        if spelled is None:
            spelled = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._spelled[second] = spelled
        return spelled

    def admit(
        self, storage: Storage, *, verb: str, actor: Actor, subresource: str, old: Version | None, new: Object | None
    ) -> Object | None:
        """Ask the hooks.

        Raises:
            Refusal: a hook refused.
        """
        if not self.admission:
            return new
        metadata = (new or (old.body if old else {}))["metadata"]
        admission = Admission(
            verb=verb,
            resource=storage.resource.plural,
            namespace=metadata.get("namespace", ""),
            user=actor.user,
            subresource=subresource,
            old=old.copy() if old is not None else None,
            object=private_copy(new) if new is not None else None,
            dry_run=actor.dry_run,
        )
        for hook in tuple(self.admission):
            hook(admission)
        return admission.object

    def check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        """Refuse to create in a namespace that does not exist or is being deleted."""
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
        """Take an object out, and its namespace where it was the last of one that is being deleted."""
        body = {**version.body, "metadata": {**version.body["metadata"]}}
        gone = self.state.commit(storage, "DELETED", body, version)
        if storage.resource.namespaced:
            self.end_namespace(body["metadata"]["namespace"])
        return gone

    def end_namespace(self, namespace: str) -> None:
        """Take a namespace out that is being deleted and holds nothing any more."""
        namespaces = self.state.demand("namespaces")
        found = namespaces.find("", namespace)
        if found is None or "deletionTimestamp" not in found.body["metadata"]:
            return
        if next(self.state.in_namespace(namespace), None) is None:
            self.remove(namespaces, found)
