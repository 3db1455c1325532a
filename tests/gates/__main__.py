"""`make gates`: measures the operator's cost and compares it with the reference; ends with "N passed, N failed in …".

WRITE=1           writes the reference; review what changed
WORKLOAD=name     runs one workload only
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from gates.running import Phases, run
from gates.workloads import WORKLOADS
from gates.world import CALLS, CPU

_REFERENCE: Final = Path(__file__).parent / "reference.json"
_PROCESSES: Final = 2
#: The factor, up or down, within which the reference is valid; all else is exact. CPU is printed and never fails a run.
_BANDS: Final = {CALLS: 1.1, CPU: 3.0}

#: Less CPU than this, in calibrations, cannot be measured.
_SHORT: Final = 1.0


def main(environment: Mapping[str, str]) -> int:
    """Run the workloads that the environment selects."""
    began = time.perf_counter()
    names = [environment["WORKLOAD"]] if environment.get("WORKLOAD") else list(WORKLOADS)
    # A process each: the caches of one workload must not affect the cost of another.
    with multiprocessing.get_context("spawn").Pool(_PROCESSES, maxtasksperchild=1) as pool:
        outcomes = dict(zip(names, pool.map(run, names, chunksize=1), strict=True))
    known: dict[str, Phases] = json.loads(_REFERENCE.read_text()) if _REFERENCE.exists() else {}
    found = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, str)}
    if environment.get("WRITE"):
        written = {name: _as_before(known.get(name, {}), phases) for name, phases in found.items()}
        known = {name: {**known, **written}[name] for name in WORKLOADS if name in {**known, **written}}
        _REFERENCE.write_text(json.dumps(known, indent=1) + "\n")
    failed = 0
    for name, outcome in outcomes.items():
        told = [outcome] if isinstance(outcome, str) else list(_differences(known.get(name, {}), outcome))
        failed += bool(told)
        print(f"{name}: {'differs' if told else 'as in the reference'}", *told, sep="\n")
        if not isinstance(outcome, str):
            print(f"    {CPU}: {_cpu(outcome):g}, in the reference {_cpu(known.get(name, {})):g}")
    if failed:
        print("Fewer or more: where it is meant, make gates-reference, and review the diff.")
    print(f"{len(names) - failed} passed, {failed} failed in {time.perf_counter() - began:.0f} s")
    return min(failed, 1)


def _as_before(known: Phases, found: Phases) -> Phases:
    """Keep values within their tolerance, so that the diff of the reference shows the real changes."""
    return {
        phase: {
            what: value if _differs(what, then := known.get(phase, {}).get(what, 0), value) else then
            for what, value in counts.items()
        }
        for phase, counts in found.items()
    }


def _differences(known: Phases, found: Phases) -> Iterator[str]:
    for phase in [*known, *(name for name in found if name not in known)]:
        then, now = known.get(phase, {}), found.get(phase, {})
        rows = [
            f"    {what:<40} {_spell(then.get(what)):>14} {_spell(now.get(what)):>14}"
            for what in sorted({*then, *now})
            if what != CPU and _differs(what, then.get(what, 0), now.get(what, 0))
        ]
        if rows:
            yield f"{phase:<44} {'reference':>14} {'now':>14}"
            yield from rows


def _differs(what: str, then: float, now: float) -> bool:
    band = _BANDS.get(what, 1.0)
    if what == CPU:
        then, now = max(then, _SHORT), max(now, _SHORT)
    return now > then * band or now < then / band


def _cpu(phases: Phases) -> float:
    return round(sum(counts.get(CPU, 0) for counts in phases.values()))


def _spell(value: float | None) -> str:
    return "-" if value is None else f"{value:,}"


if __name__ == "__main__":
    sys.exit(main(os.environ))
