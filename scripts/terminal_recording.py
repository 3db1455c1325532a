"""A recorded terminal session: commands run in a pseudo-terminal, and the content of its screen over time.

pyte, the terminal, is in a separate environment; only screens_of() imports it.
"""

import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

#: Seconds without output until a screen counts as complete; and until it is captured while output continues.
_SETTLED, _EVERY = 0.15, 0.5
_TYPING = 0.8
"""Seconds that a command stands at the prompt before it runs."""

_PROMPT: Final = "\x1b[1;32m$\x1b[0m "


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run."""

    shown: str
    """What stands at the prompt."""
    run: str = ""
    """What bash runs; empty: what is shown."""
    seconds: float | None = None
    """When Ctrl-C is pressed; None: never."""


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one row with the same style."""

    column: int
    text: str
    colour: str = ""
    """As pyte names it, or six hexadecimal digits; empty: that of the terminal."""
    bold: bool = False
    italic: bool = False


Row = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of the screen for some seconds."""

    seconds: float
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some output."""

    when: float
    """Seconds since the session began."""
    data: bytes


def record(commands: Sequence[Command], *, columns: int, rows: int, folder: str = ".") -> Iterator[Chunk]:
    """Run commands one after another and yield their output as it arrives."""
    began = time.monotonic()
    for command in commands:
        yield Chunk(time.monotonic() - began, _PROMPT.encode())
        time.sleep(_TYPING / 2)
        yield Chunk(time.monotonic() - began, command.shown.replace("\n", "\r\n").encode())
        time.sleep(_TYPING / 2)
        yield Chunk(time.monotonic() - began, b"\r\n")
        for data in _output(command, columns=columns, rows=rows, folder=folder):
            yield Chunk(time.monotonic() - began, data)
    yield Chunk(time.monotonic() - began, _PROMPT.encode())


def _output(command: Command, *, columns: int, rows: int, folder: str) -> Iterator[bytes]:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}
    process = subprocess.Popen(
        ["/bin/bash", "-c", command.run or command.shown],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, **terminal},
        start_new_session=True,
    )
    os.close(theirs)
    deadline = time.monotonic() + command.seconds if command.seconds is not None else None
    try:
        while True:
            if deadline and time.monotonic() > deadline:
                deadline = None
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # EIO: the other end is closed
                    return
                if not data:
                    return
                yield data
    finally:
        os.close(ours)
        process.wait()


def screens_of(chunks: Iterable[Chunk], *, columns: int, rows: int) -> Iterator[Frame]:
    """Play output in a terminal and yield its screen, whenever that settles or changes for long.

    Yields:
        Frames; two consecutive ones always differ; the last one lasts 0 s.
    """
    import pyte  # noqa: PLC0415 - is in the environment of the pictures only

    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    shown: tuple[Row, ...] | None = None
    since = 0.0
    played = list(chunks)
    for number, chunk in enumerate(played):
        stream.feed(chunk.data)
        following = played[number + 1].when if number + 1 < len(played) else float("inf")
        if following - chunk.when < _SETTLED and chunk.when - since < _EVERY:
            continue
        now = tuple(row_of(screen.buffer[line], columns) for line in range(rows))
        if now != shown:
            if shown is not None:
                yield Frame(chunk.when - since, shown)
            shown, since = now, chunk.when
    if shown is not None:
        yield Frame(0, shown)


def row_of(cells: Mapping[int, Any], columns: int) -> Row:
    """Group the characters of a row by style.

    Returns:
        The runs; a long row of spaces ends a run, and spaces at its ends are left out.
    """
    runs: list[Run] = []
    for column in range(columns):
        cell = cells[column]
        if not cell.data.strip():
            continue
        colour = "" if cell.fg == "default" else cell.fg
        run = Run(column, cell.data, colour=colour, bold=cell.bold, italic=cell.italics)
        last = runs[-1] if runs else None
        gap = column - (last.column + len(last.text)) if last else 0
        if last and gap <= 1 and replace(run, column=last.column, text=last.text) == last:
            runs[-1] = replace(last, text=f"{last.text}{' ' * gap}{cell.data}")
        else:
            runs.append(run)
    return tuple(runs)


def paced(frames: Sequence[Frame], *, longest: float, last: float, most: int) -> list[Frame]:
    """Shorten waits, keep the end, and leave out the frames that are visible for the shortest time.

    Args:
        frames: The frames of screens_of().
        longest: The longest wait in seconds: an unchanged frame, or frames that differ only in the last line.
        last: The duration of the last frame in seconds.
        most: The maximum number of frames.
    """
    paced: list[Frame] = []
    waited = 0.0
    for number, frame in enumerate(frames[:-1]):
        waited = waited if number and _only_progress(frames[number - 1].rows, frame.rows) else 0.0
        seconds = min(frame.seconds, longest - waited)
        waited += seconds
        paced += [replace(frame, seconds=seconds)] if seconds > 0 else []
    paced.append(replace(frames[-1], seconds=last))
    while len(paced) > most:
        # The frame before gets its time, as the screen changes later then; the first and the last stay.
        least = min(range(1, len(paced) - 1), key=lambda index: paced[index].seconds)
        paced[least - 1] = replace(paced[least - 1], seconds=paced[least - 1].seconds + paced[least].seconds)
        del paced[least]
    return paced


def _only_progress(before: tuple[Row, ...], after: tuple[Row, ...]) -> bool:
    last = max((number for number, row in enumerate(before) if row), default=0)
    return (
        bool(before[last])
        and bool(after[last])
        and all(one == other for number, (one, other) in enumerate(zip(before, after, strict=True)) if number != last)
    )
