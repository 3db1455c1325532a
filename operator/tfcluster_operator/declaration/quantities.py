"""Quantities in the format of Kubernetes, such as 500m, 4Gi and 1e3 (resource.Quantity)."""

import re
from decimal import Decimal
from typing import Any, Final

_SPELLED: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?", re.ASCII
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
#: Quantities of Kubernetes have fewer digits before and after the point; ten to the power of a million takes a minute.
_LONGEST: Final = 40


def quantity(value: Any) -> Decimal | None:
    """Parse a quantity."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if len(text) > _LONGEST or (found := _SPELLED.fullmatch(text)) is None:
        return None
    number, binary, unit, power = Decimal(found[1]), found[2], found[3], int(found[4] or 0)
    if abs(power) > _LONGEST:
        return None
    if binary:
        return number * Decimal(2 ** _BINARY[binary])
    return number.scaleb(_DECIMAL[unit] if unit else power)


def whole(value: Any) -> int | None:
    """Parse a quantity of whole devices, such as GPUs; None if it is invalid, a fraction, or negative."""
    number = quantity(value)
    return int(number) if number is not None and number >= 0 and number == number.to_integral_value() else None


def is_whole(value: Any) -> bool:
    """Return whether a JSON value is a whole number."""
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
