"""`make mutants`: checks that the simulation finds bugs, and prints "N of N caught" at the end.

Each bug of one line is applied to a copy of the operator, and its plan must fail there. Before that the same plans run
on an unchanged copy, three times: none may fail.

MUTANT='some words'   tries only the bugs with these words in their names, and prints all complaints
"""

import compileall
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Final

import kopf  # noqa: F401 - imported once, before the processes are forked: every other import of theirs is quick
from mutants.catalogue import MUTANTS
from mutants.seeding import SOURCES, Mutant, StaleMutantError, copy_package, read
from mutants.trial import Finding, Trial, hold

_PROCESSES: Final = 2
_CLEAN_RUNS: Final = 3


def main(environment: Mapping[str, str]) -> int:
    words = environment.get("MUTANT", "")
    chosen = [mutant for mutant in MUTANTS if words in mutant.name]
    if stale := [words for mutant in chosen if (words := _why_stale(mutant))]:
        print(*stale, sep="\n")
        print(f"{len(stale)} of {len(chosen)} do not fit the sources")
        return 1
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder:
        source = Path(folder)
        copy_package(SOURCES, source)
        compileall.compile_dir(source, quiet=2)
        # Each trial needs a new process, because imported modules stay loaded.
        with multiprocessing.get_context("fork").Pool(_PROCESSES, maxtasksperchild=1) as pool:
            alarms = _count_false_alarms(pool, source, chosen)
            caught = _count_caught(pool, source, chosen, whole=bool(words))
    print(f"{len(chosen)} mutants in {time.perf_counter() - began:.0f} s")
    print(f"{alarms} false alarms in {_CLEAN_RUNS} clean runs")
    print(f"{caught} of {len(chosen)} caught")
    return int(alarms > 0 or caught < len(chosen) or not chosen)


def _why_stale(mutant: Mutant) -> str:
    try:
        mutant.seed(read(mutant))
    except StaleMutantError as error:
        return str(error)
    return ""


def _count_false_alarms(pool: Pool, source: Path, chosen: Sequence[Mutant]) -> int:
    plans = tuple(dict.fromkeys(mutant.plan for mutant in chosen))
    parts = [plans[start::_PROCESSES] for start in range(_PROCESSES)]
    trials = [Trial(source, part) for _ in range(_CLEAN_RUNS) for part in parts]
    alarms = 0
    for trial, findings in zip(trials, pool.imap(hold, trials, chunksize=1), strict=True):
        for plan, finding in zip(trial.plans, findings, strict=True):
            if finding.complaints or finding.broken:
                alarms += 1
                print(f"FALSE ALARM {plan}\n{_told(finding, whole=True)}")
    print(f"{len(plans)} plans ran {_CLEAN_RUNS} times on the unchanged sources")
    return alarms


def _count_caught(pool: Pool, source: Path, chosen: Sequence[Mutant], *, whole: bool) -> int:
    trials = [Trial(source, (mutant.plan,), mutant) for mutant in chosen]
    caught = 0
    for mutant, (finding,) in zip(chosen, pool.imap(hold, trials, chunksize=1), strict=True):
        caught += bool(finding.complaints)
        print(f"{'caught' if finding.complaints else 'MISSED'} {mutant.name} ({mutant.file}) by {mutant.plan}")
        print(_told(finding, whole=whole))
    return caught


def _told(finding: Finding, *, whole: bool) -> str:
    told = finding.complaints or (finding.broken or "nothing is complained of",)
    return "\n".join(f"    {one}" if whole else f"    {one[:160]}" for one in (told if whole else told[:1]))


if __name__ == "__main__":
    sys.exit(main(os.environ))
