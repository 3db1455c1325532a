"""What a check of ``doctor`` finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its verdict, what was seen, and what to do (empty where nothing is wrong)."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""
