"""The conditions of a cluster, with reasons and messages.

They report what exists and are never an input to a decision; only a final verdict is stored in one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Ledger
from tfcluster_operator.declaration.spec import EVALUATOR, Job, TFCluster
from tfcluster_operator.life import views
from tfcluster_operator.life.departures import rollout_of
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects import config_map
from tfcluster_operator.plan.actions import Finding

#: Why an object is not as declared, the most severe first: Ready reports it if a task waits for that, else UpToDate.
_NOT_AS_DECLARED: Final = (
    reasons.VIEW_TOO_LARGE,
    reasons.NAME_TAKEN,
    reasons.RESOLVER_UNTRUSTED,
    reasons.GANG_UNAVAILABLE,
    reasons.QUEUE_UNAVAILABLE,
    reasons.REJECTED,
    reasons.REQUEST_FAILED,
    reasons.CONFLICTING_WRITES,
)
#: Why a cluster is not ready, the most severe first: the condition reports the first of several findings.
GRAVITY: Final = (
    reasons.INVALID_SPEC,
    *_NOT_AS_DECLARED,
    reasons.WAITING_FOR_PREDECESSOR,
    reasons.STUCK_TERMINATING,
    reasons.WAITING_FOR_QUOTA,
    reasons.BACKING_OFF,
    reasons.WAITING_FOR_GANG,
    reasons.WAITING_FOR_JOB,
    reasons.TASKS_NOT_READY,
)
#: The reasons why a cluster can regularly wait for days: other workloads use the resources.
WAITS: Final = (reasons.WAITING_FOR_QUOTA, reasons.WAITING_FOR_GANG)
#: UpToDate reports these if Ready does not: an evaluator does not count for Ready, but might wait as well.
_TOLD_BESIDE_READY: Final = (*_NOT_AS_DECLARED, reasons.WAITING_FOR_PREDECESSOR, *WAITS)
#: How many items of a list a message names.
_NAMED: Final = 3
_LONGEST_MESSAGE: Final = 1_024


#: The types of condition that this operator writes; conditions of other types belong to other writers.
CONDITION_TYPES: Final = frozenset(
    {"Ready", "Suspended", SUCCEEDED, FAILED, "Stalled", "MembershipPublished", "UpToDate", "NameConflict"}
)


class Counts(NamedTuple):
    """The tasks that decide whether the cluster is ready: how many are declared, are ready, and have finished."""

    desired: int
    ready: int
    finished: int


class Says(NamedTuple):
    """The content of a condition, without the time of its last change."""

    kind: str
    status: bool
    reason: str
    message: str


def gating_jobs(cluster: TFCluster) -> list[Job]:
    """Return the jobs whose tasks decide whether the cluster is ready: all but evaluators, if there are others."""
    return [job for job in cluster.jobs if job.name != EVALUATOR] or list(cluster.jobs)


def by_type(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the conditions of a status by their type."""
    return {str(condition.get("type")): condition for condition in status.get("conditions") or ()}


def dated(before: Mapping[str, Any], said: Sequence[Says], *, generation: int, now: float) -> list[dict[str, Any]]:
    """Set each condition's lastTransitionTime, by Kubernetes' API conventions; keep the conditions of others."""
    old = by_type(before)
    ours: list[dict[str, Any]] = []
    for says in said:
        status = "True" if says.status else "False"
        known = old.pop(says.kind, {})
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        # A verdict keeps the generation of the evaluated spec: later edits have no effect.
        final = bool(since) and says.status and says.kind in {SUCCEEDED, FAILED}
        one: dict[str, Any] = {"type": says.kind, "status": status, "reason": says.reason, "message": says.message}
        one["observedGeneration"] = known.get("observedGeneration", generation) if final else generation
        one["lastTransitionTime"] = since or datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ours.append(one)
    return ours + list(old.values())


def with_others(ours: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status that is not written yet with the latest conditions of other writers."""
    own = [one for one in ours.get("conditions") or () if one.get("type") in CONDITION_TYPES]
    others = [one for one in latest.get("conditions") or () if one.get("type") not in CONDITION_TYPES]
    return {**ours, "conditions": own + others}


def shown(roster: Roster, job: Job, ledger: Ledger) -> Sequence[Place]:
    """Return the tasks of a job that should have pods: while a cluster is suspended, none should."""
    return () if roster.cluster.suspend and ledger.verdict is None else roster.of(job)


def ready(roster: Roster, ledger: Ledger, findings: Sequence[Finding], counts: Counts) -> Says:
    cluster = roster.cluster
    if (verdict := ledger.verdict) is not None:
        succeeded = verdict.kind == SUCCEEDED
        late = cluster.generation > verdict.generation > 0
        also = f"; edits after generation {verdict.generation} are ignored" if late else ""
        # kstatus, and so Flux and Argo, waits for Ready=True forever: a successful cluster counts as ready.
        reason = reasons.SUCCEEDED if succeeded else verdict.reason
        return Says("Ready", succeeded, reason, verdict.message + also)
    if cluster.gave_up and not findings:
        return Says("Ready", False, reasons.GANG_TIMEOUT, cluster.gave_up)
    if roster.declared.suspend and not findings:
        return Says("Ready", False, reasons.SUSPENDED, "suspended: spec.suspend is true")
    # If all tasks are ready, so is the cluster, despite other findings; but without the Service tasks are unreachable.
    if counts.ready + counts.finished < counts.desired or roster.service.own is None:
        if gravest := _gravest(findings, GRAVITY):
            return Says("Ready", False, *gravest)
        waiting = [
            (place.task, place.staying.trouble)
            for job in gating_jobs(cluster)
            for place in shown(roster, job, ledger)
            if place.staying is not None and not place.serving and place.stage is not Stage.COMPLETED
        ]
        told = [f"{task}: {why or 'not ready yet'}" for task, why in sorted(waiting, key=lambda one: not one[1])]
        message = f"{counts.ready} of {counts.desired} tasks are ready{'; ' if told else ''}{few(told, '; ')}"
        return Says("Ready", False, reasons.TASKS_NOT_READY, message)
    also = f", {counts.finished} finished" if counts.finished else ""
    return Says("Ready", True, reasons.ALL_TASKS_READY, f"{counts.ready} of {counts.desired} ready{also}")


def _gravest(findings: Sequence[Finding], reasons_in_order: Sequence[str]) -> tuple[str, str] | None:
    """Return the most severe reason that was found, and its message."""
    found = {finding.reason for finding in findings}
    for reason in reasons_in_order if found else ():
        if reason in found:
            return reason, shorten([*dict.fromkeys(one.message for one in findings if one.reason == reason)])
    return None


def stalled(cluster: TFCluster, ledger: Ledger) -> Says:
    """Return, for kstatus, whether the cluster cannot make progress without a user's action."""
    if cluster.gave_up:
        return Says("Stalled", True, reasons.GANG_TIMEOUT, cluster.gave_up)
    if (verdict := ledger.verdict) is not None and verdict.kind == FAILED:
        return Says("Stalled", True, verdict.reason, verdict.message)
    return Says("Stalled", False, reasons.NOT_STALLED, "the cluster has not failed")


def suspended(roster: Roster, ledger: Ledger) -> Says:
    cluster = roster.declared
    if roster.cluster.suspend and not cluster.suspend and ledger.verdict is None:
        return Says("Suspended", True, reasons.WAITING_FOR_QUOTA, f"waiting for quota in queue {cluster.queue}")
    if cluster.gave_up:
        return Says("Suspended", True, reasons.GANG_TIMEOUT, cluster.gave_up)
    if cluster.suspend and ledger.verdict is None:
        return Says("Suspended", True, reasons.SUSPENDED, "spec.suspend is true")
    if cluster.suspend:
        return Says("Suspended", False, reasons.FINISHED, "spec.suspend is ignored: the cluster has finished")
    return Says("Suspended", False, reasons.NOT_SUSPENDED, "spec.suspend is false")


def ended(cluster: TFCluster, ledger: Ledger) -> Iterator[Says]:
    """Return the conditions for success and failure: at most one is ever true, and it stays so with its message."""
    if (verdict := ledger.verdict) is not None:
        for kind in (SUCCEEDED, FAILED):
            if verdict.kind == kind:
                yield Says(kind, True, verdict.reason, verdict.message)
            else:
                yield Says(kind, False, reasons.FINISHED, f"the cluster has already {verdict.kind.lower()}")
        return
    policy, limit = cluster.success_policy, cluster.spec.backoff_limit
    aim = f"waiting for {policy.tasks.lower()} tasks of {', '.join(policy.jobs)} to end with exit code 0"
    if not policy.jobs:
        aim = "spec.successPolicy.jobs is empty: set the jobs that decide"
    yield Says(SUCCEEDED, False, reasons.NOT_FINISHED, aim)
    most = "" if limit is None else f"; at most {limit} restarts"
    yield Says(FAILED, False, reasons.NOT_FINISHED, f"the cluster has not failed{most}")


def up_to_date(roster: Roster, ledger: Ledger, findings: Sequence[Finding] = ()) -> Says:
    """Return whether every pod has the current template, and what else differs from the declaration."""
    told: list[str] = []
    stalled = False
    cluster = roster.cluster
    for job in cluster.jobs if ledger.verdict is None and not cluster.suspend else ():
        rollout = rollout_of(roster, job)
        if not rollout.old:
            continue
        message = f"{len(rollout.old)} of {job.replicas} pods of job {job.name} have an older template"
        broken = [place for place in rollout.unavailable if not place.outdated]
        if cluster.spec.update_strategy.type == "RollingUpdate" and broken:
            pod = broken[0].pod
            trouble = pod.trouble if pod is not None else ""
            stalled = stalled or bool(trouble)
            message += f"; waiting for {few([str(place.task) for place in broken])} to become ready"
            message += f": {trouble}" if trouble else ""
        told.append(message)
    gravest = _gravest(findings, _TOLD_BESIDE_READY)
    if not told and gravest is None:
        return Says("UpToDate", True, reasons.ALL_CURRENT, "all pods match the current template")
    reason = reasons.ROLLOUT_STALLED if stalled else reasons.ROLLING_OUT
    if told and cluster.spec.update_strategy.type == "OnDelete":
        reason = reasons.WAITING_FOR_DELETE
        told.append("updateStrategy is OnDelete: delete the pods to replace them")
    if gravest is not None:
        reason = gravest[0]
        told.insert(0, gravest[1])
    return Says("UpToDate", False, reason, "; ".join(told))


def published(roster: Roster, ledger: Ledger, wanted: tuple[views.JobViews, ...]) -> Says:
    if ledger.verdict is not None:
        message = "the cluster has finished: its views are no longer updated"
        return Says("MembershipPublished", True, reasons.FINISHED, message)
    stale = []
    for job_views in wanted:
        held, job = roster.views(job_views.job), job_views.job.name
        if held.own is None or config_map.change(roster.cluster, job, job_views.files, held.own):
            stale.append(f"ConfigMap {held.name}")
        stale += [
            str(place.task)
            for place in shown(roster, job_views.job, ledger)
            # The check that excludes nearly all of thousands of pods comes first.
            if place.pod is not None and place.pod.told != job_views.told_for(place.task.index)
            if (pod := place.staying) is not None and pod.listening
        ]
    if stale:
        message = f"{len(stale)} not updated yet: {few(stale)}"
        return Says("MembershipPublished", False, reasons.PUBLISHING, message)
    message = f"all running pods have their current view; newest epoch {views.epoch_of(wanted)}"
    return Says("MembershipPublished", True, reasons.PUBLISHED, message)


def conflict(findings: Sequence[Finding]) -> Says:
    if taken := [finding.message for finding in findings if finding.reason == reasons.NAME_TAKEN]:
        return Says("NameConflict", True, reasons.NAME_TAKEN, shorten(taken))
    return Says("NameConflict", False, reasons.NO_CONFLICT, "no name conflicts")


def shorten(messages: Sequence[str]) -> str:
    """Join the first few messages, each shortened: a message of a webhook or a quota can be very long."""
    return few([message[:_LONGEST_MESSAGE] for message in messages], "; ")


def few(items: Sequence[str], between: str = ", ") -> str:
    """List the first few, and the number of the others."""
    more = len(items) - _NAMED
    return between.join([*items[:_NAMED], *([f"and {more} more"] if more > 0 else [])])
