"""When a gang has waited for its places for too long: spec.scheduling.gang.timeoutSeconds.

Its time counts from when its tasks may start: not while they wait for other jobs or for quota, and not in the pause
before a restart.  Each start has its whole time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, GaveUp, Ledger, Verdict
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life import start_order
from tfcluster_operator.life.gangs import Gang
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.objects.pod_group import PodGroup


def waiting_since(roster: Roster, ledger: Ledger, gangs: Iterable[Gang], now: float) -> dict[str, float]:
    """Tell since when each gang waits for its places, in seconds since the epoch."""
    gang = roster.cluster.gang
    if gang is None or gang.timeout is None:
        return {}
    waiting = (one.name for one in gangs if not one.placed and _may_start(roster, ledger, one, now))
    # NB: what an operator wrote down whose clock was ahead is now.
    return {name: min(ledger.gangs.get(name) or now, now) for name in waiting}


def judge(roster: Roster, ledger: Ledger, gangs: Mapping[str, Gang], now: float) -> Verdict | GaveUp | None:
    """Decide what becomes of a cluster whose gang has found no places in time; None while there is time."""
    gang = roster.cluster.gang
    for name, since in ledger.gangs.items():
        if gang is None or gang.timeout is None or now < since + gang.timeout:
            continue
        why = gangs[name].trouble or roster.observed.lacking.get(PodGroup.KIND) or "no scheduler has said why"
        count = len(gangs[name].members)
        tasks = f"its {count} tasks" if count > 1 else "its task"
        limit = f"spec.scheduling.gang.timeoutSeconds, {gang.timeout} s"
        message = f"gang {name} found no room for {tasks} within {limit}: {why}"
        if gang.on_timeout == "Fail":
            return Verdict(FAILED, reasons.GANG_TIMEOUT, message)
        return GaveUp(roster.cluster.generation, f"{message}; edit it, or suspend and resume it, and it tries again")
    return None


def seconds_left(cluster: TFCluster, ledger: Ledger, now: float) -> float | None:
    """Give the seconds until the first gang has waited for too long; None where none waits, or there is no limit."""
    if cluster.gang is None or cluster.gang.timeout is None or not ledger.gangs:
        return None
    return min(ledger.gangs.values()) + cluster.gang.timeout - now


def _may_start(roster: Roster, ledger: Ledger, gang: Gang, now: float) -> bool:
    jobs = {place.task.job.name: place.task.job for place in gang.unplaced}.values()
    if any(ledger.of(job.name).restart_at > now for job in jobs):
        return False
    return not any(start_order.awaited_jobs(roster, job, ledger) for job in jobs)
