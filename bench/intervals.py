"""Statistics of a sample: the median with an interval that holds for any distribution, and the verdict on a goal.

The interval lies between two order statistics.  How many of n independent readings fall below the true median is
binomial with p = 1/2 whatever the readings are of, so the k-th smallest and the k-th largest enclose it with a
probability that depends on n and k alone.
"""

from collections.abc import Sequence
from math import comb
from typing import Final, Literal

Verdict = Literal["met", "missed", "not proven"]

CONFIDENCE: Final = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Enclose the median of what the values are a sample of, with a probability of at least 95 %.

    Returns:
        Two of the values; None where there are fewer than six: even the smallest and the largest prove too little.
    """
    rank = _rank(len(values))
    if not rank:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[-rank]


def _rank(count: int) -> int:
    """Return the largest k such that at most 2.5 % of samples have fewer than k values below the median; or 0."""
    most = (1 - CONFIDENCE) / 2 * 2**count
    below = rank = 0
    while (below := below + comb(count, rank)) <= most:
        rank += 1
    return rank


def judge_median(values: Sequence[float], limit: float, *, at_least: bool = False) -> Verdict:
    """Judge whether the median keeps a limit."""
    interval = median_interval(values)
    if interval is None:
        return "not proven"
    low, high = interval
    if (low >= limit) if at_least else (high <= limit):
        return "met"
    if (high < limit) if at_least else (low > limit):
        return "missed"
    return "not proven"


def judge_every(values: Sequence[float], limit: float, *, at_least: bool = False) -> Verdict:
    """Judge whether every reading keeps a limit."""
    if not values:
        return "not proven"
    return "met" if all((value >= limit) if at_least else (value <= limit) for value in values) else "missed"
