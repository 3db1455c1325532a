"""The number of Hypothesis examples: `make test` runs a fifth of them, the same ones in each run."""

import os

_RANDOM = os.environ.get("HYPOTHESIS") == "random"


def examples(count: int) -> int:
    return count if _RANDOM else count // 5
