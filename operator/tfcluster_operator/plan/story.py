"""The decisions for one plan so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tfcluster_operator.declaration import reasons
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
from tfcluster_operator.plan.holds import Holds

#: Closed while the cluster's Service is not ours.
SERVICE: Final[Gate] = "Service"
#: Closed while a NetworkPolicy of the cluster's isolation does not exist: pods must not run unprotected.
ISOLATION: Final[Gate] = "isolation"
#: Closed while the ConfigMap that delivers the resolver is not ours.
RESOLVER: Final[Gate] = "resolver"


def gate_of(of: str, name: str) -> Gate:
    """Return the gate of one object of a kind, or of these parts of a job (or of a PodGroup).

    ``views``, ``pods`` (their creation), ``template`` (the replacement of pods with an older one), ``TF_CONFIG`` (while
    it is too long), ``placement`` (while the nodes that a queue allows are unknown), ``gang`` (while its PodGroup does
    not exist).
    """
    return f"{of} {name}"


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
