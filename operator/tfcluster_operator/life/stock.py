"""Updating the ledger from the ends of the pods, once per reconcile and in a fixed order.

Success is checked first, so that failing workers do not change the result once the chief has succeeded.  Then failures,
each counted once by the UID of its pod, then the deadline.  A verdict is final: after it nothing is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfcluster_operator.declaration.ledger import Failing, JobRecord, Ledger, Lost, Verdict
from tfcluster_operator.declaration.spec import Job, Task, TFCluster
from tfcluster_operator.life import ending
from tfcluster_operator.life.ending import Ending, judge_deadline, judge_failure, judge_success
from tfcluster_operator.life.gangs import gangs_of, judge_gangs, waiting_since
from tfcluster_operator.life.queueing import Turn
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod

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
        ledger = _take_in(roster, job, ledger, failures, now)
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
        failing = {i: Failing(of.in_row, ending.believed(of.retry_at, now)) for i, of in known.failing.items()}
        return replace(known, restart_at=ending.believed(known.restart_at, now), failing=failing)

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
            record, begun=False, started=frozenset(), failing={}, lost={}, counted=frozenset(), restart_at=0.0
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
            return replace(ledger, verdict=verdict, failures=(*ledger.failures, ending.entry_of(task, pod, now)))
        ledger = ending.count_restart(cluster, task, pod, ledger, now)
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

    def look_at(self, place: Place, now: float) -> None:
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
        elif place.serving and index in self.failing and ending.is_forgiven(self.failing[index].retry_at, now):
            del self.failing[index]
        if _is_lost(place, self.job):
            self._lose(index, Lost(pod.meta.uid, ending.pause_before_replacing(pod)[1]))
        elif not pod.meta.terminating and not counted:
            self.started.add(index)
            self.lost.pop(index, None)

    def _lose(self, index: int, lost: Lost) -> None:
        self.started.discard(index)
        if index not in self.lost or self.lost[index].pod != lost.pod:
            self.lost[index] = lost
            self.replaced += 1


def _take_in(roster: Roster, job: Job, ledger: Ledger, failures: list[_Failure], now: float) -> Ledger:
    """Update one job's record from its pods; failures that are not counted yet are added to ``failures``."""
    record = ledger.of(job.name)
    declared = next(one.replicas for one in roster.declared.jobs if one.name == job.name)
    taking = _Taking(job, declared, record, failures)
    goes_on = taking.started - taking.failing.keys() - taking.lost.keys()
    for place in roster.of(job):
        # A known, running pod does not change the record, and nearly all of thousands of pods are such.
        if not (place.settled and place.task.index in goes_on):
            taking.look_at(place, now)
    completed = taking.completed
    return ledger.with_job(
        job.name,
        begun=record.begun or bool(job.start_after and (record.started or taking.started)),
        completed=frozenset(completed),
        started=frozenset(taking.started),
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


def seconds_until_forgiven(roster: Roster, ledger: Ledger, now: float) -> float | None:
    """Return the seconds until the next failure of a running task is forgiven, or None."""
    waits = [
        of.retry_at + ending.FORGIVEN_AFTER - now
        for job in roster.cluster.jobs
        if (failing := ledger.of(job.name).failing)
        for place in roster.of(job)
        if place.serving and (of := failing.get(place.task.index)) is not None
    ]
    return max(0.0, min(waits)) if waits and ledger.verdict is None else None
