"""The benchmark's decisions: what a sample proves, which figures are kept, and what is measured."""

from math import comb

import pytest

from bench import book, page
from bench.book import Result
from bench.goals import rate, ratio
from bench.intervals import judge_every, judge_median, median_interval


@pytest.mark.parametrize("count", range(6, 200))
def test_interval_has_the_stated_coverage_and_is_minimal(count: int) -> None:
    """The probability follows from the binomial distribution: at least 95 %, and less one rank further in."""
    low, high = median_interval(list(range(count, 0, -1)))

    def coverage(rank: int) -> float:
        return 1 - 2 * sum(comb(count, below) for below in range(rank)) / 2**count

    assert high == count + 1 - low
    assert coverage(low) >= 0.95 > coverage(low + 1)


@pytest.mark.parametrize("count", range(6))
def test_fewer_than_six_readings_prove_nothing(count: int) -> None:
    """Even the smallest and the largest of five enclose the median with less than 95 %."""
    assert median_interval([1.0] * count) is None
    assert judge_median([1.0] * count, 2) == "not proven"


@pytest.mark.parametrize(
    ("readings", "limit", "at_least", "verdict"),
    [
        ([1, 1, 1, 1, 1, 1.1], 1.1, False, "met"),
        ([1, 1, 1, 1, 1, 1.2], 1.1, False, "not proven"),
        ([1.1, 1.2, 1.2, 1.2, 1.2, 1.2], 1.1, False, "not proven"),
        ([1.2, 1.2, 1.2, 1.2, 1.2, 1.2], 1.1, False, "missed"),
        ([0.9, 1, 1, 1, 1, 1], 0.9, True, "met"),
        ([0.8, 1, 1, 1, 1, 1], 0.9, True, "not proven"),
        ([0.8, 0.8, 0.8, 0.8, 0.8, 0.8], 0.9, True, "missed"),
        # With enough readings, an outlier on each side does not matter.
        ([0.1, *[1.0] * 13, 9.9], 1.1, False, "met"),
    ],
)
def test_the_verdict_needs_the_whole_interval(readings, limit, at_least, verdict) -> None:
    assert judge_median(readings, limit, at_least=at_least) == verdict


def test_one_run_beyond_a_limit_on_every_run_misses_it() -> None:
    """A fact that must never happen is judged by the worst run; without runs it holds."""
    assert judge_every([0, 0, 0], 0) == "met"
    assert judge_every([0, 1, 0], 0) == "missed"
    assert judge_every([2, 1], 1, at_least=True) == "met"
    assert judge_every([], 0) == "not proven"


def test_ratios_are_taken_pair_by_pair() -> None:
    """The median of the pairs' ratios is judged, which the ratio of medians can hide; a rate is the inverse."""
    result = Result("create-1x100", series={"ours_s": [1, 4, 9, 1, 1, 1], "bare_s": [1, 2, 3, 1, 1, 1]})
    assert ratio(1.1).readings(result) == [1, 2, 3, 1, 1, 1]
    assert rate(0.9).readings(result)[:3] == [1, 0.5, pytest.approx(1 / 3)]
    assert ratio(1.1).judge(result) == "not proven"


def test_page_is_generated_from_the_book() -> None:
    words = page.texts(page.TEXTS.read_text(encoding="utf-8"))
    assert page.PAGE.read_text(encoding="utf-8") == page.page(book.load(), words)
