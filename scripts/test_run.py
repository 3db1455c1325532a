"""`make test` and `make test-all`: stages of tests, in parallel lanes, beside the long builds.

A stage is a target of the Makefile.  Its output is printed when it has ended.  All stages run, also after a failure;
the end is a table of their times.
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Seconds until a stage is killed: neither pytest's own limit nor SIGTERM ends a test that hangs in asyncio.
LIMIT: Final = 1800.0

_QUICK: Final = "TESTS=not exhaustive"
_REST: Final = "TESTS=exhaustive"
#: The arguments of make for each stage.
_Stage = tuple[str, ...]
#: The first stages, then two lanes: one keeps the cores busy, and one waits for programs and for the node.
PARTS: Final[dict[str, tuple[tuple[_Stage, ...], ...]]] = {
    "test": (
        (("environments",),),
        (
            ("check", _QUICK),
            ("simulate", "SAMPLE=1"),
            ("gates",),
            ("docs",),
            ("tensorflow-tests", _QUICK),
            ("local-tests", _QUICK),
            ("integration", _QUICK),
            ("chart", _QUICK),
            ("release-tests", _QUICK),
        ),
        (("client-tests", _QUICK), ("e2e", _QUICK)),
    ),
    "1": ((("simulate",), ("mutants",), ("unit", "HYPOTHESIS=random")),),
    "2": ((("tensorflow-tests", _REST), ("local-tests", _REST), ("release-tests", _REST), ("chart", _REST)),),
    "3": ((("integration", _REST),),),
    "4": ((("e2e", _REST),),),
}


@dataclass(frozen=True)
class _Result:
    stage: _Stage
    seconds: float
    passed: bool


async def main(parts: Sequence[str]) -> int:
    """Run the stages of some parts."""
    began = time.monotonic()
    # A build that fails here fails again, with its message, in the stage that needs it.
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "builds.log").open("wb") as log:
        builds = await _make(("builds",), log)
    results: list[_Result] = []
    try:
        for part in parts:
            first, *lanes = PARTS[part]
            for of_lane in (await _lane(first), *await asyncio.gather(*map(_lane, lanes))):
                results += of_lane
    finally:
        await _end(builds, signal.SIGTERM)
    print(f"\n{'stage':24} seconds")
    for one in results:
        target, *variables = one.stage
        words = " ".join([target, *(f"'{variable}'" for variable in variables)])
        print(f"{target:24} {one.seconds:7.0f}{'' if one.passed else f'  FAILED; to repeat it: make {words}'}")
    print(f"{'all':24} {time.monotonic() - began:7.0f}")
    return int(not all(one.passed for one in results))


async def _lane(stages: Sequence[_Stage]) -> list[_Result]:
    return [await _run(stage) for stage in stages]


async def _run(stage: _Stage) -> _Result:
    start, path = time.monotonic(), ROOT / ".local" / f"{stage[0]}.log"
    print(f"== {' '.join(stage)} begins; its output goes to {path.relative_to(ROOT)}", flush=True)
    with path.open("wb") as log:
        passed = await _passes(stage, log)
    print(f"\n== {' '.join(stage)}\n{path.read_text(encoding='utf-8', errors='replace')}", flush=True)
    return _Result(stage, time.monotonic() - start, passed)


async def _passes(stage: _Stage, log: BinaryIO) -> bool:
    running = await _make(stage, log)
    try:
        async with asyncio.timeout(LIMIT):
            return await running.wait() == 0
    except TimeoutError:
        log.write(f"{stage[0]} did not end within {LIMIT:g} s: killing it\n".encode())
        await _end(running, signal.SIGKILL)
        return False
    except asyncio.CancelledError:
        await _end(running, signal.SIGINT)
        raise


async def _make(arguments: Sequence[str], log: BinaryIO) -> Process:
    """Start make as the leader of a process group, so that all its child processes can be ended."""
    command = ["make", "--no-print-directory", "--keep-going", *arguments]
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


async def _end(running: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, number)
    await running.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:] or ["test"])))
