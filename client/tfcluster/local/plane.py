"""The control plane of a local run: the store, the operator's engine on it, and HTTP for the other commands."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from tfcluster.local.api import ApiServer, LogOf
from tfcluster.local.store import BUILT_IN, Answer, Change, Resource, Store, resource_of_definition
from tfcluster.local.store.serving import read_request
from tfcluster.manifest.validate import definition
from tfcluster_operator.declaration import naming
from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kube import clock, errors
from tfcluster_operator.kube.client import JSON, Client
from tfcluster_operator.resolver_sources import read_archive

_USER = "tfcluster-operator"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane."""

    server: ApiServer
    parts: Sequence[asyncio.Task[None]]


def served() -> Iterable[Resource]:
    """Return the kinds that a local run serves."""
    more = (
        Resource(plural="secrets", kind="Secret"),
        Resource(plural="persistentvolumeclaims", kind="PersistentVolumeClaim", status=True, short_names=("pvc",)),
    )
    return resource_of_definition(definition()), *BUILT_IN, *more


class StoreClient(Client):
    """Sends the engine's requests to the store in this process."""

    def __init__(self, store: Store) -> None:
        self.clock = clock.SYSTEM
        self._store = store

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        **_: Any,
    ) -> bytes:
        await asyncio.sleep(0)  # a long reconcile lets the tasks' output through
        data = None if body is None else msgspec.json.encode(body)
        return self._ask(method, path, params, {"Content-Type": content_type, "Accept": accept}, data).body

    async def watch(self, path: str, *, params: Mapping[str, str], silence: float) -> AsyncIterator[bytes]:
        """Yield the events of a watch, one line of JSON each."""
        del silence
        answer = self._ask("GET", path, params, {}, None)
        if answer.watch is not None:
            async for lines in answer.watch.batches():
                for line in lines:
                    yield line

    def _ask(
        self, method: str, path: str, params: Mapping[str, str] | None, headers: Mapping[str, str], data: bytes | None
    ) -> Answer:
        request = read_request(method, path, params=params or {}, headers=headers, user=_USER, body=data)
        answer = self._store.serve(request)
        if answer.status >= 400:
            raise errors.from_response(answer.status, answer.body)
        return answer


@asynccontextmanager
async def control_plane(store: Store, log_of: LogOf | None = None) -> AsyncIterator[ControlPlane]:
    """Run the engine on a store, and serve the store by HTTP."""
    # A local run does not need NetworkPolicies: the tasks' processes are on one machine.
    engine = Engine(StoreClient(store), (), read_archive())
    loop = asyncio.get_running_loop()

    def note(change: Change) -> None:
        if change.resource == naming.PLURAL:
            loop.call_soon(engine.cluster_event, change.type, change.object)

    store.subscribers.append(note)
    leading = asyncio.Event()
    leading.set()
    server = ApiServer(store, secrets.token_urlsafe(32), log_of)
    await server.start()
    works = {"engine": engine.run(leading), "garbage collector": store.collect_garbage()}
    parts = [asyncio.create_task(work, name=name) for name, work in works.items()]
    try:
        yield ControlPlane(server, parts)
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        store.subscribers.remove(note)
        await server.stop()
