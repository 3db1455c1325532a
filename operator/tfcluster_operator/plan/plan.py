"""The planner: from what is declared, what exists and what is known to what to do.

First it publishes changed views and notifies running pods; then it plans deletions, replacements and creations.  A
chain of small policies evaluates each task's pod, and the first one that applies decides.  A rejection blocks only the
steps that depend on it.

Only the ledger and the holds are kept between two plans: if a plan was carried out in part, in another order or twice,
the next plan does the rest.
"""

from collections.abc import Iterable
from typing import Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life import departures, views
from tfcluster_operator.life.departures import job_of
from tfcluster_operator.life.gangs import gangs_of, seconds_until_timeout
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.life.stock import seconds_left
from tfcluster_operator.objects.base import change_of
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.plan.actions import EVIDENCE, Action, Create, Delete, Gate, Plan
from tfcluster_operator.plan.claims import ClaimsPlan
from tfcluster_operator.plan.objects import (
    plan_config_map,
    plan_gangs,
    plan_kinds,
    plan_policies,
    plan_resolver,
    plan_surplus_views,
)
from tfcluster_operator.plan.story import Holds, Story, gate_of
from tfcluster_operator.plan.tasks import JobPlan, plan_history


def plan(
    roster: Roster, ledger: Ledger, wanted: tuple[views.JobViews, ...], now: float, *, holds: Holds | None = None
) -> Plan:
    """Decide what to do for one cluster."""
    story = Story(holds or Holds(), now)
    left = seconds_left(roster.cluster, ledger, now)
    if left is not None and left > 0:
        story.wake_after.append(left)
    if (gang_left := seconds_until_timeout(roster.cluster, ledger, now)) is not None:
        # When the time has expired, the status records that first, and the next reconcile acts on it.
        story.wake_after.append(max(gang_left, _ACT_ON_THE_END_OF_TIME))
    _free_stuck_pods(roster, now, story)
    ClaimsPlan(roster, ledger, now, story).plan()
    if ledger.verdict is not None:
        _plan_the_end(roster, story, expired=left is not None and left <= 0)
    else:
        _plan_the_life(roster, ledger, wanted, now, story)
    return Plan(
        groups=tuple(story.groups()),
        findings=tuple(story.findings),
        wake_after=min(story.wake_after, default=None),
        views=wanted,
        needed=frozenset(story.needed),
    )


def _plan_the_life(
    roster: Roster, ledger: Ledger, wanted: tuple[views.JobViews, ...], now: float, story: Story
) -> None:
    plan_kinds(roster, story, finished=False)
    plan_policies(roster, story)
    gangs = gangs_of(roster, ledger)
    plan_gangs(roster, gangs, story)
    for job_views in wanted:
        plan_config_map(roster, job_views, story)
    if roster.cluster.suspend:
        why = _why_suspended(roster)
        for pod in sorted(roster.staying(), key=_index_of, reverse=True):
            story.delete(pod, why, needs=(EVIDENCE,))
    else:
        for pod in sorted(roster.surplus, key=_index_of, reverse=True):
            _plan_surplus_pod(roster, pod, now, story)
        for job_views in wanted:
            JobPlan(roster, job_views, gangs, ledger, now, story).plan()
    plan_history(roster, story)
    plan_surplus_views(roster, story)
    plan_resolver(roster, story)


#: Seconds until the reconcile that deletes a cluster's pods after a gang has timed out.
_ACT_ON_THE_END_OF_TIME: Final = 0.5


def _why_suspended(roster: Roster) -> str:
    if roster.declared.gave_up:
        return reasons.GANG_TIMEOUT
    return reasons.SUSPENDED if roster.declared.suspend else reasons.QUOTA_WITHDRAWN


def _plan_the_end(roster: Roster, story: Story, *, expired: bool) -> None:
    """Plan for a finished cluster: clean up pods, delete it after its time to live, keep running pods protected."""
    if any(True for _ in roster.staying()):
        plan_policies(roster, story)
    plan_kinds(roster, story, finished=True)
    plan_gangs(roster, {}, story)
    for pod in departures.pods_to_clean(roster):
        story.delete(pod, reasons.CLEANED_UP, needs=(EVIDENCE,))
    if expired:
        name, uid = roster.cluster.name, roster.cluster.uid
        delete_all = Delete(naming.KIND, name, uid, reasons.TTL_EXPIRED)
        story.do("free", delete_all, gate=gate_of(naming.KIND, name), needs=(EVIDENCE,))


def _free_stuck_pods(roster: Roster, now: float, story: Story) -> None:
    for pod in roster.leaving:
        left = departures.seconds_until_freed(roster.cluster, pod, now)
        if left is not None and left > 0:
            story.wake_after.append(left)
        elif left is not None:
            story.delete(pod, reasons.FORCED, needs=_what_an_end_needs(pod), force=True)


def _plan_surplus_pod(roster: Roster, pod: Pod, now: float, story: Story) -> None:
    job = job_of(roster.cluster, pod)
    left, reason = departures.seconds_to_drain(job, pod, now), _why_surplus(roster, pod)
    # The quota was withdrawn for another workload, which waits for it.
    if job is None or left <= 0 or reason == reasons.QUOTA_WITHDRAWN:
        story.delete(pod, reason, needs=_what_an_end_needs(pod))
        return
    story.wake_after.append(left)
    since = departures.surplus_since(pod, now)
    labels = naming.task_labels(roster.cluster.name, job.name, _index_of(pod))
    change = change_of(pod.meta, labels=labels, annotations={naming.ANNOTATION_SURPLUS_SINCE: str(int(since or now))})
    story.patch(pod, change, reasons.REPAIRED if since else reasons.DRAINING)


def _why_surplus(roster: Roster, pod: Pod) -> str:
    job = job_of(roster.declared, pod)
    if job is None:
        return reasons.JOB_REMOVED
    granted = next((one.replicas for one in roster.cluster.jobs if one.name == job.name), 0)
    return reasons.QUOTA_WITHDRAWN if granted <= _index_of(pod) < job.replicas else reasons.SCALED_DOWN


def _what_an_end_needs(pod: Pod) -> tuple[Gate, ...]:
    """Return the gates for deleting a pod: the end of an ended pod must be in the status first."""
    return (EVIDENCE,) if pod.ended else ()


def _index_of(pod: Pod) -> int:
    return naming.index_of(pod.meta.name)


def enter_deletions(roster: Roster, ledger: Ledger, planned: Iterable[Action]) -> Ledger:
    """Record the pods of declared tasks that will be deleted; return the same ledger if no pod is."""
    # It is written before the deletions: after a crash they would be counted as losses.
    own = [one for one in planned if isinstance(one, Delete) and one.reason in _OUR_REPLACEMENTS]
    return enter_done(roster, ledger, own) if own else ledger


#: Why the operator deletes the pod of a task that is to continue, without a failure of its job's tasks.
_OUR_REPLACEMENTS: Final = frozenset({reasons.TEMPLATE_CHANGED, reasons.GANG_CHANGED})


def enter_done(roster: Roster, ledger: Ledger, actions: Iterable[Action]) -> Ledger:
    """Record what was carried out: which tasks have a pod now, and whose pods the operator deleted."""
    if ledger.verdict is not None:
        return ledger
    names: dict[str, Task] = {}
    started = {name: set(record.started) for name, record in ledger.jobs.items()}
    failing = {name: dict(record.failing) for name, record in ledger.jobs.items()}
    lost = {name: dict(record.lost) for name, record in ledger.jobs.items()}
    had_pod = {name: set(record.had_pod) for name, record in ledger.jobs.items()}
    anew = set()
    for action in actions:
        match action:
            case Create(task=Task() as task):
                started.setdefault(task.job.name, set()).add(task.index)
                had_pod.setdefault(task.job.name, set()).add(task.index)
                lost.setdefault(task.job.name, {}).pop(task.index, None)
            case Delete(kind="Pod", name=name, reason=reason, force=False):  # a forced deletion completes another's
                names = names or {place.name: place.task for of in roster.places.values() for place in of}
                if (deleted := names.get(name)) is not None:
                    started.setdefault(deleted.job.name, set()).discard(deleted.index)
                    if reason == reasons.TEMPLATE_CHANGED:
                        # An edit that should fix a failure does not wait for the back-off.
                        failing.setdefault(deleted.job.name, {}).pop(deleted.index, None)
                        if roster.cluster.spec.update_strategy.type == "Recreate":
                            anew.add(deleted.job.name)
            case _:
                pass
    for name, indices in started.items():
        if name in anew and not indices:
            ledger = ledger.with_job(name, begun=False)
        changes = {"started": frozenset(indices), "failing": failing.get(name, {}), "lost": lost.get(name, {})}
        ledger = ledger.with_job(name, had_pod=frozenset(had_pod.get(name, ())), **changes)
    return ledger
