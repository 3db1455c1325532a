"""Run plans against a copy of the operator, in a separate process that has not imported the operator."""

import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from mutants.seeding import PACKAGE, Mutant, copy_package
from simulation.plans import Plan

#: The maximal CPU time of one plan, in seconds: it normally takes one.
_LONGEST: Final = 60


class _TooLongError(KeyboardInterrupt):
    """A plan does not end. A KeyboardInterrupt, because asyncio keeps other exceptions in the running task."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The folder with the package that is copied, the plans, and the bug in the copy."""

    source: Path
    plans: tuple[Plan, ...]
    mutant: Mutant | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """The complaints about one plan; ``broken`` says why its run proves nothing."""

    complaints: tuple[str, ...]
    broken: str = ""


def hold(trial: Trial) -> tuple[Finding, ...]:
    """Copy the package and run the plans against the copy."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy_package(trial.source, Path(folder), trial.mutant)
        sys.path.insert(0, folder)
        imported = __import__(PACKAGE).__file__
        if imported is None or not Path(imported).is_relative_to(folder):
            raise RuntimeError(f"the operator under test is {imported}, not the copy in {folder}")
        return tuple(_try(plan) for plan in trial.plans)


def _try(plan: Plan) -> Finding:
    # Not at the top, because the simulation imports the operator.
    from simulation import oracles
    from simulation.running import run

    wanted = oracles.reference(plan.workload)
    signal.signal(signal.SIGPROF, _interrupt)
    signal.setitimer(signal.ITIMER_PROF, _LONGEST)
    try:
        outcome = run(plan, wanted)
    except _TooLongError:
        return Finding((f"end: the run does not end within {_LONGEST} s of processor time",))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if outcome.error:
        return Finding((), outcome.error)
    complaints = tuple(oracles.judge(outcome, wanted))
    return Finding(complaints, "" if outcome.met or complaints else "the trigger was never met")


def _interrupt(*_: object) -> NoReturn:
    raise _TooLongError
