"""Everything that kopf does for us: the process, the login, the watch of TFClusters.

Only ``on.event`` is used: it writes nothing to the object, no annotation and no finalizer.  Children never go through
kopf (see :mod:`tfcluster_operator.kube.informer`).
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from typing import Any, Final

import kopf

from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kube import connection, probes
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.model import naming
from tfcluster_operator.resolver_sources import read_archive
from tfcluster_operator.settings import Settings

#: Seconds that the requests under way get to end.
_FAREWELL: Final = 3.0


class _EndlessBackoffs:
    """kopf gives a request up, and the process with it, when its back-offs are used up: these never are."""

    def __iter__(self) -> Iterator[float]:
        pause = 0.5
        while True:
            yield pause * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, no secret
            pause = min(10.0, pause * 1.5)


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.networking.error_backoffs = _EndlessBackoffs()
    settings.networking.request_timeout = 30
    settings.queueing.idle_timeout = 1.0
    return settings


_SETTINGS: Final = _kopf_settings()


def _credentials() -> kopf.ConnectionInfo:
    """Find credentials: a kubeconfig if one is named, else the pod's service account.

    Raises:
        kopf.LoginError: there are none.
    """
    found = kopf.login_with_kubeconfig(settings=_SETTINGS) or kopf.login_with_service_account(settings=_SETTINGS)
    if found is None:
        raise kopf.LoginError("no credentials: set KUBECONFIG, or run in a pod with a service account token")
    return found


async def run(settings: Settings) -> None:
    """Run the operator until it is told to stop.

    Args:
        settings: what it was started with.

    Raises:
        Exception: a part of it died; the process should end and be started anew.
    """
    found = _credentials()
    in_pod = found.token is not None and connection.SERVICE_ACCOUNT_TOKEN.exists() and found.ca_data is None
    session = connection.open_session(
        found.as_ssl_context() if found.server.startswith("https") else None,
        {} if in_pod else found.as_http_headers(),
        token=connection.SERVICE_ACCOUNT_TOKEN if in_pod else None,
    )
    async with session:
        engine = Engine(Client(session, found.server, AdaptiveLimiter()), settings.namespaces, read_archive())
        runner = await probes.serve(settings.health_port, engine.informers, asyncio.Event())
        kopf_tasks = await kopf.spawn_tasks(
            registry=_registry(engine, kopf.AiohttpSession(server=found.server, aiohttp_session=session)),
            settings=_SETTINGS,
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
        )
        # NB: after spawn_tasks, whose own handlers would close the session under the engine's requests.
        asked_to_end = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)
        own = asyncio.create_task(engine.run(_leading()))
        watch = asyncio.create_task(kopf.run_tasks(kopf_tasks))
        asked = asyncio.create_task(asked_to_end.wait())
        # Whichever ends first ends the process: a part that died must not leave the rest half alive.
        await asyncio.wait([own, watch, asked], return_when=asyncio.FIRST_COMPLETED)
        own.cancel()
        await asyncio.wait([own], timeout=_FAREWELL)
        await runner.cleanup()
    for part in (own, watch):
        if part.done() and not part.cancelled() and (error := part.exception()) is not None:
            raise error


def _registry(engine: Engine, session: kopf.AiohttpSession) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.AiohttpSession:
        return session

    @kopf.on.event(naming.GROUP, naming.VERSION, naming.PLURAL, registry=registry)
    async def cluster_event(event: Any, **_: Any) -> None:
        engine.cluster_event(event["type"], event["object"])

    return registry


def _leading() -> asyncio.Event:
    lead = asyncio.Event()
    lead.set()
    return lead
