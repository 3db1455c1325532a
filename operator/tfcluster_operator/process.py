"""The process: credentials, the engine, kopf's watch, the election, the probes, and the exit code."""

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import kopf
import uvloop

from tfcluster_operator.declaration.gang_schedulers import gang_scheduler
from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kopf_watch import KopfWatch
from tfcluster_operator.kube import connection
from tfcluster_operator.kube.client import Client, HistoryLostError, is_set
from tfcluster_operator.kube.election import Election, Lease, LeaseLostError
from tfcluster_operator.kube.metrics import Metrics, request_counter, serve_metrics, serve_probes
from tfcluster_operator.resolver_sources import read_archive
from tfcluster_operator.settings import Settings

_log = logging.getLogger(__name__)

#: Seconds for writes in flight to be answered, and then for the components to end.
_FAREWELL: Final = 3.0


def run(settings: Settings) -> None:
    """Run the operator; the process exits with 0 after a signal to stop, with 1 if a component failed."""
    # A full collection would scan the objects of the imports for 50 ms, and none of them is ever freed.
    gc.freeze()
    uvloop.run(_run(settings))


async def _run(settings: Settings) -> None:
    code = 0
    try:
        await run_parts(settings)
    except (LeaseLostError, HistoryLostError) as error:
        _log.error("the operator ends: %s", error)
        code = 1
    except Exception:  # noqa: BLE001 - it is logged
        _log.exception("the operator ends")
        code = 1
    logging.shutdown()
    # Our own components have ended in order; those of kopf need not be waited for.
    os._exit(code)


def _access() -> connection.Access:
    """Find credentials: a kubeconfig if one is given, else the pod's service account."""
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


async def run_parts(settings: Settings) -> None:
    """Run the operator until a signal stops it."""
    access, metrics = _access(), Metrics()
    access = replace(access, observers=(request_counter(metrics),))
    scopes: tuple[str | None, ...] = settings.namespaces or (None,)
    # The Lease has its own connections, so that a renewal does not wait for other requests.
    async with connection.open_session(access) as for_lease:
        standing = _standing(settings, Client.once(for_lease, access.server))
        async with connection.open_session(access) as session:
            client = Client(session, access.server, fence=standing.fence)
            engine = Engine(
                client,
                settings.namespaces,
                read_archive(),
                gang_scheduler=gang_scheduler(settings.gang_scheduler, settings.gang_scheduler_name),
                metrics=metrics,
            )
            metrics.leader.set_function(lambda: standing.acts)
            metrics.figures = lambda: engine.figures() if standing.acts else None
            metrics.requests_waiting.set_function(lambda: client.waiting)
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
            servers = [
                await serve_probes(settings.health_port, watches, engine.informers, lambda: standing.words, parts),
                await serve_metrics(settings.metrics_port, metrics),
            ]
            asked = asyncio.create_task(asked_to_end.wait())
            # The first component that ends also ends the process: the others must not continue without it.
            await asyncio.wait([asked, *parts], return_when=asyncio.FIRST_COMPLETED)
            dead = [part for part in parts if part.done()]
            await _end(standing, client, parts)
            for server in servers:
                await server.cleanup()
    for part in dead:
        if (error := part.exception()) is not None:
            raise error


def _standing(settings: Settings, requests: Client) -> Election:
    if not settings.leader_election:
        _log.info("no leader election: run only one operator for these namespaces")
        return Election(None)
    me = f"{socket.gethostname()}_{uuid.uuid4()}"
    lease = Lease(requests, settings.lease_namespace, settings.lease_name)
    _log.info("standby as %s for the lease %s/%s", me, settings.lease_namespace, settings.lease_name)
    return Election(lease, me)


async def _end(standing: Election, client: Client, parts: Sequence[asyncio.Task[None]]) -> None:
    """Stop new writes, wait for those in flight, end the components, and only then release the Lease."""
    election, *others = parts
    lost = election.done()
    election.cancel()
    await asyncio.wait([election])
    standing.resign()
    # If the Lease is lost, another operator might lead by now: do not wait, and do not release it.
    answered = not lost and await is_set(client.no_writes, _FAREWELL)
    for part in others:
        part.cancel()
    if lost:
        return
    if answered:
        await standing.release()
    else:
        _log.warning("the lease is not released: a write is still under way")
    await asyncio.wait(others, timeout=_FAREWELL)
