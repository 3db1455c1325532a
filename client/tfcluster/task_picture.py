"""One task of a TFCluster as it is: how far it is, why not farther, and what its pod has.

Who a pod belongs to, how far a task is and what its end means are the operator's own decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.standing import clean
from tfcluster.task_names import spell
from tfcluster_operator.declaration import ledger as ledgers
from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job
from tfcluster_operator.life import departures
from tfcluster_operator.life.ending import Ending, words_for
from tfcluster_operator.life.gangs import Gang, awaited
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.life.start_order import awaited_jobs
from tfcluster_operator.objects.pod import Pod
from tfcluster_resolver import contract

#: States of tasks in which nothing has to be done and nothing is waited for.
GOOD: Final = frozenset({"Ready", "Completed", "Suspended", "CleanedUp"})
#: States of tasks in which something went wrong.
BAD: Final = frozenset({"Failed", "BackingOff", "NameTaken", "StuckTerminating", "Disrupted"})
#: The stages of which there is nothing more to say.
_PLAIN: Final = {Stage.SERVING: "Ready", Stage.COMPLETED: "Completed"}


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one extended resource: asked for, granted by the node, and healthy; None where it is not known."""

    requested: int
    granted: int | None = None
    healthy: int | None = None


@dataclass(frozen=True, slots=True)
class TaskPicture:
    """One task.

    Attributes:
        job: the job as TensorFlow spells it.
        index: the task's index.
        state: "Ready", "NotReady" (it runs), "Pending", "Terminating", "StuckTerminating", "Completed", "Failed",
            "Disrupted" (its pod was taken away), "BackingOff", "WaitingForQuota", "WaitingForGang", "WaitingForJob",
            "WaitingForPredecessor", "NameTaken", "Suspended", "CleanedUp" (the cluster has finished, its pod is gone),
            "Missing" (its pod is to be created) or "Draining" (it is no longer declared, and its pod stays for a
            while).
        cause: why it is not ready, in words; "" where there is nothing to say.
        pod: the name of its pod, "" where it has none.
        node: where the pod is, "" where it is nowhere.
        phase: the pod's phase as Kubernetes has it.
        since: when the pod was created, in seconds since the epoch; 0.0 where there is none.
        restarts: how often it failed before this pod, as far as the pod tells.
        devices: by extended resource.
        view: "delivered", "waiting" (it was not told of its newest view yet), "unknown" (its view cannot be read), or
            "" where no program runs that could read it.
        outdated: whether its pod was made from an older template.
        kept: the failed pods that are kept for their logs, the oldest first.
        next_try: when it is started again, in seconds since the epoch; 0.0 where nothing is planned.
    """

    job: str
    index: int
    state: str
    cause: str = ""
    pod: str = ""
    node: str = ""
    phase: str = ""
    since: float = 0.0
    restarts: int = 0
    devices: Mapping[str, Devices] = field(default_factory=dict)
    view: str = ""
    outdated: bool = False
    kept: tuple[str, ...] = ()
    next_try: float = 0.0

    @property
    def name(self) -> str:
        """The task as its pod is named, such as worker-3."""
        return spell(self.job, self.index)


@dataclass(frozen=True, slots=True)
class TaskDrawing:
    """Draws the tasks of a cluster: ``created`` by pod, ``files`` what pods are told of views, None if unreadable.

    ``gangs`` are those of the cluster, as far as its pods tell.
    """

    roster: Roster
    ledger: Ledger
    created: Mapping[str, float]
    files: Mapping[str, Mapping[str, str]] | None
    now: float
    gangs: Mapping[str, Gang]

    def task(self, job: Job, place: Place) -> TaskPicture:
        """Draw one declared task."""
        pod = place.own
        due = self._next_try(job, place)
        state, cause = self._state(job, place, due)
        return TaskPicture(
            job=job.name,
            index=place.task.index,
            state=state,
            cause=clean(cause),
            kept=tuple(one.meta.name for one in place.kept),
            next_try=due if state == "BackingOff" else 0.0,
            **({} if pod is None else self._of_pod(job, place.task.index, pod)),
            outdated=place.outdated,
            restarts=self._restarts(place),
        )

    def without_quota(self, job: Job, index: int) -> TaskPicture:
        """Draw a declared task for which the queue has granted no quota yet."""
        return TaskPicture(job.name, index, reasons.WAITING_FOR_QUOTA, self._in_the_queue())

    def _in_the_queue(self) -> str:
        return f"queue {self.roster.declared.queue} has granted it no quota yet"

    def surplus(self, job: Job, pod: Pod) -> TaskPicture:
        """Draw a pod that no declared task has a claim to."""
        label = pod.meta.labels.get(naming.LABEL_TASK_INDEX, "")
        index = int(label) if label.isascii() and label.isdecimal() else -1
        leaves = pod.surplus_since + job.drain_timeout_seconds
        cause = "it is no longer declared"
        if pod.meta.terminating:
            cause += ", and its pod is being deleted"
        elif pod.surplus_since:
            cause += f"; its pod is deleted at {ledgers.timestamp(leaves)[11:19]} UTC"
        return TaskPicture(job.name, index, "Draining", cause, **self._of_pod(job, index, pod))

    def _of_pod(self, job: Job, index: int, pod: Pod) -> dict[str, Any]:
        return {
            "pod": pod.meta.name,
            "node": pod.node,
            "phase": pod.phase,
            "since": self.created.get(pod.meta.name, 0.0),
            "devices": _devices(job, pod),
            "view": self._view(job, index, pod),
        }

    def _view(self, job: Job, index: int, pod: Pod) -> str:
        if not pod.listening:
            return ""
        name = naming.view_name(self.roster.cluster.name, job.name)
        if self.files is None or name not in self.files:
            return "unknown"
        files = self.files[name]
        newest = files.get(contract.task_view_file(index)) or files.get(contract.VIEW_FILE)
        return "delivered" if pod.told == newest else "waiting"

    def _restarts(self, place: Place) -> int:
        pod = place.own
        failing = self.ledger.of(place.task.job.name).failing.get(place.task.index)
        number = 0 if pod is None else max(pod.attempt, naming.first_pod_name(pod.meta.name)[1])
        return max(number, len(place.kept), 0 if failing is None else failing.in_row)

    def _next_try(self, job: Job, place: Place) -> float:
        record = self.ledger.of(job.name)
        failing = record.failing.get(place.task.index)
        return max(0.0 if failing is None else failing.retry_at, record.restart_at)

    def _state(self, job: Job, place: Place, due: float) -> tuple[str, str]:
        """Say how far a task is, and why not farther."""
        pod = place.own
        if place.stage in _PLAIN:
            return _PLAIN[place.stage], ""
        if place.stage is Stage.FOREIGN:
            return reasons.NAME_TAKEN, f"pod {place.name} exists and belongs to somebody else: delete or rename it"
        if place.stage is Stage.PREDECESSOR:
            return reasons.WAITING_FOR_PREDECESSOR, f"pod {place.name} of a deleted TFCluster is not gone yet"
        return self._without_pod(job, due) if pod is None else self._with_pod(place, pod, due)

    def _with_pod(self, place: Place, pod: Pod, due: float) -> tuple[str, str]:
        if place.stage is Stage.ENDED:
            return self._ended(place, pod, due)
        if place.stage is Stage.STARTING:
            if pod.phase == "Running":
                return "NotReady", pod.trouble or _silent(place.task.job)
            return "Pending", pod.trouble
        if departures.seconds_until_stuck(pod, self.now) <= 0:
            return reasons.STUCK_TERMINATING, departures.stuck_words(self.roster.cluster, pod)
        return "Terminating", ""

    def _ended(self, place: Place, pod: Pod, due: float) -> tuple[str, str]:
        if place.ending is Ending.SUCCEEDED:
            return "Completed", ""
        if place.ending is Ending.DISRUPTED:
            return "Disrupted", pod.trouble or pod.reason or "its node took it away"
        if due > self.now and self.ledger.verdict is None:
            return reasons.BACKING_OFF, f"{words_for(pod)}; {_at(due)}"
        return "Failed", words_for(pod)

    def _without_pod(self, job: Job, due: float) -> tuple[str, str]:
        if self.ledger.verdict is not None:
            return "CleanedUp", ""
        if self.roster.cluster.suspend:
            by_user = self.roster.declared.suspend
            return ("Suspended", "") if by_user else (reasons.WAITING_FOR_QUOTA, self._in_the_queue())
        if due > self.now:
            return reasons.BACKING_OFF, _at(due)
        if before := awaited_jobs(self.roster, job, self.ledger):
            return reasons.WAITING_FOR_JOB, f"job {job.name} starts after {', '.join(before)}"
        if waited_for := awaited(self.gangs, job):
            return reasons.WAITING_FOR_GANG, f"gang {', '.join(one.name for one in waited_for)} has no places yet"
        return "Missing", "its pod is to be created"


def _silent(job: Job) -> str:
    probed = any("readinessProbe" in one for one in (job.template.get("spec") or {}).get("containers") or ())
    return "it runs, and its readiness probe has not succeeded yet" if probed else "it runs, and is not ready yet"


def _at(due: float) -> str:
    return f"next try at {ledgers.timestamp(due)[11:19]} UTC"


def _devices(job: Job, pod: Pod) -> dict[str, Devices]:
    """Count the devices of one pod: a node grants all that is asked for or does not start the pod."""
    limits, runs = job.limits(), pod.phase == "Running"
    healthy = pod.devices or {}
    return {
        resource: Devices(count, count if runs else None, healthy.get(resource, count) if runs else None)
        for resource, count in limits.items()
    }
