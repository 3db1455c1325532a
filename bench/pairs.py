"""Pairs of runs: the operator and the baseline client, one after the other, in random order."""

import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bench.book import Result

#: The concurrent requests of the baseline client: the fastest of these is determined before the counted runs.
CONCURRENCIES = (16, 32, 64)
TRIALS = 3


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one side: the time, and the processor time of the side itself and of the API server, in seconds."""

    seconds: float
    own_cpu: float
    server_cpu: float
    idle: float | None = None
    """Which part of the machine's processor time nobody used meanwhile."""


Side = Callable[[], Awaitable[Run]]


async def take_pairs(result: Result, ours: Side, bare: Side, *, pairs: int, tries: int = 1, **others: Side) -> None:
    """Measure pairs into a result.

    Args:
        result: gets the series ours_s, bare_s, ours_cpu_s, bare_cpu_s, ours_server_cpu_s and bare_server_cpu_s, and
            ours_idle and bare_idle if they were measured.
        ours: one run of the operator.
        bare: one run of the baseline client.
        pairs: how many.
        tries: how many runs of each side a pair has; the fastest counts, because other load can only make it slower.
        others: more sides, by the beginning of the names of their series.
    """
    for number in range(pairs):
        sides = [("ours", ours), ("bare", bare), *others.items()]
        # A fixed or merely alternating order could coincide with another periodic load.
        random.shuffle(sides)
        for name, side in sides:
            run = min([await side() for _ in range(tries)], key=lambda one: one.seconds)
            result.add(
                **{
                    f"{name}_s": run.seconds,
                    f"{name}_cpu_s": run.own_cpu,
                    f"{name}_server_cpu_s": run.server_cpu,
                    **({} if run.idle is None else {f"{name}_idle": run.idle}),
                }
            )
        now = {name: of[-1] for name, of in result.series.items() if name in {"ours_s", "bare_s"}}
        print(f"  {number + 1}/{pairs}: {now['ours_s']:.3f} s, bare {now['bare_s']:.3f} s", file=sys.stderr, flush=True)


async def best_concurrency(
    run: Callable[[int], Awaitable[float]], choices: Sequence[int] = CONCURRENCIES, *, trials: int = TRIALS
) -> int:
    """Find the number of concurrent requests that is fastest for the baseline client, in runs that do not count."""
    order = [choice for choice in choices for _ in range(trials)]
    random.shuffle(order)
    taken: dict[int, list[float]] = {}
    for choice in order:
        taken.setdefault(choice, []).append(await run(choice))
    return min(taken, key=lambda choice: statistics.median(taken[choice]))
