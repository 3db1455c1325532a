"""What stands for kopf in the simulation: a list whose events have no type, then a watch; 410 means to list again.

As kopf does, it tells nothing of what vanished while the watch was down, waits 0.1 s after a watch that ended, and
never gives up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
from memory_kubernetes import MemorySession

from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kube.parents import path_of

_SERVER: Final = "http://memory"
_PAUSE: Final = 0.1
_LONGEST: Final = 10.0


async def watch_parents(engine: Engine, session: MemorySession, namespaces: Sequence[str]) -> None:
    """Feed an engine with the events of TFClusters, for ever."""
    async with asyncio.TaskGroup() as tasks:
        for namespace in namespaces or (None,):
            tasks.create_task(_watch(engine, session, namespace))


async def _watch(engine: Engine, session: MemorySession, namespace: str | None) -> None:
    pause, since = 0.5, ""
    while True:
        try:
            if not since:
                since = await _list(engine, session, namespace)
            pause = 0.5
            since = await _follow(engine, session, namespace, since)
            await asyncio.sleep(_PAUSE)
        except (aiohttp.ClientError, TimeoutError, _Refused):
            since = ""
            await asyncio.sleep(pause)
            pause = min(_LONGEST, pause * 1.5)


class _Refused(Exception):  # noqa: N818 - private, and it reads as what happened
    pass


async def _list(engine: Engine, session: MemorySession, namespace: str | None) -> str:
    timeout = aiohttp.ClientTimeout(total=30)
    async with session.request("GET", _SERVER + path_of(namespace), timeout=timeout) as response:
        body = json.loads(await response.read())
        if response.status >= 400:
            raise _Refused(body)
    for item in body["items"]:
        engine.cluster_event(None, {"apiVersion": body["apiVersion"], "kind": "TFCluster", **item})
    version: str = body["metadata"]["resourceVersion"]
    return version


async def _follow(engine: Engine, session: MemorySession, namespace: str | None, since: str) -> str:
    params = {"watch": "true", "resourceVersion": since}
    timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
    async with session.get(_SERVER + path_of(namespace), params=params, timeout=timeout) as response:
        if response.status == 410:
            return ""
        if response.status >= 400:
            raise _Refused(response.status)
        rest = b""
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                event: dict[str, Any] = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        return ""
                    raise _Refused(event["object"])
                since = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    engine.cluster_event(event["type"], event["object"])
    return since
