"""The intended writes: what a plan is built from.

An action names an object and the reason for the change; it carries the UID of what it changes or deletes, so that it
never affects an object re-created under the same name.  A manifest is built when its action is carried out, not before:
2,000 of them need not exist simultaneously.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.views import JobViews

#: Builds the object that is to be created.
Build = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object, after what it replaces (a UID) is deleted; without ``build`` it is the resolver's ConfigMap."""

    kind: str
    name: str
    reason: str
    build: Build | None = field(default=None, compare=False, repr=False)
    task: Task | None = None
    replaces: str = ""
    #: Whether another object had the name: a create that fails with AlreadyExists uses up the namespace's quota.
    looks_first: bool = field(default=False, compare=False)

    @property
    def is_resolver_copy(self) -> bool:
        """Whether it creates the ConfigMap that all clusters of a namespace share."""
        return self.build is None


@dataclass(frozen=True, slots=True)
class Try:
    """Validate the pod of a changed template with a dry run, before a running pod is deleted for it."""

    name: str
    reason: str
    build: Build = field(compare=False, repr=False)
    kind: str = "Pod"


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``change`` into the object if it still has this UID and, if given, this version; None removes a key."""

    kind: str
    name: str
    uid: str
    change: Mapping[str, Any]
    reason: str
    subresource: str = ""
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object if it still has this UID; ``toward`` is what the pod lacks, and its replacement should have."""

    kind: str
    name: str
    uid: str
    reason: str
    force: bool = False
    toward: str = field(default="", compare=False)


Action = Create | Try | Patch | Delete

#: The objects that one rejection blocks: the Service, the views or the pods of a job, a single object.
Gate = str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that no action solves: a reason, a message, and the gate that it closes."""

    reason: str
    message: str
    gate: Gate = field(default="", compare=False)


#: The steps of a reconcile, in this order.
Phase = Literal["publish", "tell", "free", "replace", "create"]
PHASES: Final[tuple[Phase, ...]] = ("publish", "tell", "free", "replace", "create")
#: One reconcile carries out this number of steps at most, so that the status and edits are not delayed.
MOST_STEPS: Final = 1_000
#: Closed while the status lacks a record of what a deletion would destroy.
EVIDENCE: Final[Gate] = "evidence"


@dataclass(frozen=True, slots=True)
class Step:
    """One action: ``gate`` is what its rejection closes, ``needs`` are the gates that must be open for it."""

    action: Action
    gate: Gate
    needs: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that are carried out in parallel; ``careful`` ones first one, then two, then four at a time."""

    phase: Phase
    steps: tuple[Step, ...]
    careful: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now: groups one after the other; a rejection blocks only the steps that need its gate."""

    groups: tuple[Group, ...] = ()
    findings: tuple[Finding, ...] = ()
    wake_after: float | None = None
    views: tuple[JobViews, ...] = ()
    needed: frozenset[Gate] = frozenset()

    def holds_up_tasks(self, finding: Finding) -> bool:
        """Return whether a task waits because of a finding."""
        return not finding.gate or finding.gate in self.needed

    @property
    def partial(self) -> bool:
        """Whether the plan is as large as one reconcile allows, so that more might remain to do."""
        return sum(len(group.steps) for group in self.groups) >= MOST_STEPS

    @property
    def creates(self) -> bool:
        """Whether something is to be created."""
        return any(isinstance(one, Create) for one in self.actions)

    @property
    def only_amends(self) -> bool:
        """Whether nothing is created or deleted: changing an object that a deleted cluster left does no harm."""
        return all(isinstance(one, Try | Patch) for one in self.actions)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action, in order."""
        return tuple(step.action for group in self.groups for step in group.steps)
