"""Which jobs can start: spec.jobs.J.startAfter, once; a job that has started is not blocked again."""

from __future__ import annotations

from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job
from tfcluster_operator.life.roster import Place, Roster, Stage


def awaited_jobs(roster: Roster, job: Job, ledger: Ledger) -> list[str]:
    """Return the jobs that a job waits for, as "ps (1 of 2 ready)"; none if it can start or has started."""
    record = ledger.of(job.name)
    if record.begun or record.started or record.failing:
        return []
    waiting = []
    for name in job.start_after:
        earlier = roster.cluster.job(name)
        if earlier is None:
            continue
        incarnation = ledger.of(name).incarnation
        ready = sum(_is_ready(place, incarnation) for place in roster.of(earlier))
        if ready < earlier.replicas:
            waiting.append(f"{name} ({ready} of {earlier.replicas} ready)")
    return waiting


def _is_ready(place: Place, incarnation: int) -> bool:
    if place.stage is Stage.COMPLETED:
        return True
    return place.serving and place.pod is not None and place.pod.incarnation == incarnation
