"""The operator's caches and its queue, when events are lost, repeated, late and out of order."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.engine.work_queue import RetryLater, WorkQueue
from tfcluster_operator.kube.limiter import AdaptiveLimiter
from tfcluster_operator.kube.store import ChildStore
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.kinds import KINDS

MANY = settings(max_examples=150, deadline=None)

#: A history of one namespace: which of four names is written next, and how.
_HISTORIES = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["write", "write", "disown", "delete"])), min_size=1, max_size=14
)
#: The received part of a history: positions in it, in any order and number; the rest is lost.
_ARRIVALS = st.lists(st.integers(0, 13), max_size=25)

Event = tuple[str, Child]


def pod(name: str, *, uid: str, version: int, owner: str) -> Child:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    metadata["ownerReferences"] = [{"uid": owner, "controller": True}] if owner else []
    return KINDS["Pod"].read(msgspec.json.encode({"metadata": metadata}))


def play(history: list[tuple[int, str]]) -> tuple[list[Event], dict[str, Child]]:
    """Run a history on a server: return every event that it sends, and the final objects."""
    exists: dict[str, Child] = {}
    events: list[Event] = []
    for version, (which, what) in enumerate(history, start=1):
        name = f"pod-{which}"
        known = exists.get(name)
        uid = known.meta.uid if known else f"uid-{version}"
        changed = pod(name, uid=uid, version=version, owner="" if what == "disown" else "owner")
        if what == "delete":
            if known:
                events.append(("DELETED", changed))
                del exists[name]
            continue
        events.append(("MODIFIED" if known else "ADDED", changed))
        exists[name] = changed
    return events, exists


def take(store: ChildStore, event: Event) -> None:
    """Process an event as the informer does."""
    kind, child = event
    if kind == "DELETED":
        store.remove(child)
    else:
        store.put(child)


def contents(store: ChildStore) -> dict[str, Child]:
    found = (store.get(("default", f"pod-{which}")) for which in range(4))
    return {child.meta.name: child for child in found if child is not None}


def assert_index_is_true(store: ChildStore) -> None:
    """The index by owner holds exactly the content of the store."""
    for owner in ("owner", ""):
        expected = {c.meta.name for c in contents(store).values() if c.meta.owner_uid == owner}
        assert expected == {c.meta.name for c in store.owned_by(owner)}


@MANY
@given(history=_HISTORIES, arrivals=_ARRIVALS)
def test_a_list_after_any_disorder_gives_the_truth(history, arrivals):
    """After any loss, repetition or reordering of events, a list corrects every child, and the index."""
    events, truth = play(history)
    store = ChildStore(lambda *_: None, lambda: 0.0)
    for position in arrivals:
        take(store, events[position % len(events)]) if events else None

    store.replace(list(truth.values()), version=len(history), namespace=None)

    assert truth == contents(store)
    assert_index_is_true(store)


@MANY
@given(history=_HISTORIES, listed_at=st.integers(0, 14), repeats=_ARRIVALS)
def test_events_in_order_give_the_truth_whatever_old_ones_come_again(history, listed_at, repeats):
    """A list and then its watch: repeated old events in between never restore an old state."""
    listed_at = min(listed_at, len(history))
    _, then = play(history[:listed_at])
    events, truth = play(history)
    store = ChildStore(lambda *_: None, lambda: 0.0)
    store.replace(list(then.values()), version=listed_at, namespace=None)
    past = [event for event in events if event[1].meta.version <= listed_at]
    future = [event for event in events if event[1].meta.version > listed_at]

    again = iter(repeats)
    for event in future:
        take(store, event)
        past.append(event)
        if (position := next(again, None)) is not None:
            take(store, past[-1 - position % min(len(past), 2)])

    assert truth == contents(store)
    assert_index_is_true(store)


@MANY
@given(history=_HISTORIES, listed_at=st.integers(0, 14))
def test_what_was_written_after_a_list_was_taken_survives_it(history, listed_at):
    """A list that arrives after the responses to later writes reverts none of them."""
    listed_at = min(listed_at, len(history))
    _, then = play(history[:listed_at])
    events, truth = play(history)
    store = ChildStore(lambda *_: None, lambda: 0.0)
    for event in events:
        take(store, event)

    store.replace(list(then.values()), version=listed_at, namespace=None)

    assert truth == contents(store)


_MARKS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([0.0, 0.0, 0.05, 0.4, 3.0]),  # how long before the next mark
        st.sampled_from([0.0, 0.0, 0.3, 2.0]),  # after
        st.booleans(),  # urgent
        st.booleans(),  # ahead
    ),
    min_size=1,
    max_size=14,
)
_PASSES = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 2.0]), st.sampled_from(["done", "done", "retry", "crash", "again"])),
    min_size=1,
    max_size=6,
)


@MANY
@given(marks=_MARKS, passes=_PASSES, workers=st.integers(1, 3))
def test_reconciles_of_a_key_never_overlap_and_follow_every_mark(marks, passes, workers):
    async def scenario() -> tuple[list[str], dict[str, float], dict[str, float]]:
        clock = asyncio.get_running_loop().time
        running: set[str] = set()
        twice: list[str] = []
        began: dict[str, float] = {}
        turns = iter(passes)

        async def work(key: str) -> float | None:
            if key in running:
                twice.append(key)
            running.add(key)
            began[key] = clock()
            lasts, result = next(turns, (0.1, "done"))
            try:
                await asyncio.sleep(lasts)
            finally:
                running.discard(key)
            if result == "retry":
                raise RetryLater("refused")
            if result == "crash":
                raise ValueError("a bug")
            return 1.0 if result == "again" else None

        queue: WorkQueue[str] = WorkQueue(work, clock=clock)
        run = asyncio.create_task(queue.run(workers))
        due: dict[str, float] = {}
        for key, pause, after, urgent, ahead in marks:
            queue.mark(key, after=after, urgent=urgent, ahead=ahead)
            due[key] = clock()
            await asyncio.sleep(pause)
        await asyncio.sleep(500)
        run.cancel()
        return twice, due, began

    twice, due, began = run_in_virtual_time(scenario())

    assert twice == []
    assert {key for key, at in due.items() if began.get(key, 0.0) < at} == set()


_REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 0.2, 1.0]),  # comes after
        st.sampled_from([0.0, 0.05, 0.5]),  # takes
        st.sampled_from([None, None, 0.0, 0.1]),  # is cancelled after
        st.sampled_from(["answered", "answered", "throttled"]),
    ),
    min_size=1,
    max_size=25,
)


@MANY
@given(requests=_REQUESTS)
def test_no_place_in_the_window_is_lost_or_given_twice(requests):
    """For any arrival, end or cancellation of requests, waiting or running: the window is kept, and free in the end."""

    async def scenario() -> AdaptiveLimiter:
        limiter = AdaptiveLimiter(start=2.0, ceiling=4.0, elapsed=asyncio.get_running_loop().time)
        under_way = 0

        async def request(takes: float, answer: str) -> None:
            nonlocal under_way
            async with limiter.slot():
                under_way += 1
                assert under_way <= 4
                try:
                    await asyncio.sleep(takes)
                finally:
                    under_way -= 1
            getattr(limiter, answer)()

        tasks = []
        for comes, takes, cancelled, answer in requests:
            await asyncio.sleep(comes)
            tasks.append(asyncio.create_task(request(takes, answer)))
            if cancelled is not None:
                asyncio.get_running_loop().call_later(cancelled, tasks[-1].cancel)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [one for one in results if isinstance(one, AssertionError)]
        # Virtual time: a second is exact, and both slots are free immediately.
        async with asyncio.timeout(1), limiter.slot(), limiter.slot():
            pass
        return limiter

    limiter = run_in_virtual_time(scenario())

    assert limiter._under_way == 0
    assert not [turn for turn in limiter._waiting if not turn.done()]
