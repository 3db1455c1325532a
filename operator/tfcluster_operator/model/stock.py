"""Taking stock: what the pods' ends mean for the ledger, in one pass and in a fixed order.

Success is looked for first, so that workers that fail while the chief ends well change nothing.  Then failures, each
counted once by the UID of its pod, then the deadline.  A verdict is for ever: after it nothing is counted any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tfcluster_operator.model import reasons
from tfcluster_operator.model.actions import Action, CreatePod, Delete
from tfcluster_operator.model.ledger import Failing, JobRecord, Ledger
from tfcluster_operator.model.observed import ObservedPod
from tfcluster_operator.model.policies import restart
from tfcluster_operator.model.policies.deadline import judge_deadline
from tfcluster_operator.model.policies.ending import Ending
from tfcluster_operator.model.policies.failure import judge_failure
from tfcluster_operator.model.policies.success import judge_success
from tfcluster_operator.model.roster import Roster
from tfcluster_operator.model.spec import Job, Task, TFCluster

_Failure = tuple[float, Task, ObservedPod]


def take_stock(roster: Roster, ledger: Ledger, now: float) -> Ledger:
    """Bring the ledger up to what can be seen.

    Args:
        roster: what exists.
        ledger: what was known before.
        now: the time, in seconds since the epoch.

    Returns:
        The new ledger.  While the cluster is suspended it is as at the start, with the same incarnations: a resumed
        cluster has its whole budget, a new start time, and runs every task.
    """
    cluster, ledger = roster.cluster, _with_times_that_can_be(roster.cluster, ledger, now)
    if ledger.verdict is not None:
        return _closed(ledger, ledger.finished_at or now)
    if cluster.suspend:
        rested = {name: JobRecord(incarnation=record.incarnation) for name, record in ledger.jobs.items()}
        return replace(ledger, started_at=0.0, restarts=0, jobs=rested)
    ledger = replace(
        ledger,
        started_at=ledger.started_at or now,
        jobs={job.name: ledger.of(job.name) for job in cluster.jobs},
    )
    failures: list[_Failure] = []
    for job in cluster.jobs:
        ledger = _take_in(roster, job, ledger, failures, now)
    # NB: in the order in which we saw them; the nodes' own times of two failures cannot be compared.
    ledger = _judge(cluster, ledger, sorted(failures, key=lambda f: (f[0], f[1].job.name, f[1].index)), now)
    return ledger if ledger.verdict is None else _closed(ledger, now)


def _with_times_that_can_be(cluster: TFCluster, ledger: Ledger, now: float) -> Ledger:
    """Take what an earlier operator wrote down; where its clock was ahead of ours, a time that decides is now."""

    def record(known: JobRecord) -> JobRecord:
        failing = {i: Failing(of.in_row, restart.believed(of.retry_at, now)) for i, of in known.failing.items()}
        return replace(known, restart_at=restart.believed(known.restart_at, now), failing=failing)

    return replace(
        ledger,
        started_at=ledger.started_at if cluster.active_deadline is None else min(ledger.started_at, now),
        finished_at=ledger.finished_at if cluster.ttl_after_finished is None else min(ledger.finished_at, now),
        jobs={name: record(known) for name, known in ledger.jobs.items()},
    )


def _closed(ledger: Ledger, now: float) -> Ledger:
    """Close the ledger: nothing starts any more, so what only served the next start is dropped."""
    jobs = {
        name: replace(record, started=frozenset(), failing={}, counted=frozenset(), restart_at=0.0)
        for name, record in ledger.jobs.items()
    }
    return replace(ledger, finished_at=now, jobs=jobs)


def _judge(cluster: TFCluster, ledger: Ledger, failures: Sequence[_Failure], now: float) -> Ledger:
    if (verdict := judge_success(cluster, ledger)) is not None:
        return replace(ledger, verdict=verdict)
    for _, task, pod in failures:
        if pod.incarnation != ledger.of(task.job.name).incarnation:
            continue  # the same incident: another task's failure restarts this one too
        if (verdict := judge_failure(cluster, task, pod, ledger)) is not None:
            return replace(ledger, verdict=verdict)
        ledger = restart.count_restart(cluster, task, pod, ledger, now)
    return replace(ledger, verdict=judge_deadline(cluster, ledger, now))


def _take_in(roster: Roster, job: Job, ledger: Ledger, failures: list[_Failure], now: float) -> Ledger:
    """Enter what one job's pods tell; the failures that are not counted yet are added to ``failures``."""
    record = ledger.of(job.name)
    completed = {index for index in record.completed if index < job.replicas}
    started = {index for index in record.started if index < job.replicas}
    failing = {i: of for i, of in record.failing.items() if i < job.replicas}
    for place in roster.of(job):
        pod, index = place.own, place.task.index
        if pod is None or pod.incarnation != record.incarnation:
            continue
        counted = pod.meta.uid in record.counted
        if place.ending is Ending.SUCCEEDED and job.restart_policy != "Always":
            completed.add(index)
        elif place.ending is Ending.FAILED and not counted:
            failures.append((pod.noted.ended_at, place.task, pod))
        elif place.serving and index in failing and restart.is_forgiven(failing[index].retry_at, now):
            del failing[index]
        if not pod.meta.terminating and not counted:
            started.add(index)
    return ledger.with_job(
        job.name,
        completed=frozenset(completed),
        started=frozenset(started),
        # NB: also those of a pod that is declared no more: it may be declared again before it is gone.
        counted=record.counted & roster.uids,
        failing={index: of for index, of in failing.items() if index not in completed},
    )


def seconds_until_forgiven(roster: Roster, ledger: Ledger, now: float) -> float | None:
    """Give how long until a failure of a task that works again is forgotten; None where there is nothing to forget."""
    waits = [
        of.retry_at + restart.FORGIVEN_AFTER - now
        for job in roster.cluster.jobs
        if (failing := ledger.of(job.name).failing)
        for place in roster.of(job)
        if place.serving and (of := failing.get(place.task.index)) is not None
    ]
    return max(0.0, min(waits)) if waits and ledger.verdict is None else None


def enter_done(roster: Roster, ledger: Ledger, done: Iterable[Action]) -> Ledger:
    """Enter what was carried out: which tasks have a pod now, and which pods were made in place of lost ones.

    Args:
        roster: what existed when the plan was made.
        ledger: the ledger that the plan was made with.
        done: the actions that were carried out.

    Returns:
        The new ledger.  It is a report: that it is lost in a crash changes no decision about failures.
    """
    if ledger.verdict is not None:
        return ledger
    names: dict[str, Task] = {}
    started = {name: set(record.started) for name, record in ledger.jobs.items()}
    replaced = {name: record.replaced for name, record in ledger.jobs.items()}
    failing = {name: dict(record.failing) for name, record in ledger.jobs.items()}
    for action in done:
        match action:
            case CreatePod(task=task, reason=reason):
                started.setdefault(task.job.name, set()).add(task.index)
                lost = reason in {reasons.POD_DISRUPTED, reasons.POD_ENDED}
                replaced[task.job.name] = replaced.get(task.job.name, 0) + lost
            case Delete(kind="Pod", name=name, reason=reason, force=False):  # by force goes what another took away
                names = names or {place.name: place.task for of in roster.places.values() for place in of}
                if (deleted := names.get(name)) is not None:
                    started.setdefault(deleted.job.name, set()).discard(deleted.index)
                    if reason == reasons.TEMPLATE_CHANGED:
                        # The edit that should cure a failure is not made to wait for it.
                        failing.setdefault(deleted.job.name, {}).pop(deleted.index, None)
            case _:
                pass
    for name, indices in started.items():
        ledger = ledger.with_job(
            name,
            started=frozenset(indices),
            replaced=replaced.get(name, 0),
            failing=failing.get(name, {}),
        )
    return ledger
