"""Generate plans from clean runs: a plan injects a fault at each write, watch line or step of a run."""

import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from simulation import dialect
from simulation.actors import STEP_ACTIONS
from simulation.faults import LINE_ACTIONS, WRITE_ACTIONS
from simulation.oracles import Outcome
from simulation.plans import Plan, Step, Write
from simulation.workloads import WORKLOADS

_One = TypeVar("_One")

#: The number of places of one kind that each action strikes in a workload; crashes strike every write, before and
#: after.
_WRITES_OF_A_KIND: Final = 2
_LINES_OF_A_KIND: Final = 1
#: Faults that strike only some writes.
_THINNED: Final = tuple(one for one in WRITE_ACTIONS if one not in {"crash", "leader dies"})
#: These strike one step of a workload: the simulation of their consequences takes seconds.
_ONCE: Final = ("API server away 10 min",)
#: The operator corrects these only in a cluster that has not ended.
_UNREPAIRED: Final = "owner stripped"


def plans_of(clean: Outcome) -> Iterator[Plan]:
    workload = WORKLOADS[clean.plan.workload]
    yield Plan(workload.name)
    if workload.undisturbed or clean.unfinished or clean.error:
        return  # a workload that does not end undisturbed is reported once
    for plan in (*_at_writes(clean), *_at_lines(clean), *_at_steps(clean, len(workload.steps))):
        if not (workload.crashes and plan.action in dialect.ELECTED):
            yield plan


def _at_writes(clean: Outcome) -> Iterator[Plan]:
    workload = clean.plan.workload
    for write in clean.writes:
        yield Plan(workload, write, "crash")
        yield Plan(workload, replace(write, when="after"), "crash")
        yield Plan(workload, write, "leader dies")
    groups = _grouped(clean.writes, lambda one: (one.verb, one.resource))
    for group, (number, action) in itertools.product(groups, enumerate(_THINNED)):
        when = "after" if action == "answer lost" else "before"
        for write in _some(group, _WRITES_OF_A_KIND, number):
            yield Plan(workload, replace(write, when=when), action)


def _at_lines(clean: Outcome) -> Iterator[Plan]:
    groups = _grouped(clean.lines, lambda one: (one.line, one.type))
    for group, (number, action) in itertools.product(groups, enumerate(LINE_ACTIONS)):
        for line in _some(group, _LINES_OF_A_KIND, number):
            yield Plan(clean.plan.workload, line, action)


def _at_steps(clean: Outcome, steps: int) -> Iterator[Plan]:
    over = _over_at(clean)
    for number, action in enumerate(STEP_ACTIONS):
        for step in (1 + number % steps,) if action in _ONCE else range(1, steps + 1):
            # When a cluster has ended, the operator re-creates or corrects nothing of it:
            # docs/explanation/lifecycle.md.
            if step < over or action != _UNREPAIRED:
                yield Plan(clean.plan.workload, Step(step), action)


def _over_at(clean: Outcome) -> int:
    """Return the step that ends or deletes the cluster; otherwise a number higher than any step."""
    for number, found in enumerate(clean.steps.values()):
        conditions = found.get("tfclusters/c", {}).get("status", {}).get("conditions", {})
        ended = any(conditions.get(kind, {}).get("status") == "True" for kind in ("Succeeded", "Failed"))
        if ended or conditions.get("Ready", {}).get("reason") == "Deleting":
            return number
    return len(clean.steps) + 1


def _grouped(found: Iterable[_One], kind: Callable[[_One], Hashable]) -> list[Sequence[_One]]:
    groups: dict[Hashable, list[_One]] = defaultdict(list)
    for one in found:
        groups[kind(one)].append(one)
    return list(groups.values())


def _some(group: Sequence[_One], most: int, number: int) -> Iterator[_One]:
    """Choose evenly spread members of a group, different ones for each action."""
    count = min(most, len(group))
    for part in range(count):
        low, high = part * len(group) // count, (part + 1) * len(group) // count
        yield group[low + number % (high - low)]


def sampled(plans: Sequence[Plan], named: Iterable[Plan]) -> list[Plan]:
    """Choose every clean run, each fault once per workload, and a crash on each side of each kind of write."""
    kept = set(named)
    groups: dict[Hashable, list[Plan]] = defaultdict(list)
    for plan in plans:
        groups[plan.workload, plan.kind].append(plan)
        if isinstance(plan.trigger, Write) and plan.action == "crash":
            groups[plan.workload, plan.kind, plan.trigger.verb, plan.trigger.resource].append(plan)
    for group in groups.values():
        # The order depends on the text, so that a new plan in one group does not change the choice in others.
        kept.add(min(group, key=lambda one: zlib.crc32(str(one).encode())))
    return [plan for plan in plans if plan in kept]
