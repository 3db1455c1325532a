"""A TFCluster and its tasks as they are, as values: what ``tfcluster status`` shows.

All functions here are pure: they do not send requests, read a clock or use a terminal. The owner of a pod, the state
of a task and the meaning of its end are decided by the operator's own code.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.kube.api import seconds_of
from tfcluster.kube.observed import observe_pods
from tfcluster.status.standing import Standing, standing_of
from tfcluster.tasks import spell, task_of_labels
from tfcluster.terminal import clean
from tfcluster_operator.declaration import ledger as ledgers
from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life import departures
from tfcluster_operator.life.gangs import Gang, awaited, awaited_jobs, gangs_of
from tfcluster_operator.life.queueing import as_reported
from tfcluster_operator.life.roster import Place, Roster, Stage, call_roll
from tfcluster_operator.objects.config_map import read_file
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.pod import Ending, Pod, words_for
from tfcluster_operator.report.status import waiting_since
from tfcluster_resolver import contract

#: States of tasks that do not need an action and do not wait.
GOOD: Final = frozenset({"Ready", "Completed", "Suspended", "CleanedUp"})
#: States of tasks with a problem.
BAD: Final = frozenset({"Failed", "BackingOff", "NameTaken", "StuckTerminating", "Disrupted"})
_PLAIN: Final = {Stage.SERVING: "Ready", Stage.COMPLETED: "Completed"}


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of one extended resource: requested, granted by the node, and healthy; None if unknown."""

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
            "Disrupted" (its pod was deleted or evicted), "BackingOff", "WaitingForQuota", "WaitingForGang",
            "WaitingForJob", "WaitingForPredecessor", "NameTaken", "Suspended", "CleanedUp" (its pod was deleted at
            the end of the cluster), "Missing" (its pod is to be created) or "Draining" (it is no longer declared, and
            its pod is kept for a while).
        cause: why it is not ready; "" if it is.
        pod: the name of its pod, or "".
        node: the node of the pod, or "".
        phase: the pod's phase as Kubernetes has it.
        since: when the pod was created, in seconds since the epoch; 0.0 without a pod.
        restarts: how often it failed before this pod, as far as the pod shows.
        devices: by extended resource.
        view: "delivered", "waiting" (the pod does not have its newest view yet), "unknown" (its view cannot be read),
            or "" if no program that could read it runs.
        outdated: whether its pod has an older template.
        kept: the failed pods that are kept for their logs, the oldest first.
        next_try: when it is started again, in seconds since the epoch; 0.0 if that is not planned.
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
        """The name of the task as in its pod's name, such as worker-3."""
        return spell(self.job, self.index)


@dataclass(frozen=True, slots=True)
class TaskDrawing:
    """Builds the pictures of tasks: ``created`` by pod, ``files`` the published views, None if unreadable."""

    roster: Roster
    ledger: Ledger
    created: Mapping[str, float]
    files: Mapping[str, Mapping[str, str]] | None
    now: float
    gangs: Mapping[str, Gang]

    def task(self, job: Job, place: Place) -> TaskPicture:
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

    def without_quota(self) -> tuple[str, str]:
        return reasons.WAITING_FOR_QUOTA, f"queue {self.roster.declared.queue} has granted it no quota yet"

    def surplus(self, job: Job, pod: Pod) -> TaskPicture:
        task = task_of_labels(pod.meta.labels)
        index = -1 if task is None else task.index
        leaves = pod.surplus_since + job.drain_timeout_seconds
        cause = "it is no longer declared"
        if pod.meta.terminating:
            cause += ", and its pod is being deleted"
        elif pod.surplus_since:
            cause += f"; its pod is deleted at {_clock(leaves)}"
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
        pod = place.own
        if place.stage in _PLAIN:
            return _PLAIN[place.stage], ""
        if place.stage is Stage.FOREIGN:
            return reasons.NAME_TAKEN, f"pod {place.name} exists and belongs to another owner: delete or rename it"
        if place.stage is Stage.PREDECESSOR:
            return reasons.WAITING_FOR_PREDECESSOR, f"pod {place.name} of a deleted TFCluster still exists"
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
            return "Disrupted", pod.trouble or pod.reason or "its node ended it"
        if due > self.now and self.ledger.verdict is None:
            return reasons.BACKING_OFF, f"{words_for(pod)}; next try at {_clock(due)}"
        return "Failed", words_for(pod)

    def _without_pod(self, job: Job, due: float) -> tuple[str, str]:
        if self.ledger.verdict is not None:
            return "CleanedUp", ""
        if self.roster.cluster.suspend:
            return ("Suspended", "") if self.roster.declared.suspend else self.without_quota()
        if due > self.now:
            return reasons.BACKING_OFF, f"next try at {_clock(due)}"
        if before := awaited_jobs(self.roster, job, self.ledger):
            return reasons.WAITING_FOR_JOB, f"job {job.name} starts after {', '.join(before)}"
        if waited_for := awaited(self.gangs, job):
            return reasons.WAITING_FOR_GANG, f"gang {', '.join(one.name for one in waited_for)} is not scheduled yet"
        return "Missing", "its pod is to be created"


def _silent(job: Job) -> str:
    probed = any("readinessProbe" in one for one in (job.template.get("spec") or {}).get("containers") or ())
    return f"it runs, and {'its readiness probe has not succeeded' if probed else 'is not ready'} yet"


def _clock(seconds: float) -> str:
    return f"{ledgers.timestamp(seconds)[11:19]} UTC"


def _devices(job: Job, pod: Pod) -> dict[str, Devices]:
    """Count the devices of one pod: a node grants all requested devices or does not start the pod."""
    limits, healthy = job.limits.items(), pod.devices or {}
    if pod.phase != "Running":
        return {resource: Devices(count) for resource, count in limits}
    return {resource: Devices(count, count, healthy.get(resource, count)) for resource, count in limits}


@dataclass(frozen=True, slots=True)
class JobPicture:
    """One job; ``ready`` and ``completed`` are counted from the pods, without them taken from the status."""

    name: str
    desired: int
    ready: int
    completed: int
    restarts: int
    replaced: int
    tasks: tuple[TaskPicture, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """One TFCluster.

    Times are seconds since the epoch, 0.0 if unset. ``queue`` is its LocalQueue, or ""; ``waiting_since`` is when it
    began to wait for quota or for the nodes of a gang, ``deadline`` is when the cluster fails if it has not finished,
    ``deleted_at`` when it is deleted after its end. ``status`` is that of the API. ``gaps`` are messages about objects
    that could not be read.
    """

    name: str
    namespace: str
    standing: Standing
    ready: str
    epoch: int
    generation: int
    isolation: str
    queue: str
    accelerators: str
    restarts: int
    backoff_limit: int | None
    created: float
    finished: float
    waiting_since: float
    deadline: float
    deleted_at: float
    last_restart: Mapping[str, Any]
    status: Mapping[str, Any]
    jobs: tuple[JobPicture, ...] = ()
    gaps: tuple[str, ...] = ()

    def tasks(self) -> Iterator[TaskPicture]:
        for job in self.jobs:
            yield from job.tasks


def picture_of(
    body: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]] | None = None,
    config_maps: Iterable[Mapping[str, Any]] | None = None,
    *,
    now: float,
    gaps: Iterable[str] = (),
) -> Picture:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    started, finished = seconds_of(status.get("startTime")), seconds_of(status.get("completionTime"))
    missing = list(gaps)
    try:
        jobs = _jobs(body, parse(body), pods, config_maps, now)
    except InvalidSpecError as error:
        missing += [f"the spec cannot be read: {clean(problem)}" for problem in error.problems]
        jobs = _counted(spec, status)
    return Picture(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        standing=standing_of(body),
        ready=f"{status.get('readyTasks') or 0}/{status['tasks']}" if "tasks" in status else "",
        epoch=int(status.get("epoch") or 0),
        generation=int(metadata.get("generation") or 0),
        isolation=str(status.get("isolation") or "None"),
        queue=str((metadata.get("labels") or {}).get(naming.LABEL_QUEUE) or ""),
        accelerators=str(status.get("accelerators") or ""),
        restarts=int(status.get("restarts") or 0),
        backoff_limit=spec.get("backoffLimit"),
        created=seconds_of(metadata.get("creationTimestamp")),
        finished=finished,
        waiting_since=seconds_of(waiting_since(status)),
        deadline=_after(started, spec.get("activeDeadlineSeconds")) if not finished else 0.0,
        deleted_at=_after(finished, spec.get("ttlSecondsAfterFinished")),
        last_restart={**(status.get("lastRestart") or {})},
        status=status,
        jobs=jobs,
        gaps=tuple(missing),
    )


def _after(begin: float, seconds: Any) -> float:
    return begin + seconds if begin and isinstance(seconds, int) else 0.0


def _counted(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[JobPicture, ...]:
    told, declared = status.get("jobs") or {}, spec.get("jobs")
    names = {*told, *(declared if isinstance(declared, Mapping) else ())}
    return tuple(_job(name, told.get(name) or {}, ()) for name in sorted(names))


def _job(name: str, told: Mapping[str, Any], tasks: tuple[TaskPicture, ...], desired: int | None = None) -> JobPicture:
    return JobPicture(
        name=name,
        desired=int(told.get("replicas") or 0) if desired is None else desired,
        ready=sum(one.state == "Ready" for one in tasks) if tasks else int(told.get("ready") or 0),
        completed=sum(one.state == "Completed" for one in tasks) if tasks else int(told.get("succeeded") or 0),
        restarts=int(told.get("restarts") or 0),
        replaced=int(told.get("disruptions") or 0),
        tasks=tasks,
    )


def _jobs(
    body: Mapping[str, Any],
    cluster: TFCluster,
    pods: Iterable[Mapping[str, Any]] | None,
    config_maps: Iterable[Mapping[str, Any]] | None,
    now: float,
) -> tuple[JobPicture, ...]:
    told = (body.get("status") or {}).get("jobs") or {}
    if pods is None:
        return tuple(_job(job.name, told.get(job.name) or {}, (), job.replicas) for job in cluster.jobs)
    bodies = list(pods)
    ledger = cluster.ledger
    observed = Observed(pods=observe_pods(bodies, now))
    roster = call_roll(cluster, observed, standing=as_reported(cluster)).completed_by(ledger)
    drawing = TaskDrawing(
        roster,
        ledger,
        {one["metadata"]["name"]: seconds_of(one["metadata"].get("creationTimestamp")) for one in bodies},
        None if config_maps is None else _told_of(config_maps),
        now,
        gangs_of(roster, ledger),
    )
    found = []
    for job in cluster.jobs:
        tasks = [drawing.task(job, place) for place in roster.of(job)]
        waiting = range(len(tasks), job.replicas)
        tasks += [TaskPicture(job.name, index, *drawing.without_quota()) for index in waiting]
        surplus = (pod for pod in _surplus(roster) if pod.meta.labels.get(naming.LABEL_JOB) == job.name)
        tasks += sorted((drawing.surplus(job, pod) for pod in surplus), key=lambda one: one.index)
        found.append(_job(job.name, told.get(job.name) or {}, tuple(tasks), job.replicas))
    return tuple(found)


def _surplus(roster: Roster) -> list[Pod]:
    """Return the cluster's pods that do not belong to a declared task, including those that are being deleted."""
    placed = {place.pod.meta.uid for of_job in roster.places.values() for place in of_job if place.pod is not None}
    leaving = (pod for pod in roster.leaving if pod.meta.owner_uid == roster.cluster.uid and pod.meta.uid not in placed)
    return [*roster.surplus, *leaving]


def _told_of(config_maps: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the digest that pods know of each view file, by the ConfigMap's name."""
    return {
        one["metadata"]["name"]: {name: read_file(text).told for name, text in (one.get("data") or {}).items()}
        for one in config_maps
    }
