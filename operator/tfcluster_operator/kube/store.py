"""The children that the operator has seen: the informers' caches, updated by our own writes.

The answer to a write is stored as if its event had arrived, so the reconcile after a write always sees it, and does not
need a guard against a stale cache.  What is older than the stored version, or than a deletion that the watch has shown,
is dropped by its resource version.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import cast

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube.client import SYSTEM_CLOCK
from tfcluster_operator.life.queueing import is_at_work
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.config_map import ConfigMap
from tfcluster_operator.objects.kinds import KINDS, Observed, differ_in_version_alone
from tfcluster_operator.objects.network_policy import NetworkPolicy
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.workload import Flavor

Name = tuple[str, str]
#: Called at each change: see ChildStore.
Changed = Callable[[Name, bool], None]


class ChildStore:
    """The children of one kind; ``changed`` gets the namespace and the TFCluster of one, and whether it left."""

    def __init__(self, changed: Changed, now: Callable[[], float] = SYSTEM_CLOCK.wall) -> None:
        self._changed = changed
        self._now = now
        self._children: dict[Name, Child] = {}
        #: The number of changes that a decision reads.
        self.changes = 0
        #: The names of the children in each group; see ``group``.
        self._groups: dict[tuple[str, ...], dict[Name, None]] = {}
        #: The version that the watch has reached, by its namespace (None: all): an unknown object that is not newer was
        #: deleted.
        self.reached: dict[str | None, int] = {}
        #: Why the server does not serve this kind, by the namespace (None: all) that was listed.
        self.lacking: dict[str | None, str] = {}
        #: Set when a decision needs this kind, so that it is worthwhile to ask the server for it again.
        self.asked_for = asyncio.Event()

    def have_none(self, why: str, namespace: str | None) -> None:
        """Note that the server does not serve this kind, or does not let us read it."""
        if self.lacking.get(namespace, "") == why:
            return
        self.lacking[namespace] = why
        self.changes += 1
        for name, known in list(self._children.items()) if why else ():
            if namespace in {None, name[0]}:
                self.forget(name, known.meta.uid)

    def get(self, name: Name) -> Child | None:
        """Return the child of this name, with any controller."""
        return self._children.get(name)

    def all(self) -> Iterable[Child]:
        """Return every child."""
        return self._children.values()

    def group(self, *group: str) -> list[Child]:
        """Return the children of an owner's UID, without an owner in a namespace, or with later names of a pod."""
        return [self._children[name] for name in self._groups.get(group, ())]

    def later_than(self, namespace: str, firsts: Iterable[str]) -> list[Child]:
        """Return the pods whose names follow these first pods of tasks, with any controller."""
        # Hardly any of thousands of tasks has a later pod.
        later = [self._groups.get(("first pod", namespace, first), ()) for first in firsts]
        return [self._children[name] for names in later for name in names]

    def put(self, child: Child) -> None:
        """Store a child from an event or from the answer to a write, unless a newer version or its end is known."""
        meta = child.meta
        reached = self.reached.get(meta.namespace, self.reached.get(None, -1))
        if meta.version > reached or (meta.namespace, meta.name) in self._children:
            self.put_back(child)

    def put_back(self, child: Child) -> None:
        """Store a child even if the watch does not show it: because it lost its labels, or in a list."""
        meta = child.meta
        name = (meta.namespace, meta.name)
        known = self._children.get(name)
        if known is not None and known.meta.version >= meta.version:
            return
        if isinstance(child, Pod):
            # Our own notes on the pod stay.
            child = child.seen(known if isinstance(known, Pod) and known.meta.uid == meta.uid else None, self._now())
        if known is not None:
            # Another annotation, or the time of a condition: no decision reads the change.
            if differ_in_version_alone(child, known):
                self._children[name] = child
                return
            self._drop(name, known)
            if known.meta.owner_uid != meta.owner_uid:
                self._tell(known)
        self._children[name] = child
        for group in _groups_of(child):
            self._groups.setdefault(group, {})[name] = None
        self._tell(child)

    def remove(self, child: Child, *, left: bool = True) -> None:
        """Remove a child that was deleted (or left the watch's selector)."""
        meta = child.meta
        name = (meta.namespace, meta.name)
        known = self._children.get(name)
        if known is not None and known.meta.uid == meta.uid and known.meta.version <= meta.version:
            self._drop(name, known)
            self._tell(child, left=left)

    def forget(self, name: Name, uid: str) -> None:
        """Remove a child that a request has shown to be deleted, in any version."""
        known = self._children.get(name)
        if known is not None and known.meta.uid == uid:
            self.remove(known, left=False)

    def replace(self, children: list[Child], *, version: int, namespace: str | None) -> None:
        """Store a whole list: a child that is not in it was deleted, unless we created it after the list."""
        listed = {(child.meta.namespace, child.meta.name): child.meta.uid for child in children}
        for name, known in list(self._children.items()):
            in_scope = namespace is None or name[0] == namespace
            if in_scope and listed.get(name) != known.meta.uid and known.meta.version <= version:
                self.remove(known)
        for child in children:
            self.put_back(child)
        self.reached[namespace] = version

    def _tell(self, child: Child, *, left: bool = False) -> None:
        self.changes += 1
        self._changed((child.meta.namespace, child.meta.owner_name), left)

    def _drop(self, name: Name, known: Child) -> None:
        del self._children[name]
        for group in _groups_of(known):
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]


def _groups_of(child: Child) -> Iterator[tuple[str, ...]]:
    meta = child.meta
    yield "owner", meta.owner_uid
    if not meta.owner_name:
        yield "no owner", meta.namespace
    if isinstance(child, Pod):
        first, number = naming.first_pod_name(meta.name)
        if number:
            yield "first pod", meta.namespace, first


class Stores:
    """The stores of every kind, and their objects of one cluster."""

    def __init__(self, changed: Changed, now: Callable[[], float] = SYSTEM_CLOCK.wall) -> None:
        self.of: dict[str, ChildStore] = {kind: ChildStore(changed, now) for kind in KINDS}

    @property
    def changes(self) -> int:
        """The number of changes that a decision reads: while it is the same, so is what is observed."""
        return sum([store.changes for store in self.of.values()])

    def unused_copies(self, current: str, namespaces: Collection[str]) -> list[ConfigMap]:
        """Return the resolver ConfigMaps that no pod mounts; clusters of these namespaces need the current one, too."""
        pods, copies = self.of["Pod"].all(), cast("Iterable[ConfigMap]", self.of["ConfigMap"].all())
        needed = {(one.meta.namespace, one.resolver) for one in cast("Iterable[Pod]", pods) if is_at_work(one)}
        needed |= {(namespace, current) for namespace in namespaces}
        unused = [one for one in copies if (one.meta.namespace, one.meta.name) not in needed]
        # Others can use the name: an invalid one, or one that they control, stays.
        return [one for one in unused if one.is_genuine_copy and not one.meta.owner_name and not one.meta.terminating]

    def observe(self, cluster: TFCluster, *, resolver: str = "") -> Observed:
        """Return everything that exists under a cluster's names or under its control."""
        asked = {"PodGroup"} if cluster.gang is not None else set[str]()
        for kind in asked | ({"Workload", Flavor.KIND} if cluster.queue else set()):
            self.of[kind].asked_for.set()
        found = {kind: self._gather(kind, cluster, resolver) for kind in KINDS}
        others = self.of[NetworkPolicy.KIND].group("no owner", cluster.namespace)
        flavors = self.of[Flavor.KIND].group("no owner", "") if cluster.queue else ()
        return Observed(
            objects=found,
            pods=cast("dict[str, Pod]", found.pop(Pod.KIND)),
            other_policies=tuple(cast("Iterable[NetworkPolicy]", others)),
            flavors={one.meta.name: cast("Flavor", one) for one in flavors},
            lacking={
                kind: why
                for kind, store in self.of.items()
                if (why := store.lacking.get(cluster.namespace) or store.lacking.get(None))
            },
        )

    def _gather(self, kind: str, cluster: TFCluster, resolver: str) -> dict[str, Child]:
        store, row = self.of[kind], KINDS[kind]
        ours = store.group("owner", cluster.uid)
        names = [*row.names(cluster, ours if row.ours_alone else store.group("no owner", cluster.namespace))]
        if kind == ConfigMap.KIND and resolver:
            names.append(resolver)
        found = {child.meta.name: child for child in ours}
        more = store.later_than(cluster.namespace, names) if kind == Pod.KIND else []
        more += [child for name in names if name not in found and (child := store.get((cluster.namespace, name)))]
        for child in more:
            found.setdefault(child.meta.name, child)
        return found
