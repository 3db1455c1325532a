"""Taking stock: what the pods' ends mean for the ledger, in one pass and in a fixed order.

Success is looked for first, so that workers that fail while the chief ends well change nothing.  Then failures, each
counted once by the UID of its pod, then the deadline.  A verdict is for ever: after it nothing is counted any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tfcluster_operator.model import naming, reasons
from tfcluster_operator.model.actions import Action, CreatePod, Delete
from tfcluster_operator.model.ledger import JobRecord, Ledger
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.policies.deadline import judge_deadline
from tfcluster_operator.model.policies.ending import Ending, ending_of
from tfcluster_operator.model.policies.failure import judge_failure
from tfcluster_operator.model.policies.restart import count_restart
from tfcluster_operator.model.policies.success import judge_success
from tfcluster_operator.model.spec import Job, Task, TFCluster

_Failure = tuple[float, Task, ObservedPod]


def take_stock(cluster: TFCluster, observed: Observed, ledger: Ledger, now: float) -> Ledger:
    """Bring the ledger up to what can be seen.

    Args:
        cluster: the declaration.
        observed: everything that exists under its names or its control.
        ledger: what was known before.
        now: the time, in seconds since the epoch.

    Returns:
        The new ledger.  While the cluster is suspended it is as at the start, with the same incarnations: a resumed
        cluster has its whole budget, a new start time, and runs every task.
    """
    if ledger.verdict is not None:
        return ledger
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
        ledger = _take_in(cluster, job, observed, ledger, failures)
    ledger = _judge(cluster, ledger, sorted(failures, key=lambda f: (f[0], f[1].job.name, f[1].index)), now)
    return ledger if ledger.verdict is None else replace(ledger, finished_at=now)


def _judge(cluster: TFCluster, ledger: Ledger, failures: Sequence[_Failure], now: float) -> Ledger:
    if (verdict := judge_success(cluster, ledger)) is not None:
        return replace(ledger, verdict=verdict)
    for _, task, pod in failures:
        if pod.incarnation != ledger.of(task.job.name).incarnation:
            continue  # the same incident: another task's failure restarts this one too
        if (verdict := judge_failure(cluster, task, pod, ledger)) is not None:
            return replace(ledger, verdict=verdict)
        ledger = count_restart(cluster, task, pod, ledger, now)
    return replace(ledger, verdict=judge_deadline(cluster, ledger, now))


def _take_in(cluster: TFCluster, job: Job, observed: Observed, ledger: Ledger, failures: list[_Failure]) -> Ledger:
    """Enter what one job's pods tell; the failures that are not counted yet are added to ``failures``."""
    record = ledger.of(job.name)
    declared = range(job.replicas)
    completed = {index for index in record.completed if index in declared}
    started = {index for index in record.started if index in declared}
    for index in declared:
        pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
        if pod is None or pod.meta.owner_uid != cluster.uid or pod.incarnation != record.incarnation:
            continue
        ending = ending_of(pod)
        counted = pod.meta.uid in record.counted
        if ending is Ending.SUCCEEDED and job.restart_policy != "Always":
            completed.add(index)
        elif ending is Ending.FAILED and not counted:
            failures.append((pod.finished_at, Task(job, index), pod))
        if not pod.meta.terminating and not counted:
            started.add(index)
    return ledger.with_job(
        job.name,
        completed=frozenset(completed),
        started=frozenset(started),
        # NB: also those of a pod that is declared no more: it may be declared again before it is gone.
        counted=record.counted & {pod.meta.uid for pod in observed.pods.values()},
        failing={i: of for i, of in record.failing.items() if i in declared and i not in completed},
    )


def enter_done(cluster: TFCluster, ledger: Ledger, done: Iterable[Action]) -> Ledger:
    """Enter what was carried out: which tasks have a pod now, and which pods were made in place of lost ones.

    Args:
        cluster: the declaration.
        ledger: the ledger that the plan was made with.
        done: the actions that were carried out.

    Returns:
        The new ledger.  It is a report: that it is lost in a crash changes no decision about failures.
    """
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
                names = names or {naming.pod_name(cluster.name, t.job.name, t.index): t for t in cluster.tasks()}
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
