"""The checks of ``tfcluster doctor``, and what to do; docs/reference/conditions.md explains the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from tfcluster_operator.declaration import reasons

Verdict = Literal["ok", "warning", "failed", "unknown"]

#: The most severe first; "unknown" means that this user is not permitted to read it.
GRAVITY: Final[tuple[Verdict, ...]] = ("failed", "warning", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that could not be read, and why."""

    why: str


def worst(checks: Iterable[Check]) -> Verdict:
    """Return the worst verdict; "unknown" is not a fault."""
    found = {one.verdict for one in checks}
    return next((verdict for verdict in ("failed", "warning") if verdict in found), "ok")


def what_to_do(checks: Sequence[Check]) -> list[str]:
    """Return what to do, the most important first: later checks depend on earlier ones."""
    wrong = [one for verdict in GRAVITY for one in checks if one.verdict == verdict and one.remedy]
    return list(dict.fromkeys(one.remedy for one in wrong))


def document_of(checks: Sequence[Check]) -> dict[str, Any]:
    return {"verdict": worst(checks), "checks": [asdict(one) for one in checks], "toDo": what_to_do(checks)}


#: Remedies by reason, where NAME stands for the cluster: of waits that can end by themselves, and of causes that a user
#: has to fix. Reasons that only need time are not here.
_OF_WAITS: Final = {
    reasons.TASKS_NOT_READY: "Fix what `tfcluster status NAME` names beside the tasks that are not ready.",
    reasons.BACKING_OFF: "Read the log of the task that failed: `tfcluster logs NAME --previous`.",
    reasons.WAITING_FOR_GANG: "Make room: end, suspend or scale down another cluster, or this one.",
    reasons.WAITING_FOR_QUOTA: "Wait for its turn, or ask who runs the queue: `kubectl get workloads.kueue.x-k8s.io`.",
    reasons.WAITING_FOR_JOB: "Look at the job that is waited for: `tfcluster status NAME`.",
    reasons.WAITING_FOR_PREDECESSOR: "Wait; if an object of the deleted TFCluster stays, look at its finalizers.",
    reasons.DELETING: "Find out who put its finalizers there; `kubectl get tfc NAME -o yaml` shows them.",
}
GRAVE: Final = {
    reasons.GANG_UNAVAILABLE: "Have an administrator switch PodGroups on, or remove spec.scheduling.gang.",
    reasons.GANG_TIMEOUT: "Make room, then suspend and resume it; one that has failed must be created again.",
    reasons.QUEUE_UNAVAILABLE: "Have an administrator install Kueue, or remove the label kueue.x-k8s.io/queue-name.",
    reasons.STUCK_TERMINATING: "Bring the node back, delete its Node object, or set spec.forceDeleteAfterSeconds.",
    reasons.RESOLVER_UNTRUSTED: "Find out who made that ConfigMap, and delete it: the operator makes the right one.",
    reasons.NAME_TAKEN: "Delete or rename the object that has the name, or give the TFCluster another name.",
    reasons.REJECTED: "Fix what the API server's message names: a quota, Pod Security, a policy, or a field.",
    reasons.REQUEST_FAILED: "Repair what the API server's message names, such as a webhook that does not answer.",
    reasons.CONFLICTING_WRITES: "Find the program that writes to the object (its metadata.managedFields), and stop it.",
    reasons.VIEW_TOO_LARGE: "Declare deviceFilters, so that each task sees fewer others, or fewer tasks.",
    reasons.TF_CONFIG_TOO_LARGE: "Declare deviceFilters, so that each task sees fewer others, or fewer tasks.",
    reasons.INVALID_SPEC: "Correct the spec as the message says, and update the CRD.",
    reasons.TASK_FAILED: "Read the task's log: `tfcluster logs NAME`. Delete and create the cluster to run it again.",
    reasons.PERMANENT_EXIT_CODE: "Read the task's log: `tfcluster logs NAME`. Its program says that another try fails.",
    reasons.BACKOFF_LIMIT_EXCEEDED: "Read the task's log: `tfcluster logs NAME`. Raise backoffLimit if that is normal.",
    reasons.DEADLINE_EXCEEDED: "Give it more time in spec.activeDeadlineSeconds, or find out what it waited for.",
}
REMEDIES: Final = {**_OF_WAITS, **GRAVE}


def remedy_for(reason: str, name: str) -> str:
    """Return what to do about a reason; "" if nothing has to be done."""
    return REMEDIES.get(reason, "").replace("NAME", name)
