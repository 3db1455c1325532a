"""The decisions for one plan so far, and the writes that were rejected, or that another controller reverted.

A *gate* is what one rejection closes: the Service, the views of a job, the pods of a job, a single object.  Steps that
need a closed gate wait; all others continue.  Back-offs are kept in memory and need not survive the process.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import CHIEF
from tfcluster_operator.objects.base import Child
from tfcluster_operator.plan.actions import (
    MOST_STEPS,
    PHASES,
    Action,
    Create,
    Delete,
    Finding,
    Gate,
    Group,
    Patch,
    Phase,
    Step,
)

#: Closed while the cluster's Service is not ours.
SERVICE: Final[Gate] = "Service"
#: Closed while a NetworkPolicy of the cluster's isolation does not exist: pods must not run unprotected.
ISOLATION: Final[Gate] = "isolation"
#: Closed while the ConfigMap that delivers the resolver is not ours.
RESOLVER: Final[Gate] = "resolver"


def gate_of(of: str, name: str) -> Gate:
    """Return the gate of one object of a kind, or of these parts of a job (or of a PodGroup)."""
    # ``views``, ``pods`` (their creation), ``template`` (the replacement of pods with an older one), ``placement`` (the
    # nodes that a queue allows are unknown), ``gang`` (its PodGroup).
    return f"{of} {name}"


#: Seconds of the first back-off after a rejection; it doubles with each rejection in a row, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: The longest for a problem whose end causes no event: another owner's object that holds a name, and an API server that
#: checks owner references and does not find our new CRD yet.
_LONGEST_WITHOUT_EVENT: Final = 4.0
TAKEN: Final = (reasons.NAME_TAKEN, reasons.RESOLVER_UNTRUSTED)
_NEW_CRD: Final = f"cannot find RESTMapping for APIVersion {naming.GROUP}/"
#: This number of repairs in a row is immediate; after that another writer keeps reverting them.
_PATIENCE: Final = 2
_LONGEST_TRUCE: Final = 300.0
#: A repair that is not needed again for this long (seconds) was not part of a conflict.
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
    """One closed gate, and its back-off in seconds; ``repair`` is what another writer reverts, "" for a rejection."""

    times: int
    until: float
    finding: Finding
    pause: float = 0.0
    repair: str = ""


@dataclass(frozen=True, slots=True)
class Holds:
    """The gates that rejections closed, and the repairs that another writer reverts."""

    gates: Mapping[Gate, Hold] = field(default_factory=dict)

    def closed(self, gate: Gate, now: float) -> Hold | None:
        """Return the hold on a gate that is still closed."""
        hold = self.gates.get(gate)
        return hold if hold is not None and hold.until > now else None

    def tried(self, gate: Gate) -> int:
        """Return how often in a row a gate was closed."""
        hold = self.gates.get(gate)
        return hold.times if hold is not None else 0

    def truce(self, action: Action, now: float) -> Hold | None:
        """Return the hold on a repair that another writer reverts each time."""
        hold = self.closed(_repair_gate(action), now)
        return hold if hold is not None and hold.repair == _repair(action) else None

    def told(self, refused: Mapping[Gate, Finding]) -> Iterator[Finding]:
        """Return the findings of the gates that were closed; the old message if only the task differs."""
        for gate, finding in refused.items():
            yield self.gates[gate].finding if gate in self.gates else finding

    def doubts(self, now: float) -> Iterator[Hold]:
        """Return the repairs that were just repeated and might be reverted again."""
        for hold in self.gates.values():
            if hold.repair and hold.times > _PATIENCE and hold.until == now + hold.pause:
                yield hold

    def after(
        self, refused: Mapping[Gate, Finding], passed: Iterable[Gate], done: Iterable[Action], now: float
    ) -> "Holds":
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
            # If only another task was tried, this is not worth another write of the status.
            same = before is not None and _same_but_for_numbers(before.finding, finding)
            told = before.finding if before is not None and same else finding
            no_event = finding.reason in TAKEN or _NEW_CRD in finding.message
            longest = _LONGEST_WITHOUT_EVENT if no_event else LONGEST_PAUSE
            # The API server recounts a quota some seconds after a pod is deleted, which lifts holds: a rejection before
            # that does not indicate how long rejections will continue.
            pause = min(longest, 2 * before.pause or FIRST_PAUSE) if before and times > 1 else FIRST_PAUSE
            gates[gate] = Hold(times, now + pause, told, pause)
        for action in done:
            if repair := _repair(action):
                gate = _repair_gate(action)
                known = gates.get(gate)
                times = known.times + 1 if known is not None and known.repair == repair else 1
                pause = 0.0 if times < _PATIENCE else min(_LONGEST_TRUCE, FIRST_PAUSE * 2.0 ** (times - _PATIENCE))
                gates[gate] = Hold(times, now + pause, _conflict(action, times), pause, repair)
        return Holds(gates)

    def lifted(self, now: float) -> "Holds":
        """Return the holds after an event that can let rejected writes succeed: they are tried again, as carefully."""
        return Holds(
            {
                gate: hold if hold.repair else replace(hold, until=min(hold.until, now), pause=0.0)
                for gate, hold in self.gates.items()
            }
        )


def _same_but_for_numbers(one: Finding, other: Finding) -> bool:
    return _NUMBERS.sub("", one.message) == _NUMBERS.sub("", other.message) and one.reason == other.reason


def _repair_gate(action: Action) -> Gate:
    return f"repair of {action.kind} {action.name}"


def _conflict(action: Action, times: int) -> Finding:
    name = f"{action.kind} {action.name}"
    message = f"{name} was corrected {times} times and changed back each time: find the other writer"
    return Finding(reasons.CONFLICTING_WRITES, message, gate=name)


def _repair(action: Action) -> str:
    """Return what a repair does, "" if an action is not a repair."""
    match action:
        case Patch(reason=reasons.READINESS_REPORTED, change=change):
            return digest(_NUMBERS.sub("", repr(change)))  # the time in it differs each time
        case Patch(reason=reason, change=change) if reason in _REPAIRS:
            return digest(repr(change))
        case Delete(reason=reason, toward=toward) if reason in _REPAIRS or toward:
            return f"{reason} {toward}"
        case Create(reason=reason, task=None) if reason in _REPAIRS:
            return reason
        case _:
            return ""


class Story:
    """Collects steps, findings and the times of the next reconcile."""

    def __init__(self, holds: Holds, now: float) -> None:
        self._holds = holds
        self._now = now
        self._steps: dict[Phase, list[Step]] = {phase: [] for phase in PHASES}
        self._closed: set[Gate] = set()
        self._told: set[Gate] = set()
        #: The gates of lost pods that are re-created: new pods wait for them, so that they do not use their resources.
        self._repairs: set[Gate] = set()
        #: The gates that tasks wait for; without the Service tasks cannot find each other.
        self.needed: set[Gate] = {SERVICE}
        self.findings: list[Finding] = []
        self.wake_after: list[float] = []

    def do(self, phase: Phase, action: Action, *, gate: Gate, needs: tuple[Gate, ...] = ()) -> None:
        """Plan one action, unless a recent rejection or a conflict with another writer blocks it."""
        if action.kind == "Pod" and isinstance(action, Create | Delete):
            self.needed.update((gate, *needs))
        if _repairs(action) and (not self.refusal(gate) or self.lacks_quota(gate)):
            self._repairs.add(gate)
        if (hold := self._holds.closed(gate, self._now)) is not None:
            self._closed.add(gate)
            if gate not in self._told:
                self._told.add(gate)
                self.wait(hold.finding, hold.until - self._now)
        elif (truce := self._holds.truce(action, self._now)) is not None:
            if not isinstance(action, Patch | Delete):
                # An object that is not restored for now is missing.
                self._closed.add(gate)
            self.wait(replace(truce.finding, gate=gate), truce.until - self._now)
        else:
            known = self._holds.gates.get(gate)
            if isinstance(action, Create) and known is not None and known.finding.reason in TAKEN:
                action = replace(action, looks_first=True)
            self._steps[phase].append(Step(action, gate, needs))

    def delete(
        self, child: Child, reason: str, *, phase: Phase = "free", needs: tuple[Gate, ...] = (), **more: Any
    ) -> None:
        """Plan to delete an object."""
        kind, meta = child.KIND, child.meta
        self.do(phase, Delete(kind, meta.name, meta.uid, reason, **more), gate=gate_of(kind, meta.name), needs=needs)

    def patch(
        self,
        child: Child,
        change: Mapping[str, Any] | None,
        reason: str,
        *,
        phase: Phase = "free",
        needs: tuple[Gate, ...] = (),
        **more: Any,
    ) -> None:
        """Plan to change an object, if there is a change."""
        kind, meta = child.KIND, child.meta
        if change:
            patch = Patch(kind, meta.name, meta.uid, change, reason, **more)
            self.do(phase, patch, gate=gate_of(kind, meta.name), needs=needs)

    def wait(self, finding: Finding, seconds: float | None = None) -> None:
        """Note an obstacle that the operator cannot remove, and when to try again."""
        self.findings.append(finding)
        if seconds is not None:
            self.wake_after.append(seconds)

    def close(self, gate: Gate, finding: Finding) -> None:
        """Note an obstacle, and block all steps that need this gate."""
        self._closed.add(gate)
        self.findings.append(replace(finding, gate=gate))

    def tried(self, gate: Gate) -> int:
        """Return how often in a row rejections closed a gate."""
        return self._holds.tried(gate)

    def refusal(self, gate: Gate) -> str:
        """Return the message that closed a gate, until a request succeeds, or ""."""
        hold = self._holds.gates.get(gate)
        return hold.finding.message if hold is not None else ""

    def lacks_quota(self, gate: Gate) -> bool:
        """Return whether a quota closed a gate."""
        return EXCEEDED_QUOTA in self.refusal(gate)

    @property
    def creates_pods(self) -> bool:
        """Whether a pod is to be created."""
        return any(
            isinstance(step.action, Create) and step.action.task for steps in self._steps.values() for step in steps
        )

    def groups(self) -> Iterator[Group]:
        """Return the steps that are not blocked, by phase, up to the limit of one reconcile."""
        room = MOST_STEPS
        for phase in PHASES:
            planned = self._steps[phase]
            if phase == "create":
                planned = sorted(map(self._after_repairs, planned), key=self._turn)
            steps = tuple(step for step in planned if self._closed.isdisjoint(step.needs))[:room]
            room -= len(steps)
            if steps:
                yield Group(phase, steps, careful=any(self._holds.tried(step.gate) for step in steps))

    def _after_repairs(self, step: Step) -> Step:
        """Make the pod of a new task wait for the lost pods of other jobs."""
        others = self._repairs - {step.gate}
        if not others or not isinstance(step.action, Create) or _repairs(step.action):
            return step
        return replace(step, needs=(*step.needs, *others))

    def _turn(self, step: Step) -> tuple[bool, int]:
        """Return the position of a creation: lost pods first, and those that other tasks depend on."""
        action = step.action
        if not isinstance(action, Create) or action.task is None:
            return False, 0
        return not (_repairs(action) and step.gate in self._repairs), _RANKS.get(action.task.job.name, len(_RANKS))


#: Part of the API server's message when a quota is full.
EXCEEDED_QUOTA: Final = "exceeded quota"
_RANKS: Final = {CHIEF: 0, "master": 0, "ps": 1}


def _repairs(action: Action) -> bool:
    """Return whether an action re-creates the pod of a task."""
    return isinstance(action, Create) and action.task is not None and action.reason != reasons.CREATED
