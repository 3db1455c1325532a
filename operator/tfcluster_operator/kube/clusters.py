"""The TFClusters that kopf's watch reported, and the requests that concern them."""

from collections import OrderedDict
from collections.abc import Mapping
from sys import intern
from typing import Any, Final, NamedTuple

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube.client import Client, NotFoundError
from tfcluster_operator.objects.base import Metadata, Page

Key = tuple[str, str]

_TOMBSTONES: Final = 5_000
_BASE: Final = f"/apis/{naming.GROUP}/{naming.VERSION}"
#: Seconds until a reconcile for a change that was not read yet: its event might never come.
_READ_AGAIN: Final = 1.0


class _Item(msgspec.Struct):
    metadata: Metadata


class _Resources(msgspec.Struct):
    resources: list[Metadata]


class Census(NamedTuple):
    """The UIDs of all existing TFClusters, and the resourceVersion of that list."""

    uids: set[str]
    version: int


def read_page(body: bytes) -> tuple[Census, bool]:
    """Read a page of a list of TFClusters; return also whether more pages follow."""
    page = msgspec.json.decode(body, type=Page[_Item])
    uids = {item.metadata.uid for item in page.items or ()}
    return Census(uids, int(page.metadata.resource_version)), bool(page.metadata.continue_token)


class Parents:
    """Every known TFCluster as the API returned it, without managedFields, by namespace and name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: The UIDs of deleted TFClusters, so that a late event does not restore one.
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self.bodies: dict[Key, Mapping[str, Any]] = {}

    def status_of(self, key: Key) -> Mapping[str, Any]:
        """Return the known status of a TFCluster, or an empty one."""
        return (self.bodies.get(key) or {}).get("status") or {}

    def put(self, body: Mapping[str, Any]) -> bool:
        """Store a TFCluster; return whether it contains anything new."""
        metadata = body["metadata"]
        key = (metadata["namespace"], metadata["name"])
        known = self.bodies.get(key)
        if metadata["uid"] in self._deleted:
            return False
        # Also with another UID: an older version belongs to a predecessor of the same name.
        if known is not None and int(known["metadata"]["resourceVersion"]) >= int(metadata["resourceVersion"]):
            return False
        self.bodies[key] = _lean(body, known)
        return True

    def bury(self, uid: str) -> None:
        """Note that an event or a list showed that a TFCluster was deleted: later events of it are outdated."""
        self._deleted[uid] = None
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)

    def wants_children(self, key: Key, uid: str) -> bool:
        """Return whether, as far as is known, a TFCluster exists and is not being deleted."""
        body = self.bodies.get(key)
        return body is not None and body["metadata"]["uid"] == uid and "deletionTimestamp" not in body["metadata"]

    def remove(self, key: Key, uid: str) -> None:
        """Remove a TFCluster that no longer exists; one re-created under its name stays."""
        known = self.bodies.get(key)
        if known is not None and known["metadata"]["uid"] == uid:
            del self.bodies[key]

    async def when_leaving(self, key: Key, uid: str) -> float | None:
        """Ask the API server for a TFCluster; None if it stays, else the seconds until the next reconcile."""
        found = await self._read(key)
        if found is None or found["metadata"]["uid"] != uid:
            # A list from before its deletion might arrive after this.
            self.bury(uid)
            self.remove(key, uid)
            return 0.0
        if "deletionTimestamp" not in found["metadata"]:
            return None
        # A finalizer can keep it for long, and no other event of it might come.
        return 0.0 if self.put(found) else _READ_AGAIN

    async def read_again(self, key: Key, uid: str) -> float:
        """Read a TFCluster again, without waiting for kopf's watch; return the seconds until the next reconcile."""
        found = await self._read(key)
        return 0.0 if found is not None and found["metadata"]["uid"] == uid and self.put(found) else _READ_AGAIN

    async def write_status(self, key: Key, uid: str, version: str, change: Mapping[str, Any], *, urgent: bool) -> str:
        """Merge a change into a TFCluster's status; return its new version, or raise ConflictError if it differs."""
        answer = await self._client.request(
            "PATCH",
            f"{path_of(key[0])}/{key[1]}/status",
            body={"metadata": {"uid": uid, "resourceVersion": version}, "status": change},
            params={"fieldManager": naming.FIELD_MANAGER},
            urgent=urgent,
        )
        written = msgspec.json.decode(answer, type=dict)
        self.put(written)
        return str(written["metadata"]["resourceVersion"])

    async def _read(self, key: Key) -> dict[str, Any] | None:
        """Read a TFCluster; None if it no longer exists."""
        # A list of one waits until the server's cache has seen all other writes, a tenth of a second on a busy server
        # (Kubernetes: consistent reads from cache); so it is used only if the object is not found.
        try:
            return msgspec.json.decode(await self._client.request("GET", f"{path_of(key[0])}/{key[1]}"), type=dict)
        except NotFoundError:
            # A server without the CRD answers 404 even for an existing object; it rejects a list, too.
            params = {"fieldSelector": f"metadata.name={key[1]}"}
            listed = msgspec.json.decode(await self._client.request("GET", path_of(key[0]), params=params), type=dict)
            return next(iter(listed["items"]), None)


def _lean(body: Mapping[str, Any], known: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Remove fields that no decision reads, and share equal strings; an equal spec stays the same object."""
    about = {key: value for key, value in body["metadata"].items() if key not in {"managedFields", "annotations"}}
    lean: dict[str, Any] = {**body, "metadata": about}
    known_spec = None if known is None else known.get("spec")
    spec = {"spec": known_spec} if lean.get("spec") == known_spec is not None else {}
    return {**_interned({key: value for key, value in lean.items() if key not in spec}), **spec}


def _interned(value: Any) -> Any:
    # Most of the values are strings, so they do not need a call each.
    if isinstance(value, dict):
        return {intern(key): intern(one) if type(one) is str else _interned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [intern(one) if type(one) is str else _interned(one) for one in value]
    return value


def path_of(namespace: str | None) -> str:
    """Return the path of a namespace's TFClusters, or (None) of all."""
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{_BASE}{middle}/{naming.PLURAL}"


async def discover(requests: Client) -> None:
    """Raise NotFoundError if the API server's discovery does not have the kind; it can lag behind the lists."""
    answer = await requests.request("GET", _BASE)
    if all(one.name != naming.PLURAL for one in msgspec.json.decode(answer, type=_Resources).resources):
        raise NotFoundError(status=404, reason="NotFound", message="discovery does not know the kind yet")
