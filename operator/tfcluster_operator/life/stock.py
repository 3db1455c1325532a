"""Updating the ledger from the ends of the pods, once per reconcile and in a fixed order.

Success is checked first, so that failing workers do not change the result once the chief has succeeded.  Then failures,
each counted once by the UID of its pod, then the deadline.  A verdict is final: after it nothing is counted.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import (
    FAILED,
    SUCCEEDED,
    Failing,
    JobRecord,
    LastRestart,
    Ledger,
    Lost,
    Verdict,
    timestamp,
)
from tfcluster_operator.declaration.spec import Job, Task, TFCluster
from tfcluster_operator.life.gangs import gangs_of, judge_gangs, waiting_since
from tfcluster_operator.life.queueing import Turn
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects.pod import SIGNALLED, Ending, Pod, name_of, words_for

_Failure = tuple[float, Task, Pod]


def take_stock(roster: Roster, ledger: Ledger, now: float) -> Ledger:
    """Update the ledger from what exists."""
    # A suspended cluster's ledger is as at the start, in another incarnation: when it is resumed, it has its whole
    # budget and a new start time, and runs every task.
    cluster, ledger = roster.cluster, _with_times_that_can_be(roster.cluster, ledger, now)
    ledger = _with_grants(roster, ledger)
    if not cluster.gave_up:
        ledger = replace(ledger, gave_up=None)  # an edit tries again
    if ledger.verdict is not None:
        return _closed(ledger, ledger.finished_at or now)
    if cluster.suspend:
        # A pod that still terminates when the cluster is resumed must not count after that, so each job gets another
        # incarnation when it is suspended.
        number = ledger.next_incarnation() if ledger.started_at else None
        rested = {
            name: JobRecord(incarnation=record.incarnation if number is None else number)
            for name, record in ledger.jobs.items()
        }
        return replace(ledger, started_at=0.0, restarts=0, jobs=rested, gangs={})
    ledger = replace(
        ledger,
        started_at=ledger.started_at or now,
        jobs={job.name: ledger.of(job.name) for job in cluster.jobs},
    )
    failures: list[_Failure] = []
    for job in cluster.jobs:
        ledger = _take_in(roster, job, ledger, failures)
    # Sort by when we saw them; two failures' times are from different nodes and cannot be compared.
    ledger = _judge(roster, ledger, sorted(failures, key=lambda f: (f[0], f[1].job.name, f[1].index)), now)
    ledger = _with_gangs(roster, ledger, now)
    return ledger if ledger.verdict is None else _closed(ledger, now)


def _with_gangs(roster: Roster, ledger: Ledger, now: float) -> Ledger:
    """Note since when the gangs wait, and the verdict on a cluster whose gang has waited for too long."""
    gang = roster.cluster.gang
    if gang is None or gang.timeout_seconds is None or ledger.verdict is not None:
        return replace(ledger, gangs={}) if ledger.gangs else ledger
    # Tasks that have just completed are no longer members.
    roster = roster.completed_by(ledger)
    gangs = gangs_of(roster, ledger)
    ledger = replace(ledger, gangs=waiting_since(roster, ledger, gangs.values(), now))
    match judge_gangs(roster, ledger, gangs, now):
        case None:
            return ledger
        case Verdict() as verdict:
            return replace(ledger, verdict=verdict)
        case gave_up:
            return replace(ledger, gave_up=gave_up)


def _with_grants(roster: Roster, ledger: Ledger) -> Ledger:
    """Count how often the queue changed the number of tasks."""
    if roster.standing.turn is not Turn.ADMITTED or ledger.verdict is not None:
        return ledger
    granted = {job.name: job.replicas for job in roster.cluster.jobs}
    if granted == ledger.granted:
        return ledger
    # No task has read what was published before the first admission, or it was an edit.
    return replace(ledger, granted=granted, regrants=ledger.regrants + bool(ledger.granted))


def _with_times_that_can_be(cluster: TFCluster, ledger: Ledger, now: float) -> Ledger:
    """Use the times that an earlier operator wrote; a deciding time in the future, by a wrong clock, becomes now."""

    def record(known: JobRecord) -> JobRecord:
        failing = {i: Failing(of.in_row, believed(of.retry_at, now)) for i, of in known.failing.items()}
        return replace(known, restart_at=believed(known.restart_at, now), failing=failing)

    return replace(
        ledger,
        started_at=ledger.started_at if cluster.spec.active_deadline_seconds is None else min(ledger.started_at, now),
        finished_at=ledger.finished_at
        if cluster.spec.ttl_seconds_after_finished is None
        else min(ledger.finished_at, now),
        jobs={name: record(known) for name, known in ledger.jobs.items()},
    )


def _closed(ledger: Ledger, now: float) -> Ledger:
    """Close the ledger: no task starts again, so records that only serve the next start are dropped."""
    jobs = {
        name: replace(
            record,
            begun=False,
            started=frozenset(),
            had_pod=frozenset(),
            failing={},
            lost={},
            counted=frozenset(),
            restart_at=0.0,
        )
        for name, record in ledger.jobs.items()
    }
    return replace(ledger, finished_at=now, jobs=jobs, gangs={}, gave_up=None)


def _judge(roster: Roster, ledger: Ledger, failures: Sequence[_Failure], now: float) -> Ledger:
    cluster = roster.cluster
    if (verdict := judge_success(roster.declared, ledger)) is not None:
        return replace(ledger, verdict=verdict)
    for _, task, pod in failures:
        if pod.incarnation != ledger.of(task.job.name).incarnation:
            continue  # the same incident: another task's failure restarts this one too
        if (verdict := judge_failure(cluster, task, pod, ledger)) is not None:
            return replace(ledger, verdict=verdict, failures=(*ledger.failures, entry_of(task, pod, now)))
        ledger = count_restart(cluster, task, pod, ledger, now)
    return replace(ledger, verdict=judge_deadline(cluster, ledger, now))


class _Taking:
    """One job's record while its pods are processed one by one."""

    def __init__(self, job: Job, declared: int, record: JobRecord, failures: list[_Failure]) -> None:
        self.job = job
        self._record = record
        self._failures = failures
        #: Completed tasks stay completed while the queue admits fewer tasks than are declared.
        self.completed = {index for index in record.completed if index < declared}
        self.started = {index for index in record.started if index < job.replicas}
        self.failing = {i: of for i, of in record.failing.items() if i < job.replicas}
        self.lost = {i: of for i, of in record.lost.items() if i < job.replicas}
        self.replaced = record.replaced

    def look_at(self, place: Place) -> None:
        """Update the record from one task's pod."""
        pod, index = place.own, place.task.index
        if pod is None:
            # Also if another owner's pod has the name already.
            if index in self.started and index not in self.completed:
                self._lose(index, Lost("", 0))
            return
        if pod.incarnation != self._record.incarnation:
            return
        counted = pod.meta.uid in self._record.counted
        if place.ending is Ending.SUCCEEDED and self.job.restart_policy != "Always":
            self.completed.add(index)
        elif place.ending is Ending.FAILED and not counted:
            self._failures.append((pod.noted.ended_at, place.task, pod))
        if _is_lost(place, self.job):
            self._lose(index, Lost(pod.meta.uid, pause_before_replacing(pod)[1]))
        elif not pod.meta.terminating and not counted:
            self.started.add(index)
            self.lost.pop(index, None)

    def _lose(self, index: int, lost: Lost) -> None:
        self.started.discard(index)
        if index not in self.lost or self.lost[index].pod != lost.pod:
            self.lost[index] = lost
            self.replaced += 1


def _take_in(roster: Roster, job: Job, ledger: Ledger, failures: list[_Failure]) -> Ledger:
    """Update one job's record from its pods; failures that are not counted yet are added to ``failures``."""
    record = ledger.of(job.name)
    declared = next(one.replicas for one in roster.declared.jobs if one.name == job.name)
    taking = _Taking(job, declared, record, failures)
    goes_on = taking.started - taking.failing.keys() - taking.lost.keys()
    for place in roster.of(job):
        # A known, running pod does not change the record, and nearly all of thousands of pods are such.
        if not (place.settled and place.task.index in goes_on):
            taking.look_at(place)
    completed = taking.completed
    return ledger.with_job(
        job.name,
        begun=record.begun or bool(job.start_after and (record.started or taking.started)),
        completed=frozenset(completed),
        started=frozenset(taking.started),
        # A task that is removed and declared again a moment later is another pod, too.
        had_pod=record.had_pod | record.started | taking.started,
        # Include pods that are no longer declared: they might be declared again before they are deleted.
        counted=record.counted & roster.uids,
        failing={index: of for index, of in taking.failing.items() if index not in completed},
        lost={index: of for index, of in taking.lost.items() if index not in completed},
        replaced=taking.replaced,
    )


def _is_lost(place: Place, job: Job) -> bool:
    """Return whether a task's pod is replaced without a failure: it was deleted, or runs again after success."""
    again = place.ending is Ending.SUCCEEDED and job.restart_policy == "Always"
    return place.stage is Stage.ENDED and (again or place.ending is Ending.DISRUPTED)


# How a failed task is restarted.  All times are when the operator counted a failure, not when the node reported it.


def judge_success(cluster: TFCluster, ledger: Ledger) -> Verdict | None:
    """Decide whether the cluster has succeeded; a job without tasks does not satisfy a success policy."""
    policy = cluster.success_policy
    named = [job for name in policy.jobs if (job := cluster.job(name)) is not None]
    tasks = sum(job.replicas for job in named)
    done = sum(len(ledger.of(job.name).completed) for job in named)
    if not done or (policy.tasks == "All" and done < tasks):
        return None
    whose = "job" if len(policy.jobs) == 1 else "jobs"
    share = f"{done} of {tasks} tasks" if policy.tasks == "Any" else ("every task" if tasks > 1 else "the task")
    return Verdict(
        SUCCEEDED, reasons.TASKS_SUCCEEDED, f"{share} of {whose} {', '.join(policy.jobs)} ended with exit code 0"
    )


def judge_failure(cluster: TFCluster, task: Task, pod: Pod, ledger: Ledger) -> Verdict | None:
    """Decide whether a failed task fails the cluster."""
    policy = task.job.restart_policy
    words = words_for(pod)
    if policy == "Never":
        return Verdict(FAILED, reasons.TASK_FAILED, f"{task} failed and its restartPolicy is Never: {words}")
    if policy == "ExitCode" and pod.exit is not None and pod.exit.code < SIGNALLED:
        message = f"{task} failed, and its restartPolicy ExitCode restarts from exit code {SIGNALLED} up only: {words}"
        return Verdict(FAILED, reasons.PERMANENT_EXIT_CODE, message)
    limit = cluster.spec.backoff_limit
    if limit is not None and ledger.restarts >= limit:
        message = f"{task} failed after {ledger.restarts} of {limit} restarts: {words}"
        return Verdict(FAILED, reasons.BACKOFF_LIMIT_EXCEEDED, message)
    return None


def judge_deadline(cluster: TFCluster, ledger: Ledger, now: float) -> Verdict | None:
    """Decide whether the cluster has exceeded its deadline."""
    limit = cluster.spec.active_deadline_seconds
    if limit is None or not ledger.started_at or now < ledger.started_at + limit:
        return None
    return Verdict(FAILED, reasons.DEADLINE_EXCEEDED, f"not finished within activeDeadlineSeconds, {limit} s")


def seconds_left(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Return the seconds until the deadline of a running cluster or the end of a finished one; None without a limit."""
    if ledger.verdict is None:
        limit, since = cluster.spec.active_deadline_seconds, ledger.started_at
    else:
        limit, since = cluster.spec.ttl_seconds_after_finished, ledger.finished_at
    return None if limit is None or not since else since + limit - now


#: Seconds of the first back-off; it doubles with each failure in a row, up to the longest.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
#: A task that was restarted this long (seconds) ago and has not failed since starts with a failure count of 0.
FORGIVEN_AFTER: Final = 600.0
#: A back-off is longer than its rule by at most this share, so that a thousand tasks do not restart simultaneously.
_JITTER: Final = 0.25


def scope_of(cluster: TFCluster, job: Job) -> tuple[Job, ...]:
    """Return the jobs whose pods are all replaced when a task of this job fails; empty if only the task is."""
    if job.restart_scope == "Cluster":
        return cluster.jobs
    return (job,) if job.restart_scope == "Job" else ()


def count_restart(cluster: TFCluster, task: Task, pod: Pod, ledger: Ledger, now: float) -> Ledger:
    """Enter one failure that leads to a restart: of the task, or of its whole scope as one incident."""
    last = entry_of(task, pod, now)
    counted = replace(ledger, restarts=ledger.restarts + 1, last_restart=last, failures=(*ledger.failures, last))
    record = counted.of(task.job.name)
    counted = counted.with_job(task.job.name, restarts=record.restarts + 1)
    scope = scope_of(cluster, task.job)
    if not scope:
        return counted.with_job(task.job.name, **_failed_alone(record, task.index, pod, now))
    before = [ledger.of(job.name) for job in scope]
    in_row = max(0 if is_forgiven(one.restart_at, now) else one.in_row for one in before)
    return _started_over(counted, scope, in_row=in_row + 1, at=now + pause(in_row, seed=pod.meta.uid))


def entry_of(task: Task, pod: Pod, now: float) -> LastRestart:
    """Build the ledger's record of one failure."""
    return LastRestart(
        task=str(task),
        reason=name_of(pod.exit, pod.reason),
        exit_code=pod.exit.code if pod.exit is not None else None,
        message=words_for(pod),
        finished_at=timestamp(now),
        pod=pod.meta.name if task.job.history_limit else "",
    )


def _failed_alone(record: JobRecord, index: int, pod: Pod, now: float) -> dict[str, Any]:
    known = record.failing.get(index)
    in_row = known.in_row if known is not None and not is_forgiven(known.retry_at, now) else 0
    # Those that are forgiven go, so that the record of a large job does not only grow.
    others = {i: of for i, of in record.failing.items() if i not in record.started or not is_forgiven(of.retry_at, now)}
    return {
        "counted": record.counted | {pod.meta.uid},
        "started": record.started - {index},
        "failing": {**others, index: Failing(in_row + 1, now + pause(in_row, seed=pod.meta.uid))},
    }


def _started_over(ledger: Ledger, scope: Iterable[Job], *, in_row: int, at: float) -> Ledger:
    number = ledger.next_incarnation()
    for job in scope:
        ledger = ledger.with_job(
            job.name,
            incarnation=number,
            in_row=in_row,
            restart_at=at,
            begun=False,
            completed=frozenset(),
            started=frozenset(),
            counted=frozenset(),
            failing={},
            lost={},
        )
    return ledger


def is_forgiven(tried_at: float, now: float) -> bool:
    """Return whether the last restart, by the operator's clock, is so long ago that earlier failures are forgiven."""
    return now - tried_at >= FORGIVEN_AFTER


def believed(retry_at: float, now: float) -> float:
    """Return the time of the next try; now if it is further ahead than any back-off, because a clock was wrong."""
    return retry_at if retry_at <= now + LONGEST_PAUSE * (1 + _JITTER) else now


def pause(failures: int, *, seed: str) -> float:
    """Return the back-off after this number of failures in a row; the same seed gives the same jitter."""
    drawn = hashlib.sha256(seed.encode()).digest()[0] / 255
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 30)) * (1 + _JITTER * drawn)


def pause_before_replacing(pod: Pod) -> tuple[float, int]:
    """Return the seconds from a pod's end, other than a failure, to its replacement, and the replacement's attempt."""
    # The first time is 0 s; a pod that is rejected again and again, as by a full node, waits longer each time.
    attempt = 0 if pod.noted.ended_at - pod.noted.since >= FORGIVEN_AFTER else pod.attempt
    return (pause(attempt - 1, seed=pod.meta.uid) if attempt else 0.0), attempt + 1
