"""The watch of TFClusters with kopf, and the workarounds for kopf's behavior.

kopf's ``on.event`` watches TFClusters and does not write to the object.  Its limits, and the workarounds:

* It discovers the resources once.  So the operator waits for the CRD and starts kopf when it can be listed; kopf's next
  requests show whether kopf found it, too.
* Its tasks end for good at a 404, at an ERROR in the stream, and in other cases.  So they are restarted.
* A failure in one namespace ends the tasks of all.  So each namespace has its own kopf.
* It does not report objects that vanished while its watch was down.  So its lists are read here, too.
* It reopens a watch immediately when one ends, and retries rejected requests with its own delays and log messages.  So
  requests to open a watch are spaced, and a rejection is raised past kopf.
* It closes its session.  So it gets one that only borrows the connections.
* It handles signals, kills the process ten minutes after its tasks were cancelled, and cancels every task of the loop.
  So its signal handlers are replaced, the kill is disabled, and its tasks are run and ended here.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

import aiohttp
import kopf
import msgspec
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube import clusters, connection
from tfcluster_operator.kube.client import (
    SYSTEM_CLOCK,
    ApiError,
    Backoff,
    Client,
    Clock,
    KubeError,
    NotFoundError,
    UnreachableError,
    from_response,
    is_set,
)
from tfcluster_operator.kube.clusters import Census
from tfcluster_operator.kube.informer import SILENCE, Source

_log = logging.getLogger(__name__)

#: A watch that lasted this long ended for a new reason: the back-off is reset.
_LASTING: Final = 60.0
#: kopf lists the TFClusters within this time in seconds, or has not found the kind.
_DISCOVERY: Final = 20.0
#: This number of requests to list or watch can follow each other immediately; then there is one per _SPACE seconds.
_BURST: Final = 5
_SPACE: Final = 2.0


class Listener(Protocol):
    """Receives the events of TFClusters."""

    def cluster_event(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Process an event."""

    def clusters_listed(self, namespace: str | None, counted: Census) -> None:
        """Process a list of the existing TFClusters."""


class KopfWatch(Source):
    """Watches the TFClusters of one namespace, or of all, forever."""

    def __init__(
        self,
        access: connection.Access,
        lender: aiohttp.ClientSession,
        namespace: str | None,
        listener: Listener,
        *,
        own_signals: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(naming.PLURAL, namespace)
        self._access = access
        self._lender = lender
        self._listener = listener
        self._own_signals = own_signals
        self._clock = clock
        self._requests = Client.once(lender, access.server)
        self._trouble = ""

    async def run(self) -> None:
        """Wait for the kind, watch, and restart when the watch has ended."""
        backoff = Backoff(0.5)
        while True:
            await self._await_kind()
            began = self._clock.elapsed()
            try:
                await self._watch()
            except Exception as error:  # noqa: BLE001 - whatever kopf died of, it is started again
                self._say(f"the watch ended: {type(error).__name__}: {error}")
            if self._clock.elapsed() - began > _LASTING:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _await_kind(self) -> None:
        backoff = Backoff(0.5)
        while True:
            try:
                await self._look_for_the_kind()
                # kopf checks discovery only once, and never watches a kind that it does not find then.
                await clusters.discover(self._requests)
            except NotFoundError as error:
                self._say(f"the server does not know the kind; apply crds/tfcluster.yaml: {error}")
                self.synced.clear()
                self.refused = ""
            except (KubeError, msgspec.DecodeError) as error:
                self._say(str(error))
                refusal = isinstance(error, ApiError) and error.status in {401, 403}
                self.refused = str(error) if refusal else ""
            else:
                self.refused = ""
                return
            await asyncio.sleep(backoff.next())

    async def _look_for_the_kind(self) -> None:
        try:
            await self._requests.request("GET", clusters.path_of(self.namespace), params={"limit": "1"})
        except NotFoundError:
            # Without the CRD, TFClusters do not exist: what waits for the complete list need not wait for the CRD.
            self._listener.clusters_listed(self.namespace, Census(set(), sys.maxsize))
            raise

    async def _watch(self) -> None:
        """Run kopf until it ends, and clean up all its tasks."""
        tap = _Tap(self._listed, self._clock)
        session = connection.open_session(self._access, tap, lender=self._lender)
        own = asyncio.create_task(self._await_list(tap), name=f"list of {self.what}")
        spawning = asyncio.create_task(
            kopf.spawn_tasks(
                registry=self._registry(kopf.AiohttpSession(server=self._access.server, aiohttp_session=session)),
                settings=_settings(),
                identity=cast("Any", "tfcluster-operator"),  # kopf's own type is private
                standalone=True,
                clusterwide=self.namespace is None,
                namespaces=() if self.namespace is None else (self.namespace,),
            ),
            name=f"kopf of {self.what}",
        )
        try:
            tasks = await asyncio.shield(spawning)
            self._own_signals()
            ended, _ = await asyncio.wait([own, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            # kopf waits once after it has created its tasks; if cancelled there, it would leave them all running.
            await asyncio.wait([spawning])
            made = () if spawning.cancelled() or spawning.exception() else spawning.result()
            await _end({own, *made})
            await session.close()
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        raise UnreachableError("kopf ended its tasks")

    def _registry(self, session: kopf.AiohttpSession) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            # kopf runs functions that are not asynchronous in its own thread.
            return session

        @kopf.on.event(naming.GROUP, naming.VERSION, naming.PLURAL, registry=registry)
        async def cluster_event(event: Any, **_: Any) -> None:
            kind, body = event["type"], event["object"]
            try:
                # kopf's objects of an event are a cycle, which keeps this until a full garbage collection.
                body["metadata"].pop("managedFields", None)
                self._listener.cluster_event(kind, body)
            except Exception:  # noqa: BLE001 - one unreadable object must not end the watch of all others
                _log.exception("an event of %s was not taken in: %s", self.what, body["metadata"].get("name"))

        return registry

    async def _await_list(self, tap: "_Tap") -> None:
        """Raise an error if kopf lists nothing, or else wait forever."""
        if not await is_set(tap.listed, _DISCOVERY):
            raise UnreachableError(
                f"kopf listed nothing within {_DISCOVERY:g} s; the server's discovery may not know the kind yet"
            )
        await asyncio.Event().wait()

    def _listed(self, census: Census) -> None:
        self._say("")
        self.synced.set()
        self._listener.clusters_listed(self.namespace, census)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.warning("%s: %s", self.what, trouble)
        elif self._trouble and not trouble:
            _log.info("%s: watched again", self.what)
        self._trouble = trouble


class _Tap:
    """A middleware: it raises rejections as our own errors, which kopf does not retry, spaces requests, reads lists."""

    def __init__(self, tell: Callable[[Census], None], clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._free_at = [float("-inf")] * _BURST
        #: The UIDs in the pages of the current list.
        self._uids: set[str] = set()
        #: Set when a list of TFClusters was complete.
        self.listed = asyncio.Event()

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        of_clusters = request.url.path.endswith(f"/{naming.PLURAL}")
        if of_clusters and "continue" not in request.url.query:
            self._uids = set()
            await self._turn()
        try:
            response = await handler(request)
            is_watch = response.status < 400 and "watch" in request.url.query
            answer = b"" if is_watch else await response.read()
        except aiohttp.ClientError as error:
            raise UnreachableError(f"{type(error).__name__}: {error}") from error
        if response.status >= 400:
            raise from_response(response.status, answer)
        if of_clusters and not is_watch:
            self._take_page(answer)
        return response

    def _take_page(self, answer: bytes) -> None:
        page, more = clusters.read_page(answer)
        self._uids |= page.uids
        if not more:
            self.listed.set()
            self._tell(Census(self._uids, page.version))

    async def _turn(self) -> None:
        now = self._clock.elapsed()
        start = max(now, self._free_at.pop(0))
        self._free_at.append(start + _BURST * _SPACE)
        await asyncio.sleep(start - now)


def _settings() -> kopf.OperatorSettings:
    # New settings for each kopf, which modifies them.
    settings = kopf.OperatorSettings()
    settings.process.ultimate_exiting_timeout = None
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.networking.error_backoffs = ()
    settings.networking.request_timeout = 30.0
    settings.watching.reconnect_backoff = 1.0
    settings.watching.inactivity_timeout = SILENCE
    # A page is parsed in one go, and a TFCluster can have 100 kB: nothing else runs while this happens, not even a
    # renewal of the Lease.
    settings.watching.chunk_size = 100
    settings.queueing.idle_timeout = 1.0
    settings.persistence.diffbase_storage = _NoDifferences()
    return settings


class _NoDifferences(kopf.DiffBaseStorage):
    """Avoids kopf's copy of each TFCluster for its change handlers, which the operator does not use."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("kopf must not write to TFClusters")


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for their end; some of kopf's tasks ignore the first cancellation."""
    for _ in range(2):
        for task in tasks:
            task.cancel()
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=5.0)
