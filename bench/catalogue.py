"""Every measurement by name: its description, environment, number of runs, and goals."""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from bench import creation, living, losses, node, passes, readiness, soak, starts, steady, tfjob
from bench.book import Result
from bench.goals import Goal, Of, at_most, never_more, rate, ratio
from bench.shapes import Shape
from bench.stage import Stage


class Where(Enum):
    """The environment that is started for a measurement; the value describes it."""

    PLANE = "a control plane without nodes"
    NODES = "a control plane with simulated nodes"
    CROWD = "10,000 Ready pods in 1,000 TFClusters on simulated nodes"
    CLUSTER = "the node of `make cluster`, with `make install`"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement."""

    name: str
    summary: str
    where: Where
    runs: int
    """How many pairs, or runs of the operator alone."""
    measure: Any
    """Takes the stage, the name and the number of runs; gives a Result, or the coroutine of one. On CLUSTER there is no
    stage, and no coroutine."""
    goals: tuple[Goal, ...] = ()
    by_name_only: bool = False
    nodes: int = 0
    """How many simulated nodes at full scale; each has processors for 64 pods."""


#: An interval of the median needs six runs.  A run of thousands of tasks takes minutes with its clean-up; there are few
#: of those, and each must keep the limit.
_SOME, _FEW = 6, 2
_CALLS = never_more("calls beyond one for each object, a cluster", "calls_beyond", 2)


def _creation(shape: Shape, limit: float, pairs: int, *more: Goal) -> Measurement:
    async def measure(stage: Stage, name: str, runs: int) -> Result:
        return await creation.creation(stage, name, replace(shape, scheduled=False), runs)

    of: Of = "every run" if pairs == _FEW else "median"
    declared = " (both sides POST TFClusters)" if shape.clusters > 1 else ""
    summary = f"{shape}: from the first POST until all objects exist{declared}"
    return Measurement(f"create-{shape}", summary, Where.PLANE, pairs, measure, (ratio(limit, of), _CALLS, *more))


def _readiness(shape: Shape) -> Measurement:
    async def measure(stage: Stage, name: str, runs: int) -> Result:
        return await readiness.readiness(stage, name, shape, runs)

    goals = (rate(0.9, "every run"), never_more("slowest TFCluster, relative to the median", "slowest", 2))
    summary = f"{shape}: from the first POST until all pods are Ready"
    return Measurement(f"ready-{shape}", summary, Where.NODES, 1, measure, goals, nodes=170)


def _tfjob(shape: Shape) -> Measurement:
    async def measure(stage: Stage, name: str, runs: int) -> Result:
        return await tfjob.against_tfjob(stage, name, replace(shape, scheduled=False), runs)

    summary = f"{shape}: the operator beside TFJob, with its default and with tuned settings"
    goals = (Goal("time relative to the tuned TFJob", "ours_s", 1, over="tuned_s"),)
    return Measurement(f"tfjob-{shape}", summary, Where.PLANE, _SOME, measure, goals)


_NO_WRITES = never_more("writes", "writes", 0)

ALL: Final = (
    _creation(Shape(1, 100), 1.10, _SOME),
    _creation(Shape(1, 300), 1.10, _SOME),
    _creation(Shape(100, 2), 1.15, _SOME),
    _creation(Shape(1, 2000), 1.10, _FEW, never_more("peak of resident memory", "peak_mib", 80, "MiB")),
    _creation(Shape(1, 5000), 1.10, _FEW, never_more("peak of resident memory", "peak_mib", 120, "MiB")),
    Measurement(
        "life-300",
        "300 tasks: suspended until no pod is left; deleted",
        Where.PLANE,
        _SOME,
        living.life,
        (ratio(1.1),),
    ),
    _readiness(Shape(100, 100)),
    _readiness(Shape(1000, 10)),
    Measurement(
        "pass-5000",
        "a reconcile of 5,000 running tasks",
        Where.NODES,
        _SOME,
        passes.a_pass,
        (
            at_most("processor time of a reconcile", "cpu_ms", 60, "ms"),
            never_more("longest wait of /healthz, asked every 5 ms", "blocked_ms", 50, "ms"),
        ),
        nodes=90,
    ),
    Measurement(
        "rest-10000",
        "60 s of steady state",
        Where.CROWD,
        2,
        steady.rest,
        (
            never_more("requests", "requests", 0),
            _NO_WRITES,
            never_more("resident memory", "rss_mib", 120, "MiB"),
        ),
    ),
    Measurement(
        "events-10000",
        "an event of each pod that does not change its state",
        Where.CROWD,
        _SOME,
        steady.events,
        (at_most("processor time of an event", "cpu_ms", 0.1, "ms"), _NO_WRITES),
    ),
    Measurement(
        "start-10000",
        "a cold start of the operator",
        Where.CROWD,
        _SOME,
        starts.start,
        (
            at_most("until the first reconcile", "first_s", 5, "s"),
            at_most("until every TFCluster was reconciled", "steady_s", 10, "s"),
            _NO_WRITES,
        ),
    ),
    Measurement(
        "lost-1000",
        "1,000 of the pods, drawn by chance, deleted by force, until all are replaced",
        Where.CROWD,
        _FEW,
        losses.losses,
        (ratio(1.15, "every run"), never_more("statuses behind the pods", "behind_s", 2, "s")),
    ),
    Measurement(
        "delivery-30",
        "from the edit's write until 30 running pods can read their new view",
        Where.CLUSTER,
        _SOME,
        node.delivery,
        (at_most("median of the pods", "median_s", 0.4, "s"), never_more("slowest pod", "max_s", 0.8, "s")),
        by_name_only=True,
    ),
    Measurement(
        "soak",
        "an hour of churn in real time",
        Where.NODES,
        1,
        soak.soak,
        (never_more("tracebacks", "tracebacks", 0), never_more("TFClusters left behind", "left_behind", 0)),
        by_name_only=True,
        nodes=20,
    ),
    *(_tfjob(shape) for shape in (Shape(1, 300), Shape(100, 2))),
)
#: The nodes of the crowd, and those for the pods of the baseline client.
CROWD_NODES: Final = 210

BY_NAME: Final = {measurement.name: measurement for measurement in ALL}
