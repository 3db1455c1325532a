"""The figures as markdown tables, each beside its goal."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.creation import Creation
from bench.living import Living
from bench.node import Delivery

#: Published for TFJob v1.9.4 on the same class of machine, in seconds: with its default and with a tuned client rate.
TFJOB = {"1x100": (9.84, 0.89), "1x300": (29.9, 2.74), "100x2": (43.4, 1.20), "suspend": (58.6, 4.31)}
RATIO_GOAL = 1.15
CALLS_GOAL = 1.05
PEAK_GOAL = 80.0
DELIVERY_MEDIAN_GOAL, DELIVERY_MAX_GOAL = 0.4, 0.8


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Spell minimum / median / maximum."""
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))


def verdict(measured: float, goal: float) -> str:
    return "met" if measured <= goal else "**missed**"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def creations(measured: Sequence[Creation]) -> str:
    """Tell how long creation takes, against the bare client."""
    rows = []
    for one in measured:
        ratios = [ours / bare for ours, bare in zip(one.ours, one.bare, strict=True)]
        ratio = median(one.ours) / median(one.bare)
        default, tuned = TFJOB.get(str(one.shape), (None, None))
        rows.append(
            [
                str(one.shape),
                str(one.shape.objects),
                f"{spread(one.bare)} ({one.concurrency} at once)",
                spread(one.ours),
                spread(one.declared),
                f"**{ratio:.2f}** (runs {spread(ratios)})",
                f"≤ {RATIO_GOAL}: {verdict(ratio, RATIO_GOAL)}",
                "-" if default is None else f"{default} / {tuned}",
            ]
        )
    header = [
        "clusters x tasks",
        "objects",
        "(a) bare client, s",
        "(b) operator, s",
        "of (b), until the POSTs of the TFClusters are answered",
        "(b)/(a), medians",
        "goal",
        "TFJob v1.9.4 default / tuned, s",
    ]
    return table(header, rows)


def costs(measured: Sequence[Creation]) -> str:
    """Tell what creation costs: API calls, CPU, memory."""
    rows = []
    for one in measured:
        a_task = median(one.calls) / one.shape.total_tasks
        peak = max(one.peak_mebibytes)
        goal = f"RSS ≤ {PEAK_GOAL:.0f} MiB: {verdict(peak, PEAK_GOAL)}" if one.shape.tasks == 2000 else "-"
        rows.append(
            [
                str(one.shape),
                spread(one.calls, 0),
                f"{a_task:.3f}",
                ", ".join(f"{count} {kind}" for kind, count in one.calls_by_kind.most_common()),
                spread(one.cpu_seconds),
                spread(one.peak_mebibytes, 1),
                goal,
            ]
        )
    header = ["clusters x tasks", "API calls", "per task", "which (last run)", "CPU s", "peak RSS MiB", "goal"]
    return table(header, rows)


def calls_line(measured: Sequence[Creation]) -> str:
    """Fit calls = a x tasks + constant through the single clusters."""
    single = [one for one in measured if one.shape.clusters == 1]
    if len(single) < 2:
        return ""
    small, large = single[0], single[-1]
    slope = (median(large.calls) - median(small.calls)) / (large.shape.tasks - small.shape.tasks)
    constant = median(small.calls) - slope * small.shape.tasks
    return (
        f"Calls of one cluster: {slope:.3f} x tasks + {constant:.0f} "
        f"(goal: ≤ {CALLS_GOAL} x tasks + a constant: {verdict(slope, CALLS_GOAL)}).\n"
    )


def living(figures: Living) -> str:
    """Tell of suspending, deleting and doing nothing."""
    default, tuned = TFJOB["suspend"]
    ratio = median(figures.suspend) / median(figures.bare_delete)
    rows = [
        [
            "suspend 300 tasks until no pod is left, s",
            spread(figures.suspend),
            f"bare client, {figures.concurrency} DELETEs at once: {spread(figures.bare_delete)}; ratio {ratio:.2f}",
            f"TFJob v1.9.4: {default} / {tuned}",
        ],
        ["API calls for it", spread(figures.suspend_calls, 0), "-", "-"],
        ["delete 300 tasks until nothing is left, s", spread(figures.delete), "the garbage collector's work", "-"],
        [
            f"writes in {figures.idle_seconds:.0f} s of steady state",
            str(figures.idle_writes),
            f"{figures.idle_requests} requests in all, {figures.idle_cpu_seconds:.2f} CPU s",
            f"0: {verdict(figures.idle_writes, 0)}",
        ],
    ]
    return table(["what", "min / median / max", "beside it", "goal or comparison"], rows)


def delivery(figures: Delivery) -> str:
    """Tell how long a changed view takes to running pods."""
    goal = (
        f"median ≤ {DELIVERY_MEDIAN_GOAL}: {verdict(median(figures.operator), DELIVERY_MEDIAN_GOAL)}; "
        f"max ≤ {DELIVERY_MAX_GOAL}: {verdict(max(figures.operator), DELIVERY_MAX_GOAL)}"
    )
    rows = [
        [
            "operator, from the edit's write",
            str(len(figures.operator)),
            f"{median(figures.operator):.2f}",
            f"{max(figures.operator):.2f}",
            goal,
        ],
        [
            "by hand: a patch of the ConfigMap and one of each pod",
            str(len(figures.by_hand)),
            f"{median(figures.by_hand):.2f}",
            f"{max(figures.by_hand):.2f}",
            "-",
        ],
    ]
    per_run = "; ".join(f"{spread(run)}" for run in figures.runs)
    return (
        table(["change of a view until it can be read in the pod", "readings", "median, s", "max, s", "goal"], rows)
        + f"\n{figures.pods} running pods; operator, min / median / max of each run: {per_run}\n"
    )


def machine() -> str:
    """Describe the machine in a line."""
    cores = Path("/proc/cpuinfo").read_text(encoding="utf-8").count("processor\t:")
    memory = int(Path("/proc/meminfo").read_text(encoding="utf-8").split()[1]) // 2**20
    return f"{cores} cores, {memory} GiB, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
