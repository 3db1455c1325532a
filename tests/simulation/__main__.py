"""`make simulate`: runs every plan, prints figures, and ends with a line "N passed, N failed".

PLAN='{"workload":...}'   runs one, with a trace of all events
LEARN=1                   recreates the references from the clean runs; review what changed
WORKLOAD=name             runs the plans of one workload
SAMPLE=1                  runs each fault once in each workload, and all plans that seeded bugs name
"""

import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mutants.catalogue import MUTANTS
from simulation import generate, oracles, plans
from simulation.plans import Plan, Write
from simulation.running import run
from simulation.workloads import WORKLOADS

_PROCESSES = 2


def main(environment: Mapping[str, str]) -> int:
    """Run the plans that the environment selects."""
    names = [environment["WORKLOAD"]] if environment.get("WORKLOAD") else list(WORKLOADS)
    if environment.get("LEARN"):
        return _learn(names)
    if environment.get("PLAN"):
        return _one(plans.read(environment["PLAN"]))

    def wanted(made: Sequence[Plan]) -> Sequence[Plan]:
        return generate.sampled(made, [bug.plan for bug in MUTANTS]) if environment.get("SAMPLE") else made

    return _all(names, wanted, environment.get("REPORT", ""))


def _learn(names: Sequence[str]) -> int:
    failed = 0
    for name in names:
        outcome = run(Plan(name))
        complaints = oracles.judge(outcome, {"steps": outcome.steps, **_deeds(outcome)})
        failed += bool(complaints)
        if outcome.error:
            print(f"{name}: {outcome.error}")
            continue
        if not complaints:
            oracles.learn(outcome)
        print(f"{name}: {outcome.seconds * 1e3:.0f} ms, {outcome.virtual:.0f} s virtual, {len(outcome.writes)} writes")
        for complaint in complaints:
            print(f"    {complaint}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return min(failed, 1)


def _deeds(outcome: oracles.Outcome) -> dict[str, Any]:
    return {"creates": outcome.creates, "deletes": outcome.deletes, "others": outcome.others}


def _one(plan: Plan) -> int:
    wanted = oracles.reference(plan.workload)
    outcome = run(plan, wanted, trace=lambda at, what: print(f"{at:10.3f} {what}"))
    complaints = oracles.judge(outcome, wanted)
    if not outcome.met:
        complaints.append("the trigger was never met")
    for complaint in complaints:
        print(f"!! {complaint}")
    print(f"{int(not complaints)} passed, {int(bool(complaints))} failed")
    return int(bool(complaints))


def _all(names: Sequence[str], which: Callable[[Sequence[Plan]], Sequence[Plan]], report: str) -> int:
    began = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(_PROCESSES, maxtasksperchild=40) as pool:
        found = pool.map(made_from, names, chunksize=1)
        made = [plan for plans_made, _ in found for plan in plans_made]
        wanted = which(made)
        results = pool.map(tried, [str(plan) for plan in wanted], chunksize=20)
    _print_figures(wanted, results)
    met = sum(
        _is_crash(plan) and not any(one.startswith("unmet") for one in told)
        for plan, (told, _) in zip(wanted, results, strict=True)
    )
    disturbed = sum(points > 0 for _, points in found)
    print(f"\ncrash points: {met} of {sum(points for _, points in found)}, in {disturbed} of {len(names)} workloads")
    print(f"{len(wanted)} plans in {time.perf_counter() - began:.0f} s")
    if report:
        _write_report(report, wanted, results)
    failed = sum(bool(complaints) for complaints, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return min(failed, 1)


def made_from(workload: str) -> tuple[list[Plan], int]:
    """Generate the plans of a workload from a clean run; return at how many points the operator can crash."""
    clean = run(Plan(workload), recording=True)
    if clean.error:
        print(clean.error)
    made = list(generate.plans_of(clean))
    # An unfinished or undisturbed workload has one plan: the clean run.
    return made, 2 * len(clean.writes) if len(made) > 1 else 0


def _is_crash(plan: Plan) -> bool:
    return plan.action == "crash" and isinstance(plan.trigger, Write)


def tried(text: str) -> tuple[list[str], float]:
    """Run and judge a plan; return the complaints and the duration in seconds."""
    plan = plans.read(text)
    wanted = oracles.reference(plan.workload)
    outcome = run(plan, wanted)
    complaints = oracles.judge(outcome, wanted)
    if not outcome.met:
        complaints.append("unmet: the trigger was never met")
    return complaints, outcome.seconds


def _print_figures(made: Sequence[Plan], results: Sequence[tuple[list[str], float]]) -> None:
    for plan, (complaints, _) in zip(made, results, strict=True):
        if complaints:
            print(f"FAILED {plan}")
            for complaint in complaints[:3]:
                print(f"    {complaint[:240]}")
    for title, key in (("workload", lambda plan: plan.workload), ("fault", lambda plan: plan.kind)):
        print(f"\nby {title}: plans, failed, ms each")
        for name, line in _grouped(made, results, key):
            print(f"    {name:40} {line}")


def _grouped(made: Sequence[Plan], results: Sequence[tuple[list[str], float]], key: Any) -> Iterator[tuple[str, str]]:
    counts: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for plan, (complaints, took) in zip(made, results, strict=True):
        counts[key(plan)] += 1
        failed[key(plan)] += bool(complaints)
        seconds[key(plan)] += took  # type: ignore[assignment]  # a Counter adds floats as well
    for name, count in sorted(counts.items()):
        yield name, f"{count:5} {failed[name]:5} {seconds[name] / count * 1e3:7.0f}"


def _write_report(path: str, made: Sequence[Plan], results: Sequence[tuple[list[str], float]]) -> None:
    with open(path, "w") as report:  # noqa: PTH123 - a path from the command line
        for plan, (complaints, _) in zip(made, results, strict=True):
            if complaints:
                report.write(json.dumps({"plan": str(plan), "complaints": complaints}) + "\n")


if __name__ == "__main__":
    sys.exit(main(os.environ))
