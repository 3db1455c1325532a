"""The API server as any actor meets it who is not behind HTTP: synchronous, with refusals as exceptions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from memory_kubernetes import applying, garbage, patching, pod_actions, scaling, serving, writing
from memory_kubernetes.core import Actor, Core
from memory_kubernetes.deleting import DeleteOptions, delete
from memory_kubernetes.messages import Answer, Record, Request
from memory_kubernetes.resources import DEFAULT_RESOURCES, Resource
from memory_kubernetes.selectors import selector_of
from memory_kubernetes.state import Change, Storage, Version, private_copy

Object = dict[str, Any]
Objects = list[Object]

_ADMIN = "admin"


class MemoryKubernetes(Core):
    """An API server in memory.

    Every method acts at once and gives private copies; every ``user`` is known to the admission hooks.

    Args:
        wall: gives the time in seconds since the epoch, for timestamps; waiting is asyncio's.
        resources: what is served from the beginning.
        namespaces: the namespaces that exist from the beginning.
    """

    def __init__(
        self,
        wall: Callable[[], float],
        resources: Iterable[Resource] = DEFAULT_RESOURCES,
        *,
        namespaces: Iterable[str] = ("default",),
    ) -> None:
        super().__init__(wall)
        #: Asked before every request that comes through a session; a Refusal (403) ends it, as RBAC would.
        self.authorize: list[Callable[[Request], None]] = []
        #: Every request that came through a session.
        self.requests: list[Record] = []
        for resource in resources:
            self.install(resource)
        for namespace in namespaces:
            self.create("namespaces", "", {"metadata": {"name": namespace}})

    # --- what happened

    @property
    def revision(self) -> int:
        """Give the revision of the last write."""
        return self.state.revision

    @property
    def history(self) -> Sequence[Change]:
        """Give every write; the objects in it are shared and must not be changed."""
        return self.state.history

    @property
    def subscribers(self) -> list[Callable[[Change], None]]:
        """Give who is called at every write; a subscriber takes note and writes later, never at once."""
        return self.state.subscribers

    def compact(self, revision: int) -> None:
        """Forget how things were before a revision: a watch or a page from before it gets 410."""
        for storage in self.state.storages.values():
            storage.trim(min(revision, self.state.revision))

    # --- what is served

    def install(self, resource: Resource) -> None:
        """Serve a kind from now on, with an empty storage; one that is served stays as it is."""
        if resource.plural not in self.state.storages:
            self.state.storages[resource.plural] = Storage(resource, self.state.revision)

    def uninstall(self, plural: str) -> None:
        """Serve a kind no more: its objects go, its watches end, and every request for it gets 404."""
        storage = self.state.demand(plural)
        for version in storage.every(None):
            self.remove(storage, version)
        storage.ended = True
        del self.state.storages[plural]
        storage.wake()

    # --- objects

    def create(
        self,
        plural: str,
        namespace: str,
        body: Object,
        *,
        user: str = _ADMIN,
        dry_run: bool = False,
    ) -> Object:
        """Create an object; raises Refusal."""
        private = private_copy(body)
        actor = Actor(user, user, dry_run)
        return writing.create(self, self.state.demand(plural), namespace, private, actor).copy()

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Give an object, or None where there is none."""
        found = self.state.demand(plural).find(namespace, name)
        return None if found is None else found.copy()

    def list(self, plural: str, namespace: str | None = None, labels: str = "") -> Objects:
        """Give the objects of a namespace, or of all, that match a label selector."""
        matches = selector_of(labels, "")
        return [one.copy() for one in self.state.demand(plural).every(namespace) if matches(one.body)]

    def patch(
        self,
        plural: str,
        namespace: str,
        name: str,
        change: Object,
        subresource: str = "",
        *,
        user: str = _ADMIN,
        dry_run: bool = False,
    ) -> Object:
        """Apply a merge patch; a resourceVersion in it must be the stored one (409); raises Refusal."""
        storage = self.state.demand(plural)
        private = private_copy(change)
        actor = Actor(user, user, dry_run)
        patched = self.apply_patch(storage, (namespace, name), private, subresource=subresource, actor=actor)
        return patched.copy()

    def update(
        self,
        plural: str,
        namespace: str,
        body: Object,
        subresource: str = "",
        *,
        user: str = _ADMIN,
        dry_run: bool = False,
    ) -> Object:
        """Replace an object; a UID and a resourceVersion in it must be the stored ones (409); raises Refusal."""
        storage = self.state.demand(plural)
        private = private_copy(body)
        actor = Actor(user, user, dry_run)
        name = str(private["metadata"]["name"])
        return self.apply_replacement(storage, (namespace, name), private, subresource=subresource, actor=actor).copy()

    def delete(
        self,
        plural: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
        user: str = _ADMIN,
    ) -> Object | None:
        """Delete an object, or begin to: gives it as it is now, None where it is gone; raises Refusal."""
        storage = self.state.demand(plural)
        options = DeleteOptions(uid=uid, grace=grace, propagation=propagation)
        version, gone = delete(self, storage, storage.demand(namespace, name), options, Actor(user, user))
        return None if gone else version.copy()

    def delete_collection(
        self,
        plural: str,
        namespace: str | None = None,
        labels: str = "",
        *,
        grace: int | None = None,
        propagation: str = "Background",
        user: str = _ADMIN,
    ) -> int:
        """Delete the objects that match a label selector; gives how many; raises Refusal."""
        storage = self.state.demand(plural)
        options = DeleteOptions(grace=grace, propagation=propagation)
        found = [one for one in storage.every(namespace) if selector_of(labels, "")(one.body)]
        for version in found:
            delete(self, storage, version, options, Actor(user, user))
        return len(found)

    def delete_namespace(self, name: str, *, user: str = _ADMIN) -> None:
        """Delete a namespace with all that it holds; it is gone when the last of that is; raises Refusal."""
        self.delete("namespaces", "", name, user=user)

    def bind(self, namespace: str, name: str, node: str) -> Object:
        """Give a pod its node, as a scheduler does; raises Refusal."""
        storage = self.state.demand("pods")
        return pod_actions.bind(self, storage, storage.demand(namespace, name), node).copy()

    def evict(self, namespace: str, name: str, *, grace: int | None = None, user: str = _ADMIN) -> None:
        """Evict a pod, as a drain does; raises Refusal."""
        storage = self.state.demand("pods")
        pod_actions.evict(self, storage, storage.demand(namespace, name), DeleteOptions(grace=grace), Actor(user, user))

    # --- what sessions and controllers use

    def serve(self, request: Request) -> Answer:
        """Answer one request of a session; never raises Refusal."""
        return serving.serve(self, request)

    def collect_garbage(self, *, delay: float = 0.05) -> Coroutine[Any, Any, None]:
        """Give the garbage collector, to be run as a task: it deletes what has lost its owners after a delay."""
        return garbage.collect(self, delay=delay)

    def apply_patch(
        self, storage: Storage, key: tuple[str, str], change: Any, *, subresource: str, actor: Actor
    ) -> Version:
        """Apply a merge patch (a dict) or a JSON patch (a list) to the object of this namespace and name."""
        version = storage.demand(*key)
        old = version.body
        target = scaling.read_scale(storage.resource, version) if subresource == "scale" else old
        new = (patching.json_patch if isinstance(change, list) else patching.merge_patch)(target, change)
        if subresource == "scale":
            new = scaling.with_scale(storage.resource, old, new)
        writing.check_patched(storage.resource, old, new)
        return writing.update(self, storage, version, new, subresource=subresource, actor=actor)

    def apply_configuration(
        self, storage: Storage, key: tuple[str, str], body: Object, *, actor: Actor
    ) -> tuple[Version, bool]:
        """Apply server-side to the object of this namespace and name; tells whether it was there before."""
        stored = storage.find(*key)
        if stored is None:
            metadata = {"name": key[1], **(body.get("metadata") or {})}
            version = writing.create(self, storage, key[0], private_copy({**body, "metadata": metadata}), actor)
        else:
            before = self.last_applied.get((stored.body["metadata"]["uid"], actor.manager), {})
            new = applying.applied(stored.body, before, private_copy(body))
            writing.check_patched(storage.resource, stored.body, new)
            version = writing.update(self, storage, stored, new, subresource="", actor=actor)
        if not actor.dry_run:
            self.last_applied[version.body["metadata"]["uid"], actor.manager] = private_copy(body)
        return version, stored is not None

    def apply_replacement(
        self, storage: Storage, key: tuple[str, str], body: Object, *, subresource: str, actor: Actor
    ) -> Version:
        """Replace the object of this namespace and name."""
        version = storage.find(*key)
        if version is None and storage.resource.create_on_update and not subresource:
            return writing.create(self, storage, key[0], {**body, "metadata": _unversioned(body)}, actor)
        version = storage.demand(*key)
        if subresource == "scale":
            body = scaling.with_scale(storage.resource, version.body, body)
        return writing.replace(self, storage, version, body, subresource=subresource, actor=actor)


def _unversioned(body: Object) -> Object:
    return {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
