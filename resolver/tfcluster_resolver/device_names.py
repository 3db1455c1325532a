"""TensorFlow's names of devices; a device filter is a part of one.

It reads and compares them as TensorFlow's DeviceNameUtils does (ParseFullName and AreCompatibleDevNames).
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from tfcluster_resolver.errors import ArgumentTypeError, DeviceFilterError, DeviceNameError

#: TensorFlow drops the higher bits of a larger number in a device name.
LARGEST_NUMBER: Final = 2**31 - 1

_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
_PART: Final = re.compile(
    rf"/(?:job:(?P<job>\*|{_NAME})|replica:(?P<replica>\*|[0-9]+)|task:(?P<task>\*|[0-9]+)"
    rf"|device:(?P<type>\*|{_NAME})(?::(?P<id>\*|[0-9]+))?"
    r"|(?P<short_type>cpu|CPU|gpu|GPU):(?P<short_id>\*|[0-9]+))(?=/|\Z)"
)
#: The number of valid characters of a part, for the position of an error; and the expected text there.
_BEGINNINGS: Final = (
    (re.compile(rf"/job:(?:\*|{_NAME})?"), "a job's name (a letter, then letters, digits and _) or *"),
    (re.compile(r"/(?:replica|task|cpu|CPU|gpu|GPU):(?:\*|[0-9]+)?"), "a number or *"),
    (
        re.compile(rf"/device:(?:(?:\*|{_NAME})(?::(?:\*|[0-9]+)?)?)?"),
        "a device type, and after it : and a number or *",
    ),
)
_UINT64: Final = 2**64


class DeviceName(NamedTuple):
    """A device name, taken apart; None stands for a part that is absent or ``*``, and case matters."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    id: int | None = None

    def is_compatible_with(self, other: DeviceName) -> bool:
        """Return whether both can mean one device: each part that both have is the same."""
        pairs = zip(self, other, strict=True)
        return all(one is None or another is None or one == another for one, another in pairs)


def parse_exact_filter(text: str) -> DeviceName:
    """Take a device filter apart, and reject numbers that TensorFlow would silently change."""
    name = parse(text, DeviceFilterError)
    for match in re.finditer(r":0*([0-9]{10,})", text):
        if int(match[1]) > LARGEST_NUMBER:
            raise _error(
                DeviceFilterError, text, match.start() + 1, f"a number of at most {LARGEST_NUMBER}: more would wrap"
            )
    return name


def is_job_name(text: str) -> bool:
    """Return whether a job of TensorFlow's can have a name: a letter, then letters, digits and "_"."""
    return re.fullmatch(_NAME, text) is not None


def parse(text: str, kind: type[DeviceNameError] = DeviceNameError) -> DeviceName:
    """Take a device name or filter apart; of a repeated part the last counts, and "" and "/" mean any device."""
    if not isinstance(text, str):
        raise ArgumentTypeError(f"a device {_what(kind)} is a text, not {type(text).__name__}: {text!r}")
    job: str | None = None
    device_type: str | None = None
    numbers: dict[Literal["replica", "task", "id"], int | None] = {}
    position = 0
    while position < len(text) and text != "/":
        part = _PART.match(text, position)
        if part is None:
            raise _error(kind, text, *_wrong_at(text, position))
        if part["job"] is not None:
            job = _value(part["job"])
        elif part["replica"] is not None:
            numbers["replica"] = _number(part, "replica", kind)
        elif part["task"] is not None:
            numbers["task"] = _number(part, "task", kind)
        elif part["type"] is not None:
            device_type, numbers["id"] = _value(part["type"]), _number(part, "id", kind)
        else:
            device_type, numbers["id"] = part["short_type"].upper(), _number(part, "short_id", kind)
        position = part.end()
    return DeviceName(job=job, type=device_type, **numbers)


def _value(text: str) -> str | None:
    return None if text == "*" else text


def _number(part: re.Match[str], group: str, kind: type[DeviceNameError]) -> int | None:
    """Parse a number like TensorFlow, which keeps the lower 32 bits of a number that fits 64."""
    if part[group] in {None, "*"}:
        return None
    value = 0
    for digit in part[group]:
        longer = (value * 10 + int(digit)) % _UINT64
        if longer // 8 < value:  # TensorFlow's way to notice that 64 bits do not hold it
            raise _error(kind, part.string, part.start(group), "a smaller number")
        value = longer
    low = value % 2**32
    return low if low <= LARGEST_NUMBER else low - 2**32


def _wrong_at(text: str, position: int) -> tuple[int, str]:
    for beginning, expected in _BEGINNINGS:
        match = beginning.match(text, position)
        if match is not None:
            complete = not match[0].endswith(":")
            return match.end(), "/ and the next part, or the end" if complete else expected
    return position, "/job:, /replica:, /task:, /device:, /cpu: or /gpu:"


def _error(kind: type[DeviceNameError], text: str, position: int, expected: str) -> DeviceNameError:
    found = repr(text[position]) if position < len(text) else "its end"
    return kind(
        f"TensorFlow cannot read the device {_what(kind)} {text!r}: at position {position} is {found}, "
        f"expected {expected}",
        position=position,
    )


def _what(kind: type[DeviceNameError]) -> str:
    return "filter" if issubclass(kind, DeviceFilterError) else "name"
