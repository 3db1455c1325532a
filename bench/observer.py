"""An independent observer: watches a namespace and tells when it has seen so many objects come, or go.

It asks for metadata only and does not even parse it, so that watching costs the machine the same small share whoever
makes the objects.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
#: Where the kinds are served, of which a TFCluster's objects are.
LISTS = (
    "/api/v1/namespaces/{}/services",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/pods",
)


class Observer:
    """Counts what happens in one namespace from its start on."""

    def __init__(self, http: aiohttp.ClientSession, server: str, namespace: str) -> None:
        self._http = http
        self._server, self._namespace = server, namespace
        self._counts = {b'{"type":"ADDED"': 0, b'{"type":"DELETED"': 0}
        self._wanted: tuple[bytes, int, asyncio.Future[float]] | None = None

    async def _watch(self, of_kind: str, ready: asyncio.Event) -> None:
        url = self._server + of_kind.format(self._namespace)
        async with self._http.get(f"{url}?limit=1", headers={"Accept": _METADATA_LIST}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        while True:
            # NB: the server may end a watch when it likes; nothing is lost if the next begins where it ended.
            query = f"?watch=true&resourceVersion={version}"
            async with self._http.get(f"{url}{query}", headers={"Accept": _METADATA}) as stream:
                ready.set()
                last = rest = b""
                async for chunk in stream.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._count(line)
                        last = line
            version = json.loads(last)["object"]["metadata"]["resourceVersion"] if last else version

    def _count(self, line: bytes) -> None:
        kind = line[: line.index(b",")]
        if kind in self._counts:
            self._counts[kind] += 1
            if self._wanted is not None and self._wanted[0] == kind and self._counts[kind] >= self._wanted[1]:
                _, _, reached = self._wanted
                if not reached.done():
                    reached.set_result(time.perf_counter())

    def reached(self, *, added: int = 0, deleted: int = 0) -> asyncio.Future[float]:
        """Await the moment at which so many objects were seen to come (or go) from now on.

        Args:
            added: how many objects shall come.
            deleted: how many shall go, if ``added`` is 0.

        Returns:
            A future with the moment, in seconds of ``time.perf_counter``.
        """
        kind = b'{"type":"ADDED"' if added else b'{"type":"DELETED"'
        self._counts = dict.fromkeys(self._counts, 0)
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._wanted = (kind, added or deleted, future)
        return future


@asynccontextmanager
async def watching(http: aiohttp.ClientSession, server: str, namespace: str) -> AsyncIterator[Observer]:
    """Watch the objects of a namespace that TFClusters are made of.

    Args:
        http: a session with an administrator's credentials.
        server: the API server's address.
        namespace: which namespace.

    Yields:
        The observer; its watches are open.
    """
    observer = Observer(http, server, namespace)
    ready = [asyncio.Event() for _ in LISTS]
    tasks = [asyncio.create_task(observer._watch(k, r)) for k, r in zip(LISTS, ready, strict=True)]  # noqa: SLF001 - its own factory
    try:
        for event in ready:
            await event.wait()
        yield observer
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
