"""The control plane on this machine: the API server in memory, its garbage collector, and the operator's engine."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memory_kubernetes import DEFAULT_RESOURCES, MemoryKubernetes, resource_of_definition
from tfcluster.definition import definition
from tfcluster.local.api_server import ApiServer, LogOf
from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kopf_watch import KopfWatch
from tfcluster_operator.kube import connection
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.resolver_sources import read_archive


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane that runs.

    Attributes:
        kube: the API server as the node meets it.
        server: the same by HTTP.
        token: what its requests must carry.
        parts: what runs; a part that ends has died.
    """

    kube: MemoryKubernetes
    server: ApiServer
    token: str
    parts: Sequence[asyncio.Task[None]]


@asynccontextmanager
async def run(
    *,
    namespaces: Sequence[str] = ("default",),
    log_of: LogOf | None = None,
    own_signals: Callable[[], None] = lambda: None,
) -> AsyncIterator[ControlPlane]:
    """Run a control plane."""
    kinds = [resource_of_definition(definition()), *(one for one in DEFAULT_RESOURCES if not one.custom)]
    kube = MemoryKubernetes(time.time, kinds, namespaces=namespaces)
    token = secrets.token_urlsafe(32)
    server = ApiServer(kube, token, log_of)
    await server.start()
    access = connection.Access(server=server.url, headers={"Authorization": f"Bearer {token}"})
    try:
        async with connection.open_session(access) as session:
            # NB: the tasks' processes are on this machine, so there is nobody whom a NetworkPolicy could keep out.
            engine = Engine(Client(session, server.url, AdaptiveLimiter()), (), read_archive())
            watch = KopfWatch(access, session, None, engine, own_signals=own_signals)
            leading = asyncio.Event()
            leading.set()
            works = {"engine": engine.run(leading), "watch": watch.run(), "garbage": kube.collect_garbage()}
            parts = [asyncio.create_task(work, name=name) for name, work in works.items()]
            try:
                yield ControlPlane(kube, server, token, parts)
            finally:
                for part in parts:
                    part.cancel()
                await asyncio.gather(*parts, return_exceptions=True)
    finally:
        await server.stop()
