"""A TFCluster and its tasks as they are, as values: what ``tfcluster status`` shows.

Everything here is a function of objects of the API: no request, no clock, no terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfcluster.observed import observe_pods, seconds_of
from tfcluster.standing import Standing, clean, standing_of
from tfcluster.task_picture import TaskDrawing, TaskPicture
from tfcluster_operator.declaration import ledger as ledgers
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life.gangs import gangs_of
from tfcluster_operator.life.queueing import as_reported
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.objects.config_map import read_file
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.report.status import waiting_since


@dataclass(frozen=True, slots=True)
class JobPicture:
    """One job: its tasks, and its counts as the status has them.

    ``ready`` and ``completed`` are counted from the pods; where pods cannot be listed, from the status.
    """

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

    Times are seconds since the epoch, 0.0 where there is none.  ``queue`` is its LocalQueue, "" where it has none;
    ``waiting_since`` is since when it has waited for quota or for the places of a gang, ``deadline`` is when the
    cluster fails if it has not finished, ``deleted_at`` when it is deleted after its end.  ``gaps`` say what could not
    be looked at, in words.
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
    started: float
    finished: float
    waiting_since: float
    deadline: float
    deleted_at: float
    last_restart: Mapping[str, Any]
    jobs: tuple[JobPicture, ...] = ()
    gaps: tuple[str, ...] = ()

    def tasks(self) -> Iterator[TaskPicture]:
        """Give every task, in the order of the jobs."""
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
    """Put together what is known of a TFCluster.

    Returns:
        The picture.  Of a spec that cannot be read there are only the counts of the status.
    """
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
        ready=_share(status),
        epoch=int(status.get("epoch") or 0),
        generation=int(metadata.get("generation") or 0),
        isolation=str(status.get("isolation") or "None"),
        queue=str((metadata.get("labels") or {}).get(naming.LABEL_QUEUE) or ""),
        accelerators=str(status.get("accelerators") or ""),
        restarts=int(status.get("restarts") or 0),
        backoff_limit=spec.get("backoffLimit"),
        created=seconds_of(metadata.get("creationTimestamp")),
        started=started,
        finished=finished,
        waiting_since=seconds_of(waiting_since(status)),
        deadline=_after(started, spec.get("activeDeadlineSeconds")) if not finished else 0.0,
        deleted_at=_after(finished, spec.get("ttlSecondsAfterFinished")),
        last_restart={**(status.get("lastRestart") or {})},
        jobs=jobs,
        gaps=tuple(missing),
    )


def _after(begin: float, seconds: Any) -> float:
    return begin + seconds if begin and isinstance(seconds, int) else 0.0


def _counted(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[JobPicture, ...]:
    """Give the jobs by the status alone."""
    told = status.get("jobs") or {}
    declared = spec.get("jobs") if isinstance(spec.get("jobs"), Mapping) else {}
    return tuple(_job(name, told.get(name) or {}, ()) for name in sorted({*told, *(declared or {})}))


def _share(status: Mapping[str, Any]) -> str:
    """Spell how many tasks are ready, of how many; "" where nothing is reported."""
    return f"{status.get('readyTasks') or 0}/{status['tasks']}" if "tasks" in status else ""


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
    ledger = ledgers.read(cluster.status)
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
    surplus = _surplus(roster)
    return tuple(
        _job(
            job.name,
            told.get(job.name) or {},
            (
                *(drawing.task(job, place) for place in roster.of(job)),
                *(drawing.without_quota(job, index) for index in range(len(roster.of(job)), job.replicas)),
                *sorted(
                    (drawing.surplus(job, pod) for pod in surplus if pod.meta.labels.get(naming.LABEL_JOB) == job.name),
                    key=lambda one: one.index,
                ),
            ),
            job.replicas,
        )
        for job in cluster.jobs
    )


def _surplus(roster: Roster) -> list[Pod]:
    """Give our pods that no declared task has a claim to, those too that are being deleted."""
    placed = {place.pod.meta.uid for of_job in roster.places.values() for place in of_job if place.pod is not None}
    leaving = (pod for pod in roster.leaving if pod.meta.owner_uid == roster.cluster.uid and pod.meta.uid not in placed)
    return [*roster.surplus, *leaving]


def _told_of(config_maps: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Give what pods are told of each file, by the ConfigMap's name."""
    return {
        one["metadata"]["name"]: {name: read_file(text).told for name, text in (one.get("data") or {}).items()}
        for one in config_maps
    }
