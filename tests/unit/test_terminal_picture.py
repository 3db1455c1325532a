"""Pictures of a terminal: what is recorded, how its time is shortened, and what the SVG shows, moving or not."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from scripts.terminal_picture import svg
from scripts.terminal_recording import Command, Frame, Run, paced, record, row_of

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "images"
TAGS = {"svg", "title", "style", "rect", "path", "circle", "text", "defs", "g", "use"}
SVG = "{http://www.w3.org/2000/svg}"


def frame(seconds, *lines) -> Frame:
    return Frame(seconds, tuple((Run(0, line),) if line else () for line in lines))


def read(drawn) -> ET.Element:
    return ET.fromstring(drawn)  # noqa: S314 - what our own code has written


def recorded(*commands) -> str:
    chunks = list(record(commands, columns=61, rows=17))
    assert [chunk.when for chunk in chunks] == sorted(chunk.when for chunk in chunks)
    return b"".join(chunk.data for chunk in chunks).decode()


def test_commands_run_in_a_terminal_of_the_wanted_size():
    """What a program asks about its output is answered as by a terminal; what is shown may differ from what is run."""
    said = recorded(Command("size", "stty size; test -t 1 && echo terminal"))

    assert said == "\x1b[1;32m$\x1b[0m size\r\n17 61\r\nterminal\r\n\x1b[1;32m$\x1b[0m "


def test_command_is_interrupted_when_its_time_is_over():
    """A command that watches for ever ends as by Ctrl-C, and the next one runs."""
    endless = "trap 'echo bye; exit' INT; while true; do sleep 0.1; done"

    said = recorded(Command("watch", endless, 0.5), Command("echo next"))

    assert "bye\r\n" in said
    assert said.index("bye") < said.index("next\r\n")


def test_row_gathers_what_looks_alike():
    """Runs end where the look changes and at wide gaps; single spaces stay inside, and spaces at the ends go."""
    blank = SimpleNamespace(data=" ", fg="default", bold=False, italics=False)
    cells = defaultdict(lambda: blank)
    for column, (data, colour) in enumerate(zip("a b  cdé", ["default"] * 6 + ["red", "red"], strict=True)):
        cells[column] = SimpleNamespace(data=data, fg=colour, bold=data == "b", italics=False)
    cells[2] = SimpleNamespace(data="b", fg="default", bold=False, italics=False)

    assert row_of(cells, 20) == (Run(0, "a b"), Run(5, "c"), Run(6, "dé", colour="red"))


def test_long_waits_are_shortened_and_the_end_stands():
    """A frame stands as long as it did, but not longer than wanted; the last one as long as wanted."""
    frames = [frame(0.5, "a", "b"), frame(90, "c", "d"), frame(1, "e", "f")]

    assert [one.seconds for one in paced(frames, longest=2, last=6, most=9)] == [0.5, 2, 6]


def test_line_of_progress_is_one_wait():
    """Frames of which only the last line differs share the time of one; what follows has its own."""
    progress = [frame(1, "a", f"{second} s", "") for second in range(9)]
    frames = [*progress, frame(1, "a", "done", "$"), frame(0, "z", "", "")]

    shown = paced(frames, longest=2, last=6, most=99)

    assert [(one.rows[1][0].text if one.rows[1] else "", one.seconds) for one in shown] == [
        ("0 s", 1),
        ("1 s", 1),
        ("done", 1),
        ("", 6),
    ]


def test_frames_that_are_seen_least_go_first():
    """The first and the last frame stay, and the whole takes as long as before."""
    frames = [frame(0.1, "a", "1"), frame(1, "b", "2"), frame(0.2, "c", "3"), frame(1, "d", "4"), frame(9, "e", "5")]

    shown = paced(frames, longest=5, last=3, most=4)

    assert [one.rows[0][0].text for one in shown] == ["a", "b", "d", "e"]
    assert [one.seconds for one in shown] == pytest.approx([0.1, 1.2, 1, 3])


@pytest.fixture
def drawn() -> str:
    """Two frames of two rows."""
    command, answer = Run(0, "$ a < b && c"), Run(4, "ok", colour="green", bold=True)
    frames = [Frame(1, ((command,), ())), Frame(3, ((command,), (answer,)))]
    return svg(frames, columns=20, rows=2, title="a <b>")


def test_picture_has_each_row_once_and_shows_it_where_it_belongs(drawn):
    """A row that two frames have is drawn once and used twice, a screen's height apart."""
    root = read(drawn)
    rows = {group.get("id"): group for group in root.iter(f"{SVG}g") if group.get("id")}
    uses = [(use.get("href"), int(use.get("y"))) for use in root.iter(f"{SVG}use")]

    assert ["".join(group.itertext()) for group in rows.values()] == ["$ a < b && c", "ok"]
    assert uses == [("#r0", 14), ("#r0", 50), ("#r1", 68)]
    (text,) = rows["r1"]
    assert (text.get("x"), text.get("textLength")) == ("33.6", "16.8")
    assert text.get("style") == "fill:#7fc98b;font-weight:bold"
    assert root.get("aria-label") == "a <b>"


def test_picture_moves_by_frames_and_stands_at_the_last(drawn):
    """Each frame begins at its time; without motion the last one is in the window."""
    assert "@keyframes play{0.00%{transform:translateY(0px)}25.00%{transform:translateY(-36px)}}" in drawn
    assert "animation:play 4.0s step-end infinite" in drawn
    assert "prefers-reduced-motion:reduce){.film{animation:none}}" in drawn
    film = next(group for group in read(drawn).iter(f"{SVG}g") if group.get("class") == "film")
    assert film.get("transform") == "translate(0 -36)"


@pytest.mark.parametrize("name", ["demo.svg", "demo-kubernetes.svg", "status-watch.svg"])
def test_pictures_of_the_documents_are_small_and_need_nothing_else(name):
    """A page stays quick, and a reader's machine asks nobody for a font, a script or a picture."""
    text = (PICTURES / name).read_text(encoding="utf-8")
    root = read(text)

    assert len(text.encode()) < 150_000
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= TAGS
    assert not re.search(r"url\(|@import|@font-face|href=\"[^#]", text)
