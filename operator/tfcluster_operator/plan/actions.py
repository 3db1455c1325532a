"""The intended writes: what a plan is built from.

An action names what to do and why; it carries the UID of what it changes or deletes, so that an object re-created under
the same name is never hit.  A manifest is built when its action is carried out, not before: 2,000 of them need not
exist at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.views import JobViews

#: Builds the object that is to be created.
Build = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object.

    ``task`` is the one whose pod it is; ``replaces`` is the UID of a finished pod of the same name that is deleted
    first.  Without ``build`` it is the copy of the resolver for the whole namespace, which the executor has.
    """

    kind: str
    name: str
    reason: str
    build: Build | None = field(default=None, compare=False, repr=False)
    task: Task | None = None
    replaces: str = ""

    @property
    def is_resolver_copy(self) -> bool:
        """Whether it makes what all clusters of a namespace share."""
        return self.build is None


@dataclass(frozen=True, slots=True)
class Try:
    """Have the API server judge the pod that a changed template makes, without creating it.

    A running pod is not deleted for a template that nobody can make a pod of.
    """

    name: str
    reason: str
    build: Build = field(compare=False, repr=False)
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``change`` into the object of this name if it still has this UID; ``None`` in it removes a key.

    With a ``version``, the write fails if the object has changed since.
    """

    kind: str
    name: str
    uid: str
    change: Mapping[str, Any]
    reason: str
    subresource: str = ""
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of this name if it still has this UID; ``force`` asks no node whether its containers ended.

    ``toward`` is what its successor is to have that it has not: where each successor lacks it too, somebody takes it.
    The TFCluster itself is deleted when it has finished and its time to live is over.
    """

    kind: str
    name: str
    uid: str
    reason: str
    force: bool = False
    toward: str = field(default="", compare=False)


Action = Create | Try | Patch | Delete

#: What one rejection holds up: the Service, the views or the pods of a job, a single object.
Gate = str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be and that no action cures: a reason, a message, and the gate it closes."""

    reason: str
    message: str
    gate: Gate = field(default="", compare=False)


#: The steps of a reconcile, in this order.
Phase = Literal["publish", "tell", "free", "replace", "create"]
PHASES: Final[tuple[Phase, ...]] = ("publish", "tell", "free", "replace", "create")
#: A pass carries out no more steps: the status is told and an edit is heard before the rest.
MOST_STEPS: Final = 1_000
#: Closed while what a deletion would destroy is not written down.
EVIDENCE: Final[Gate] = "evidence"


@dataclass(frozen=True, slots=True)
class Step:
    """One action: ``gate`` is what its rejection closes, ``needs`` are the gates that must be open for it."""

    action: Action
    gate: Gate
    needs: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that are carried out side by side; ``careful`` ones first one, then two, then four at a time.

    So a thousand creations that are all rejected cost one request and not a thousand.
    """

    phase: Phase
    steps: tuple[Step, ...]
    careful: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    ``groups`` are carried out one after the other: views are published, running pods are told, what must go is freed,
    pods are replaced, missing ones are created.  Each prefix of them is a legal stopping point, and a rejection holds
    up nothing but what needs its gate.  ``wake_after`` is when to look again though nothing happens, in seconds.
    ``needed`` are the gates that tasks wait for: what closes another one keeps no task from being ready.
    """

    groups: tuple[Group, ...] = ()
    findings: tuple[Finding, ...] = ()
    wake_after: float | None = None
    views: tuple[JobViews, ...] = ()
    needed: frozenset[Gate] = frozenset()

    def holds_up_tasks(self, finding: Finding) -> bool:
        """Return whether a task waits for what a finding tells of."""
        return not finding.gate or finding.gate in self.needed

    @property
    def partial(self) -> bool:
        """Whether this is as much as one reconcile carries out, so that there might be more to do."""
        return sum(len(group.steps) for group in self.groups) >= MOST_STEPS

    @property
    def creates(self) -> bool:
        """Whether something is to be created."""
        return any(isinstance(one, Create) for one in self.actions)

    @property
    def only_amends(self) -> bool:
        """Whether nothing is created or deleted: a change to what a deleted cluster has left is no loss."""
        return all(isinstance(one, Try | Patch) for one in self.actions)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action, in order."""
        return tuple(step.action for group in self.groups for step in group.steps)
