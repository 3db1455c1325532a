"""What is done for each task: a chain of small policies judges its pod, the first that has something to say decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.model import drift, ledger, naming, reasons
from tfcluster_operator.model.actions import Action, CreatePod, Delete, Finding, Patch
from tfcluster_operator.model.foundations import obstacle_of
from tfcluster_operator.model.observed import Observed, ObservedPod
from tfcluster_operator.model.policies import restart, rollout, start_order, termination
from tfcluster_operator.model.policies.ending import Ending, ending_of, words_for
from tfcluster_operator.model.spec import Task, TFCluster
from tfcluster_operator.model.story import Story
from tfcluster_operator.model.views import JobViews


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to be done about one existing pod: an action, or a wait with a finding, or neither."""

    action: Action | None = None
    finding: Finding | None = None
    wake_after: float | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    cluster: TFCluster
    task: Task
    pod: ObservedPod
    record: ledger.JobRecord
    view_digest: str
    to_replace: frozenset[str]
    now: float


def plan_job(  # noqa: PLR0917 - the six are one case; a class for them would be read once
    cluster: TFCluster, job_views: JobViews, observed: Observed, known: ledger.Ledger, now: float, story: Story
) -> None:
    """Decide what to do for each task of a job.

    Args:
        cluster: the declaration.
        job_views: the job and its wanted views.
        observed: what exists.
        known: the ledger after stock was taken.
        now: the time, in seconds since the epoch.
        story: where actions, findings and times are noted.
    """
    job, record = job_views.job, known.of(job_views.job.name)
    chosen = rollout.to_replace(cluster, rollout.rollout_of(cluster, job, observed, known))
    to_replace = frozenset(pod.meta.uid for pod in chosen)
    missing = []
    for index in range(job.replicas):
        if index in record.completed:
            continue  # it is not run again, whatever became of its pod
        task = Task(job, index)
        pod = observed.pods.get(naming.pod_name(cluster.name, job.name, index))
        if pod is None:
            missing.append(task)
            continue
        case = _Case(cluster, task, pod, record, job_views.digest_for(index), to_replace, now)
        verdict = next((v for policy in _POD_POLICIES if (v := policy(case)) is not None), _Verdict())
        _note(verdict, story)
    if missing:
        _plan_missing(cluster, job_views, missing, observed, known, now, story)


def _note(verdict: _Verdict, story: Story) -> None:
    if verdict.action is not None:
        story.actions.append(verdict.action)
    if verdict.finding is not None:
        story.findings.append(verdict.finding)
    if verdict.wake_after is not None:
        story.wake_after.append(verdict.wake_after)


def _plan_missing(  # noqa: PLR0917 - as plan_job
    cluster: TFCluster,
    job_views: JobViews,
    missing: list[Task],
    observed: Observed,
    known: ledger.Ledger,
    now: float,
    story: Story,
) -> None:
    job, record = job_views.job, known.of(job_views.job.name)
    if record.restart_at > now:
        story.findings.append(Finding(reasons.BACKING_OFF, _next_try(f"job {job.name}", record.restart_at, known)))
        story.wake_after.append(record.restart_at - now)
        return
    if awaited := start_order.awaited_jobs(cluster, job, observed, known):
        message = f"job {job.name} starts after {', '.join(awaited)}"
        story.findings.append(Finding(reasons.WAITING_FOR_JOB, message))
        return
    for task in missing:
        failing = record.awaits_retry(task.index)
        if failing is not None and failing.retry_at > now:
            message = _next_try(str(task), failing.retry_at, known)
            story.findings.append(Finding(reasons.BACKING_OFF, message))
            story.wake_after.append(failing.retry_at - now)
            continue
        name = naming.pod_name(cluster.name, job.name, task.index)
        lost = reasons.POD_DISRUPTED if task.index in record.started else reasons.CREATED
        reason = reasons.POD_FAILED if failing is not None else lost
        digest = job_views.digest_for(task.index)
        story.actions.append(CreatePod(task, name, digest, attempt=0, reason=reason, incarnation=record.incarnation))


def _next_try(what: str, at: float, known: ledger.Ledger) -> str:
    last = known.last_restart
    cause = f" after {last.task} failed: {last.message}" if last is not None else ""
    pause = f" in {at - last.time:.0f} s" if last is not None else ""
    return f"{what} is restarted{cause}; next try{pause}, at {ledger.timestamp(at)[11:19]} UTC"


def _leave_what_is_not_ours(case: _Case) -> _Verdict | None:
    obstacle = None if case.pod.meta.terminating else obstacle_of(case.cluster, "Pod", case.pod)
    if case.pod.meta.owner_uid != case.cluster.uid and obstacle is None:
        obstacle = Finding(
            reasons.WAITING_FOR_PREDECESSOR,
            f"Pod {case.pod.meta.name} is not of this TFCluster and still terminates; its name is needed",
        )
    return None if obstacle is None else _Verdict(finding=obstacle)


def _await_the_end_of_a_terminating_pod(case: _Case) -> _Verdict | None:
    if not case.pod.meta.terminating:
        return None
    stuck_in = termination.seconds_until_stuck(case.pod, case.now)
    if stuck_in > 0:
        return _Verdict(wake_after=stuck_in)
    message = f"{case.task}: {termination.words_for(case.cluster, case.pod)}"
    return _Verdict(finding=Finding(reasons.STUCK_TERMINATING, message))


def _replace_with_its_scope(case: _Case) -> _Verdict | None:
    if case.pod.incarnation == case.record.incarnation:
        return None
    return _delete(case, reasons.RESTARTED_TOGETHER)


def _replace_a_pod_of_an_old_template(case: _Case) -> _Verdict | None:
    return _delete(case, reasons.TEMPLATE_CHANGED) if case.pod.meta.uid in case.to_replace else None


def _replace_an_edited_pod(case: _Case) -> _Verdict | None:
    # NB: a pod of an older template has other images by right.
    if rollout.is_outdated(case.task.job, case.pod) or drift.edited_image(case.task.job, case.pod) is None:
        return None
    return _delete(case, reasons.POD_EDITED)


def _replace_an_ended_pod(case: _Case) -> _Verdict | None:
    pod, ending = case.pod, ending_of(case.pod)
    if ending is None:
        return None
    pause, attempt = restart.pause_before_replacing(pod)
    due = (pod.finished_at or case.now) + pause
    failing = case.record.failing.get(case.task.index)
    if ending is Ending.FAILED and failing is not None:
        due, attempt = failing.retry_at, 0
    if due > case.now:
        how, seconds = _HOW[ending](pod), due - (pod.finished_at or case.now)
        message = f"{case.task} {how}; next try in {seconds:.0f} s, at {ledger.timestamp(due)[11:19]} UTC"
        return _Verdict(finding=Finding(reasons.BACKING_OFF, message), wake_after=due - case.now)
    if pod.at_rest and pod.phase not in {"Succeeded", "Failed"}:
        # NB: deleted before its phase says so, it would terminate for a while.
        return _Verdict()
    create = CreatePod(
        case.task,
        pod.meta.name,
        case.view_digest,
        attempt,
        _WHY[ending],
        replaces=pod.meta.uid,
        incarnation=case.record.incarnation,
    )
    return _Verdict(create)


_WHY: Final = {
    Ending.SUCCEEDED: reasons.POD_ENDED,
    Ending.FAILED: reasons.POD_FAILED,
    Ending.DISRUPTED: reasons.POD_DISRUPTED,
}
_HOW: Final[dict[Ending, Callable[[ObservedPod], str]]] = {
    Ending.SUCCEEDED: lambda _: "ended with exit code 0, and its restartPolicy is Always",
    Ending.FAILED: lambda pod: f"failed: {words_for(pod)}",
    Ending.DISRUPTED: lambda pod: f"was not let run: {pod.trouble or pod.reason or 'its node took it away'}",
}


def _tell_and_relabel(case: _Case) -> _Verdict | None:
    change = drift.pod_change(case.cluster, case.task, case.pod, view_digest=case.view_digest)
    if change is None:
        return None
    reason = (
        reasons.VIEW_CHANGED
        if naming.ANNOTATION_VIEW in change["metadata"].get("annotations", {})
        else (reasons.REPAIRED)
    )
    return _Verdict(Patch("Pod", case.pod.meta.name, case.pod.meta.uid, change, reason))


def _delete(case: _Case, reason: str) -> _Verdict:
    return _Verdict(Delete("Pod", case.pod.meta.name, case.pod.meta.uid, reason))


_POD_POLICIES: Final[tuple[Callable[[_Case], _Verdict | None], ...]] = (
    _leave_what_is_not_ours,
    _await_the_end_of_a_terminating_pod,
    _replace_with_its_scope,
    _replace_a_pod_of_an_old_template,
    _replace_an_edited_pod,
    _replace_an_ended_pod,
    _tell_and_relabel,
)
