"""The planner: from what is declared, what exists and what is known to what to do.

It reads as a story.  First the Service and the ConfigMaps, so that a pod starts with a name and a view.  Then the pods:
each task's pod is judged by a chain of small policies, the first that has something to say decides.  Survivors are told
of a changed view before any pod goes.  Last, what is no longer declared is deleted, highest index first.

Nothing is remembered between two plans but the ledger: carried out in part, in another order or twice, the next plan
does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from tfcluster_operator.model import naming, reasons, views
from tfcluster_operator.model.actions import Action, Delete, DeleteCluster, Patch, Plan
from tfcluster_operator.model.foundations import (
    oversized,
    plan_config_map,
    plan_resolver,
    plan_service,
    surplus_foundations,
)
from tfcluster_operator.model.ledger import Ledger
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.policies import clean_up, deadline, scale_down, termination
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.story import Story
from tfcluster_operator.model.tasks import plan_job


def plan(cluster: TFCluster, observed: Observed, ledger: Ledger, now: float, *, resolver: str = "") -> Plan:
    """Decide what to do for one cluster.

    Args:
        cluster: the declaration.
        observed: everything that exists under its names or its control.
        ledger: what is known of its life, after :func:`tfcluster_operator.model.stock.take_stock`.
        now: the time, in seconds since the epoch.
        resolver: the name of the ConfigMap that delivers the resolver, "" where none is delivered.

    Returns:
        The plan: empty stages when all is as declared.
    """
    wanted = views.views_of(cluster, observed)
    ending = Story()
    _free_stuck_pods(cluster, observed, now, ending)
    left = deadline.seconds_left(cluster, ledger, now)
    if left is not None and left > 0:
        ending.wake_after.append(left)
    if ledger.verdict is not None:
        return _plan_the_end(cluster, observed, wanted, ending, expired=left is not None and left <= 0)
    if too_large := tuple(oversized(wanted)):
        return Plan(stages=(), findings=too_large, wake_after=min(ending.wake_after, default=None), views=wanted)
    foundations, pods, surplus = Story(), Story(), Story()
    plan_service(cluster, observed, foundations)
    for job_views in wanted:
        plan_config_map(cluster, job_views, observed, foundations)
    if resolver:
        plan_resolver(cluster, resolver, observed, foundations)
    if not cluster.suspend and not foundations.blocked:
        for job_views in wanted:
            plan_job(cluster, job_views, observed, ledger, now, pods)
    if cluster.suspend or not foundations.blocked:
        _plan_surplus_pods(cluster, observed, now, surplus)
    unneeded = tuple(surplus_foundations(cluster, wanted, resolver, observed))
    stages = (tuple(foundations.actions), tuple(pods.actions), tuple(surplus.actions), unneeded, tuple(ending.actions))
    return Plan(
        stages=tuple(stage for stage in stages if stage),
        findings=(*foundations.findings, *pods.findings),
        wake_after=min((*ending.wake_after, *pods.wake_after, *surplus.wake_after), default=None),
        views=wanted,
    )


def _plan_the_end(
    cluster: TFCluster, observed: Observed, wanted: tuple[views.JobViews, ...], ending: Story, *, expired: bool
) -> Plan:
    """Plan for a cluster that has finished: its pods are cleaned up, in time it goes; nothing else is touched."""
    actions: list[Action] = [
        Delete("Pod", pod.meta.name, pod.meta.uid, reasons.CLEANED_UP)
        for pod in clean_up.pods_to_clean(cluster, observed)
    ]
    actions += ending.actions
    if expired:
        actions.append(DeleteCluster(cluster.name, cluster.uid, reasons.TTL_EXPIRED))
    return Plan(
        stages=(tuple(actions),) if actions else (),
        wake_after=min(ending.wake_after, default=None),
        views=wanted,
    )


def _free_stuck_pods(cluster: TFCluster, observed: Observed, now: float, story: Story) -> None:
    for pod in observed.pods.values():
        if pod.meta.owner_uid != cluster.uid:
            continue
        left = termination.seconds_until_freed(cluster, pod, now)
        if left is not None and left > 0:
            story.wake_after.append(left)
        elif left is not None:
            story.actions.append(Delete("Pod", pod.meta.name, pod.meta.uid, reasons.FORCED, force=True))


def _plan_surplus_pods(cluster: TFCluster, observed: Observed, now: float, story: Story) -> None:
    for pod in sorted(_surplus_pods(cluster, observed), key=_index_of, reverse=True):
        name, uid = pod.meta.name, pod.meta.uid
        if cluster.suspend:
            story.actions.append(Delete("Pod", name, uid, reasons.SUSPENDED))
            continue
        job = cluster.job(pod.meta.labels.get(naming.LABEL_JOB, ""))
        left = scale_down.seconds_to_drain(job, pod, now)
        if left <= 0:
            reason = reasons.SCALED_DOWN if job is not None else reasons.JOB_REMOVED
            story.actions.append(Delete("Pod", name, uid, reason))
            continue
        story.wake_after.append(left)
        if not pod.surplus_since:
            change = {"metadata": {"annotations": {naming.ANNOTATION_SURPLUS_SINCE: str(int(now))}}}
            story.actions.append(Patch("Pod", name, uid, change, reasons.DRAINING))


def _surplus_pods(cluster: TFCluster, observed: Observed) -> Iterator[ObservedPod]:
    declared = (
        set() if cluster.suspend else {naming.pod_name(cluster.name, t.job.name, t.index) for t in cluster.tasks()}
    )
    for name, pod in observed.pods.items():
        if name not in declared and pod.meta.owner_uid == cluster.uid and not pod.meta.terminating:
            yield pod


def _index_of(pod: ObservedPod) -> int:
    index = pod.meta.name.rpartition("-")[2]
    return int(index) if index.isascii() and index.isdigit() else 0
