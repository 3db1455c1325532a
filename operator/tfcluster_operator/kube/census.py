"""Which TFClusters there are, by metadata alone: a few hundred bytes each, however large their templates."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client

#: A server that cannot give metadata alone gives the whole objects.
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAGE: Final = "500"
_TIMEOUT: Final = 30.0


class _Metadata(msgspec.Struct):
    uid: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _ListMetadata(msgspec.Struct, rename={"continue_token": "continue", "version": "resourceVersion"}):
    continue_token: str = ""
    version: str = "0"


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    # NB: the API server spells an empty list of metadata as null.
    items: list[_Item] | None = None


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


async def discover(requests: Client) -> None:
    """Ask the API server's discovery for the kind, which it may know a moment later than it can list it.

    Raises:
        NotFoundError: discovery does not know the kind.
        KubeError: the server refused or did not answer.
    """
    answer = await requests.request("GET", f"/apis/{naming.GROUP}/{naming.VERSION}", within=_TIMEOUT)
    if all(one.name != naming.PLURAL for one in msgspec.json.decode(answer, type=_Resources).resources):
        raise errors.NotFoundError(status=404, reason="NotFound", message="discovery does not know the kind yet")


class Census(NamedTuple):
    """The UIDs of the TFClusters that there were, and the resourceVersion at which they were counted."""

    uids: set[str]
    version: int


async def take(requests: Client, namespace: str | None, *, everything: bool = True) -> Census:
    """Ask the API server which TFClusters there are.

    Raises:
        NotFoundError: the server does not know the kind.
        KubeError: the server refused or did not answer.
    """
    where = f"/namespaces/{namespace}" if namespace else ""
    params = {"limit": _PAGE if everything else "1"}
    found: set[str] = set()
    while True:
        answer = await requests.request(
            "GET",
            f"/apis/{naming.GROUP}/{naming.VERSION}{where}/{naming.PLURAL}",
            params=params,
            accept=_METADATA,
            within=_TIMEOUT,
        )
        page = msgspec.json.decode(answer, type=_Page)
        found.update(item.metadata.uid for item in page.items or ())
        if not everything or not page.metadata.continue_token:
            return Census(found, int(page.metadata.version or 0))
        params["continue"] = page.metadata.continue_token
