"""Where one shape is measured: a namespace, its observer, and an administrator to clear up between runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.observer import LISTS, Observer, watching
from bench.shapes import Shape
from bench.world import World, session
from tests.support.objects import NETWORK_POLICIES, TFCLUSTERS


@dataclass(frozen=True)
class Arena:
    """One namespace, watched."""

    world: World
    namespace: str
    observer: Observer
    admin: aiohttp.ClientSession
    server: str

    async def clear(self) -> None:
        """Remove everything and return when the machine is quiet again."""
        base = f"{self.server}/api/v1/namespaces/{self.namespace}"
        group = f"{self.server}{TFCLUSTERS.path(self.namespace)}"
        await self._delete(group)
        while (await self._list(group))["items"]:  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.05)
        await self._delete(f"{base}/pods?gracePeriodSeconds=0")
        await self._delete(f"{base}/configmaps")
        for service in (await self._list(f"{base}/services"))["items"]:
            await self._delete(f"{base}/services/{service['metadata']['name']}")
        await self._delete(f"{self.server}{NETWORK_POLICIES.path(self.namespace)}")
        while await self._left():  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self.world.settle)

    async def _left(self) -> int:
        left = 0
        for of_kind in LISTS:
            url = self.server + of_kind.format(self.namespace)
            names = [item["metadata"]["name"] for item in (await self._list(f"{url}?limit=5"))["items"]]
            left += len([name for name in names if name != "kube-root-ca.crt"])
        return left

    async def _delete(self, url: str) -> None:
        async with self.admin.delete(url) as answer:
            await answer.read()
            assert answer.status in {200, 404}, await answer.text()

    async def _list(self, url: str) -> dict[str, Any]:
        async with self.admin.get(url) as answer:
            return await answer.json()


@asynccontextmanager
async def opened(world: World, name: str) -> AsyncIterator[Arena]:
    """Make a namespace and watch it.

    Args:
        world: the control plane.
        name: the namespace.

    Yields:
        The arena.
    """
    admin, server = session(world.plane.kubeconfig, connections=0)
    namespace = world.new_namespace(name)
    async with admin, watching(admin, server, namespace) as observer:
        yield Arena(world, namespace, observer, admin, server)


async def declare(arena: Arena, shape: Shape) -> None:
    """POST the TFClusters of a shape, a few at a time, as its users would."""
    url = f"{arena.server}{TFCLUSTERS.path(arena.namespace)}"
    bodies = [json.dumps(manifest).encode() for manifest in shape.manifests(arena.namespace)]

    few = asyncio.Semaphore(16)

    async def post(body: bytes) -> None:
        async with few, arena.admin.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 201, await answer.text()

    await asyncio.gather(*map(post, bodies))


async def settled(arena: Arena, shape: Shape) -> None:
    """Return when every TFCluster's status tells that all its pods exist."""
    url = f"{arena.server}{TFCLUSTERS.path(arena.namespace)}"
    while True:
        async with arena.admin.get(url) as answer:
            clusters = (await answer.json())["items"]
        created = sum(
            job.get("created", 0) for each in clusters for job in each.get("status", {}).get("jobs", {}).values()
        )
        if created == shape.total_tasks:
            return
        await asyncio.sleep(0.05)
