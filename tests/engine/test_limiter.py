"""The window over requests: how it grows and shrinks, the order of requests, and that no slot is lost."""

import asyncio

import pytest
from support.async_tests import virtual
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.kube.client import AdaptiveLimiter


def limiter_of(window: int) -> AdaptiveLimiter:
    return AdaptiveLimiter(lambda: 0.0, window=window)


async def count_admitted(limiter: AdaptiveLimiter, requests: int) -> int:
    """Return how many of this number of requests the window admits immediately."""
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


@pytest.mark.parametrize(
    ("happens", "places"),
    [
        pytest.param("", 8, id="it starts small"),
        pytest.param("answered 5", 13, id="each answer makes one place"),
        pytest.param("answered 1000", 32, id="up to the ceiling"),
        pytest.param("throttled 1", 5, id="a refusal takes three tenths"),
        pytest.param("throttled 20", 5, id="refusals of one moment count once"),
        pytest.param("throttled 20, 0.3 s, throttled 1", 3, id="a later one counts again"),
        pytest.param(", ".join(["1 s, throttled 1"] * 50), 2, id="two requests always go through"),
        pytest.param("throttled 1, 0.2 s, answered 100", 5, id="for a moment nothing grows"),
        pytest.param("throttled 1, 0.3 s, answered 21", 6, id="then twenty answers make one place"),
        pytest.param("throttled 1, 0.3 s, answered 1000", 32, id="and the window climbs again"),
    ],
)
def test_window_shrinks_with_rejections_and_grows_with_responses(happens, places):
    now = 100.0
    limiter = AdaptiveLimiter(lambda: now)
    for what, of in (one.split() for one in happens.split(", ") if one):
        if of == "s":
            now += float(what)
        else:
            for _ in range(int(of)):
                getattr(limiter, what)()
    assert run_in_virtual_time(count_admitted(limiter, 100)) == places


@virtual
async def test_waiting_requests_are_served_in_order():
    """First come, first served: no cluster starves. A new request does not overtake waiting ones."""
    served: list[int] = []
    limiter = limiter_of(2)

    async def request(number: int) -> None:
        async with limiter.slot():
            served.append(number)
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        for number in range(9):
            tasks.create_task(request(number))
            await asyncio.sleep(0.3)
    assert list(range(9)) == served


@virtual
async def test_what_only_reports_waits_for_what_builds():
    served: list[str] = []
    limiter = limiter_of(1)

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
    assert served == ["first", "create", "another create", "report"]


@virtual
async def test_a_request_that_fails_frees_its_place():
    limiter = limiter_of(2)
    for _ in range(5):
        with pytest.raises(ValueError, match="refused"):
            async with limiter.slot():
                raise ValueError("refused")
    assert await count_admitted(limiter, 9) == 2


@virtual
async def test_cancelling_requests_that_wait_loses_no_place():
    limiter = limiter_of(2)
    holders = [asyncio.create_task(_hold(limiter, 10)) for _ in range(2)]
    waiters = [asyncio.create_task(_hold(limiter, 1)) for _ in range(5)]
    await asyncio.sleep(1)
    for waiter in waiters[:4]:
        waiter.cancel()
    await asyncio.wait([*holders, *waiters])
    assert (sum(not waiter.cancelled() for waiter in waiters), await count_admitted(limiter, 9)) == (1, 2)


@virtual
async def test_cancelling_a_request_in_the_moment_of_its_turn_passes_the_turn_on():
    limiter = limiter_of(2)
    release = asyncio.Event()

    async def hold_and_cancel_the_next() -> None:
        async with limiter.slot():
            await release.wait()
        # In the same step in which the slot was assigned: the next request has it, but has not run yet.
        first.cancel()

    holders = [asyncio.create_task(hold_and_cancel_the_next()), asyncio.create_task(_hold(limiter, 5))]
    first, second = (asyncio.create_task(_hold(limiter, 1)) for _ in range(2))
    await asyncio.sleep(1)
    release.set()
    await asyncio.wait([*holders, first, second])
    assert (first.cancelled() and not second.cancelled(), await count_admitted(limiter, 9)) == (True, 2)


async def _hold(limiter: AdaptiveLimiter, seconds: float, *, urgent: bool = True) -> None:
    async with limiter.slot(urgent=urgent):
        await asyncio.sleep(seconds)


@virtual
async def test_requests_without_a_place_are_waiting():
    """Both kinds count, until they have a slot."""
    limiter = limiter_of(1)
    async with limiter.slot():
        waiting = [asyncio.create_task(_hold(limiter, 0, urgent=urgent)) for urgent in (True, False, False)]
        await asyncio.sleep(0)
        assert limiter.waiting == 3
    await asyncio.gather(*waiting)
    assert limiter.waiting == 0
