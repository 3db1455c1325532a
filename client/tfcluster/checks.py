"""What the checks of ``tfcluster doctor`` find, and what follows from them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Verdict = Literal["ok", "warning", "failed", "unknown", "skipped"]

#: From the worst on; "unknown" is what this user may not see, "skipped" what does not apply here.
GRAVITY: Final[tuple[Verdict, ...]] = ("failed", "warning", "unknown", "ok", "skipped")


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: what was looked at, in a word or two.
        verdict: what was found.
        message: what was seen, in words.
        remedy: what to do; "" where nothing is to be done.
    """

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be looked at, and why."""

    why: str


def unknown(name: str, *answers: Any) -> Iterator[Check]:
    """Say that a check is not possible, once for the first answer that is missing."""
    for answer in answers:
        if isinstance(answer, Unknown):
            yield Check(name, "unknown", answer.why)
            return


def worst(checks: Iterable[Check]) -> Verdict:
    """Give the worst verdict; what is unknown is no fault."""
    found = {one.verdict for one in checks}
    return next((verdict for verdict in ("failed", "warning") if verdict in found), "ok")


def what_to_do(checks: Sequence[Check]) -> list[str]:
    """Give what to do, the most important first: checks build on each other in the order in which they come."""
    wrong = [one for verdict in GRAVITY for one in checks if one.verdict == verdict and one.remedy]
    return list(dict.fromkeys(one.remedy for one in wrong))


def document_of(checks: Sequence[Check]) -> dict[str, Any]:
    """Spell checks for programs.

    Returns:
        ``verdict`` (the worst), ``checks``, each with ``name``, ``verdict``, ``message`` and ``remedy``, and ``toDo``,
        the remedies by importance.
    """
    spelled = [
        {"name": one.name, "verdict": one.verdict, "message": one.message, "remedy": one.remedy} for one in checks
    ]
    return {"verdict": worst(checks), "checks": spelled, "toDo": what_to_do(checks)}
