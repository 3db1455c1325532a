"""Processor time: of other processes, in nanoseconds rather than in ticks of 10 ms, and the machine's idle time."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that processes have used so far, user and system, all threads."""
    # The clock of a process, as Linux encodes it: its number inverted, then three bits: all threads, time scheduled.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


class Idleness:
    """Measures the machine's idle processor time since its creation."""

    def __init__(self) -> None:
        self._began, self._idle = time.perf_counter(), _idle_seconds()

    def share(self) -> float:
        """Return the idle share until now, from 0 to 1: near 0, the machine was saturated."""
        took = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, (_idle_seconds() - self._idle) / took))


def _idle_seconds() -> float:
    # The fourth field is idle time, the fifth is waiting for a disk; ticks of 10 ms are fine enough for a whole run.
    fields = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=6)
    return (int(fields[4]) + int(fields[5])) / _TICKS
