"""For any input, the resolver returns or raises an error of its own, in bounded memory.

`make check` tries some inputs and `make fuzz` a hundred thousand; :mod:`support.resolver_fuzz` draws them.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise

import pytest
from support.resolver_fuzz import KINDS
from unit.resolver_world import ROOT, python

INPUTS = int(os.environ.get("TFCLUSTER_FUZZ", "2000"))
#: Tests, each with its own part of the inputs, so that two workers share them.
CHUNKS = 20 if "TFCLUSTER_FUZZ" in os.environ else 2
BOUNDS = [INPUTS * number // CHUNKS for number in range(CHUNKS + 1)]
SEED = 11
#: The maximal memory of a process in bytes: its libraries take 70 MiB.
PEAK = 192 * 2**20


@pytest.mark.parametrize(("first", "last"), list(pairwise(BOUNDS)))
def test_any_input_gets_an_answer_or_a_resolver_error(first, last):
    """Views, environments, arguments and ClusterSpecs of any content."""
    # A separate process, because an abort or unlimited memory would end it.
    words = ("-X", "faulthandler", "-m", "support.resolver_fuzz", *map(str, (SEED, first, last)))
    ended = python(*words, path=[ROOT / "resolver"], cwd=ROOT / "tests", timeout=None)

    assert ended.returncode == 0, ended.stderr[-5000:]
    tried = json.loads(ended.stdout)
    assert tried.pop("peak") < PEAK
    assert sum(tried.values()) == last - first
    assert tried.keys() == {kind.__name__ for kind in KINDS}
