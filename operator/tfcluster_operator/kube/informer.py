"""Informers: list and watch one kind of child into its store.

kopf is not used for children: it does not notice objects that vanished while its watch was down, and costs fifty times
as much per event.  A list replaces the store's content, so that an object deleted during a gap is removed; bookmarks
keep the version fresh; 410 means to list again.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube.client import (
    ApiError,
    Backoff,
    Client,
    GoneError,
    HistoryLostError,
    KubeError,
    UnreachableError,
    from_response,
)
from tfcluster_operator.kube.store import ChildStore
from tfcluster_operator.objects.base import Child, Kind, ListMeta, Metadata
from tfcluster_operator.objects.config_map import ConfigMap

_log = logging.getLogger(__name__)

#: The number of objects in a page of a list; a ConfigMap can have a megabyte.
_PAGES: Final = {"ConfigMap": "25"}
#: After this number of small objects the parser yields to other coroutines.
_READ_AT_ONCE: Final = 100
#: A server closes a watch after this many seconds, as it does by default; the spread keeps them from ending together.
#: With minutes, eight idle watches would keep an operator sending requests.
_WATCH_SECONDS: Final = (1_800, 3_600)
#: After this many seconds without data a watch counts as dead.  An idle API server omits bookmarks; the first bookmark
#: of a new watch was seen to arrive after two minutes.
SILENCE: Final = 200.0
#: How often (seconds) an optional kind that the server lacks is requested again, while a cluster needs it.
_LOOK_FOR_KIND_AGAIN: Final = 20.0
#: A watch that lasted this many seconds resets the back-off.
_A_GOOD_RUN: Final = 5.0
#: For how many seconds an API server can be behind another one before this counts as lost history.
_LATE_AT_MOST: Final = 5.0


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Object(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    code: int = 500


_events: Final = msgspec.json.Decoder(_Event)
_objects: Final = msgspec.json.Decoder(_Object)


class Source:
    """A kind that is listed and watched in one namespace or in all."""

    def __init__(self, plural: str, namespace: str | None) -> None:
        self.namespace = namespace
        self.what = f"{plural} in {namespace or 'all namespaces'}"
        #: Set when the first list is complete; cleared when the server no longer serves TFClusters.
        self.synced = asyncio.Event()
        #: The server's message if it rejects the list; else empty.
        self.refused = ""


class Informer(Source):
    """Keeps the store of one kind of child up to date."""

    def __init__(self, client: Client, kind: Kind, store: ChildStore, namespace: str | None) -> None:
        super().__init__(kind.plural, namespace)
        self._client = client
        self._kind = kind
        self._store = store
        self._version = ""
        #: The newest resource version of the API server, and since when its lists are older than that.
        self._newest = 0
        self._behind_since: float | None = None
        #: Whether the watch broke, so that the server's history might continue from an earlier version.
        self._doubtful = False
        self._selected = {"labelSelector": naming.LABEL_CLUSTER} if kind.ours_alone else {}

    async def run(self) -> None:
        """List and watch forever."""
        backoff, told = Backoff(0.1), ""
        while True:
            began = self._client.clock.elapsed()
            try:
                if not self._version:
                    await self._list()
                elif self._doubtful:
                    # A server accepts a watch from a future version without an error: it would stay silent forever.
                    await self._read_page({"limit": "1"})
                self._doubtful = False
                await self._watch()
            except HistoryLostError:
                raise
            except GoneError:
                self._version = ""
            except (KubeError, msgspec.DecodeError) as error:  # a proxy can answer with JSON of its own
                self._doubtful = True
                await self._note(error)
                if str(error) != told:  # an error that continues for hours is logged once
                    told = str(error)
                    _log.warning("%s: %s", self.what, error)
            # Also after an end without an error, so that a server that closes every watch is not overloaded.
            if self._client.clock.elapsed() - began >= _A_GOOD_RUN:
                told = ""
                backoff.reset()
                continue
            await asyncio.sleep(backoff.next())

    async def _note(self, error: Exception) -> None:
        """Note a rejection; if the kind is optional, wait until another try is worthwhile."""
        if not isinstance(error, ApiError) or error.status not in {401, 403, 404}:
            return
        self._version = ""
        if not self._kind.optional or error.status == 401:
            self.refused = error.message or str(error)
            return
        group = self._kind.api.removeprefix("/apis/")
        absent = f"the API server does not serve {self._kind.plural} of {group}"
        self._store.have_none(absent if error.status == 404 else error.message, self.namespace)
        self._store.asked_for.clear()
        self.synced.set()
        await asyncio.sleep(_LOOK_FOR_KIND_AGAIN * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
        await self._store.asked_for.wait()

    async def _read_page(self, params: Mapping[str, str]) -> tuple[Iterator[Child], ListMeta]:
        """Read a page of the list, and compare the server's version with the known one."""
        path, params = self._kind.path(self.namespace), {**self._selected, **params}
        page, meta = self._kind.read_list(await self._client.request("GET", path, params=params))
        self._compare(int(meta.resource_version))
        return page, meta

    def _compare(self, version: int) -> None:
        """Compare the version of a list with the newest known one."""
        # Resource versions only grow.  After a restore of etcd they start from an earlier one: every cache then drops
        # new objects as outdated, and a watch from a future version stays silent.  Only a new process works again.
        if version >= self._newest:
            self._newest, self._behind_since = version, None
            return
        now = self._client.clock.elapsed()
        self._behind_since = now if self._behind_since is None else self._behind_since
        words = f"the API server is at version {version} and was at {self._newest} before"
        if now - self._behind_since >= _LATE_AT_MOST:
            raise HistoryLostError(f"{words}: was etcd restored from a backup?")
        raise UnreachableError(words)

    async def _list(self) -> None:
        children: list[Child] = []
        params = {"limit": _PAGES.get(self._kind.name, "500")}
        while True:
            page, meta = await self._read_page(params)
            for child in page:
                children.append(child)
                if isinstance(child, ConfigMap) or len(children) % _READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if not meta.continue_token:
                break
            params["continue"] = meta.continue_token
        self._store.replace(children, version=int(meta.resource_version), namespace=self.namespace)
        self._version = meta.resource_version
        self.refused = ""
        self._store.have_none("", self.namespace)
        self.synced.set()

    async def _watch(self) -> None:
        params = {
            **self._selected,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - jitter, no secret
        }
        path = self._kind.path(self.namespace)
        async for line in self._client.watch(path, params=params, silence=SILENCE):
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            event = _events.decode(line)
            if event.type == "ERROR":
                raise from_response(_objects.decode(event.object).code, bytes(event.object))
            if event.type == "BOOKMARK":
                self._reach(int(_objects.decode(event.object).metadata.resource_version))
                return
            child = self._kind.read(event.object)
        except msgspec.DecodeError as error:
            # A line that a broken connection cut off; the next list has its content.
            self._version = ""
            raise UnreachableError(f"not an event: {error}") from error
        if event.type == "DELETED":
            self._store.remove(child)
        else:
            self._store.put(child)
        self._reach(child.meta.version)

    def _reach(self, version: int) -> None:
        self._store.reached[self.namespace] = version
        self._version = str(version)
        self._newest = max(self._newest, version)
