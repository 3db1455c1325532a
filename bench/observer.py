"""Independent observers: they watch a namespace and tell when what is awaited was seen.

They act for neither side, and see both through the same watch.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec

_METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
#: A guard against a run that hangs unattended; all measurements are shorter.
_PATIENCE_SECONDS = 1200
#: The paths of the kinds of a TFCluster's objects.
LISTS = (
    "/api/v1/namespaces/{}/services",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/pods",
)


class Observer:
    """Counts the objects that are created and deleted in one namespace.

    It requests metadata only and does not parse it, so that watching costs the machine the same small share on both
    sides.
    """

    def __init__(self) -> None:
        self._counts = {b'{"type":"ADDED"': 0, b'{"type":"DELETED"': 0}
        self._wanted: tuple[bytes, int, asyncio.Future[float]] | None = None

    def take(self, line: bytes) -> None:
        """Count an event."""
        kind = line[: line.index(b",")]
        if kind in self._counts:
            self._counts[kind] += 1
            if self._wanted is not None and self._wanted[0] == kind and self._counts[kind] >= self._wanted[1]:
                _, _, reached = self._wanted
                if not reached.done():
                    reached.set_result(time.perf_counter())

    def reached(self, *, added: int = 0, deleted: int = 0) -> asyncio.Future[float]:
        """Await this number of created (or deleted) objects from now on.

        Returns:
            A future with the time, in seconds of ``time.perf_counter``.
        """
        kind = b'{"type":"ADDED"' if added else b'{"type":"DELETED"'
        self._counts = dict.fromkeys(self._counts, 0)
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._wanted = (kind, added or deleted, future)
        return future


class _Condition(msgspec.Struct):
    type: str
    status: str


class _JobStatus(msgspec.Struct):
    ready: int = 0


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []
    jobs: dict[str, _JobStatus] = {}


class _Metadata(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Seen(msgspec.Struct):
    """The fields of a pod or a TFCluster that an observer reads."""

    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def is_ready(self) -> bool:
        """Whether it is a pod that is Ready."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)

    @property
    def ready_tasks(self) -> int:
        """The number of ready tasks in a TFCluster's status."""
        return sum(job.ready for job in self.status.jobs.values())


class _Event(msgspec.Struct):
    type: str
    object: Seen


class Register:
    """Knows the objects of one kind in one namespace that fulfil a condition, and since when each does.

    Args:
        fulfils: the condition.
    """

    def __init__(self, fulfils: Callable[[Seen], bool]) -> None:
        self._fulfils = fulfils
        self._decode = msgspec.json.Decoder(_Event).decode
        self._wanted: tuple[int, asyncio.Future[None]] | None = None
        #: By name, the time in seconds of ``time.perf_counter``.
        self.since: dict[str, float] = {}
        #: The labels of each object that fulfils the condition.
        self.labels: dict[str, dict[str, str]] = {}

    def take(self, line: bytes) -> None:
        """Process an event."""
        event = self._decode(line)
        name = event.object.metadata.name
        if event.type in {"ADDED", "MODIFIED"} and self._fulfils(event.object):
            self.since.setdefault(name, time.perf_counter())
            self.labels[name] = event.object.metadata.labels
        else:
            self.since.pop(name, None)
        if self._wanted is not None and len(self.since) >= self._wanted[0] and not self._wanted[1].done():
            self._wanted[1].set_result(None)

    async def holds(self, count: int) -> float:
        """Await that this number of objects fulfil the condition at the same time.

        Returns:
            The time when the last of them began to, in seconds of ``time.perf_counter``.

        Raises:
            TimeoutError: it did not happen within 20 minutes.
        """
        if len(self.since) < count:
            self._wanted = (count, asyncio.get_running_loop().create_future())
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._wanted[1]
            except TimeoutError:
                raise TimeoutError(f"{len(self.since)} of {count} objects are as they should be") from None
        return max(self.since.values())


async def _follow(
    http: aiohttp.ClientSession, url: str, take: Callable[[bytes], None], opened: asyncio.Event, *, metadata_only: bool
) -> None:
    """Watch from now on, forever; existing objects are not reported."""
    to_list, to_watch = ({"Accept": _METADATA_LIST}, {"Accept": _METADATA}) if metadata_only else ({}, {})
    async with http.get(f"{url}?limit=1", headers=to_list) as answer:
        version = (await answer.json())["metadata"]["resourceVersion"]
    while True:
        # The server can end a watch at any time; no event is lost if the next watch begins at the same version.
        async with http.get(f"{url}?watch=true&resourceVersion={version}", headers=to_watch) as stream:
            opened.set()
            last = rest = b""
            async for chunk in stream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    take(line)
                    last = line
        version = json.loads(last)["object"]["metadata"]["resourceVersion"] if last else version


@asynccontextmanager
async def following(http: aiohttp.ClientSession, urls: list[str], observer: Observer | Register) -> AsyncIterator[Any]:
    """Let an observer watch for the length of a ``with`` block.

    Yields:
        The observer; its watches are open.
    """
    opened = [asyncio.Event() for _ in urls]
    tasks = [
        asyncio.create_task(_follow(http, url, observer.take, each, metadata_only=isinstance(observer, Observer)))
        for url, each in zip(urls, opened, strict=True)
    ]
    try:
        for event in opened:
            await event.wait()
        yield observer
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
