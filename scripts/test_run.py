"""`make test` and `make test-all`: stages of tests one after the other, and long builds in the background.

A stage is a target of the Makefile.  All stages run, also after one that failed; the end is a table of their times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_LOG: Final = _ROOT / ".local" / "test-run.log"
#: Seconds after which a stage counts as hanging: a test that hangs in asyncio outlives its own limit of time.
_LIMIT: Final = 1800.0

#: What `make test` runs, then the parts of `make test-all`: targets with their variables.
PARTS: Final[dict[str, tuple[str, ...]]] = {
    "test": (
        "check",
        "client-tests",
        "simulate SAMPLE=1",
        "gates",
        "docs",
        "tensorflow-tests",
        "local-tests",
        "integration",
        "chart",
        "release-tests",
        "e2e",
    ),
    "1": ("simulate", "fuzz", "mutants", "unit TESTS= HYPOTHESIS=random"),
    "2": ("tensorflow-tests", "local-tests", "release-tests", "chart"),
    "3": ("integration",),
    "4": ("e2e",),
}
#: What needs the project's own environment only, and can run while the others are still made.
_FIRST: Final = frozenset({"check", "client-tests", "simulate", "gates", "fuzz", "mutants", "unit"})
#: What takes minutes the first time, in the order in which stages need it: modules with their arguments.
_BUILDS: Final = (
    ("local_kubernetes", "build", "hyperkube"),
    ("local_kubernetes", "tools"),
    ("scripts.set_up", "dns"),
    ("scripts.set_up", "operator image"),
    ("scripts.set_up", "training image"),
    ("local_kubernetes", "build", "azure-npm"),
)


class Background:
    """Makes environments, then builds programs and images, at low priority; each stage finds or awaits what it needs.

    A build that fails here fails again, with its message, in the stage that needs it.
    """

    def __init__(self) -> None:
        self.environments = threading.Event()
        self._running: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        _LOG.parent.mkdir(exist_ok=True)
        with _LOG.open("wb") as log:
            self._do(["make", "--no-print-directory", "environments"], log)
            self.environments.set()
            for build in _BUILDS:
                self._do([sys.executable, "-m", *build], log)

    def _do(self, command: Sequence[str], log: object) -> None:
        self._running = subprocess.Popen(
            ["nice", "-n", "10", *command],  # noqa: S607 - everywhere
            cwd=_ROOT,
            stdout=log,  # type: ignore[call-overload]  # a file
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        self._running.wait()

    def end(self) -> None:
        """Stop building."""
        if self._running is not None and self._running.poll() is None:
            self._running.terminate()


def main(parts: Sequence[str]) -> int:
    """Run the stages of some parts.

    Args:
        parts: keys of :data:`PARTS`.

    Returns:
        The exit status: 1 if a stage failed.
    """
    began = time.monotonic()
    background = Background()
    results: list[tuple[str, float, bool]] = []
    try:
        for part in parts:
            os.environ["TESTS"] = "not exhaustive" if part == "test" else "exhaustive"
            for stage in PARTS[part]:
                print(f"\n== {stage}", flush=True)
                start = time.monotonic()
                if stage.split()[0] not in _FIRST:
                    background.environments.wait()
                passed = _passes(stage)
                results.append((stage, time.monotonic() - start, passed))
    finally:
        background.end()
    print(f"\n{'stage':24} seconds")
    for stage, seconds, passed in results:
        repeat = "" if passed else f"  FAILED; to repeat it: make {stage} TESTS='{os.environ['TESTS']}'"
        print(f"{stage:24} {seconds:7.0f}{repeat}")
    print(f"{'all':24} {time.monotonic() - began:7.0f}")
    return int(not all(passed for _, _, passed in results))


def _passes(stage: str) -> bool:
    command = ["make", "--no-print-directory", *stage.split()]
    running = subprocess.Popen(command, cwd=_ROOT, start_new_session=True)
    try:
        return running.wait(_LIMIT) == 0
    except subprocess.TimeoutExpired:
        print(f"{stage} has taken {_LIMIT:g} s: it hangs, and is ended", flush=True)
        return False
    finally:
        # A stage that hangs, or is interrupted, leaves no process behind.
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["test"]))
