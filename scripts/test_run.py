"""`make test` and `make test-all`: stages of tests one after the other, beside the long builds.

A stage is a target of the Makefile.  All stages run, also after one that failed; the end is a table of their times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
#: Seconds until a stage is killed: neither pytest's own limit nor SIGTERM ends a test that hangs in asyncio.
LIMIT: Final = 1800.0

_QUICK: Final = "TESTS=not exhaustive"
_REST: Final = "TESTS=exhaustive"
#: The arguments of make for each stage: of `make test`, then of the parts of `make test-all`.
PARTS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "test": (
        ("environments",),
        ("check", _QUICK),
        ("client-tests", _QUICK),
        ("simulate", "SAMPLE=1"),
        ("gates",),
        ("docs",),
        ("tensorflow-tests", _QUICK),
        ("local-tests", _QUICK),
        ("integration", _QUICK),
        ("chart", _QUICK),
        ("release-tests", _QUICK),
        ("e2e", _QUICK),
    ),
    "1": (("simulate",), ("fuzz",), ("mutants",), ("unit", "HYPOTHESIS=random")),
    "2": (("tensorflow-tests", _REST), ("local-tests", _REST), ("release-tests", _REST), ("chart", _REST)),
    "3": (("integration", _REST),),
    "4": (("e2e", _REST),),
}


def main(parts: Sequence[str]) -> int:
    """Run the stages of some parts.

    Args:
        parts: keys of :data:`PARTS`.

    Returns:
        The exit status: 1 if a stage failed.
    """
    began = time.monotonic()
    # A build that fails here fails again, with its message, in the stage that needs it.
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "builds.log").open("wb") as log:
        builds = _make(("builds",), log)
    results = []
    try:
        for part in parts:
            for stage in PARTS[part]:
                print(f"\n== {' '.join(stage)}", flush=True)
                start = time.monotonic()
                passed = _passes(stage)
                results.append((stage, time.monotonic() - start, passed))
    finally:
        _end(builds, signal.SIGTERM)
    print(f"\n{'stage':24} seconds")
    for (target, *variables), seconds, passed in results:
        words = " ".join([target, *(f"'{one}'" for one in variables)])
        print(f"{target:24} {seconds:7.0f}{'' if passed else f'  FAILED; to repeat it: make {words}'}")
    print(f"{'all':24} {time.monotonic() - began:7.0f}")
    return int(not all(passed for _, _, passed in results))


def _passes(stage: Sequence[str]) -> bool:
    running = _make(stage, None)
    try:
        return running.wait(LIMIT) == 0
    except subprocess.TimeoutExpired:
        print(f"{stage[0]} did not end within {LIMIT:g} s: killing it", flush=True)
        _end(running, signal.SIGKILL)
        return False
    except KeyboardInterrupt:
        _end(running, signal.SIGINT)
        raise


def _make(arguments: Sequence[str], log: object) -> subprocess.Popen[bytes]:
    """Start make as the leader of a process group, so that all that it starts can be ended."""
    command = ["make", "--no-print-directory", "--keep-going", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def _end(running: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(running.pid, number)
    running.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test"]))
