"""The API server of tests: admission, quota, RBAC, evictions, removable CRDs, and a record of requests."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from tfcluster.local.store import BUILT_IN, Answer, Change, Refusal, Request, Resource, Scale, Store
from tfcluster.local.store.binding import with_condition
from tfcluster.local.store.core import Actor
from tfcluster.local.store.deleting import DeleteOptions, delete
from tfcluster.local.store.state import Storage, Version, private_copy

from .admission import Admission, AdmissionHook, check_quota

Object = dict[str, Any]
_ADMIN: Final = "admin"

TFCLUSTERS: Final = Resource(
    group="tfcluster.dev",
    version="v1alpha1",
    kind="TFCluster",
    plural="tfclusters",
    short_names=("tfc",),
    scale=Scale(
        spec="spec.jobs.worker.replicas",
        status="status.jobs.worker.created",
        selector="status.jobs.worker.selector",
    ),
    custom=True,
    status=True,
    generation=True,
    unconditional_update=False,
)

#: The kinds that an operator of TFClusters uses.
DEFAULT_RESOURCES: Final = (*BUILT_IN, TFCLUSTERS)


class Record(NamedTuple):
    """One request and its outcome; ``status`` is 0 if the connection broke before the server acted."""

    time: float
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int


class MemoryKubernetes(Store):
    """An API server in memory; ``wall`` returns the seconds since the epoch, and waiting uses asyncio."""

    def __init__(
        self,
        wall: Callable[[], float],
        resources: Iterable[Resource] = DEFAULT_RESOURCES,
        *,
        namespaces: Iterable[str] = ("default",),
    ) -> None:
        #: Called in order before every write; see Admission.
        self.admission: list[AdmissionHook] = []
        #: Limits by namespace and counted resource; see check_quota.
        self.quota: dict[str, Mapping[str, int]] = {}
        #: Called before every request; a Refusal (403) ends it, as RBAC would.
        self.authorize: list[Callable[[Request], None]] = []
        #: Every request of a session.
        self.requests: list[Record] = []
        #: Every write; its objects are shared and must not be changed.
        self.history: list[Change] = []
        super().__init__(wall, resources, namespaces=())
        self.subscribers.append(self._note)
        for namespace in namespaces:
            self.create("namespaces", "", {"metadata": {"name": namespace}})

    def _note(self, change: Change) -> None:
        self.history.append(change)

    def admit(
        self, storage: Storage, *, verb: str, actor: Actor, subresource: str, old: Version | None, new: Object | None
    ) -> Object | None:
        metadata = (new or (old.body if old else {}))["metadata"]
        namespace = metadata.get("namespace", "")
        admitted = new
        if self.admission:
            admission = Admission(
                verb=verb,
                resource=storage.resource.plural,
                namespace=namespace,
                user=actor.user,
                subresource=subresource,
                old=old.copy() if old is not None else None,
                object=private_copy(new) if new is not None else None,
                dry_run=actor.dry_run,
            )
            for hook in tuple(self.admission):
                hook(admission)
            admitted = admission.object
        if verb == "create" and (limits := self.quota.get(namespace)):
            check_quota(self.state, storage.resource, admitted or new or {}, limits)
        return admitted

    def serve(self, request: Request) -> Answer:
        """Process one request; a rejection is a response."""
        try:
            for check in tuple(self.authorize):
                check(request)
            if (request.resource, request.subresource, request.verb) == ("pods", "eviction", "create"):
                options = DeleteOptions.read((request.body or {}).get("deleteOptions"), {})
                self._evict(request.namespace, request.name, options, Actor(request.user, request.manager))
                return Answer.of({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}, 201)
        except Refusal as refusal:
            return Answer.refusing(refusal)
        return super().serve(request)

    def uninstall(self, plural: str) -> None:
        """Stop serving a kind: delete its objects, end its watches, and answer every request for it with 404."""
        storage = self.state.demand(plural)
        for version in storage.every(None):
            self.remove(storage, version)
        storage.ended = True
        del self.state.storages[plural]
        storage.wake()

    def delete_namespace(self, name: str, *, user: str = _ADMIN) -> None:
        """Delete a namespace with all its objects; it is removed with the last of them."""
        self.delete("namespaces", "", name, user=user)

    def evict(self, namespace: str, name: str, *, grace: int | None = None, user: str = _ADMIN) -> None:
        self._evict(namespace, name, DeleteOptions(grace=grace), Actor(user, user))

    def _evict(self, namespace: str, name: str, options: DeleteOptions, actor: Actor) -> None:
        storage = self.state.demand("pods")
        version = storage.demand(namespace, name)
        body = version.body
        if body["status"].get("phase") not in ("Succeeded", "Failed") and "deletionTimestamp" not in body["metadata"]:
            status = with_condition(
                self,
                body["status"],
                kind="DisruptionTarget",
                status="True",
                reason="EvictionByEvictionAPI",
                message="Eviction API: evicting",
            )
            marked = {**body, "metadata": {**body["metadata"]}, "status": status}
            version = self.state.commit(storage, "MODIFIED", marked, version)
        delete(self, storage, version, options, actor)
