"""The place of a measurement: a namespace, its observer, and an administrator to clean up between runs."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from bench.bare_client import BARE_GROUP
from bench.http import session
from bench.observer import LISTS, Observer, Register, Seen, following
from bench.recording import RecordingProxy
from bench.shapes import Shape
from bench.world import World
from tests.support.objects import CONFIG_MAPS, MERGE, NETWORK_POLICIES, PODS, TFCLUSTERS, Kind, Object

BARE_TFCLUSTERS = Kind(f"{BARE_GROUP}/v1alpha1", "tfclusters")
JSON = "application/json"
_OWNERS = itertools.count()
#: Kubernetes creates this ConfigMap in each namespace, and re-creates it.
_ROOTS = "kube-root-ca.crt"


@dataclass(frozen=True)
class Arena:
    """One namespace, watched."""

    world: World
    namespace: str
    observer: Observer
    admin: aiohttp.ClientSession
    server: str

    def ready_pods(self) -> AbstractAsyncContextManager[Register]:
        """Watch which pods are Ready."""
        return self.pods_that(lambda pod: pod.is_ready)

    def pods_that(self, fulfil: Any) -> AbstractAsyncContextManager[Register]:
        """Watch which pods fulfil a condition."""
        url = f"{self.server}{PODS.path(self.namespace)}"
        return following(self.admin, [url], Register(fulfil))

    def reported_ready(self, tasks: int) -> AbstractAsyncContextManager[Register]:
        """Watch which TFClusters report at least this number of ready tasks in their status."""

        def tells(cluster: Seen) -> bool:
            return cluster.ready_tasks >= tasks

        url = f"{self.server}{TFCLUSTERS.path(self.namespace)}"
        return following(self.admin, [url], Register(tells))

    async def new_owner(self) -> Object:
        """Create a ConfigMap that can own the baseline client's objects; its creation is not counted later."""
        seen = self.observer.reached(added=1)
        body = {"metadata": {"name": f"owner-{next(_OWNERS)}"}}
        owner: dict[str, Any] = await self.send("POST", CONFIG_MAPS.path(self.namespace), body, content=JSON)
        await seen
        return owner

    async def send(self, method: str, path: str, body: Any = None, *, content: str = MERGE) -> Any:
        """Send one request as the administrator.

        Returns:
            The decoded answer.
        """
        data = None if body is None else json.dumps(body).encode()
        async with self.admin.request(
            method, self.server + path, data=data, headers={"Content-Type": content}
        ) as answer:
            assert answer.status in {200, 201}, f"{method} {path}: {await answer.text()}"
            return await answer.json()

    async def find(self, path: str, *, method: str = "GET") -> Any:
        """Read or DELETE an object; return the answer, or None if the object does not exist."""
        async with self.admin.request(method, self.server + path) as answer:
            assert answer.status in {200, 202, 404}, f"{method} {path}: {await answer.text()}"
            return None if answer.status == 404 else await answer.json()

    async def send_all(self, requests: Iterable[tuple[str, str, Any]], *, concurrency: int = 32) -> None:
        """Send requests as the administrator, ``concurrency`` at a time."""
        todo = iter(requests)

        async def work() -> None:
            for method, path, body in todo:
                await self.send(method, path, body, content=JSON if method == "POST" else MERGE)

        await asyncio.gather(*(work() for _ in range(concurrency)))

    async def clear(self, *owners: Kind) -> None:
        """Remove everything and return when the machine is quiet again."""
        base = f"{self.server}/api/v1/namespaces/{self.namespace}"
        for kind in (BARE_TFCLUSTERS, *owners):
            await self._delete(f"{self.server}{kind.path(self.namespace)}")
        group = f"{self.server}{TFCLUSTERS.path(self.namespace)}"
        await self._delete(group)
        while (await self._list(f"{group}?limit=1"))["items"]:  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.05)
        await self._delete(f"{base}/pods?gracePeriodSeconds=0")
        await self._delete(f"{base}/configmaps")
        for service in (await self._list(f"{base}/services"))["items"]:
            await self._delete(f"{base}/services/{service['metadata']['name']}")
        await self._delete(f"{self.server}{NETWORK_POLICIES.path(self.namespace)}")
        while await self.count(at_most=5):  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self.world.settle)

    async def count(self, *, owned: bool = False, at_most: int = 0) -> int:
        """Count the objects of the kinds that the operator creates."""
        urls = [f"{self.server}{of_kind.format(self.namespace)}?limit={at_most}" for of_kind in LISTS]
        lists = [await self._list(url) for url in urls]
        about = [item["metadata"] for found in lists for item in found["items"]]
        return sum(1 for each in about if each["name"] != _ROOTS and (each.get("ownerReferences") or not owned))

    async def _delete(self, url: str) -> None:
        while True:
            async with self.admin.delete(url) as answer:
                words = await answer.text()
            # Thousands of objects take longer than a request can.
            if answer.status != HTTPStatus.GATEWAY_TIMEOUT:
                assert answer.status in {200, 404}, words
                return

    async def _list(self, url: str) -> dict[str, Any]:
        async with self.admin.get(url) as answer:
            found: dict[str, Any] = await answer.json()
            return found


@asynccontextmanager
async def opened(world: World, name: str) -> AsyncIterator[Arena]:
    """Create a namespace and watch it."""
    admin, server = session(world.plane.kubeconfig, connections=0)
    namespace = world.new_namespace(name)
    lists = [server + of_kind.format(namespace) for of_kind in LISTS]
    async with admin, following(admin, lists, Observer()) as observer:
        yield Arena(world, namespace, observer, admin, server)


async def declare(arena: Arena, shape: Shape) -> None:
    """POST the TFClusters of a shape, a few at a time, as its users would."""
    path = TFCLUSTERS.path(arena.namespace)
    await arena.send_all([("POST", path, body) for body in shape.manifests(arena.namespace)], concurrency=16)


async def settled(arena: Arena, shape: Shape) -> None:
    """Return when the status of every TFCluster says that all its pods exist."""
    while True:
        clusters = (await arena.send("GET", TFCLUSTERS.path(arena.namespace)))["items"]
        created = sum(
            job.get("created", 0) for each in clusters for job in each.get("status", {}).get("jobs", {}).values()
        )
        if created == shape.total_tasks:
            return
        await asyncio.sleep(0.25)


async def recorded(arena: Arena, shape: Shape) -> list[tuple[str, bytes]]:
    """Let the operator make a shape once through a proxy that keeps its requests; it warms everything up, too.

    Returns:
        Path and body of each POST of the operator, which has ended.
    """
    operator = arena.world.operator
    if operator.running:
        await asyncio.to_thread(operator.stop)
    proxy = RecordingProxy(operator.kubeconfig, operator.log.parent)
    try:
        await asyncio.to_thread(operator.start, kubeconfig=proxy.kubeconfig)
        await declare(arena, shape)
        await settled(arena, shape)
        await arena.world.quiet(namespace=arena.namespace)
        await asyncio.to_thread(operator.stop)
    finally:
        operator.kill()  # it can still be starting: without the proxy it would not become ready
        proxy.close()
    return proxy.posted
