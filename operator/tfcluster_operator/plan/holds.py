"""What was rejected or undone a moment ago, and is tried again after a pause that grows.

A *gate* is what one rejection closes: the Service, the views of a job, the pods of a job, a single object.  Whatever
needs a closed gate waits; everything else continues.  The pauses are kept by the process and need not survive it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.plan.actions import Action, Create, Delete, Finding, Gate, Patch

#: Seconds of the first pause after a rejection; it doubles with each rejection in a row, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: The longest while the API server, where it checks owner references, does not know our kind yet: that ends by itself.
_IN_VIEW_OF_A_NEW_KIND: Final = 4.0
_NEW_KIND: Final = f"cannot find RESTMapping for APIVersion {naming.GROUP}/"
#: What was corrected so often in a row is corrected at once; after that somebody else keeps undoing it.
_PATIENCE: Final = 2
_LONGEST_TRUCE: Final = 300.0
#: A repair that is not needed again for this long (seconds) was no part of a quarrel.
_FORGOTTEN_AFTER: Final = 600.0
_NUMBERS: Final = re.compile(r"[0-9]+")
_REPAIRS: Final = frozenset(
    {
        reasons.REPAIRED,
        reasons.VIEW_CHANGED,
        reasons.ISOLATION_CHANGED,
        reasons.RECREATED,
        reasons.READINESS_REPORTED,
    }
)


@dataclass(frozen=True, slots=True)
class Hold:
    """One closed gate: how often in a row it was closed, until when (seconds since the epoch), and why.

    ``pause`` is how many seconds it was closed for; 0 once something happened that can let through what was rejected.
    """

    times: int
    until: float
    finding: Finding
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Quarrel:
    """A repair that was repeated: what it was, how often in a row, and when last."""

    what: str
    times: int
    last: float

    @property
    def next_try(self) -> float:
        """When it is repeated, if it has to be."""
        return self.last + min(_LONGEST_TRUCE, FIRST_PAUSE * 2.0 ** (self.times - _PATIENCE))

    def finding(self, name: str) -> Finding:
        """Return what is wrong with the object of this name."""
        message = f"{name} was corrected {self.times} times and changed back each time: find the other writer"
        return Finding(reasons.CONFLICTING_WRITES, message, gate=name)


@dataclass(frozen=True, slots=True)
class Holds:
    """The gates that rejections closed, and the repairs that somebody undoes."""

    gates: Mapping[Gate, Hold] = field(default_factory=dict)
    quarrels: Mapping[str, Quarrel] = field(default_factory=dict)

    def closed(self, gate: Gate, now: float) -> Hold | None:
        """Return the hold on a gate that is closed still."""
        hold = self.gates.get(gate)
        return hold if hold is not None and hold.until > now else None

    def tried(self, gate: Gate) -> int:
        """Return how often in a row a gate was closed."""
        hold = self.gates.get(gate)
        return hold.times if hold is not None else 0

    def truce(self, action: Action, now: float) -> tuple[float, Finding] | None:
        """Return how long, in seconds, a repair waits because somebody undoes it each time; None where it does not."""
        what, name = _repair(action)
        known = self.quarrels.get(name)
        if known is None or known.what != what or known.times < _PATIENCE:
            return None
        left = known.next_try - now
        return None if left <= 0 else (left, known.finding(name))

    def told(self, refused: Mapping[Gate, Finding]) -> Iterator[Finding]:
        """Give what to tell of the gates that a pass closed: the same words as before, where only the task differs."""
        for gate, finding in refused.items():
            yield self.gates[gate].finding if gate in self.gates else finding

    def doubts(self, now: float) -> Iterator[tuple[float, Finding]]:
        """Give what was put right this moment, again, and whether that lasts must be seen: the time of the next try."""
        for name, quarrel in self.quarrels.items():
            if quarrel.times > _PATIENCE and quarrel.last == now:
                yield quarrel.next_try - now, quarrel.finding(name)

    def after(
        self, refused: Mapping[Gate, Finding], passed: Iterable[Gate], done: Iterable[Action], now: float
    ) -> Holds:
        """Return the holds after a reconcile."""
        let_through = set(passed)
        gates = {
            gate: hold
            for gate, hold in self.gates.items()
            if gate not in let_through and now - hold.until < _FORGOTTEN_AFTER
        }
        for gate, finding in refused.items():
            times = 1 if gate in let_through else self.tried(gate) + 1
            before = self.gates.get(gate)
            # Where only another task was tried, that is not worth another status.
            same = before is not None and _same_but_for_numbers(before.finding, finding)
            told = before.finding if before is not None and same else finding
            longest = _IN_VIEW_OF_A_NEW_KIND if _NEW_KIND in finding.message else LONGEST_PAUSE
            # A quota is counted again some seconds after a pod has gone, which lifts holds: what is rejected until then
            # says nothing of how long it will be rejected.
            pause = min(longest, 2 * before.pause or FIRST_PAUSE) if before and times > 1 else FIRST_PAUSE
            gates[gate] = Hold(times, now + pause, told, pause)
        quarrels = {name: one for name, one in self.quarrels.items() if now - one.last < _FORGOTTEN_AFTER}
        for action in done:
            what, name = _repair(action)
            if what:
                known = quarrels.get(name)
                times = known.times + 1 if known is not None and known.what == what else 1
                quarrels[name] = Quarrel(what, times, now)
        return Holds(gates, quarrels)

    def lifted(self, now: float) -> Holds:
        """Return the holds after something happened that can let rejected things pass: an edit, a pod that went.

        What is rejected still is tried again after short pauses that grow again, as carefully as before.
        """
        return replace(
            self,
            gates={gate: replace(hold, until=min(hold.until, now), pause=0.0) for gate, hold in self.gates.items()},
        )


def _same_but_for_numbers(one: Finding, other: Finding) -> bool:
    return _NUMBERS.sub("", one.message) == _NUMBERS.sub("", other.message) and one.reason == other.reason


def _repair(action: Action) -> tuple[str, str]:
    """Return what a repair does and to which object, ("", "") of an action that is none."""
    about = f"{action.kind} {action.name}"
    match action:
        case Patch(reason=reasons.READINESS_REPORTED, change=change):
            # Each time it tells another time.
            return digest(_NUMBERS.sub("", repr(change))), about
        case Patch(reason=reason, change=change) if reason in _REPAIRS:
            return digest(repr(change)), about
        case Delete(reason=reason, toward=toward) if reason in _REPAIRS or toward:
            return f"{reason} {toward}", about
        case Create(reason=reason, task=None) if reason in _REPAIRS:
            return reason, about
        case _:
            return "", ""
