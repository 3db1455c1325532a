"""Real kopf as the operator's watch of TFClusters, in virtual time, on the in-memory session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import kopf

from memory_kubernetes import MemorySession
from tfcluster_operator import handlers
from tfcluster_operator.engine.assembly import Engine

_SERVER = "http://memory"


async def watch_parents(engine: Engine, session: MemorySession, namespaces: Sequence[str]) -> None:
    """Feed an engine with the events of TFClusters, until kopf ends."""
    tasks = await kopf.spawn_tasks(
        registry=handlers._registry(engine, kopf.AiohttpSession(server=_SERVER, aiohttp_session=session)),  # type: ignore[arg-type]  # it is one in all that kopf does
        settings=handlers._kopf_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    try:
        # NB: not kopf.run_tasks(), which in the end cancels every task of the loop: the nodes' and the tests' too.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
