"""Whatever the input, the resolver answers or raises an error of its own, in bounded memory.

`make check` tries some inputs and `make fuzz` a hundred thousand; :mod:`support.resolver_fuzz` draws them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from support.resolver_fuzz import KINDS

TESTS = Path(__file__).resolve().parent.parent
INPUTS = int(os.environ.get("TFCLUSTER_FUZZ", "2000"))
#: Processes, each with its own part of the inputs.
PROCESSES = 2
SEED = 11
#: What a process may have used at most, in bytes: its libraries take 70 MiB.
PEAK = 192 * 2**20


def start(first: int, last: int) -> subprocess.Popen[str]:
    """Try a part of the inputs in a process of its own: an abort, or memory without end, would be its end alone."""
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "support.resolver_fuzz", *map(str, (SEED, first, last))],
        cwd=TESTS,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_any_input_is_answered_or_refused_by_the_resolvers_own_errors():
    """Views, environments, arguments, ClusterSpecs and an API server's answers of any content."""
    bounds = [INPUTS * number // PROCESSES for number in range(PROCESSES + 1)]
    running = [start(first, last) for first, last in pairwise(bounds)]
    ended = [(*process.communicate(), process.returncode) for process in running]

    assert [code for *_, code in ended] == [0] * PROCESSES, "\n".join(errors[-5000:] for _, errors, _ in ended)
    told = [json.loads(output) for output, *_ in ended]
    assert max(one.pop("peak") for one in told) < PEAK
    tried = sum(map(Counter, told), Counter())
    assert tried.total() == INPUTS
    assert tried.keys() == {kind.__name__ for kind in KINDS}
