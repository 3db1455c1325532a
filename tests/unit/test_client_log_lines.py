"""Lines out of pieces, and the place in a log: pure."""

from __future__ import annotations

import pytest

from tfcluster import log_lines
from tfcluster.log_lines import LogLine, Position, Splitter

T = "2026-01-01T00:00:{:02d}.{:09d}Z"


def stamped(second: int, text: str, nanos: int = 0) -> bytes:
    return f"{T.format(second, nanos)} {text}".encode()


def texts(position: Position, *lines: bytes) -> list[str]:
    return [text for line in lines for _, text in position.take(line)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_whole_however_the_pieces_are_cut(size):
    text = b"one\n\ntwo\r\nthree \xff\xfe\nfour"
    splitter = Splitter()

    found = [line for at in range(0, len(text), size) for line in splitter.feed(text[at : at + size])]

    assert [*found, splitter.rest()] == [b"one", b"", b"two\r", b"three \xff\xfe", b"four"]
    assert splitter.rest() == b""


@pytest.mark.parametrize("size", [1, 5, 64])
def test_a_line_without_an_end_comes_in_parts_that_do_not_depend_on_the_pieces(monkeypatch, size):
    monkeypatch.setattr(log_lines, "LONGEST", 10)
    text = bytes(range(65, 90)) + b"\nnext\n"
    splitter = Splitter()

    found = [line for at in range(0, len(text), size) for line in splitter.feed(text[at : at + size])]

    assert found == [b"ABCDEFGHIJ", b"KLMNOPQRST", b"UVWXY", b"next"]


def test_what_comes_again_is_left_out_and_what_is_new_among_it_is_not():
    """Two programs of one container may write a moment out of order."""
    position = Position()
    texts(position, stamped(8, "old"), stamped(9, "a"), stamped(10, "b"), stamped(10, "b"))
    assert position.since() == "2026-01-01T00:00:09Z"

    position.reopen()

    again = [stamped(9, "a"), stamped(9, "late", 999), stamped(10, "b"), stamped(10, "b"), stamped(10, "b")]
    assert texts(position, *again, stamped(11, "c")) == ["late", "b", "c"]


def test_each_break_begins_anew():
    position = Position()
    texts(position, stamped(9, "a"))
    for _ in range(3):
        position.reopen()
        assert texts(position, stamped(9, "a")) == []
    assert texts(position, stamped(9, "a")) == ["a"]


def test_times_of_other_zones_are_of_the_same_clock():
    position = Position()
    texts(position, b"2026-01-01T02:00:10.5+02:00 a")

    assert position.since() == "2026-01-01T00:00:09Z"


def test_a_clock_that_is_set_back_loses_nothing():
    position = Position()
    texts(position, stamped(50, "a"), stamped(20, "b"))
    position.reopen()

    assert position.since() == "2026-01-01T00:00:19Z"
    assert texts(position, stamped(20, "b"), stamped(21, "c"))[-1] == "c"


def test_the_rest_of_a_line_that_began_before_is_left_out():
    """The kubelet leaves out the beginning of a long line by its time, and writes its end without one."""
    position = Position()
    texts(position, stamped(10, "a"))
    position.reopen()

    assert texts(position, b"the end of a long line", stamped(11, "b"), b"more of b") == ["b", "more of b"]


def test_lines_of_a_server_that_tells_no_times_are_kept():
    assert texts(Position(), b"one", b"2026 two", b"") == ["one", "2026 two", ""]


def test_a_line_that_a_rotation_cuts_in_two_is_one():
    """The kubelet ends the stream in the middle of the line, and begins the next file with its rest."""
    position = Position()
    texts(position, stamped(9, "a"))
    position.hold(stamped(10, "the beg"), clean=True)
    position.reopen()

    assert texts(position, stamped(9, "a"), stamped(11, "inning"), stamped(11, "b")) == ["the beginning", "b"]
    assert position.finish() == []


@pytest.mark.parametrize("clean", [True, False])
def test_a_line_that_a_break_cuts_comes_again_as_a_whole(clean):
    position = Position()
    texts(position, stamped(9, "a"))
    position.hold(stamped(10, "the b"), clean=clean)
    position.reopen()

    assert texts(position, stamped(9, "a"), stamped(10, "the beginning")) == ["the beginning"]
    assert position.finish() == []


def test_a_piece_of_a_time_is_no_line_and_a_line_without_an_end_is_one():
    position = Position()
    position.hold(b"2026-01-01T00:0", clean=False)
    assert position.finish() == []
    position.hold(stamped(10, "no end"), clean=False)
    assert [text for _, text in position.finish()] == ["no end"]
    position.hold(stamped(10, "cut"), clean=False)
    assert texts(position, stamped(12, "rotated")) == ["cut", "rotated"]


def test_the_time_of_a_line_is_in_utc():
    line = LogLine("worker", 0, "p", "c", "text", "2026-01-01T02:00:10.123456789+02:00")

    assert line.time is not None
    assert line.time.isoformat() == "2026-01-01T00:00:10.123456+00:00"
    assert LogLine("worker", 0, "p", "c", "text", "").time is None
