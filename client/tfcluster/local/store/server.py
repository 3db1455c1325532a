"""The API server for callers in this process: synchronous, with rejections as exceptions."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from tfcluster.local.store import binding, garbage, serving, writing
from tfcluster.local.store.core import Actor, Core
from tfcluster.local.store.deleting import DeleteOptions, delete
from tfcluster.local.store.messages import Answer, Request
from tfcluster.local.store.resources import Resource
from tfcluster.local.store.selectors import selector_of
from tfcluster.local.store.state import Change, Storage, private_copy

Object = dict[str, Any]
Objects = list[Object]

_ADMIN = "admin"


class Store(Core):
    """An API server in memory.

    Every method acts immediately, returns private copies, and raises an exception if the API server would reject.

    Args:
        wall: returns the time in seconds since the epoch, for timestamps; waiting is asyncio's.
        resources: the kinds that are served.
        namespaces: the namespaces that exist from the beginning.
    """

    def __init__(
        self, wall: Callable[[], float], resources: Iterable[Resource], *, namespaces: Iterable[str] = ("default",)
    ) -> None:
        super().__init__(wall)
        for resource in resources:
            self.install(resource)
        for namespace in namespaces:
            self.create("namespaces", "", {"metadata": {"name": namespace}})

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        return self.state.revision

    @property
    def subscribers(self) -> list[Callable[[Change], None]]:
        """The callbacks of every write; a callback must not write itself, only schedule a write for later."""
        return self.state.subscribers

    def compact(self, revision: int) -> None:
        """Drop the state before a revision: a watch or a page from before it gets 410."""
        for storage in self.state.storages.values():
            storage.trim(min(revision, self.state.revision))

    def install(self, resource: Resource) -> None:
        """Serve a kind from now on."""
        if resource.plural not in self.state.storages:
            self.state.storages[resource.plural] = Storage(resource, self.state.revision)

    def create(self, plural: str, namespace: str, body: Object, *, user: str = _ADMIN, dry_run: bool = False) -> Object:
        """Create an object."""
        private = private_copy(body)
        actor = Actor(user, user, dry_run)
        return writing.create(self, self.state.demand(plural), namespace, private, actor).copy()

    def get(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        found = self.state.demand(plural).find(namespace, name)
        return None if found is None else found.copy()

    def list(self, plural: str, namespace: str | None = None, labels: str = "") -> Objects:
        """Return the objects of a namespace, or of all, that match a label selector."""
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
        """Apply a merge patch."""
        storage, actor = self.state.demand(plural), Actor(user, user, dry_run)
        key = (namespace, name)
        return writing.patch(self, storage, key, private_copy(change), subresource=subresource, actor=actor).copy()

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
        """Replace an object."""
        storage, actor = self.state.demand(plural), Actor(user, user, dry_run)
        private = private_copy(body)
        key = (namespace, str(private["metadata"]["name"]))
        return writing.put(self, storage, key, private, subresource=subresource, actor=actor).copy()

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
        """Delete an object, or mark it: return its new state, None if it was removed."""
        storage = self.state.demand(plural)
        options = DeleteOptions(uid=uid, grace=grace, propagation=propagation)
        version, removed = delete(self, storage, storage.demand(namespace, name), options, Actor(user, user))
        return None if removed else version.copy()

    def bind(self, namespace: str, name: str, node: str) -> Object:
        """Bind a pod to a node, as a scheduler does."""
        storage = self.state.demand("pods")
        return binding.bind(self, storage, storage.demand(namespace, name), node).copy()

    def serve(self, request: Request) -> Answer:
        """Answer one request; a rejection is an answer."""
        return serving.serve(self, request)

    def collect_garbage(self, *, delay: float = 0.05) -> Coroutine[Any, Any, None]:
        """Return the garbage collector, to run as a task: it deletes objects without owners after a delay."""
        return garbage.collect(self, delay=delay)
