"""Render bench/RESULTS.md from the book of figures and the texts in bench/texts.md.

The texts are written by hand: a new run replaces only the figures.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Final

from bench.book import ROOT, Book, Result
from bench.catalogue import ALL, BY_NAME, Measurement
from bench.goals import Goal
from bench.intervals import median_interval

PAGE: Final = ROOT / "bench" / "RESULTS.md"
TEXTS: Final = ROOT / "bench" / "texts.md"
NOT_MEASURED: Final = "not measured yet"

_PAIRED: Final = ("ours_s", "bare_s", "ours_cpu_s", "bare_cpu_s", "ours_server_cpu_s", "bare_server_cpu_s")


def texts(source: str) -> dict[str, str]:
    """Return the texts under the headings of the second level, by heading."""
    parts = re.split(r"^## (.+)\n", source, flags=re.MULTILINE)[1:]
    return {name.strip(): text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def write(book: Book) -> None:
    """Write the page."""
    PAGE.write_text(page(book, texts(TEXTS.read_text(encoding="utf-8"))), encoding="utf-8")


def page(book: Book, words: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        book: all results; a result under a name without a measurement is left out.
        words: the texts, by "introduction" or the name of a measurement.
    """
    known = {each.name: book[each.name] for each in ALL if each.name in book}
    reasons = [f"* **{each.name}**: {words[each.name]}" for each in ALL if each.name in words]
    parts = [
        "# Benchmarks",
        words["introduction"],
        "## Goals",
        words["how to read it"],
        goals(known),
        *(["Reasons why goals are missed or not proven:", "\n".join(reasons)] if reasons else []),
        "## Beside the baseline client",
        words["pairs"],
        pairs(known),
        *(["## Beside TFJob", words["tfjob"], beside_tfjob(known)] if "tfjob" in words else []),
        "## Provenance",
        provenance(known),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def section(result: Result) -> str:
    """Return the results of one measurement, for a terminal."""
    lines = [f"== {result.name} =="]
    for quantity, readings in result.series.items():
        lines.append(f"  {quantity}: {spread(readings)}")
    lines += [f"  {name}: {value}" for name, value in result.facts.items()]
    for goal in BY_NAME[result.name].goals:
        lines.append(f"  goal: {limit_of(goal)}: {figure_of(goal, result)}: {goal.judge(result)}")
    return "\n".join(lines)


def goals(book: Book) -> str:
    """Return the table of goals, measured or not."""
    rows = []
    for each in ALL:
        for goal in each.goals:
            result = book.get(each.name)
            verdict = NOT_MEASURED if result is None or not goal.readings(result) else goal.judge(result)
            rows.append(
                [
                    f"`{each.name}`",
                    each.summary,
                    limit_of(goal),
                    "-" if result is None else figure_of(goal, result),
                    "-" if result is None else str(len(goal.readings(result))),
                    verdict if verdict == "met" else f"**{verdict}**",
                ]
            )
    return table(["measurement", "description", "goal", "figure", "runs", "verdict"], rows)


def limit_of(goal: Goal) -> str:
    """Format a goal."""
    sign = "≥" if goal.at_least else "≤"
    return f"{goal.says} {sign} {number(goal.limit)}{_unit(goal)}{' in every run' if goal.of == 'every run' else ''}"


def figure_of(goal: Goal, result: Result) -> str:
    """Format the figure that a goal is judged by: the median and its interval, or the range of all runs."""
    readings = goal.readings(result)
    if not readings:
        return "-"
    bounds = goal.interval(result)
    if goal.of == "every run":
        low, high = min(readings), max(readings)
        return f"{number(low)}{_unit(goal)}" if low == high else f"{number(low)} to {number(high)}{_unit(goal)}"
    spelled = "no interval" if bounds is None else f"{number(bounds[0])} to {number(bounds[1])}"
    return f"{number(median(readings))}{_unit(goal)} ({spelled})"


def pairs(book: Book) -> str:
    """Return the table of the measurements in pairs."""
    rows = []
    for name, result in book.items():
        if not set(_PAIRED) <= result.series.keys():
            continue
        ratios = result.ratios("ours_s", "bare_s")
        cells = [number(median(result.series[quantity])) for quantity in _PAIRED]
        watched = number(median(result.ratios("watched_s", "bare_s"))) if "watched_s" in result.series else "-"
        rows.append(
            [
                f"`{name}`",
                *cells[:2],
                f"**{number(median(ratios))}** ({_between(ratios)})",
                watched,
                *cells[2:],
                str(len(ratios)),
            ]
        )
    header = [
        "measurement",
        "operator, s",
        "baseline client, s",
        "ratio (95 % interval, or range)",
        "… of a watched baseline client",
        "CPU of the operator, s",
        "CPU of the baseline client, s",
        "CPU of the API server for the operator, s",
        "… for the baseline client, s",
        "pairs",
    ]
    return table(header, rows) if rows else NOT_MEASURED


def beside_tfjob(book: Book) -> str:
    """Return the table of the measurements beside TFJob."""
    rows = []
    for name, result in book.items():
        if name.startswith("tfjob-"):
            cells = [number(median(result.series[quantity])) for quantity in ("ours_s", "default_s", "tuned_s")]
            ours, by_default = result.series["ours_s"], result.series["default_s"]
            # By default it takes so long that only the first runs have it.
            first = [theirs / own for theirs, own in zip(by_default, ours[: len(by_default)], strict=True)]
            times = [first, result.ratios("tuned_s", "ours_s")]
            cells += [f"{number(median(each))} ({_between(each)})" for each in times]
            calls = [number(median(result.series[f"{side}_calls"])) for side in ("ours", "default")]
            rows.append([f"`{name}`", *cells, *calls, ", ".join(str(len(each)) for each in times)])
    header = [
        "measurement",
        "operator, s",
        "TFJob by default, s",
        "TFJob tuned, s",
        "default, relative to the operator (range)",
        "tuned, likewise (95 % interval)",
        "API calls of the operator",
        "of TFJob",
        "runs by default, tuned",
    ]
    return table(header, rows) if rows else NOT_MEASURED


def provenance(book: Book) -> str:
    """Return the date, the machine and the commit of each measurement."""
    rows = [
        [f"`{name}`", about.date, about.machine, about.commit, _where(BY_NAME[name])]
        for name, result in book.items()
        if (about := result.provenance)
    ]
    return table(["measurement", "day", "machine", "commit", "on"], rows) if rows else NOT_MEASURED


def _where(measurement: Measurement) -> str:
    return measurement.where.value


def _between(readings: Sequence[float]) -> str:
    """Format the interval of the median, or the range of fewer than six readings, if there are several."""
    if len(readings) == 1:
        return "one run"
    low, high = median_interval(readings) or (min(readings), max(readings))
    return f"{number(low)} to {number(high)}"


def spread(readings: Sequence[float]) -> str:
    """Format a series in a few words."""
    between = f", median of all: {_between(readings)}" if median_interval(readings) else ""
    ends = f"{number(min(readings))} to {number(max(readings))}"
    return f"{number(median(readings))} ({len(readings)} runs, {ends}{between})"


def number(value: float) -> str:
    """Format a number with three significant digits."""
    # Not "g" alone, which writes large and small numbers with an exponent.
    return format(Decimal(f"{value:.3g}"), "f")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _unit(goal: Goal) -> str:
    return f" {goal.unit}" if goal.unit else ""
