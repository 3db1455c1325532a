"""TensorFlow's names of devices, of which a device filter is a part.

It decides what is a device name and when two can mean the same device, as TensorFlow's DeviceNameUtils does (the
functions ParseFullName and AreCompatibleDevNames).  It knows no cluster and no TensorFlow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from tfcluster_resolver.errors import ArgumentTypeError, DeviceFilterError, DeviceNameError

#: What TensorFlow keeps a number of a device name in; it drops the higher bits of a larger one.
LARGEST_NUMBER: Final = 2**31 - 1

_NAME: Final = "[A-Za-z][A-Za-z0-9_]*"
_PART: Final = re.compile(
    rf"/(?:job:(?P<job>\*|{_NAME})|replica:(?P<replica>\*|[0-9]+)|task:(?P<task>\*|[0-9]+)"
    rf"|device:(?P<type>\*|{_NAME})(?::(?P<id>\*|[0-9]+))?"
    r"|(?P<short_type>cpu|CPU|gpu|GPU):(?P<short_id>\*|[0-9]+))(?=/|\Z)"
)
#: How far a part is right, for the position of an error; and what should stand there.
_BEGINNINGS: Final = (
    (re.compile(rf"/job:(?:\*|{_NAME})?"), "a job's name (a letter, then letters, digits and _) or *"),
    (re.compile(r"/(?:replica|task|cpu|CPU|gpu|GPU):(?:\*|[0-9]+)?"), "a number or *"),
    (
        re.compile(rf"/device:(?:(?:\*|{_NAME})(?::(?:\*|[0-9]+)?)?)?"),
        "a device type, and after it : and a number or *",
    ),
)
_UINT64: Final = 2**64


@dataclass(frozen=True, slots=True)
class DeviceName:
    """A device name, taken apart; None stands for a part that is absent or ``*``.

    Attributes:
        job: the job.
        replica: TensorFlow's replica, which is 0 for every device there is.
        task: the task index.
        type: the device type, such as "CPU"; case matters.
        id: the device's number among those of its type.
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    type: str | None = None
    id: int | None = None

    def is_compatible_with(self, other: DeviceName) -> bool:
        """Tell whether both can mean one device: each part that both have is the same."""
        pairs = (
            (self.job, other.job),
            (self.replica, other.replica),
            (self.task, other.task),
            (self.type, other.type),
            (self.id, other.id),
        )
        return all(one is None or another is None or one == another for one, another in pairs)


def parse(text: str) -> DeviceName:
    """Take a device name apart, as TensorFlow does.

    The parts may stand in any order; of a repeated part the last counts.  Both "" and "/" mean any device.

    Raises:
        DeviceNameError: TensorFlow cannot read it; with the position.
        ArgumentTypeError: it is no text.
    """
    return _parse(text, DeviceNameError)


def parse_filter(text: str) -> DeviceName:
    """Take a device filter apart.

    Raises:
        DeviceFilterError: TensorFlow cannot read it; with the position.
        ArgumentTypeError: it is no text.
    """
    return _parse(text, DeviceFilterError)


def parse_exact_filter(text: str) -> DeviceName:
    """Take a device filter apart, and refuse numbers that TensorFlow would silently change.

    Raises:
        DeviceFilterError: TensorFlow cannot read it, or a number exceeds 2**31 - 1; with the position.
        ArgumentTypeError: it is no text.
    """
    name = parse_filter(text)
    for match in re.finditer(r":0*([0-9]{10,})", text):
        if int(match[1]) > LARGEST_NUMBER:
            raise _error(
                DeviceFilterError, text, match.start() + 1, f"a number of at most {LARGEST_NUMBER}: more would wrap"
            )
    return name


def is_job_name(text: str) -> bool:
    """Tell whether a job of TensorFlow's can have a name: a letter, then letters, digits and "_"."""
    return re.fullmatch(_NAME, text) is not None


def _parse(text: str, kind: type[DeviceNameError]) -> DeviceName:
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
    """Read a number as TensorFlow does, which keeps the lower 32 bits of what fits 64."""
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
