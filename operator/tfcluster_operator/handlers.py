"""How the process is put together: credentials, the engine, kopf's watch, the election, the probes; and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import kopf

from tfcluster_operator.declaration.gang_schedulers import gang_scheduler
from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kopf_watch import KopfWatch
from tfcluster_operator.kube import connection, errors, http, leadership
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.lease import Lease, Timing
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.kube.metrics import Metrics
from tfcluster_operator.kube.traffic import Traffic
from tfcluster_operator.resolver_sources import read_archive
from tfcluster_operator.settings import Settings

_log = logging.getLogger(__name__)

#: Seconds that the writes under way get to be answered, and then the parts to end.
_FAREWELL: Final = 3.0


def _access() -> connection.Access:
    """Find credentials: a kubeconfig if one is named, else the pod's service account.

    Raises:
        kopf.LoginError: there are none.
    """
    settings = kopf.OperatorSettings()
    found = kopf.login_with_kubeconfig(settings=settings) or kopf.login_with_service_account(settings=settings)
    if found is None:
        raise kopf.LoginError("no credentials: set KUBECONFIG, or run in a pod with a service account token")
    in_pod = found.token is not None and connection.SERVICE_ACCOUNT.exists() and found.ca_data is None
    return connection.Access(
        server=found.server,
        context=found.as_ssl_context() if found.server.startswith("https") else None,
        headers={} if in_pod else found.as_http_headers(),
        account=connection.SERVICE_ACCOUNT if in_pod else None,
    )


async def run(settings: Settings, *, timing: Timing | None = None) -> None:
    """Run the operator until it is told to stop.

    Raises:
        LeaseLostError: another operator may lead now; the process should end and start again.
        Exception: a part of it died; the process should end and start again.
    """
    access, timing = _access(), timing or Timing()
    scopes: tuple[str | None, ...] = settings.namespaces or (None,)
    metrics = Metrics()
    traffic = Traffic(metrics, scopes, access.server)
    access = replace(access, observers=(traffic,))
    under_way = connection.WritesUnderWay()
    # NB: the lease has connections of its own, so that a renewal waits for nobody.
    async with connection.open_session(access) as for_lease:
        standing = _standing(settings, Client.once(for_lease, access.server), timing)
        async with connection.open_session(access, under_way) as session:
            limiter = AdaptiveLimiter()
            client = Client(session, access.server, limiter, fence=standing.fence)
            engine = Engine(
                client,
                settings.namespaces,
                read_archive(),
                default_isolation=settings.default_isolation,
                gang_scheduler=gang_scheduler(settings.gang_scheduler, settings.gang_scheduler_name),
                metrics=metrics,
            )
            metrics.leads = lambda: _acts(standing)
            metrics.figures = lambda: engine.figures() if _acts(standing) else None
            metrics.waiting = lambda: limiter.waiting
            metrics.silences = traffic.silences
            asked_to_end = asyncio.Event()

            def own_signals() -> None:
                for number in (signal.SIGTERM, signal.SIGINT):
                    asyncio.get_running_loop().add_signal_handler(number, asked_to_end.set)

            own_signals()
            watches = [KopfWatch(access, session, scope, engine, own_signals=own_signals) for scope in scopes]
            parts = [
                asyncio.create_task(standing.run(), name="election"),
                asyncio.create_task(engine.run(standing.leading), name="engine"),
                *(asyncio.create_task(watch.run(), name=watch.what) for watch in watches),
            ]
            readiness = http.Readiness(watches, engine.informers, lambda: standing.words)
            servers = [
                await http.serve_probes(settings.health_port, readiness, lambda: parts),
                await http.serve_metrics(settings.metrics_port, metrics),
            ]
            asked = asyncio.create_task(asked_to_end.wait())
            # Whichever ends first ends the process: a part that died must not leave the rest half alive.
            await asyncio.wait([asked, *parts], return_when=asyncio.FIRST_COMPLETED)
            dead = [part for part in parts if part.done()]
            await _end(standing, under_way, parts)
            for server in servers:
                await server.cleanup()
    for part in dead:
        if (error := part.exception()) is not None:
            raise error


def _standing(settings: Settings, requests: Client, timing: Timing) -> leadership.Standing:
    if not settings.leader_election:
        _log.info("no leader election: nobody else may run an operator for the same namespaces")
        return leadership.Alone()
    me = f"{socket.gethostname()}_{uuid.uuid4()}"
    lease = Lease(requests, settings.lease_namespace, settings.lease_name, timeout=timing.timeout)
    _log.info("standby as %s for the lease %s/%s", me, settings.lease_namespace, settings.lease_name)
    return leadership.Election(lease, me, timing=timing)


def _acts(standing: leadership.Standing) -> bool:
    try:
        standing.fence()
    except errors.NotLeadingError:
        return False
    return True


async def _end(
    standing: leadership.Standing, under_way: connection.WritesUnderWay, parts: Sequence[asyncio.Task[None]]
) -> None:
    """Begin no write, await those under way, end the parts, and only then let another operator lead."""
    election, *others = parts
    lost = election.done()
    election.cancel()
    await asyncio.wait([election])
    standing.resign()
    if lost:
        # Another operator may lead by now: there is nothing to wait for and nothing to release.
        for part in others:
            part.cancel()
        return
    answered = asyncio.create_task(under_way.none.wait())
    await asyncio.wait([answered], timeout=_FAREWELL)
    for part in others:
        part.cancel()
    if answered.done():
        await standing.release()
    else:
        answered.cancel()
        _log.warning("the lease is not released: a write is still under way")
    await asyncio.wait(others, timeout=_FAREWELL)
