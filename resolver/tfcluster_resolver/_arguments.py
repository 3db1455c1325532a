"""What a caller gave: each check gives the value as we use it, or an error of ours that names the argument.

NB: messages name the type and not the value, which may be too long to print, or impossible.
"""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Final

from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError

#: No index, count or port that anybody means is larger; int() and str() refuse some that are.
_LARGEST: Final = 2**63


def text(value: Any, name: str) -> str:
    """Take a text that can be written to a file or a socket.

    Raises:
        ArgumentTypeError: it is none.
        ArgumentValueError: it holds half a character.
    """
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name} must be text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentValueError(f"{name} must be Unicode, not {value[:100]!a}") from None
    return value


def text_or_none(value: Any, name: str) -> str | None:
    """Take a text, or None; see :func:`text`."""
    return None if value is None else text(value, name)


def index(value: Any, name: str) -> int:
    """Take a whole number, also one of NumPy's; whether there is a task of that index is another question.

    Raises:
        ArgumentTypeError: it is none; True and False are none either.
        ArgumentValueError: it is too large for anything.
    """
    try:
        number = operator.index(value)
    except (TypeError, ValueError):  # arrays and booleans of NumPy's have the method, and refuse
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if abs(number) > _LARGEST:
        raise ArgumentValueError(f"{name} is too large")
    return number


def index_or_none(value: Any, name: str) -> int | None:
    """Take a whole number, or None; see :func:`index`."""
    return None if value is None else index(value, name)


def seconds_or_none(value: Any, name: str) -> float | None:
    """Take a number of seconds, or None for no end.

    Raises:
        ArgumentTypeError: it is no number.
        ArgumentValueError: it is "not a number".
    """
    if value is None:
        return None
    if isinstance(value, (bool, str, bytes, bytearray)):  # float() reads texts
        raise ArgumentTypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be a number of seconds, not {type(value).__name__}") from None
    except OverflowError:
        raise ArgumentValueError(f"{name} is too large") from None
    if math.isnan(number):
        raise ArgumentValueError(f"{name} must be a number of seconds, not nan")
    return number


def seconds(value: Any, name: str) -> float:
    """Take a number of seconds, 0 or more.

    Raises:
        ArgumentTypeError: it is no number.
        ArgumentValueError: it is below 0, or "not a number".
    """
    number = seconds_or_none(value, name)
    if number is None:
        raise ArgumentTypeError(f"{name} must be a number of seconds, not None; math.inf waits for ever")
    if number < 0:
        raise ArgumentValueError(f"{name} must be 0 seconds or more, not {number:g}")
    return number


def path(value: Any, name: str) -> str:
    """Take a path, and make it one that another current directory does not change.

    Raises:
        ArgumentTypeError: it is none.
        ArgumentValueError: no file can have that name, or it is relative and the current directory is gone.
    """
    try:
        found = os.fsdecode(value)
    except TypeError:
        raise ArgumentTypeError(f"{name} must be a path, not {type(value).__name__}") from None
    try:
        os.fsencode(found)
    except UnicodeEncodeError:
        raise ArgumentValueError(f"{name} must be the path of a file or folder, not {found[:100]!a}") from None
    if not found or "\0" in found:
        raise ArgumentValueError(f"{name} must be the path of a file or folder, not {found[:100]!a}")
    try:
        return os.path.abspath(found)  # noqa: PTH100 - resolve() follows links, and the kubelet's is swapped
    except OSError as error:
        raise ArgumentValueError(f"{name} is relative, and there is no current directory: {error.strerror}") from error
