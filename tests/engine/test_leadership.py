"""The election in virtual time: which candidate leads, from when and until when; and never two simultaneously."""

import asyncio
import logging
import re

import pytest
from engine.election_world import Candidate, World, among, led, now, until_leads
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tfcluster_operator.kube import election
from tfcluster_operator.kube.client import ApiError, NotFoundError, NotLeadingError
from tfcluster_operator.kube.election import Election, Record


@among(3)
async def test_one_of_three_leads_and_stays_and_its_release_is_followed_within_a_second(world: World):
    """A standby that stops does not change the Lease."""
    leader, stops, standby = await led(world)
    assert now() - world.began < 1
    await asyncio.sleep(900)
    assert [name for name, _ in world.terms] == [leader.name]
    assert {one.election.words for one in (stops, standby)} == {f"standby: {leader.name} leads"}
    assert leader.election.words == f"leading: {leader.name}"
    assert leader.election.leading.is_set()
    written = len(world.server.history)
    await stops.stop()
    assert len(world.server.history) == written
    assert leader.acts
    stopped = now()
    await leader.stop()
    await until_leads(world, standby)
    assert now() - stopped < 1.2
    assert world.server.record.transitions == 2


@pytest.mark.parametrize("age", [0.01, 0.5, 1.0, 1.9, 2.01, 3.3])
@among(2)
async def test_a_standby_follows_a_crash_within_the_lease_and_two_seconds(world: World, age):
    leader, standby = await led(world)
    await asyncio.sleep(20 + age)
    leader.crash()
    assert election.DURATION - election.RENEW - 0.1 <= await until_leads(world, standby) <= election.DURATION + 2


def lose_answers(leader: Candidate) -> None:
    """Lose the responses of renewals that succeed: the version changes, and the leader reads and continues."""
    leader.line.answers_lost += [(now() + start, now() + start + 4) for start in range(0, 400, 20)]


def lose_requests(leader: Candidate) -> None:
    start = now() + election.RENEW + 0.1
    leader.line.requests_lost.append((start, start + 7.4))


@pytest.mark.parametrize(("latency", "happens"), [(1.9, lambda _: None), (0.01, lose_answers), (0.01, lose_requests)])
@among(2)
async def test_slow_or_lost_responses_for_nine_seconds_keep_the_lease(world: World, latency, happens):
    for candidate in world.candidates:
        candidate.line.latency = latency
    leader, _ = await led(world)
    happens(leader)
    for _ in range(1000):
        await asyncio.sleep(0.5)
        assert leader.acts
    assert len(world.terms) == 1


@among(2)
async def test_the_fence_falls_ten_seconds_after_the_last_good_renewal(world: World):
    """A leader that cannot renew acts for 10 s after its last renewal was sent; then its process ends with a reason."""
    leader, standby = await led(world)
    await asyncio.sleep(9)
    cut = now()
    leader.line.requests_lost.append((cut, cut + 1000))
    while leader.acts:  # noqa: ASYNC110 - the fence has no event
        await asyncio.sleep(0.01)
    fell = now()
    assert 10 - election.RENEW - 0.1 <= fell - cut <= 10
    await asyncio.sleep(election.TIMEOUT + 0.1)
    assert leader.lost == "the lease was lost: no renewal within 10 s: no answer"
    await until_leads(world, standby)
    assert now() - fell >= election.DURATION - election.DEADLINE - 0.1


@among(1)
async def test_a_claim_whose_answer_is_lost_is_found_again(world: World):
    world.candidates[0].line.answers_lost.append((now(), now() + 1))
    await led(world)
    assert now() - world.began < 5
    assert world.server.record.transitions == 1


@among(2)
async def test_stopped_process_cannot_write(world: World):
    """After a stop of 11 s, by the clock that counts sleep, the fence is closed before any task of the process runs."""
    leader, _ = await led(world)
    await asyncio.sleep(5)
    leader.ahead += 11
    with pytest.raises(NotLeadingError):
        leader.election.fence()
    await asyncio.sleep(2.1)
    assert "was paused" in leader.lost


@among(2)
async def test_deleted_lease_is_recreated_by_its_holder_or_expires(world: World):
    leader, standby = await led(world)
    for _ in range(10):
        await asyncio.sleep(3.7)
        world.server.record = None
    await asyncio.sleep(5)
    assert leader.acts
    assert (world.server.record.holder, len(world.terms)) == (leader.name, 1)
    leader.crash()
    world.server.record = None
    assert await until_leads(world, standby) <= election.DURATION + 2


@among(2)
async def test_a_lease_that_is_not_there_is_free_after_a_whole_claim(world: World):
    """A holder that the candidate has not observed would create it again."""
    leader, standby = await led(world)
    await asyncio.sleep(election.RENEW / 2)
    world.server.record = None
    fresh = world.join("fresh")
    await asyncio.sleep(60)
    assert leader.acts
    leader.crash()
    standby.crash()
    world.server.record = None
    assert election.DURATION <= await until_leads(world, fresh) <= election.DURATION + 2


@among(1)
async def test_deleted_namespace_is_the_reason_for_losing_the_lease(world: World, caplog):
    (leader,) = await led(world)
    world.server.record = None
    leader.line.refusal_of_writes = NotFoundError(status=404, reason="NotFound", message="no namespace")
    await asyncio.sleep(20)
    assert leader.lost == "the lease was lost: no renewal within 10 s: 404 NotFound: no namespace"
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


@among(1)
async def test_a_lease_given_to_another_ends_the_leader(world: World):
    (leader,) = await led(world)
    world.server.put(replace(world.server.record, holder="somebody"))
    await asyncio.sleep(election.RENEW + 0.1)
    assert leader.lost == "the lease was lost: somebody holds it"


@among(1)
async def test_a_claim_longer_than_ours_is_honoured(world: World):
    """The holder's value decides how long a claim lasts, as a version with another setting can hold it."""
    world.server.record = Record("old", 40, "", "", transitions=3, version="1")
    await led(world)
    assert 40 <= now() - world.began <= 41.5
    assert world.server.record.transitions == 4


@among(2)
async def test_a_release_survives_a_renewal_that_was_cut_off(world: World):
    """A pending renewal when the leader stops changes the version; the release reads again, and succeeds."""
    leader, standby = await led(world)
    leader.line.latency = 1.0
    await asyncio.sleep(0.1)
    while (now() - world.began) % 3 <= 2.2:  # noqa: ASYNC110 - until the next renewal is on its way
        await asyncio.sleep(0.1)
    stopped = now()
    await leader.stop()
    assert world.server.record.holder in ("", standby.name)
    await until_leads(world, standby)
    assert now() - stopped < 5


@among(1)
async def test_rejected_lease_request_is_logged_once_and_shown(world: World, caplog):
    """Without permission for the Lease a candidate does not lead; the log says so once, /readyz for the whole time."""
    caplog.set_level(logging.INFO)
    (candidate,) = world.candidates
    candidate.line.refusal = ApiError(status=403, reason="Forbidden", message="no leases for you")
    candidate.start()
    await asyncio.sleep(60)
    assert not candidate.acts
    assert candidate.election.words == "standby: 403 Forbidden: no leases for you"
    candidate.line.refusal = None
    await until_leads(world, candidate)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["election: 403 Forbidden: no leases for you"]
    assert "election: the lease answers again" in caplog.text


@among(1)
async def test_times_are_written_as_client_go_writes_them(world: World):
    """The Lease has times in RFC 3339 with microseconds, in UTC."""
    (candidate,) = world.candidates
    candidate.wall = 1_700_000_000.25 - now()
    await led(world)
    written = world.server.record
    assert re.fullmatch(r"2023-11-14T22:13:20\.2\d{5}Z", written.renewed)
    assert written.acquired == written.renewed
    candidate.wall += 100
    await asyncio.sleep(election.RENEW + 0.1)
    assert world.server.record.acquired == written.acquired
    assert re.fullmatch(r"2023-11-14T22:15:02\.\d{6}Z", world.server.record.renewed)


def test_an_operator_alone_leads_until_it_resigns():
    alone = Election(None)
    alone.fence()
    assert alone.leading.is_set()
    alone.resign()
    with pytest.raises(NotLeadingError, match="stopping"):
        alone.fence()


spans = st.lists(
    st.tuples(st.floats(0, 120), st.floats(0.1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=4
)
#: The time of an event, its candidate, and the event.
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
@among(3)
async def test_at_most_one_candidate_acts(world: World, latencies, lost, unanswered, happens):
    """For any slow, lost, crashed, stopped, stepped or deleted part, at most one acts; and in the end one does."""
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
    async with asyncio.timeout(2 * election.DURATION + 10):
        await world.someone_leads()
