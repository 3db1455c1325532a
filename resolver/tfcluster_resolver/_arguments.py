"""Checks of arguments: each returns the value as we use it, or raises an ArgumentError that names the argument.

Messages name the type and not the value, which can be too long to print, or impossible.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from typing import Any, Final

from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError

#: A larger index, count or port is meaningless, and int() and str() reject some of them.
_LARGEST: Final = 2**63


def text(value: Any, name: str) -> str:
    """Check for a text that can be written to a file or a socket."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(f"{name} must be Unicode, not {value[:100]!a}") from None
    return value


def text_or_none(value: Any, name: str) -> str | None:
    return None if value is None else text(value, name)


def index(value: Any, name: str) -> int:
    """Check for a whole number, NumPy's included."""
    try:
        number = operator.index(value)
    except (TypeError, ValueError):  # arrays and booleans of NumPy's have the method, and raise
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if abs(number) > _LARGEST:
        raise ArgumentValueError(f"{name} is too large")
    return number


def index_or_none(value: Any, name: str) -> int | None:
    return None if value is None else index(value, name)


def seconds_or_none(value: Any, name: str) -> float | None:
    """Check for a number of seconds, or None for no end."""
    if value is None:
        return None
    try:
        # float() reads texts.
        number = None if isinstance(value, (bool, str, bytes, bytearray)) else float(value)
    except (TypeError, ValueError):
        number = None
    except OverflowError:
        raise ArgumentValueError(f"{name} is too large") from None
    if number is None:
        raise ArgumentTypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if math.isnan(number):
        raise ArgumentValueError(f"{name} must be a number of seconds, not nan")
    return number


def seconds(value: Any, name: str) -> float:
    """Check for a number of seconds, 0 or more."""
    number = seconds_or_none(value, name)
    if number is None:
        raise ArgumentTypeError(f"{name} must be a number of seconds, not None; math.inf waits forever")
    if number < 0:
        raise ArgumentValueError(f"{name} must be 0 seconds or more, not {number:g}")
    return number


def path(value: Any, name: str) -> str:
    """Check for a path, and make it one that another current directory does not change."""
    try:
        found = os.fsdecode(value)
        content = os.fsencode(found)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be a path, not {type(value).__name__}") from None
    except UnicodeEncodeError:
        content = b""
    if not content or b"\0" in content:
        raise ArgumentValueError(f"{name} must be the path of a file or folder, not {found[:100]!a}")
    try:
        return os.path.abspath(found)  # noqa: PTH100 - resolve() follows links, and the kubelet's is swapped
    except OSError as error:
        raise ArgumentValueError(f"{name} is relative, without a current directory: {error.strerror}") from error


def first_of(texts: Sequence[str], most: int = 10) -> str:
    """List the first of some texts, for a message, and how many more there are."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")
