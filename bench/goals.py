"""The goals: the limits on the figures of each measurement, and how they are judged."""

from dataclasses import dataclass
from typing import Literal

from bench.book import Result
from bench.intervals import Verdict, judge_every, judge_median, median_interval

Of = Literal["median", "every run"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit on one series of a measurement, or on the ratio of two.

    ``of`` says whether the median must keep it, by its interval, or every single run.
    """

    says: str
    series: str
    limit: float
    unit: str = ""
    over: str = ""
    """The series that the readings are divided by, pair by pair."""
    at_least: bool = False
    of: Of = "median"

    def readings(self, result: Result) -> list[float]:
        """Return the readings to judge, one a run; empty if it was not measured."""
        if self.series not in result.series or (self.over and self.over not in result.series):
            return []
        return result.ratios(self.series, self.over) if self.over else result.series[self.series]

    def judge(self, result: Result) -> Verdict:
        """Judge whether a result keeps the limit."""
        judge = judge_median if self.of == "median" else judge_every
        return judge(self.readings(result), self.limit, at_least=self.at_least)

    def interval(self, result: Result) -> tuple[float, float] | None:
        """Return the basis of the verdict: the interval of the median, or the least and the greatest reading."""
        readings = self.readings(result)
        if self.of == "median":
            return median_interval(readings)
        return (min(readings), max(readings)) if readings else None


def ratio(limit: float, of: Of = "median") -> Goal:
    """The operator's time must be at most ``limit`` times that of the baseline client."""
    return Goal("time relative to the baseline client", "ours_s", limit, over="bare_s", of=of)


def rate(limit: float, of: Of = "median") -> Goal:
    """The operator's rate must be at least ``limit`` times that of the baseline client."""
    return Goal("rate relative to the baseline client", "bare_s", limit, over="ours_s", at_least=True, of=of)


def never_more(says: str, series: str, limit: float, unit: str = "") -> Goal:
    """Every run must keep the limit."""
    return Goal(says, series, limit, unit, of="every run")


def at_most(says: str, series: str, limit: float, unit: str) -> Goal:
    """The median must keep the limit."""
    return Goal(says, series, limit, unit)
