"""Candidates for one Lease in virtual time, the server of the Lease, and the connections between them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from msgspec.structs import replace
from support.async_tests import AsyncTest, within

from tfcluster_operator.kube import election
from tfcluster_operator.kube.client import (
    AlreadyExistsError,
    Clock,
    ConflictError,
    KubeError,
    NotFoundError,
    NotLeadingError,
    UnreachableError,
)
from tfcluster_operator.kube.election import Election, LeaseLostError, Record

Span = tuple[float, float]


@dataclass
class Server:
    """The API server of one Lease; ``history`` has all writes."""

    record: Record | None = field(default_factory=lambda: Record("", 1, "", "", transitions=0, version="1"))
    version: int = 1
    history: list[Record] = field(default_factory=list)

    def put(self, record: Record) -> Record:
        if self.record is None and record.version:
            raise NotFoundError(status=404, reason="NotFound", message="no such lease")
        if self.record is not None and not record.version:
            raise AlreadyExistsError(status=409, reason="AlreadyExists", message="it exists")
        if self.record is not None and self.record.version != record.version:
            raise ConflictError(status=409, reason="Conflict", message="another version")
        self.version += 1
        self.record = replace(record, version=str(self.version))
        self.history.append(self.record)
        return self.record


@dataclass
class Line:
    """The connection of one candidate: its latency, and when requests get lost, by the loop's time."""

    server: Server
    latency: float = 0.01
    requests_lost: list[Span] = field(default_factory=list)
    answers_lost: list[Span] = field(default_factory=list)
    refusal: KubeError | None = None
    refusal_of_writes: KubeError | None = None

    async def read(self) -> Record | None:
        return await self._go(lambda: self.server.record)

    async def write(self, record: Record) -> Record:
        if self.refusal_of_writes is not None:
            raise self.refusal_of_writes
        return await self._go(lambda: self.server.put(record))

    async def _go(self, act: Callable[[], Any]) -> Any:
        start = now()
        if self.refusal is not None:
            raise self.refusal
        lost = any(first <= start < last for first, last in self.requests_lost)
        await asyncio.sleep(self.latency / 2)
        try:
            answer = None if lost else act()
        finally:
            await asyncio.sleep(self.latency / 2)
        if lost or any(first <= start < last for first, last in self.answers_lost):
            await asyncio.sleep(start + election.TIMEOUT - now())
            raise UnreachableError("no answer")
        return answer


def now() -> float:
    return asyncio.get_running_loop().time()


class Candidate:
    """One operator: its election, its own clocks, and whether its process runs."""

    def __init__(self, name: str, server: Server, *, wall: float = 0.0) -> None:
        self.name = name
        self.line = Line(server)
        self.ahead = 0.0
        self.wall = wall
        clock = Clock(wall=lambda: self.wall + now() + self.ahead, elapsed=lambda: now() + self.ahead)
        self.election = Election(self.line, name, clock=clock)
        self._task: asyncio.Task[None] | None = None
        self._crashed = False

    def start(self) -> None:
        self._task = asyncio.create_task(self.election.run())

    def crash(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._crashed = True

    async def stop(self) -> None:
        self.crash()
        self.election.resign()
        await self.election.release()

    @property
    def lost(self) -> str:
        """The reason why its process ended by itself; empty while it runs."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return ""  # it was never started, still runs, or was killed
        error = self._task.exception()
        assert isinstance(error, LeaseLostError), error
        return str(error)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done() and not self._crashed

    @property
    def acts(self) -> bool:
        """Whether it would write now: its process runs and the fence permits it."""
        if not self.alive:
            return False
        try:
            self.election.fence()
        except NotLeadingError:
            return False
        return True


class World:
    """Several candidates, checked every 50 ms: if two act simultaneously, the test fails."""

    def __init__(self, count: int) -> None:
        self.server = Server()
        self.candidates = [Candidate(f"c{i}", self.server, wall=i * 1e6) for i in range(count)]
        #: The acting candidates, with their start times.
        self.terms: list[tuple[str, float]] = []

    async def __aenter__(self) -> Self:
        self.began = now()
        self._watcher = asyncio.create_task(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        for candidate in self.candidates:
            if candidate.alive:
                candidate.crash()
            else:
                assert "lease was lost" in (candidate.lost or "lease was lost")
        if not self._watcher.done():
            self._watcher.cancel()
        else:
            self._watcher.result()

    async def _look(self) -> None:
        while True:
            acting = [candidate.name for candidate in self.candidates if candidate.acts]
            assert len(acting) <= 1, f"{acting} act at once, {now() - self.began:.2f} s after the start"
            if acting and (not self.terms or self.terms[-1][0] != acting[0]):
                self.terms.append((acting[0], now()))
            await asyncio.sleep(0.05)

    def join(self, name: str) -> Candidate:
        self.candidates.append(Candidate(name, self.server))
        self.candidates[-1].start()
        return self.candidates[-1]

    async def someone_leads(self) -> Candidate:
        while True:
            for candidate in self.candidates:
                if candidate.acts:
                    return candidate
            await asyncio.sleep(0.05)


def among(count: int) -> Callable[[AsyncTest], Callable[..., None]]:
    """Pass a test a world with this number of candidates, in virtual time."""
    return within(lambda: World(count))


async def led(world: World) -> list[Candidate]:
    """Start the candidates, and return the leader and then the others."""
    for candidate in world.candidates:
        candidate.start()
    leader = await world.someone_leads()
    return [leader, *(one for one in world.candidates if one is not leader)]


async def until_leads(world: World, candidate: Candidate) -> float:
    """Return the seconds until this candidate leads, and no other one before."""
    began = now()
    assert await world.someone_leads() is candidate
    return now() - began
