"""Amounts as Kubernetes spells them, such as 500m, 4Gi and 1e3."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

_SPELLED: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def amount(text: Any) -> Decimal:
    """Read an amount; 0 where it is none, by the grammar of Kubernetes' resource.Quantity."""
    found = _SPELLED.fullmatch(str(text).strip())
    if found is None:
        return Decimal(0)
    try:
        number = Decimal(found[1])
    except InvalidOperation:
        return Decimal(0)
    unit = found[2] or ""
    return number * (Decimal(2) ** _BINARY[unit] if unit in _BINARY else Decimal(10) ** _DECIMAL.get(unit, 0))
