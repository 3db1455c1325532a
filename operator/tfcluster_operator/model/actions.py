"""The intended writes: what a plan is made of.

An action names what to do and why; it carries the UID of what it changes or deletes, so that an object reborn under the
same name is never hit.  Manifests are built when an action is carried out, not before: 2,000 of them need not exist at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tfcluster_operator.model import naming
from tfcluster_operator.model.budgets import Budget
from tfcluster_operator.model.isolation import Policy
from tfcluster_operator.model.spec import Task
from tfcluster_operator.model.views import JobViews

Kind = Literal[
    "Service",
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PodGroup",
    "Workload",
    "ResourceFlavor",
    "Pod",
]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the cluster's headless Service."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class CreateNetworkPolicy:
    """Create one NetworkPolicy of the cluster's isolation."""

    policy: Policy
    reason: str


@dataclass(frozen=True, slots=True)
class CreateDisruptionBudget:
    """Create the PodDisruptionBudget of one job."""

    budget: Budget
    reason: str


@dataclass(frozen=True, slots=True)
class CreatePodGroup:
    """Create the PodGroup of one gang: ``min_count`` of its pods get their places at once, or none does.

    ``job`` is the one whose gang it is, "" where it is that of all jobs that start at once.
    """

    name: str
    job: str
    min_count: int
    priority_class: str
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a Workload should say: in which queue, for which pods, with which priority.

    ``pod_sets`` are as Kueue has them, and ``asks`` digests what a pod of each asks for.  ``priority_class`` is a
    PriorityClass where ``priority_of_pods`` says that the pods' own decides, else a WorkloadPriorityClass; "" if none.
    """

    name: str
    queue: str
    pod_sets: tuple[Mapping[str, Any], ...]
    asks: str
    priority_class: str
    priority_of_pods: bool


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Ask a queue for quota."""

    claim: Wanted
    reason: str


@dataclass(frozen=True, slots=True)
class CreateConfigMap:
    """Create the ConfigMap with one job's views."""

    views: JobViews
    reason: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one task's pod; ``replaces`` is the UID of a finished pod of the same name that is deleted first.

    ``attempt`` is how many failures in a row went before it, ``incarnation`` how many restarts of the whole job.
    ``replacement`` is how many lost pods of the job are counted, where the pod comes in place of one of them, else 0.
    ``view`` is the text of the task's view, where TF_CONFIG is made of it.  ``group`` is the PodGroup with which the
    pod gets its place, "" if for itself.
    """

    task: Task
    name: str
    view_digest: str
    attempt: int
    reason: str
    replaces: str = ""
    incarnation: int = 0
    replacement: int = 0
    group: str = ""
    view: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class TryPod:
    """Have the API server judge the pod that a changed template makes, without creating it.

    A running pod is not deleted for a template that nobody can make a pod of.  ``view`` is as in CreatePod.
    """

    task: Task
    name: str
    reason: str
    view: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``change`` into the object of this name if it still has this UID; ``None`` in it removes a key.

    Where it says a ``version``, nobody may have written to the object since.
    """

    kind: Kind
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
    """

    kind: Kind
    name: str
    uid: str
    reason: str
    force: bool = False
    toward: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CreateResolver:
    """Create the ConfigMap that delivers the resolver into the pods of the namespace."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    """Delete the TFCluster itself: it has finished and its time to live is over."""

    name: str
    uid: str
    reason: str


Action = (
    CreateService
    | CreateNetworkPolicy
    | CreateDisruptionBudget
    | CreatePodGroup
    | CreateWorkload
    | CreateConfigMap
    | CreateResolver
    | CreatePod
    | TryPod
    | Patch
    | Delete
    | DeleteCluster
)


#: What one refusal holds up: the Service, the views or the pods of a job, a single object.
Gate = str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be and that no action cures: a reason, a message, and the gate it closes."""

    reason: str
    message: str
    gate: Gate = field(default="", compare=False)


#: The steps of a pass, in this order.
Phase = Literal["publish", "tell", "free", "replace", "create"]
PHASES: Final[tuple[Phase, ...]] = ("publish", "tell", "free", "replace", "create")
#: A pass carries out no more steps: the status is told and an edit is heard before the rest.
MOST_STEPS: Final = 1_000
#: Closed while what a deletion would destroy is not written down.
EVIDENCE: Final[Gate] = "evidence"


@dataclass(frozen=True, slots=True)
class Step:
    """One action: ``gate`` is what its refusal closes, ``needs`` are the gates that must be open for it."""

    action: Action
    gate: Gate
    needs: tuple[Gate, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that are carried out side by side; ``careful`` ones first one, then two, then four at a time.

    So a thousand creations that are all refused cost one request and not a thousand.
    """

    phase: Phase
    steps: tuple[Step, ...]
    careful: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    ``groups`` are carried out one after the other: views are published, running pods are told, what must go is freed,
    pods are replaced, missing ones are created.  Each prefix of them is a legal stopping point, and a refusal holds up
    nothing but what needs its gate.  ``wake_after`` is when to look again though nothing happens, in seconds.
    ``needed`` are the gates that tasks wait for: what closes another one keeps no task from being ready.
    """

    groups: tuple[Group, ...] = ()
    findings: tuple[Finding, ...] = ()
    wake_after: float | None = None
    views: tuple[JobViews, ...] = field(default=())
    needed: frozenset[Gate] = frozenset()

    def holds_up_tasks(self, finding: Finding) -> bool:
        """Tell whether a task waits for what a finding tells of."""
        return not finding.gate or finding.gate in self.needed

    @property
    def partial(self) -> bool:
        """Whether this is as much as one pass carries out, so that there may be more to do."""
        return sum(len(group.steps) for group in self.groups) >= MOST_STEPS

    @property
    def creates(self) -> bool:
        """Whether something is to be created."""
        return any(not isinstance(one, TryPod | Patch | Delete | DeleteCluster) for one in self.actions)

    @property
    def only_amends(self) -> bool:
        """Whether nothing is created or deleted: a change to what a deleted cluster has left is no loss."""
        return all(isinstance(one, TryPod | Patch) for one in self.actions)

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action, in order."""
        return tuple(step.action for group in self.groups for step in group.steps)


def subject_of(action: Action) -> tuple[str, str]:
    """Give the kind and the name of the object that an action concerns."""
    match action:
        case CreateService(name=name):
            subject = "Service", name
        case CreateNetworkPolicy(policy=Policy(name=name)):
            subject = "NetworkPolicy", name
        case CreateDisruptionBudget(budget=Budget(name=name)):
            subject = "PodDisruptionBudget", name
        case CreatePodGroup(name=name):
            subject = "PodGroup", name
        case CreateWorkload(claim=Wanted(name=name)):
            subject = "Workload", name
        case CreateConfigMap(views=JobViews(name=name)) | CreateResolver(name=name):
            subject = "ConfigMap", name
        case CreatePod(name=name) | TryPod(name=name):
            subject = "Pod", name
        case DeleteCluster(name=name):
            subject = naming.KIND, name
        case Patch(kind=kind, name=name) | Delete(kind=kind, name=name):
            subject = kind, name
    return subject
