"""The window over requests: how it grows and shrinks, who is served first, and that no place is lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.kube.limiter import AdaptiveLimiter


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """The clock that the limiter reads; it stands still unless a test moves it."""
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(
        AdaptiveLimiter.__init__,
        "__kwdefaults__",
        {**AdaptiveLimiter.__init__.__kwdefaults__, "elapsed": lambda: clock.seconds},
    )
    return clock


async def count_admitted(limiter: AdaptiveLimiter, requests: int) -> int:
    """Tell how many of so many requests the window lets through at once."""
    admitted = 0
    done = asyncio.Event()

    async def request() -> None:
        nonlocal admitted
        async with limiter.slot():
            admitted += 1
            await done.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(requests):
            tasks.create_task(request())
        await asyncio.sleep(1)
        seen = admitted
        done.set()
    return seen


def window(limiter: AdaptiveLimiter) -> int:
    """Tell how many requests the window lets through at once."""
    return run_in_virtual_time(count_admitted(limiter, 100))


def test_the_window_starts_small():
    """Eight requests at once at first."""
    assert window(AdaptiveLimiter()) == 8


def test_each_answer_lets_one_more_through_up_to_the_ceiling():
    """The window grows by one an answer while the server keeps up, to 32."""
    limiter = AdaptiveLimiter()
    for _ in range(5):
        limiter.answered()
    assert window(limiter) == 13
    for _ in range(100):
        limiter.answered()
    assert window(limiter) == 32


def test_a_refusal_takes_three_tenths():
    """429 shrinks the window from 20 to 14."""
    limiter = AdaptiveLimiter(start=20)
    limiter.throttled()

    assert window(limiter) == 14


def test_refusals_of_one_moment_count_once(now):
    """Twenty refusals within a tenth of a second are one; a later one counts again."""
    limiter = AdaptiveLimiter(start=20)
    for _ in range(20):
        limiter.throttled()
    assert window(limiter) == 14
    now.seconds += 0.11
    limiter.throttled()
    assert window(limiter) == 9


def test_two_requests_always_go_through(now):
    """However often the server refuses, the window stays open."""
    limiter = AdaptiveLimiter(start=20)
    for _ in range(50):
        now.seconds += 1
        limiter.throttled()

    assert window(limiter) == 2


def test_after_a_refusal_the_window_holds_and_then_climbs_slowly(now):
    """For half a second nothing grows; then twenty answers make one place."""
    limiter = AdaptiveLimiter(start=20)
    limiter.throttled()
    now.seconds += 0.5
    for _ in range(100):
        limiter.answered()
    assert window(limiter) == 14
    now.seconds += 0.01
    for _ in range(21):
        limiter.answered()
    assert window(limiter) == 15
    for _ in range(1000):
        limiter.answered()
    assert window(limiter) == 32


def test_waiting_requests_are_served_in_order():
    """First come, first served: no cluster starves. A newcomer does not overtake those who wait."""
    served: list[int] = []

    async def scenario() -> None:
        limiter = AdaptiveLimiter(start=2)

        async def request(number: int) -> None:
            async with limiter.slot():
                served.append(number)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as tasks:
            for number in range(9):
                tasks.create_task(request(number))
                await asyncio.sleep(0.3)

    run_in_virtual_time(scenario())

    assert list(range(9)) == served


def test_what_only_reports_waits_for_what_builds():
    """A report that came first is served after every request that builds."""
    served: list[str] = []

    async def scenario() -> None:
        limiter = AdaptiveLimiter(start=1)

        async def request(name: str, *, urgent: bool) -> None:
            async with limiter.slot(urgent=urgent):
                served.append(name)
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(request("first", urgent=True))
            await asyncio.sleep(0.1)
            tasks.create_task(request("report", urgent=False))
            await asyncio.sleep(0.1)
            tasks.create_task(request("create", urgent=True))
            tasks.create_task(request("another create", urgent=True))

    run_in_virtual_time(scenario())

    assert served == ["first", "create", "another create", "report"]


def test_a_request_that_fails_frees_its_place():
    """An exception in a request costs no place."""

    async def scenario() -> int:
        limiter = AdaptiveLimiter(start=2)
        for _ in range(5):
            with pytest.raises(ValueError, match="refused"):
                async with limiter.slot():
                    raise ValueError("refused")
        return await count_admitted(limiter, 9)

    assert run_in_virtual_time(scenario()) == 2


def test_cancelling_requests_that_wait_loses_no_place():
    """Those who waited behind the cancelled get their turn."""

    async def scenario() -> tuple[int, int]:
        limiter = AdaptiveLimiter(start=2)
        holders = [asyncio.create_task(_hold(limiter, 10)) for _ in range(2)]
        waiters = [asyncio.create_task(_hold(limiter, 1)) for _ in range(5)]
        await asyncio.sleep(1)
        for waiter in waiters[:4]:
            waiter.cancel()
        await asyncio.wait([*holders, *waiters])
        return sum(not waiter.cancelled() for waiter in waiters), await count_admitted(limiter, 9)

    assert run_in_virtual_time(scenario()) == (1, 2)


def test_cancelling_a_request_in_the_moment_of_its_turn_passes_the_turn_on():
    """A place that was given to a request that is just being cancelled goes to the next."""

    async def scenario() -> tuple[bool, int]:
        limiter = AdaptiveLimiter(start=2)
        release = asyncio.Event()

        async def hold_and_cancel_the_next() -> None:
            async with limiter.slot():
                await release.wait()
            # NB: in the same step in which the place was given away: the next has it and does not know yet.
            first.cancel()

        holders = [asyncio.create_task(hold_and_cancel_the_next()), asyncio.create_task(_hold(limiter, 5))]
        first, second = (asyncio.create_task(_hold(limiter, 1)) for _ in range(2))
        await asyncio.sleep(1)
        release.set()
        await asyncio.wait([*holders, first, second])
        return first.cancelled() and not second.cancelled(), await count_admitted(limiter, 9)

    assert run_in_virtual_time(scenario()) == (True, 2)


async def _hold(limiter: AdaptiveLimiter, seconds: float) -> None:
    async with limiter.slot():
        await asyncio.sleep(seconds)


def test_requests_without_a_place_are_waiting():
    """Both kinds count, until they have their place."""

    async def run() -> None:
        limiter = AdaptiveLimiter(start=1.0, elapsed=lambda: 0.0)
        async with limiter.slot():
            waiting = [asyncio.create_task(_pass_through(limiter, urgent=urgent)) for urgent in (True, False, False)]
            await asyncio.sleep(0)
            assert limiter.waiting == 3
        await asyncio.gather(*waiting)
        assert limiter.waiting == 0

    asyncio.run(run())


async def _pass_through(limiter: AdaptiveLimiter, *, urgent: bool) -> None:
    async with limiter.slot(urgent=urgent):
        pass
