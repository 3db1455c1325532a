"""The election in virtual time: who leads, from when, until when; and never two at once."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.kube import errors
from tfcluster_operator.kube.clock import Clock
from tfcluster_operator.kube.leadership import Alone, Election, LeaseLostError
from tfcluster_operator.kube.lease import Record, Timing, claim

TIMING = Timing()
Span = tuple[float, float]


@dataclass
class Server:
    """The API server, as far as one Lease goes; ``history`` holds what was written."""

    record: Record | None = field(default_factory=lambda: Record("", 1, "", "", transitions=0, version="1"))
    version: int = 1
    history: list[Record] = field(default_factory=list)

    def put(self, record: Record) -> Record:
        if self.record is None and record.version:
            raise errors.NotFoundError(status=404, reason="NotFound", message="no such lease")
        if self.record is not None and not record.version:
            raise errors.AlreadyExistsError(status=409, reason="AlreadyExists", message="it exists")
        if self.record is not None and self.record.version != record.version:
            raise errors.ConflictError(status=409, reason="Conflict", message="another version")
        self.version += 1
        self.record = replace(record, version=str(self.version))
        self.history.append(self.record)
        return self.record


@dataclass
class Line:
    """The way of one candidate to the server: how slow it is, and when what gets lost, by the loop's time."""

    server: Server
    latency: float = 0.01
    requests_lost: list[Span] = field(default_factory=list)
    answers_lost: list[Span] = field(default_factory=list)
    refusal: errors.KubeError | None = None
    refusal_of_writes: errors.KubeError | None = None
    writes_held: asyncio.Event | None = None

    async def read(self) -> Record | None:
        return await self._go(lambda: self.server.record)

    async def write(self, record: Record) -> Record:
        if self.writes_held is not None:
            await self.writes_held.wait()
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
            await asyncio.sleep(start + TIMING.timeout - now())
            raise errors.UnreachableError("no answer")
        return answer


def now() -> float:
    return asyncio.get_running_loop().time()


class Candidate:
    """One operator: its election, its own clocks, and whether its process lives."""

    def __init__(self, name: str, server: Server, *, wall: float = 0.0) -> None:
        self.name = name
        self.line = Line(server)
        self.ahead = 0.0
        self.wall = wall
        clock = Clock(wall=lambda: self.wall + now() + self.ahead, elapsed=lambda: now() + self.ahead)
        self.election = Election(self.line, name, timing=TIMING, clock=clock)
        self._task: asyncio.Task[None] | None = None
        self._crashed = False

    def start(self) -> None:
        self._task = asyncio.create_task(self.election.run())

    def crash(self) -> None:
        assert self._task is not None
        self._task.cancel()
        self._crashed = True

    async def stop(self) -> None:
        """End as SIGTERM ends the operator."""
        self.crash()
        self.election.resign()
        await self.election.release()

    @property
    def lost(self) -> str:
        """Why its process ended by itself; empty while it runs."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return ""  # it was never started, or lives, or was killed
        error = self._task.exception()
        assert isinstance(error, LeaseLostError), error
        return str(error)

    @property
    def alive(self) -> bool:
        return self._task is not None and not self._task.done() and not self._crashed

    @property
    def acts(self) -> bool:
        """Whether it would write now: its process lives and the fence lets it."""
        if not self.alive:
            return False
        try:
            self.election.fence()
        except errors.NotLeadingError:
            return False
        return True


class World:
    """Some candidates, looked at every 50 ms: two that act at once end the test."""

    def __init__(self, count: int) -> None:
        self.server = Server()
        self.candidates = [Candidate(f"c{i}", self.server, wall=i * 1e6) for i in range(count)]
        #: Who acted, and from when on.
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

    async def someone_leads(self) -> Candidate:
        while True:
            for candidate in self.candidates:
                if candidate.acts:
                    return candidate
            await asyncio.sleep(0.05)


def within_world(count: int, story: Callable[[World], Any]) -> None:
    async def run() -> None:
        async with World(count) as world:
            await story(world)

    run_in_virtual_time(run())


async def led(world: World) -> tuple[Candidate, Candidate]:
    """Start two candidates, and give the leader and the standby."""
    for candidate in world.candidates:
        candidate.start()
    leader = await world.someone_leads()
    return leader, next(one for one in world.candidates if one is not leader)


def test_one_of_three_leads_and_stays():
    """Of three candidates that start together one leads, and a quarter of an hour later it is the same."""

    async def story(world: World) -> None:
        for candidate in world.candidates:
            candidate.start()
        leader = await world.someone_leads()
        assert now() - world.began < 1
        await asyncio.sleep(900)
        assert [name for name, _ in world.terms] == [leader.name]
        assert {c.election.words for c in world.candidates if c is not leader} == {f"standby: {leader.name} leads"}
        assert leader.election.words == f"leading: {leader.name}"
        assert leader.election.leading.is_set()

    within_world(3, story)


def test_a_standby_follows_a_release_within_a_second():
    """A leader that stops in order is followed at the standby's next look."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(7)
        stopped = now()
        await leader.stop()
        assert await world.someone_leads() is standby
        assert now() - stopped < 1.2
        assert world.server.record.transitions == 2

    within_world(2, story)


@pytest.mark.parametrize("age", [0.01, 0.5, 1.0, 1.9, 2.01, 3.3])
def test_a_standby_follows_a_crash_within_the_lease_and_two_seconds(age):
    """However long after a renewal a leader crashes, it is followed within 17 s, and not before the lease ends."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(20 + age)
        crashed = now()
        leader.crash()
        assert await world.someone_leads() is standby
        assert TIMING.duration - TIMING.renew - 0.1 <= now() - crashed <= TIMING.duration + 2

    within_world(2, story)


def test_three_candidates_survive_crash_after_crash():
    """Each crash is followed by exactly one of those left; a process that comes back stands by."""

    async def story(world: World) -> None:
        for candidate in world.candidates:
            candidate.start()
        for _ in range(5):
            leader = await world.someone_leads()
            await asyncio.sleep(1)
            leader.crash()
            fresh = Candidate(f"{leader.name}'", world.server)
            world.candidates.append(fresh)
            fresh.start()
            await asyncio.sleep(30)
        assert len(world.terms) == 6
        assert world.server.record.transitions == 6

    within_world(3, story)


def test_a_slow_server_costs_nobody_the_lease():
    """A server that takes 1.9 s for each answer keeps its leader."""

    async def story(world: World) -> None:
        for candidate in world.candidates:
            candidate.line.latency = 1.9
        leader, _ = await led(world)
        await asyncio.sleep(600)
        assert leader.acts
        assert len(world.terms) == 1

    within_world(2, story)


def test_renewals_that_fail_for_nine_seconds_are_survived():
    """Nine seconds without an answer end no leadership, and nothing is fenced meanwhile."""

    async def story(world: World) -> None:
        leader, _ = await led(world)
        await asyncio.sleep(TIMING.renew + 0.1)
        leader.line.requests_lost.append((now() - 2, now() + 7.4))
        for _ in range(80):
            await asyncio.sleep(0.5)
            assert leader.acts
        assert len(world.terms) == 1

    within_world(2, story)


def test_the_fence_falls_ten_seconds_after_the_last_good_renewal():
    """A leader that cannot renew acts for 10 s after its last renewal was sent; then its process ends, by name."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(9)
        cut = now()
        leader.line.requests_lost.append((cut, cut + 1000))
        while leader.acts:  # noqa: ASYNC110 - the fence has no event
            await asyncio.sleep(0.01)
        fell = now()
        assert 10 - TIMING.renew - 0.1 <= fell - cut <= 10
        await asyncio.sleep(TIMING.timeout + 0.1)
        assert leader.lost == "the lease was lost: no renewal within 10 s: no answer"
        assert await world.someone_leads() is standby
        assert now() - fell >= TIMING.duration - TIMING.deadline - 0.1

    within_world(2, story)


def test_lost_answers_are_no_lost_lease():
    """Renewals that arrive and whose answers are lost change the version under the leader: it reads and goes on."""

    async def story(world: World) -> None:
        leader, _ = await led(world)
        for _ in range(20):
            leader.line.answers_lost.append((now(), now() + 4))
            await asyncio.sleep(20)
            assert leader.acts
        assert len(world.terms) == 1

    within_world(2, story)


def test_a_claim_whose_answer_is_lost_is_found_again():
    """A candidate that took the lease without knowing it sees its own name there, and leads."""

    async def story(world: World) -> None:
        (candidate,) = world.candidates
        candidate.line.answers_lost.append((now(), now() + 1))
        candidate.start()
        await world.someone_leads()
        assert now() - world.began < 5
        assert world.server.record.transitions == 1

    within_world(1, story)


def test_a_process_that_stood_still_may_not_write():
    """After a stop of 11 s, by the clock that counts sleep, the fence is down before any task of the process ran."""

    async def story(world: World) -> None:
        leader, _ = await led(world)
        await asyncio.sleep(5)
        leader.ahead += 11
        with pytest.raises(errors.NotLeadingError):
            leader.election.fence()
        await asyncio.sleep(2.1)
        assert "stood still" in leader.lost

    within_world(2, story)


def test_a_claim_that_left_late_takes_nothing():
    """A standby that stopped between its look and its claim is refused: the version is another by now."""

    async def story(world: World) -> None:
        leader, late = await led(world)
        await asyncio.sleep(5.1)
        late.line.writes_held = asyncio.Event()
        leader.crash()
        await asyncio.sleep(20)
        follower = Candidate("follower", world.server)
        world.candidates.append(follower)
        follower.start()
        assert await world.someone_leads() is follower
        late.line.writes_held.set()
        await asyncio.sleep(60)
        assert follower.acts
        assert late.alive

    within_world(2, story)


def test_steps_of_the_wall_clock_decide_nothing():
    """Machines whose clocks differ by days, and step by an hour, elect as others do."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        for step in (3600, -7200, 3600):
            leader.wall += step
            standby.wall -= step
            await asyncio.sleep(40)
            assert leader.acts
        leader.crash()
        crashed = now()
        assert await world.someone_leads() is standby
        assert now() - crashed <= TIMING.duration + 2

    within_world(2, story)


def test_a_deleted_lease_is_made_again_by_its_holder():
    """A standby honours the claim of the Lease that somebody deleted; its holder writes it again."""

    async def story(world: World) -> None:
        leader, _ = await led(world)
        for _ in range(10):
            await asyncio.sleep(3.7)
            world.server.record = None
        await asyncio.sleep(5)
        assert leader.acts
        assert world.server.record.holder == leader.name
        assert len(world.terms) == 1

    within_world(2, story)


def test_a_lease_deleted_after_a_crash_is_free_when_its_claim_ends():
    """With the holder dead and the Lease deleted, a standby leads when the claim would have ended."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(5)
        leader.crash()
        world.server.record = None
        crashed = now()
        assert await world.someone_leads() is standby
        assert now() - crashed <= TIMING.duration + 2

    within_world(2, story)


def test_a_lease_that_is_not_there_is_free_after_a_whole_claim():
    """A candidate that finds no Lease waits for a whole claim: a holder unknown to it would make it again."""

    async def story(world: World) -> None:
        leader, _ = await led(world)
        fresh = Candidate("fresh", world.server)
        world.candidates.append(fresh)
        await asyncio.sleep(TIMING.renew / 2)
        world.server.record = None
        fresh.start()
        await asyncio.sleep(60)
        assert leader.acts
        leader.crash()
        world.candidates[1].crash()
        world.server.record, began = None, now()
        assert await world.someone_leads() is fresh
        assert TIMING.duration <= now() - began <= TIMING.duration + 2

    within_world(2, story)


def test_a_lease_that_was_not_there_may_have_a_holder_by_now():
    """Who saw none, and then had no answer for a while, waits for a whole claim again: somebody may hold one."""

    async def story(world: World) -> None:
        (blind, other), world.server.record = world.candidates, None
        blind.start()
        await asyncio.sleep(1.5)
        blind.line.answers_lost = [(now(), now() + 25)]
        other.start()
        assert await world.someone_leads() is other
        await asyncio.sleep(max(0.0, blind.line.answers_lost[0][1] - now()))
        for _ in range(80):
            world.server.record = None
            await asyncio.sleep(0.05)
        assert other.acts
        assert len(world.terms) == 1

    within_world(2, story)


def test_a_label_on_the_lease_is_no_renewal():
    """Somebody who writes to the Lease every second does not keep a dead holder's claim alive."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(5)
        leader.crash()
        crashed = now()
        while not standby.acts and now() - crashed < 60:
            await asyncio.sleep(1)
            if not standby.acts:
                world.server.put(world.server.record)
        assert now() - crashed <= TIMING.duration + 3

    within_world(2, story)


def test_a_namespace_that_went_with_its_lease_is_the_reason(caplog):
    """A leader whose Lease and namespace are gone ends by the server's words, not by a guess."""

    async def story(world: World) -> None:
        (leader,) = world.candidates
        leader.start()
        await world.someone_leads()
        world.server.record = None
        leader.line.refusal_of_writes = errors.NotFoundError(status=404, reason="NotFound", message="no namespace")
        await asyncio.sleep(20)
        assert leader.lost == "the lease was lost: no renewal within 10 s: 404 NotFound: no namespace"

    within_world(1, story)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_lease_given_to_another_ends_the_leader():
    """A leader that reads another name on its Lease ends at once, and says whose."""

    async def story(world: World) -> None:
        (leader,) = world.candidates
        leader.start()
        await world.someone_leads()
        world.server.put(replace(world.server.record, holder="somebody"))
        await asyncio.sleep(TIMING.renew + 0.1)
        assert leader.lost == "the lease was lost: somebody holds it"

    within_world(1, story)


def test_a_claim_longer_than_ours_is_honoured():
    """How long a claim lasts is what its holder wrote, as a version with another setting may."""

    async def story(world: World) -> None:
        (candidate,) = world.candidates
        world.server.record = Record("old", 40, "", "", transitions=3, version="1")
        candidate.start()
        await world.someone_leads()
        assert 40 <= now() - world.began <= 41.5
        assert world.server.record.transitions == 4

    within_world(1, story)


def test_a_standby_that_stops_leaves_the_lease_alone():
    """A candidate that never claimed writes nothing when it stops."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        await asyncio.sleep(0.5)
        before = len(world.server.history)
        await standby.stop()
        assert len(world.server.history) == before
        assert leader.acts

    within_world(2, story)


def test_a_release_survives_a_renewal_that_was_cut_off():
    """A renewal under way when the leader stops changes the version; the release reads again, and succeeds."""

    async def story(world: World) -> None:
        leader, standby = await led(world)
        leader.line.latency = 1.0
        while True:
            await asyncio.sleep(0.1)
            if (now() - world.began) % 3 > 2.2:
                break
        stopped = now()
        await leader.stop()
        assert world.server.record.holder in ("", standby.name)
        assert await world.someone_leads() is standby
        assert now() - stopped < 5

    within_world(2, story)


def test_a_refusal_is_said_once_and_shown(caplog):
    """Without the right to the Lease a candidate does not lead; the log says so once, /readyz while it lasts."""

    async def story(world: World) -> None:
        (candidate,) = world.candidates
        candidate.line.refusal = errors.ApiError(status=403, reason="Forbidden", message="no leases for you")
        candidate.start()
        await asyncio.sleep(60)
        assert not candidate.acts
        assert candidate.election.words == "standby: the lease cannot be had: 403 Forbidden: no leases for you"
        candidate.line.refusal = None
        assert await world.someone_leads() is candidate

    with caplog.at_level(logging.INFO):
        within_world(1, story)
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told == ["election: the lease cannot be had: 403 Forbidden: no leases for you"]
    assert "election: the lease answers again" in caplog.text


def test_times_are_written_as_client_go_writes_them():
    """The Lease carries times in RFC 3339 with microseconds, in UTC."""

    async def story(world: World) -> None:
        (candidate,) = world.candidates
        candidate.wall = 1_700_000_000.25 - now()
        candidate.start()
        await world.someone_leads()
        written = world.server.record
        assert re.fullmatch(r"2023-11-14T22:13:20\.2\d{5}Z", written.renewed)
        assert written.acquired == written.renewed
        candidate.wall += 100
        await asyncio.sleep(TIMING.renew + 0.1)
        assert world.server.record.acquired == written.acquired
        assert re.fullmatch(r"2023-11-14T22:15:02\.\d{6}Z", world.server.record.renewed)

    within_world(1, story)


def test_a_claim_counts_on_from_the_largest_number_that_the_lease_can_hold():
    """The count starts again at 0: one more than an int32 would be refused by the server for ever."""
    edited = Record("other", 15, "", "", transitions=2**31 - 1, version="7")

    assert claim(edited, me="me", duration=15, now=0.0).transitions == 0


def test_a_renewal_fills_in_when_the_lease_was_taken():
    """Whoever emptied the field gets it back; a time that is there stays."""
    edited = Record("me", 15, "", "", transitions=3, version="7")
    dated = replace(edited, acquired="2023-11-14T22:13:20.000000Z")

    assert claim(edited, me="me", duration=15, now=1_700_000_100.0).acquired == "2023-11-14T22:15:00.000000Z"
    assert claim(dated, me="me", duration=15, now=1_700_000_100.0).acquired == dated.acquired


def test_an_operator_alone_leads_until_it_resigns():
    """Without an election the fence is open from the start, and shut when the operator stops."""
    alone = Alone()
    alone.fence()
    assert alone.leading.is_set()
    alone.resign()
    with pytest.raises(errors.NotLeadingError, match="stopping"):
        alone.fence()


spans = st.lists(
    st.tuples(st.floats(0, 120), st.floats(0.1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=4
)
#: When something happens, to which candidate, and what.
troubles = st.lists(
    st.tuples(
        st.floats(0, 120),
        st.integers(0, 2),
        st.sampled_from(["crash", "stop", "stand still", "step", "delete"]),
        st.floats(0.5, 40),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None, phases=(Phase.generate, Phase.shrink))
@given(
    latencies=st.tuples(*[st.floats(0.001, 1.9)] * 3),
    lost=st.tuples(spans, spans, spans),
    unanswered=st.tuples(spans, spans, spans),
    happens=troubles,
)
def test_never_two_act_at_once(latencies, lost, unanswered, happens):
    """Whatever is slow, lost, crashed, stopped, stepped or deleted, at most one acts; and in the end one does."""

    async def story(world: World) -> None:
        for candidate, latency, requests, answers in zip(world.candidates, latencies, lost, unanswered, strict=True):
            candidate.line.latency = latency
            candidate.line.requests_lost = [(a + world.began, b + world.began) for a, b in requests]
            candidate.line.answers_lost = [(a + world.began, b + world.began) for a, b in answers]
            candidate.start()
        for at, index, what, size in sorted(happens):
            await asyncio.sleep(max(0.0, world.began + at - now()))
            hit = world.candidates[index]
            match what:
                case "crash" if hit.alive:
                    hit.crash()
                case "stop" if hit.alive:
                    await hit.stop()
                case "stand still" if hit.acts:
                    hit.ahead += size
                case "step":
                    hit.wall += size * 1000
                case "delete":
                    world.server.record = None
        await asyncio.sleep(max(0.0, world.began + 160 - now()))
        if not any(candidate.alive for candidate in world.candidates):
            world.candidates.append(Candidate("the last", world.server))
            world.candidates[-1].start()
        async with asyncio.timeout(2 * TIMING.duration + 10):
            await world.someone_leads()

    within_world(3, story)
