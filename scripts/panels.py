"""Draws panels of a dashboard, with Prometheus' answers to their queries, as one SVG.

It only draws panels and does not send requests. It supports the two kinds of panels in our dashboard.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

Panel = Mapping[str, Any]

_COLUMN, _ROW, _GAP = 56, 24, 6
_INK, _FAINT, _GRID, _PAPER, _CARD = "#1f2933", "#6b7785", "#e4e8ec", "#f4f5f7", "#ffffff"
_COLOURS: Final = ("#2f6fb3", "#d9822b", "#3c8d5a", "#b3423f", "#7a5ba8", "#8a6d3b", "#c25b9a", "#5f6b76", "#9aa41f")
_NAMED: Final = {"green": "#3c8d5a", "orange": "#d9822b", "red": "#b3423f"}
_LEFT, _TOP, _BOTTOM = 52, 30, 34
_MOST_NAMES = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One series: its name, and (time, value) in seconds and the panel's unit; not every time has a value."""

    name: str
    points: Sequence[tuple[float, float]]


def draw(
    panels: Sequence[Panel], answers: Mapping[int, Sequence[Line]], *, span: tuple[float, float], step: float
) -> str:
    """Draw all panels at their places.

    Args:
        panels: the panels of a Grafana dashboard.
        answers: the lines of each panel, by its id.
        span: the first and the last time, in seconds.
        step: from one point of a line to the next, in seconds; a longer interval means missing values.

    Returns:
        The SVG.
    """
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _ROW + _GAP
    size = f"0 0 {24 * _COLUMN + _GAP} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
    ]
    for panel in panels:
        place = panel["gridPos"]
        left, top = place["x"] * _COLUMN + _GAP, place["y"] * _ROW + _GAP
        wide, high = place["w"] * _COLUMN - _GAP, place["h"] * _ROW - _GAP
        parts.append(f'<g transform="translate({left} {top})">')
        if panel["type"] == "row":
            parts.append(_text(2, 13, panel["title"], size=13, bold=True))
        else:
            parts.append(f'<rect width="{wide}" height="{high}" rx="3" fill="{_CARD}" stroke="{_GRID}"/>')
            parts.append(_text(8, 17, panel["title"], size=12, bold=True))
            lines = answers[panel["id"]]
            if panel["type"] == "stat":
                parts += _stat(panel, lines, wide, high)
            else:
                parts += _series(panel, lines, wide, high, span=span, step=step)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _stat(panel: Panel, lines: Sequence[Line], wide: int, high: int) -> list[str]:
    unit, steps = panel["fieldConfig"]["defaults"]["unit"], panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    parts = []
    for number, line in enumerate(lines):
        middle = wide * (2 * number + 1) / (2 * len(lines))
        value = line.points[-1][1]
        reached = [step["color"] for step in steps if step["value"] is None or value >= step["value"]]
        parts.append(_text(middle, high - 26, _number(value, unit), size=26, colour=_NAMED[reached[-1]], middle=True))
        if len(lines) > 1:
            parts.append(_text(middle, high - 8, line.name, colour=_FAINT, middle=True))
    return parts


@dataclass(frozen=True, slots=True)
class _Frame:
    """Converts a time and a value to a position in a panel."""

    span: tuple[float, float]
    top: float
    right: int
    floor: int
    step: float

    def x(self, time: float) -> float:
        return _LEFT + (time - self.span[0]) / (self.span[1] - self.span[0]) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        return self.floor - value / self.top * (self.floor - _TOP)

    def path(self, points: Sequence[tuple[float, float]], *, stepped: bool, backwards: bool = False) -> str:
        """Return the path through points, or the path back to the first; a step lasts until the next point."""
        corners: list[tuple[float, float]] = []
        for time, value in points:
            if stepped and corners:
                corners.append((self.x(time), corners[-1][1]))
            corners.append((self.x(time), self.y(value)))
        if stepped:
            corners.append((self.x(min(points[-1][0] + self.step, self.span[1])), corners[-1][1]))
        if backwards:
            corners.reverse()
        return ("L" if backwards else "M") + " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _series(
    panel: Panel, lines: Sequence[Line], wide: int, high: int, *, span: tuple[float, float], step: float
) -> list[str]:
    unit, custom = panel["fieldConfig"]["defaults"]["unit"], panel["fieldConfig"]["defaults"]["custom"]
    stacked, stepped = custom["stacking"]["mode"] == "normal", custom["lineInterpolation"] == "stepAfter"
    shown = sorted(lines, key=lambda line: -max(value for _, value in line.points))[:_MOST_NAMES]
    bottoms = _stack(shown) if stacked else [dict.fromkeys((time for time, _ in line.points), 0.0) for line in shown]
    highest = max((v + low[t] for line, low in zip(shown, bottoms, strict=True) for t, v in line.points), default=0.0)
    frame = _Frame(span, _round_up(highest, unit), wide - 10, high - _BOTTOM, step)
    parts = _axes(frame, unit)
    for line, low, colour in zip(shown, bottoms, _COLOURS, strict=False):
        for run in _runs(line.points, frame.step):
            upper = frame.path([(t, v + low[t]) for t, v in run], stepped=stepped)
            if stacked:
                lower = frame.path([(t, low[t]) for t, _ in run], stepped=stepped, backwards=True)
                parts.append(f'<path d="{upper}{lower}Z" fill="{colour}" fill-opacity="0.3"/>')
            parts.append(f'<path d="{upper}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return parts + _names([line.name for line in shown], wide, high)


def _axes(frame: _Frame, unit: str) -> list[str]:
    parts = []
    for tick in (0.0, frame.top / 2, frame.top):
        parts.append(f'<path d="M{_LEFT} {frame.y(tick):.1f}H{frame.right}" stroke="{_GRID}"/>')
        parts.append(_text(_LEFT - 5, frame.y(tick) + 4, _number(tick, unit), size=10, colour=_FAINT, end=True))
    first, last = frame.span
    for minute in range(0, math.floor((last - first) / 60) + 1, 2):
        words = f"-{minute} min" if minute else "now"
        parts.append(_text(frame.x(last - 60 * minute), frame.floor + 13, words, size=9, colour=_FAINT, middle=True))
    return parts


def _names(names: Sequence[str], wide: int, high: int) -> list[str]:
    """Return the legend's names that fit."""
    parts, place = [], 8.0
    for name, colour in zip(names, _COLOURS, strict=False):
        end = place + len(name) * 5.6 + 22
        if end - 8 < wide:
            parts.append(f'<rect x="{place}" y="{high - 12}" width="8" height="3" fill="{colour}"/>')
            parts.append(_text(place + 11, high - 7, name, size=10, colour=_FAINT))
        place = end
    return parts


def _runs(points: Sequence[tuple[float, float]], step: float) -> list[list[tuple[float, float]]]:
    """Split a line at missing values, so that nothing is drawn there."""
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if not runs or point[0] - runs[-1][-1][0] > 1.5 * step:
            runs.append([])
        runs[-1].append(point)
    return runs


def _stack(lines: Sequence[Line]) -> list[dict[float, float]]:
    """Return the sum below each line at each of its times."""
    reached: dict[float, float] = {}
    bottoms = []
    for line in lines:
        bottoms.append({time: reached.get(time, 0.0) for time, _ in line.points})
        for time, value in line.points:
            reached[time] = reached.get(time, 0.0) + value
    return bottoms


def _round_up(highest: float, unit: str) -> float:
    """Return the end of an axis: 1, 2 or 5 times a power of ten."""
    if unit == "bytes":
        return _round_up(highest / 2**20, "") * 2**20
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= highest * 0.999)


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    if unit == "percentunit":
        return f"{value:.0%}" if value >= 0.1 or not value else f"{value:.1%}"
    if unit == "s" and value >= 120:
        return f"{value / 60:.3g} min"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    words = f"{value:.3g}"
    return f"{words} s" if unit == "s" else f"{words}/s" if unit in {"ops", "reqps"} else words


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 11,
    colour: str = _INK,
    bold: bool = False,
    middle: bool = False,
    end: bool = False,
) -> str:
    anchor = "middle" if middle else "end" if end else "start"
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )
