"""The operator's process in the simulation: the real engine on an in-memory session; it starts, crashes and stops."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from simulation import dialect, sessions
from support.memory_kubernetes import Answer, Interceptor, MemoryKubernetes, MemorySession, Request

from tfcluster_operator.engine.assembly import Engine
from tfcluster_operator.kopf_watch import KopfWatch
from tfcluster_operator.kube import connection
from tfcluster_operator.kube.client import Client, Clock, steady
from tfcluster_operator.kube.election import Election, Lease
from tfcluster_operator.kube.metrics import Metrics
from tfcluster_operator.objects.config_map import ResolverArchive
from tfcluster_operator.resolver_sources import read_archive

SERVER: Final = "http://memory"
#: Seconds until a crashed process runs again.
_RESTART: Final = 0.5

sessions.install()


class _Line(Interceptor):
    """The process's connection: it sends nothing after the process's death."""

    def __init__(self, faults: Interceptor) -> None:
        self._faults = faults
        self.cut = False

    async def before(self, request: Request) -> Answer | None:
        if self.cut:
            await asyncio.Future()
        return await self._faults.before(request)

    async def after(self, request: Request, answer: Answer) -> Answer:
        changed = await self._faults.after(request, answer)
        if self.cut:
            await asyncio.Future()
        return changed

    async def opened(self, request: Request) -> None:
        await self._faults.opened(request)

    async def line(self, request: Request, line: bytes) -> Any:
        return await self._faults.line(request, line)


class Operator:
    """One replica of the operator; ``name`` is its identity in the election, and ``metrics`` outlive its starts."""

    def __init__(
        self,
        kube: MemoryKubernetes,
        faults: Interceptor,
        *,
        wall: Callable[[], float],
        namespaces: Sequence[str] = (),
        name: str = "",
        archive: ResolverArchive | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._kube = kube
        self._faults = faults
        self._wall = wall
        self._name = name
        self._namespaces = namespaces
        self.metrics = metrics
        self.archive = archive
        self._line: _Line | None = None
        self._task: asyncio.Task[None] | None = None
        self._session: MemorySession | None = None
        self.standing: Election | None = None
        self.engine: Engine | None = None
        self._over = False
        #: When it was started last, by the loop's clock, and how often.
        self.started_at = 0.0
        self.starts = 0
        #: Errors that ended it unexpectedly.
        self.deaths: list[BaseException] = []
        #: Called with the name of each restart or crash, for the trace.
        self.tell: Callable[[str], None] = lambda _: None

    @property
    def leads(self) -> bool:
        return self.runs and self.standing is not None and self.standing.leading.is_set()

    @property
    def runs(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        if self._over or self.runs:
            return
        loop = asyncio.get_running_loop()
        self.started_at = loop.time()
        self.starts += 1
        self._line = _Line(self._faults)
        self.tell("starts")
        self._task = loop.create_task(self._run(self._line))

    def crash(self) -> None:
        """Crash without any cleanup, and start again soon after."""
        self._end("crashes")
        asyncio.get_running_loop().call_later(_RESTART, self.start)

    def stop(self) -> None:
        self._over = True
        self._end("stops")

    async def end(self) -> None:
        """Exit after SIGTERM as the process does."""
        self._over = True
        self.tell("is asked to end")
        task, self._task = self._task, None
        if self.standing is not None:
            self.standing.resign()
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=3.0)
        if self.standing is not None:
            await self.standing.release()

    async def restart(self) -> None:
        """Exit after SIGTERM as the process does, and start again."""
        await self.end()
        self._over = False
        self.start()

    def lose_connections(self) -> None:
        if self._session is not None:
            self._session.lose_connections()

    def _end(self, how: str) -> None:
        if self._line is not None:
            self._line.cut = True
        if self._task is not None and not self._task.done():
            self.tell(how)
            self._task.cancel()
        self._task = None

    async def _run(self, line: _Line) -> None:
        """Run the engine, kopf and the election as the process does."""
        session = self._session = MemorySession(self._kube, user=dialect.OPERATOR, latency=0.004, interceptor=line)
        elapsed = asyncio.get_running_loop().time
        clock = steady(self._wall, elapsed)
        standing = self.standing = self._stand(session, clock)
        client = Client(
            session,  # type: ignore[arg-type]  # it is a session in all that is asked of it
            SERVER,
            fence=standing.fence,
            clock=clock,
        )
        archive = self.archive or read_archive()
        engine = self.engine = Engine(client, self._namespaces, archive, metrics=self.metrics)
        access = connection.Access(server=SERVER)
        watches = [
            KopfWatch(access, session, scope, engine, own_signals=lambda: None, clock=clock)  # type: ignore[arg-type]  # likewise
            for scope in self._namespaces or (None,)
        ]
        works = [standing.run(), engine.run(standing.leading), *(watch.run() for watch in watches)]
        parts = [asyncio.create_task(work) for work in works]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(parts)
        for part in parts:
            if not part.cancelled() and (error := part.exception()) is not None:
                self.deaths.append(error)
                self.tell(f"dies of {error!r}")
        asyncio.get_running_loop().call_later(_RESTART, self.start)

    def _stand(self, session: MemorySession, clock: Clock) -> Election:
        if not self._name:
            return Election(None)
        requests = Client.once(session, SERVER)  # type: ignore[arg-type]  # it is a session in all that is asked of it
        lease = Lease(requests, dialect.NAMESPACE, "tfcluster-operator")
        # Every process is a new candidate.
        return Election(lease, f"{self._name}-{self.starts}", clock=clock)
