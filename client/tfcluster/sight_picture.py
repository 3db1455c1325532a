"""Who sees whom as a picture: an SVG that stands alone, in light and in dark, and can be read aloud."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from tfcluster.sight_grid import WORDS, Grid, Sees

_CELL: Final = 26
_LETTER: Final = 7.4
_MARGIN: Final = 16
_LINE: Final = 20

_STYLE: Final = """
svg { color-scheme: light dark; }
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 12px; }
.head { font-size: 16px; font-weight: 600; }
.page { fill: #ffffff; }
.cell { stroke: #d0d7de; }
.sees { fill: #2da44e; }
.partly { fill: #9be9a8; }
.hidden { fill: #f6f8fa; }
.blocked { fill: #cf222e; }
.self { fill: #8c959f; }
.sign { font-size: 12px; text-anchor: middle; }
.on { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .cell { stroke: #30363d; }
  .hidden { fill: #161b22; }
  .partly { fill: #1a6331; }
  .self { fill: #6e7681; }
}
"""
#: A letter in each cell, so that colours are not all that tells them apart.
_LETTERS: Final[dict[Sees, str]] = {"sees": "✓", "partly": "½", "hidden": "", "blocked": "✕", "self": "-"}
_ON_COLOUR: Final = frozenset({"sees", "blocked", "self"})


def picture_of(grid: Grid, title: str, words: str) -> str:
    """Draw a grid.

    Args:
        grid: the grid.
        title: what it shows.
        words: a sentence more, under the title.

    Returns:
        The text of an SVG file.
    """
    names = [str(group) for group in grid.groups]
    label = max((len(name) for name in names), default=0) * _LETTER + 12
    used: list[Sees] = [one for one in WORDS if any(cell.sees == one for row in grid.cells for cell in row)]
    left, top = _MARGIN + label, 72 + label
    size = len(names) * _CELL
    legend = top + size + 28
    wide = max([len(title) * 9.5, len(words) * 7.0, *((len(WORDS[one]) + 5) * _LETTER for one in used)])
    width, height = max(left + size, _MARGIN + wide) + _MARGIN, legend + len(used) * _LINE + _MARGIN
    size_of = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {size_of} role="img"',
        '  aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(_told(grid))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="head" x="{_MARGIN}" y="30">{escape(title)}</text>',
        f'<text class="small" x="{_MARGIN}" y="50">{escape(words)}</text>',
    ]
    for number, name in enumerate(names):
        y, x = top + number * _CELL + 17, left + number * _CELL + 17
        parts.append(f'<text x="{left - 8:.1f}" y="{y:.1f}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<text transform="translate({x:.1f} {top - 8:.1f}) rotate(-90)">{escape(name)}</text>')
    for row, (seer, cells) in enumerate(zip(names, grid.cells, strict=True)):
        for column, (seen, cell) in enumerate(zip(names, cells, strict=True)):
            x, y = left + column * _CELL, top + row * _CELL
            told = escape(f"{seer}, {seen}: {WORDS[cell.sees]} ({cell.why})")
            parts.append(f"<g><title>{told}</title>{_square(cell.sees, x, y)}</g>")
    for number, one in enumerate(used):
        y = legend + number * _LINE
        parts.append(_square(one, _MARGIN, y - 4, size=16))
        parts.append(f'<text class="small" x="{_MARGIN + 24}" y="{y + 9:.1f}">{escape(WORDS[one])}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _square(sees: Sees, x: float, y: float, *, size: int = _CELL) -> str:
    sign = _LETTERS[sees]
    on = " on" if sees in _ON_COLOUR else ""
    letter = f'<text class="sign{on}" x="{x + size / 2:.1f}" y="{y + size / 2 + 4.5:.1f}">{sign}</text>' if sign else ""
    return f'<rect class="cell {sees}" x="{x:.1f}" y="{y:.1f}" width="{size}" height="{size}"/>{letter}'


def _told(grid: Grid) -> str:
    """Say in words what the picture shows."""
    sentences = []
    for group, cells in zip(grid.groups, grid.cells, strict=True):
        seen = [str(one) for one, cell in zip(grid.groups, cells, strict=True) if cell.sees in {"sees", "partly"}]
        sentences.append(f"{group} sees {', '.join(seen) if seen else 'no other task'}.")
    return " ".join(sentences)
