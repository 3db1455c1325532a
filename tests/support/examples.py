"""How many examples Hypothesis tries: a fifth in `make test`, which tries the same ones in each run."""

from __future__ import annotations

import os

_RANDOM = os.environ.get("HYPOTHESIS") == "random"


def examples(count: int) -> int:
    """Give how many of the examples of a thorough run are tried in this one."""
    return count if _RANDOM else count // 5
