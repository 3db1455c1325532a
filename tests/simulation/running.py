"""Run one plan: the steps of its workload in order, then the oracles."""

import logging
import random
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from simulation import departures, dialect, gauges, oracles, snapshot
from simulation.actors import STEP_ACTIONS
from simulation.faults import WRITES
from simulation.oracles import Outcome
from simulation.plans import Plan, Step, Write
from simulation.workloads import WORKLOADS, Workload
from simulation.workloads import Step as Act
from simulation.world import World
from support.virtual_time import run_in_virtual_time

#: Seconds without a write until the end, and a restart, is complete.
_SILENCE: Final = 60.0
_AFTER_RESTART: Final = 20.0


def run(
    plan: Plan,
    wanted: Mapping[str, Any] | None = None,
    *,
    recording: bool = False,
    trace: Callable[[float, str], None] | None = None,
    intruder: Callable[[World], None] | None = None,
) -> Outcome:
    """Run a plan in virtual time; a step is complete when the world equals ``wanted``, or else by its own condition."""
    logging.disable(logging.NOTSET if trace else logging.CRITICAL)
    random.seed(7)
    outcome, began = Outcome(plan), time.perf_counter()
    try:
        run_in_virtual_time(
            _live(outcome, (wanted or {}).get("steps", {}), recording=recording, trace=trace, intruder=intruder)
        )
    except Exception:  # noqa: BLE001 - whatever it is, it is this plan's and is told with it
        outcome.error = traceback.format_exc(limit=-6)
    finally:
        logging.disable(logging.NOTSET)
    outcome.seconds = time.perf_counter() - began
    return outcome


async def _live(
    outcome: Outcome,
    wanted: Mapping[str, Any],
    *,
    recording: bool,
    trace: Callable[[float, str], None] | None,
    intruder: Callable[[World], None] | None,
) -> None:
    plan = outcome.plan
    workload = WORKLOADS[plan.workload]
    world = World(plan, workload.namespaces, recording=recording)
    if trace is not None:
        world.listen(trace)
    workload.setup(world)
    world.begin()
    if intruder is not None:
        intruder(world)
    if plan.action in dialect.ELECTED:
        await world.await_leader()
    await _walk(world, workload, outcome, wanted)
    await _look_for_late_writes(world, outcome)
    _look_back(world, outcome)
    await world.end()


async def _walk(world: World, workload: Workload, outcome: Outcome, wanted: Mapping[str, Any]) -> None:
    trigger = world.plan.trigger
    struck = trigger.step if isinstance(trigger, Step) else -1
    # After a fault behind the last step, the world must only return to the same end.
    last = workload.steps[-1]
    steps = (*workload.steps, *([replace(last, act=lambda _: None)] if struck == len(workload.steps) else []))
    for number, step in enumerate(steps):
        if number == struck:
            world.strike(STEP_ACTIONS[world.plan.action])
        world.tell(f"step: {step.name}")
        step.act(world)
        reached = await world.await_quiet(_is_over(step, wanted.get(step.name)), step.within)
        outcome.steps[step.name] = snapshot.snapshot(world.kube)
        outcome.ledger += [f"after {step.name!r}: {one}" for one in world.truth.differences()] if reached else []
        if not reached:
            outcome.unfinished.append(step.name)
            return


def _is_over(step: Act, wanted: Any) -> Callable[[World], bool]:
    """Build the condition that ends a step: in a disturbed run, equality with the reference."""
    looked_at, equal = -1, True

    def is_over(world: World) -> bool:
        nonlocal looked_at, equal
        if wanted is not None and world.changes != looked_at:
            looked_at = world.changes
            found = snapshot.snapshot(world.kube)
            equal = snapshot.without_reports(found) == snapshot.without_reports(wanted)
        return equal and step.until(world)

    return is_over


async def _look_for_late_writes(world: World, outcome: Outcome) -> None:
    outcome.virtual = world.elapsed()
    if outcome.unfinished:
        return
    world.faults.end()
    await world.await_silence(_SILENCE)
    outcome.late = _writes_since(world, outcome.virtual, "afterwards")
    outcome.gauges = gauges.differences(world)
    if world.plan.action == "API server away 10 min":
        # After a run of ten minutes the back-off of a task is reset: the operator records that when it is due.
        outcome.late = [one for one in outcome.late if not one.startswith("patch tfclusters/")]
    if world.clock_off:
        return  # to a process that starts with a wrong clock, back-offs have expired that have not, or the reverse
    again = world.elapsed()
    world.crash()
    await world.await_silence(_AFTER_RESTART)
    outcome.late += _writes_since(world, again, "after a restart")


def _writes_since(world: World, since: float, when: str) -> list[str]:
    return [
        f"{one.verb} {one.resource}/{one.name} {when}"
        for one in world.requests_since(since)
        if one.user == dialect.OPERATOR and one.verb in WRITES and one.resource != "leases"
    ]


def _look_back(world: World, outcome: Outcome) -> None:
    history, moments = world.kube.history, world.moments
    trigger = world.plan.trigger
    # With a standby the start takes longer than in the clean run, so that one status can cover what were two there.
    unwritten = isinstance(trigger, Write) and trigger.resource == "tfclusters/status"
    outcome.met = world.faults.met or trigger is None or (unwritten and world.plan.action in dialect.ELECTED)
    outcome.writes, outcome.lines = world.faults.writes, world.faults.lines
    outcome.deaths = [repr(one) for one in world.operator.deaths]
    oracles.count(outcome, history, moments)
    outcome.broken = [
        *oracles.broken(history, moments),
        *oracles.unprotected(history, moments),
        *oracles.mistold(history, moments),
        *oracles.unpaid(history, moments),
        *departures.untold(history),
        *(f"{one} is not ours and is deleted" for one in world.trespasses),
    ]
    if not outcome.unfinished:
        outcome.lies = list(oracles.lies(history, moments, end=world.now(), blind=world.blind()))
