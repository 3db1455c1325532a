"""Pictures of the figures, as SVG: time by size, and the ratios to the bare client with their intervals.

Each has a ground of its own, so that it can be read on a light page and on a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Final

from bench.book import Book, Result
from bench.catalogue import BY_NAME
from bench.goals import Goal
from bench.intervals import median_interval

_WIDTH: Final = 760
_INK, _FAINT, _GRID, _GROUND = "#1f2933", "#5b6775", "#dfe4ea", "#ffffff"
#: What is drawn: its name, its colour, and the shape of its marks, so that nobody needs the colours.
_SERIES: Final = {
    "operator": ("#2f5fd0", "circle"),
    "bare client": ("#5b6775", "square"),
    "TFJob, tuned": ("#b4530a", "triangle"),
    "TFJob, default": ("#a3123f", "diamond"),
}
_VERDICTS: Final = {"met": "#2e7d4f", "missed": "#a3123f", "not proven": "#5b6775"}


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis: values to places."""

    least: float
    most: float
    begin: float
    end: float

    def place(self, value: float) -> float:
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return self.begin + share * (self.end - self.begin)


def pictures(book: Book) -> dict[str, str]:
    """Draw what there are figures for.

    Returns:
        SVG by the names of the files.
    """
    drawn = {}
    if points := _times(book):
        drawn["bench-time.svg"] = _time_by_size(points)
    if rows := [(name, result) for name in BY_NAME if (result := book.get(name)) and _ratio_goal(name)]:
        drawn["bench-ratio.svg"] = _ratios(rows)
    return drawn


def _times(book: Book) -> dict[str, list[tuple[float, float]]]:
    """Give for each series the medians of one cluster, as tasks and seconds, in the order of the tasks."""
    wanted = {
        "operator": ("create-1x", "ours_s"),
        "bare client": ("create-1x", "bare_s"),
        "TFJob, tuned": ("tfjob-1x", "tuned_s"),
        "TFJob, default": ("tfjob-1x", "default_s"),
    }
    found = {
        label: sorted(
            (float(result.facts["tasks"]), median(result.series[quantity]))
            for name, result in book.items()
            if name.startswith(prefix) and quantity in result.series
        )
        for label, (prefix, quantity) in wanted.items()
    }
    return {label: points for label, points in found.items() if points}


def _time_by_size(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    height = 430
    sizes = sorted({x for points in lines.values() for x, _ in points})
    seconds = [y for points in lines.values() for _, y in points]
    across = _Axis(sizes[0] * 0.8, sizes[-1] * 1.25, 70, _WIDTH - 130)
    up = _Axis(10 ** math.floor(math.log10(min(seconds))), 10 ** math.ceil(math.log10(max(seconds) * 1.001)), 372, 52)
    parts = [_text(16, 28, "From the first POST until all objects of one TFCluster exist", size=15, bold=True)]
    power = round(math.log10(up.least))
    while 10**power <= up.most * 1.001:
        for factor in (1, 2, 5):
            value = factor * 10.0**power
            if value <= up.most * 1.001:
                parts.append(_line(across.begin, up.place(value), across.end, up.place(value), _GRID))
                parts.append(_text(across.begin - 8, up.place(value) + 4, f"{value:g} s", anchor="end", faint=True))
        power += 1
    for size in sizes:
        parts.append(_line(across.place(size), up.begin, across.place(size), up.end, _GRID))
        parts.append(_text(across.place(size), up.begin + 20, f"{size:,g}", anchor="middle", faint=True))
    parts.append(_text((across.begin + across.end) / 2, up.begin + 42, "tasks", anchor="middle", faint=True))
    labels = _apart([(up.place(points[-1][1]), label) for label, points in lines.items()], least=17)
    for label, points in lines.items():
        colour, mark = _SERIES[label]
        places = [(across.place(x), up.place(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [_mark(x, y, colour, mark) for x, y in places]
        x, y = places[-1]
        if abs(labels[label] - y) > 2:
            parts.append(_line(x + 6, y, x + 12, labels[label], colour))
        parts.append(_text(x + 14, labels[label] + 4, label, colour=colour, bold=True))
    return _svg(height, "Time until all objects of one TFCluster exist, by its tasks, on logarithmic scales", parts)


def _ratio_goal(name: str) -> Goal | None:
    """Give the goal of a measurement that is a ratio to the bare client, if there is one."""
    return next((goal for goal in BY_NAME[name].goals if "bare_s" in {goal.series, goal.over}), None)


def _ratios(rows: Sequence[tuple[str, Result]]) -> str:
    """Draw the ratios of times, also where the goal is one of rates, so that less is better everywhere."""
    drawn = []
    for name, result in rows:
        goal = _ratio_goal(name)
        assert goal is not None
        values = result.ratios("ours_s", "bare_s")
        middle = median(values)
        low, high = median_interval(values) or (min(values), max(values))
        limit = 1 / goal.limit if goal.at_least else goal.limit
        drawn.append((name, low, middle, high, limit, goal.judge(result)))
    most = max(2.0, 1.05 * max(max(high, limit) for _, _, _, high, limit, _ in drawn))
    least = min(0.5, *(low for _, low, *_ in drawn)) / 1.05
    across = _Axis(least, most, 150, _WIDTH - 160)
    bottom = 62 + 34 * len(drawn)
    parts = [
        _text(16, 28, "Time of the operator, in times of the bare client's", size=15, bold=True),
        _text(
            16,
            46,
            "dot: median of the pairs; bar: 95 % interval; stroke: goal, which the bar may not cross",
            faint=True,
        ),
    ]
    for tick in (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8):
        if least <= tick <= most:
            x = across.place(tick)
            parts.append(_line(x, 62, x, bottom, _FAINT if tick == 1 else _GRID))
            parts.append(_text(x, bottom + 18, f"{tick:g}", anchor="middle", faint=True))
    for row, (name, low, middle, high, limit, verdict) in enumerate(drawn):
        y, colour = 79 + 34 * row, _VERDICTS[verdict]
        begin, end = across.place(low), across.place(high)
        x = across.place(limit)
        parts += [
            _text(140, y + 4, name, anchor="end"),
            _bar(begin, y, end - begin, colour),
            f'<circle cx="{across.place(middle):.1f}" cy="{y}" r="5" fill="{colour}"/>',
            _line(x, y - 12, x, y + 12, _INK, width=2),
            _text(_WIDTH - 145, y + 4, f"{middle:.2f}, {verdict}", colour=colour, bold=True),
        ]
    return _svg(bottom + 30, "Ratio of the operator's time to the bare client's, with intervals and goals", parts)


def _apart(places: Sequence[tuple[float, str]], *, least: float) -> dict[str, float]:
    """Move labels down until each is so far from the one above."""
    moved: dict[str, float] = {}
    last = -math.inf
    for place, label in sorted(places):
        last = max(place, last + least)
        moved[label] = last
    return moved


def _bar(x: float, y: float, length: float, colour: str) -> str:
    size = f'width="{max(1.0, length):.1f}" height="8" rx="3"'
    return f'<rect x="{x:.1f}" y="{y - 4}" {size} fill="{colour}" fill-opacity="0.35"/>'


def _mark(x: float, y: float, colour: str, shape: str) -> str:
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
    corners = {
        "square": ((-4, -4), (4, -4), (4, 4), (-4, 4)),
        "triangle": ((0, -5), (5, 4), (-5, 4)),
        "diamond": ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0)),
    }[shape]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{points}" fill="{colour}"/>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, *, width: float = 1) -> str:
    return f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    anchor: str = "start",
    colour: str = _INK,
    faint: bool = False,
    bold: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    fill = _FAINT if faint else colour
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" '
                'font-family="Helvetica, Arial, sans-serif">'
            ),
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>',
            *parts,
            "</svg>\n",
        ]
    )
