"""A terminal session as one animated SVG: without scripts, fonts or pictures from other servers.

    python -m scripts.terminal_picture PICTURE.svg --run 'kubectl get pods' --run 'make demo' 'make --silent demo'

Each `--run` has the text at the prompt and, if it differs, the command to run. All frames are below each other, and CSS
moves them through the window. Without animations, the last frame is shown.
"""

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from scripts.terminal_recording import Command, Frame, Row, Run, paced, record, screens_of

_WIDE, _HIGH, _SIZE = 8.4, 18, 14
_PAPER, _BAR, _INK, _FAINT = "#1b1f27", "#262b35", "#d6dbe4", "#8b95a5"
_PAD, _TOP = 14, 34
_COLOURS: Final = {
    "black": "#4b5563",
    "red": "#f0716f",
    "green": "#7fc98b",
    "brown": "#e3b763",  # pyte's name for yellow
    "blue": "#74a8ee",
    "magenta": "#c792ea",
    "cyan": "#6cc7d0",
    "white": _INK,
    "brightblack": _FAINT,
    "brightred": "#ff8b89",
    "brightgreen": "#9be3a6",
    "brightbrown": "#f4d08a",
    "brightyellow": "#f4d08a",
    "brightblue": "#98c1ff",
    "brightmagenta": "#dcb1f7",
    "brightcyan": "#8fe2ea",
    "brightwhite": "#ffffff",
}
#: Only local fonts: a picture that fetches a font would reveal its readers to a server.
_FONTS: Final = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"


def svg(frames: Sequence[Frame], *, columns: int, rows: int, title: str) -> str:
    """Draw frames."""
    wide, high = columns * _WIDE + 2 * _PAD, rows * _HIGH + _TOP + _PAD
    names: dict[Row, str] = {}
    for row in (row for frame in frames for row in frame.rows if row):
        names.setdefault(row, f"r{len(names)}")
    inside, said = rows * _HIGH, escape(title)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high}" role="img" aria-label="{said}">',
            f"<title>{said}</title>",
            f"<style>text{{font:{_SIZE}px {_FONTS};fill:{_INK};white-space:pre}}",
            f"{_motion(frames, inside)}</style>",
            f'<rect width="{wide:g}" height="{high}" rx="8" fill="{_PAPER}"/>',
            f'<path d="M0 24V8a8 8 0 0 1 8-8H{wide - 8:g}a8 8 0 0 1 8 8V24z" fill="{_BAR}"/>',
            *(f'<circle cx="{16 + 16 * i}" cy="12" r="4.5" fill="{_FAINT}" opacity=".6"/>' for i in range(3)),
            f'<text x="{wide / 2:g}" y="17" text-anchor="middle" style="fill:{_FAINT};font-size:12px">{said}</text>',
            "<defs>",
            *(f'<g id="{name}">{"".join(map(_text, row))}</g>' for row, name in names.items()),
            "</defs>",
            # The inner SVG is the window: content above or below it is hidden.
            f'<svg x="{_PAD}" y="{_TOP}" width="{columns * _WIDE:g}" height="{inside}">',
            f'<g class="film" transform="translate(0 {-inside * (len(frames) - 1)})">',
            *(_frame(frame, names, top=inside * number) for number, frame in enumerate(frames)),
            "</g></svg></svg>",
            "",
        ]
    )


def _motion(frames: Sequence[Frame], inside: int) -> str:
    whole = sum(frame.seconds for frame in frames)
    steps, passed = [], 0.0
    for number, frame in enumerate(frames):
        steps.append(f"{100 * passed / whole:.2f}%{{transform:translateY({-inside * number}px)}}")
        passed += frame.seconds
    return (
        f"@keyframes play{{{''.join(steps)}}}.film{{animation:play {whole:.1f}s step-end infinite}}"
        "@media(prefers-reduced-motion:reduce){.film{animation:none}}"
    )


def _frame(frame: Frame, names: dict[Row, str], *, top: int) -> str:
    uses = (
        f'<use href="#{names[row]}" y="{top + number * _HIGH + _SIZE}"/>'
        for number, row in enumerate(frame.rows)
        if row
    )
    return "".join(uses)


def _text(run: Run) -> str:
    colour = _COLOURS.get(run.colour, f"#{run.colour}")
    look = f"fill:{colour};" if run.colour else ""
    look += "font-weight:bold;" if run.bold else ""
    look += "font-style:italic;" if run.italic else ""
    style = f' style="{look[:-1]}"' if look else ""
    # The length is set, so that columns are aligned with any font.
    length = f' textLength="{len(run.text) * _WIDE:g}"'
    return f'<text x="{run.column * _WIDE:g}"{length}{style}>{escape(run.text, quote=False)}</text>'


def main(arguments: list[str]) -> int:
    """Record a session and write its picture.

    Returns:
        The process's exit code.
    """
    parser = argparse.ArgumentParser(description="Record commands in a terminal and draw them as an SVG that moves.")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--run", nargs="+", action="append", required=True, metavar="TEXT", help="shown [run]")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="press Ctrl-C in each command then")
    parser.add_argument("--title", default="")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--longest", type=float, default=2.0, help="seconds that a frame stands at most (%(default)s)")
    parser.add_argument("--frames", type=int, default=60, help="how many at most (%(default)s)")
    options = parser.parse_args(arguments)
    size = {"columns": options.columns, "rows": options.rows}
    commands = [Command(shown, "".join(run), options.stop_after) for shown, *run in options.run]
    frames = list(screens_of(record(commands, **size), **size))
    film = paced(frames, longest=options.longest, last=6, most=options.frames)
    options.picture.write_text(svg(film, title=options.title or options.run[0][0], **size), encoding="utf-8")
    print(f"drawn: {options.picture}, {len(film)} frames, {options.picture.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
