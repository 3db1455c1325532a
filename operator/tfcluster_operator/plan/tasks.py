"""The actions for each task: a chain of small policies evaluates its pod, and the first one that applies decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from tfcluster_operator.declaration import ledger, naming, reasons
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life import departures, restart, rollout
from tfcluster_operator.life.ending import Ending, words_for
from tfcluster_operator.life.gangs import Gang, awaited, awaited_jobs, is_member
from tfcluster_operator.life.roster import Holder, Place, Roster, Stage, name_after
from tfcluster_operator.life.turns import AT_ONCE, Turns
from tfcluster_operator.life.views import JobViews, tf_config_of
from tfcluster_operator.objects import pod_manifest
from tfcluster_operator.objects.base import change_of
from tfcluster_operator.objects.config_map import lasting
from tfcluster_operator.objects.pod import Pod, change_of_pod
from tfcluster_operator.objects.pod_group import name_for
from tfcluster_operator.plan.actions import EVIDENCE, MOST_STEPS, Create, Finding, Gate, Try
from tfcluster_operator.plan.objects import obstacle, policy_gate
from tfcluster_operator.plan.story import EXCEEDED_QUOTA, ISOLATION, RESOLVER, SERVICE, Story, gate_of


class _Case(NamedTuple):
    """One task's pod, which is ours and is not being deleted."""

    roster: Roster
    place: Place
    pod: Pod
    record: ledger.JobRecord
    last: ledger.LastRestart | None
    views: JobViews
    labels: Mapping[str, str]
    to_replace: frozenset[str]
    gang: Gang | None
    now: float
    story: Story


def plan_job(  # noqa: C901, PLR0917 - a branch for each stage; the six are one case, a class would be read once
    roster: Roster,
    job_views: JobViews,
    gangs: Mapping[str, Gang],
    known: ledger.Ledger,
    now: float,
    story: Story,
) -> Turns[None]:
    """Decide what to do for each task of a job, and yield now and then."""
    job, record = job_views.job, known.of(job_views.job.name)
    to_replace = _roll_out(roster, job_views, story)
    older, last = naming.job_labels(roster.cluster.name, job.name), known.last_restart
    # A pod of an older edit might be in another domain, and must not attract the new pods to it.
    newest = {**older, **roster.cluster.colocated(job)}
    gang = gangs.get(name_for(roster.cluster, job, known))
    missing = []
    for number, place in enumerate(roster.of(job), start=1):
        if number % AT_ONCE == 0:
            yield
        if place.settled and _is_as_told(place, record, job_views):
            continue
        labels = older if place.outdated else newest
        if place.stage is Stage.COMPLETED:
            if (ended := place.staying) is not None:
                case = _Case(roster, place, ended, record, last, job_views, labels, to_replace, gang, now, story)
                next((policy for policy in _POLICIES_OF_THE_COMPLETED if policy(case)), None)
        elif place.stage is Stage.MISSING:
            missing.append(place)
        elif place.stage in _TAKEN:
            story.wait(obstacle("Pod", place.name, _TAKEN[place.stage]))
        elif place.pod is not None and place.stage is Stage.TERMINATING:
            _await_its_end(roster, place, place.pod, now, story)
        elif place.pod is not None:
            case = _Case(roster, place, place.pod, record, last, job_views, labels, to_replace, gang, now, story)
            next((policy for policy in _POLICIES if policy(case)), None)
    if may_start := _whom_no_gang_holds_up(roster, gangs, missing):
        _plan_missing(roster, job_views, may_start, gang, known, now, story)


def _roll_out(roster: Roster, job_views: JobViews, story: Story) -> frozenset[str]:
    """Select the UIDs of the outdated pods to replace now, and plan a dry run of one replacement."""
    job = job_views.job
    chosen = rollout.to_replace(roster.cluster, rollout.rollout_of(roster, job))
    # Check ``chosen`` first, to avoid a search through thousands of places.
    if chosen and (outdated := next((place for place in roster.of(job) if place.pod in chosen), None)) is not None:
        build = partial(_build, roster, job_views, outdated.task, name=outdated.name, view_digest="", attempt=0)
        trial = Try(outdated.name, reasons.TEMPLATE_CHANGED, build)
        story.do("tell", trial, gate=gate_of("template", job.name), needs=(gate_of("TF_CONFIG", job.name),))
    return frozenset(pod.meta.uid for pod in chosen)


def _is_as_told(place: Place, record: ledger.JobRecord, job_views: JobViews) -> bool:
    """Return whether a settled pod has the current incarnation and view: then no policy applies."""
    pod = place.pod
    return (
        pod is not None and pod.told == job_views.told_for(place.task.index) and pod.incarnation == record.incarnation
    )


def _whom_no_gang_holds_up(roster: Roster, gangs: Mapping[str, Gang], missing: list[Place]) -> list[Place]:
    if not missing or not awaited(gangs, missing[0].task.job):
        return missing
    return [place for place in missing if is_member(roster.cluster, place)]


_TAKEN: Final = {Stage.FOREIGN: Holder.FOREIGN, Stage.PREDECESSOR: Holder.PREDECESSOR}


def _plan_missing(  # noqa: PLR0917 - the seven are one case; a class for them would be read once
    roster: Roster,
    job_views: JobViews,
    missing: list[Place],
    gang: Gang | None,
    known: ledger.Ledger,
    now: float,
    story: Story,
) -> None:
    job, record = job_views.job, known.of(job_views.job.name)
    if record.restart_at > now:
        finding = Finding(reasons.BACKING_OFF, _next_try(f"job {job.name}", record.restart_at, known))
        story.wait(finding, record.restart_at - now)
        return
    if jobs := awaited_jobs(roster, job, known):
        story.wait(Finding(reasons.WAITING_FOR_JOB, f"job {job.name} starts after {', '.join(jobs)}"))
        return
    gate, needs, group = gate_of("pods", job.name), _what_a_pod_needs(roster, job.name), _group_to_join(gang)
    # After a rejection try another task first: a problem of one task must not stop the others.
    first = 0 if story.lacks_quota(gate) else story.tried(gate) % len(missing)
    room = MOST_STEPS
    for place in (*missing[first:], *missing[:first]):
        index = place.task.index
        if _gives_way(roster, place, story):
            continue
        failing = record.awaits_retry(index)
        if failing is not None and failing.retry_at > now:
            message = _next_try(str(place.task), failing.retry_at, known)
            story.wait(Finding(reasons.BACKING_OFF, message), failing.retry_at - now)
            continue
        if not room:
            continue  # beyond the limit of one reconcile; other tasks can still add findings
        room -= 1
        joins = group if is_member(roster.cluster, place) else ""
        lost = record.lost.get(index)
        why = reasons.CREATED if lost is None else reasons.POD_DISRUPTED
        create = _create(
            roster,
            job_views,
            place.task,
            place.name,
            reasons.POD_FAILED if failing is not None else why,
            attempt=0 if lost is None else lost.attempt,
            incarnation=record.incarnation,
            replacement=0 if lost is None else record.replaced,
            group=joins,
        )
        story.do("create", create, gate=gate, needs=(*needs, *_what_a_member_needs(joins)))


def _what_a_pod_needs(roster: Roster, job: str) -> tuple[Gate, ...]:
    of_job = (gate_of(of, job) for of in ("views", "TF_CONFIG", "placement"))
    return SERVICE, ISOLATION, *map(policy_gate, roster.unsettled), *of_job, RESOLVER, EVIDENCE


def _group_to_join(gang: Gang | None) -> str:
    """Return the name of the PodGroup that new pods join; "" once the gang is scheduled."""
    return gang.name if gang is not None and not gang.placed else ""


def _what_a_member_needs(group: str) -> tuple[Gate, ...]:
    return (gate_of("gang", group),) if group else ()


def _create(
    roster: Roster, job_views: JobViews, task: Task, name: str, reason: str, *, replaces: str = "", **told: Any
) -> Create:
    """Return the action that creates a task's pod; see :func:`tfcluster_operator.objects.pod_manifest.build`."""
    build = partial(_build, roster, job_views, task, name=name, view_digest=job_views.told_for(task.index), **told)
    return Create("Pod", name, reason, build, task, replaces)


def _build(roster: Roster, job_views: JobViews, task: Task, **told: Any) -> dict[str, Any]:
    tf_config = None
    if roster.cluster.sets_tf_config and (view := job_views.text_for(task.index)):
        tf_config = tf_config_of(roster.cluster, task, view)
    return pod_manifest.build(roster.cluster, task, resolver=roster.resolver or None, tf_config=tf_config, **told)


def _next_try(what: str, at: float, known: ledger.Ledger) -> str:
    last = known.last_restart
    if last is not None and not what.startswith("job ") and last.task != what:
        last = None  # it is about another task
    cause = f" after {last.task} failed: {last.message}" if last is not None else ""
    pause = f" in {at - last.time:.0f} s" if last is not None else ""
    return f"{what} is restarted{cause}; next try{pause}, at {ledger.timestamp(at)[11:19]} UTC"


def _await_its_end(roster: Roster, place: Place, pod: Pod, now: float, story: Story) -> None:
    stuck_in = departures.seconds_until_stuck(pod, now)
    if stuck_in > 0:
        story.wake_after.append(stuck_in)
    else:
        message = f"{place.task}: {departures.stuck_words(roster.cluster, pod)}"
        story.wait(Finding(reasons.STUCK_TERMINATING, message))


def _replace_with_its_scope(case: _Case) -> bool:
    if case.pod.incarnation == case.record.incarnation:
        return False
    if case.place.ending is Ending.FAILED and _is_to_be_kept(case.roster, case.place, case.pod, case.story):
        if case.pod.phase == "Failed":
            _keep(case.roster, case.place, case.pod, case.story)
        return True
    return _delete(case, reasons.RESTARTED_TOGETHER, toward=str(case.record.incarnation))


def _replace_a_pod_of_an_old_template(case: _Case) -> bool:
    outdated = case.place.outdated and case.pod.meta.uid in case.to_replace
    # No running pod is deleted before the API server has validated its replacement.
    job = case.place.task.job
    gates = (gate_of("template", job.name), gate_of("TF_CONFIG", job.name))
    return outdated and _delete(case, reasons.TEMPLATE_CHANGED, *gates, toward=job.template_hash)


def _replace_a_pod_that_waits_with_others(case: _Case) -> bool:
    """Replace an unscheduled pod that should be scheduled with another gang, or on its own."""
    pod = case.pod
    if pod.node or pod.phase != "Pending":
        return False
    gang = case.gang if is_member(case.roster.cluster, case.place) else None
    to_join = _group_to_join(gang)
    chosen = case.roster.cluster.chosen_scheduler(case.place.task.job)
    # Compare the chosen scheduler, not the pod's: an admission webhook can replace the latter.
    if pod.chosen_scheduler != chosen:
        return _delete(case, reasons.GANG_CHANGED, *_what_a_member_needs(to_join), toward=chosen)
    if gang is not None and gang.leaving and to_join and pod.group == to_join:
        # A finalizer keeps the PodGroup until none of its pods is pending, and a terminating one is never scheduled.
        return _delete(case, reasons.GANG_CHANGED, toward=to_join)
    # Its template can set a group, and the gang might have been scheduled just now.
    known = {to_join, *case.place.task.job.own_groups(), gang.name if gang is not None else ""}
    if pod.group in known and (pod.group or not to_join):
        return False
    return _delete(case, reasons.GANG_CHANGED, *_what_a_member_needs(to_join), toward=to_join)


def _replace_an_ended_pod(case: _Case) -> bool:
    pod, place, ending = case.pod, case.place, case.place.ending
    if ending is None:
        return False
    pause, attempt = restart.pause_before_replacing(pod)
    ended_at = pod.noted.ended_at or case.now
    began: float | None = ended_at
    due = ended_at + pause
    failing = case.record.failing.get(place.task.index)
    if ending is Ending.FAILED and failing is not None:
        due, attempt = failing.retry_at, 0
        # A restarted operator sees the end again, and its message must not change then.
        began = case.last.time if case.last is not None and case.last.task == str(place.task) else None
    if due > case.now:
        wait = "" if began is None else f" in {due - began:.0f} s"
        message = f"{place.task} {_HOW[ending](pod)}; next try{wait}, at {ledger.timestamp(due)[11:19]} UTC"
        case.story.wait(Finding(reasons.BACKING_OFF, message), due - case.now)
        return True
    if pod.at_rest and pod.phase not in {"Succeeded", "Failed"}:
        # If it were deleted before its phase is set, it would be terminating for a while.
        return True
    job = place.task.job.name
    joins = _group_to_join(case.gang) if is_member(case.roster.cluster, place) else ""
    told: dict[str, Any] = {"attempt": attempt, "incarnation": case.record.incarnation, "group": joins}
    needs = (*_what_a_pod_needs(case.roster, job), *_what_a_member_needs(joins))
    if ending is Ending.FAILED and _is_to_be_kept(case.roster, place, pod, case.story):
        _keep(case.roster, place, pod, case.story)
        name = name_after(naming.first_pod_name(pod.meta.name)[0], (*place.kept, pod))
        create = _create(case.roster, case.views, place.task, name, _WHY[ending], **told)
        case.story.do("create", create, gate=gate_of("pods", job), needs=(*needs, gate_of("Pod", pod.meta.name)))
    else:
        uid = pod.meta.uid
        create = _create(case.roster, case.views, place.task, place.name, _WHY[ending], replaces=uid, **told)
        case.story.do("replace", create, gate=gate_of("pods", job), needs=needs)
    return True


_WHY: Final = {
    Ending.SUCCEEDED: reasons.POD_ENDED,
    Ending.FAILED: reasons.POD_FAILED,
    Ending.DISRUPTED: reasons.POD_DISRUPTED,
}
_HOW: Final[dict[Ending, Callable[[Pod], str]]] = {
    Ending.SUCCEEDED: lambda _: "ended with exit code 0, and its restartPolicy is Always",
    Ending.FAILED: lambda pod: f"failed: {words_for(pod)}",
    Ending.DISRUPTED: lambda pod: f"was disrupted: {pod.trouble or pod.reason or _who_took_it(pod)}",
}


def _who_took_it(pod: Pod) -> str:
    return "its task was not declared" if pod.surplus_since else "its node ended it"


def _tell_and_relabel(case: _Case) -> bool:
    if case.views.too_large:
        return False
    task = case.place.task
    wanted = case.views.told_for(task.index)
    labels = {**case.labels, naming.LABEL_TASK_INDEX: str(task.index)}
    change = change_of_pod(case.pod, labels=labels, view_digest=wanted)
    if change is None:
        return False
    reason = reasons.REPAIRED
    if naming.ANNOTATION_VIEW in change["metadata"].get("annotations", {}):
        amended = lasting(case.pod.told) == lasting(wanted)
        reason = reasons.VIEW_REFRESHED if amended else reasons.VIEW_CHANGED
    case.story.patch(case.pod, change, reason, phase="tell", needs=(gate_of("views", task.job.name),))
    return True


def _delete(case: _Case, reason: str, *needs: Gate, toward: str = "") -> bool:
    case.story.delete(case.pod, reason, phase="replace", needs=(EVIDENCE, *needs), toward=toward)
    return True


#: Each returns whether it has decided what to do with the pod.
_POLICIES: Final[tuple[Callable[[_Case], bool], ...]] = (
    _replace_with_its_scope,
    _replace_a_pod_of_an_old_template,
    _replace_a_pod_that_waits_with_others,
    _replace_an_ended_pod,
    _tell_and_relabel,
)
#: The pod of a completed task is kept as it is, and found by its labels.
_POLICIES_OF_THE_COMPLETED: Final = (_tell_and_relabel,)


#: Parts of the API server's message if a quota counts ended pods, too.
_QUOTA_OF_ALL_PODS: Final = (EXCEEDED_QUOTA, "count/pods=")


def plan_history(roster: Roster, story: Story) -> None:
    """Plan to delete kept pods beyond the limit, and to restore the labels of the rest."""
    for job in roster.cluster.jobs:
        for place in roster.of(job):
            if place.kept:
                _plan_history_of(roster, place, story)


def _is_to_be_kept(roster: Roster, place: Place, pod: Pod, story: Story) -> bool:
    """Return whether the failed pod of a task is kept, or will be once its phase is Failed."""
    # A pod whose sidecar still runs holds its resources and its address.
    return pod.at_rest and _limit(roster, place.task, story) > 0


def _gives_way(roster: Roster, place: Place, story: Story) -> bool:
    """Return whether kept pods of a task are deleted first, because a pod quota would be exceeded otherwise."""
    return bool(place.kept) and _is_full(roster, story)


def _keep(roster: Roster, place: Place, pod: Pod, story: Story) -> None:
    """Plan to mark the failed pod of a task as kept; it is then no longer the task's pod."""
    story.patch(pod, _marking(roster, place, pod), reasons.POD_KEPT, phase="replace", needs=(EVIDENCE,))


def _plan_history_of(roster: Roster, place: Place, story: Story) -> None:
    kept = [pod for pod in place.kept if not pod.meta.terminating]
    beyond = max(0, len(kept) - _limit(roster, place.task, story))
    for number, pod in enumerate(kept):
        if number < beyond:
            story.delete(pod, reasons.HISTORY_LIMIT)
        else:
            story.patch(pod, _marking(roster, place, pod), reasons.REPAIRED, phase="tell")


def _limit(roster: Roster, task: Task, story: Story) -> int:
    """Return how many failed pods of a task are kept: 0 while a quota rejects new pods because of them."""
    return 0 if _is_full(roster, story) else task.job.history_limit


def _is_full(roster: Roster, story: Story) -> bool:
    told = (story.refusal(gate_of("pods", job.name)) for job in roster.cluster.jobs)
    return any(all(words in message for words in _QUOTA_OF_ALL_PODS) for message in told)


def _marking(roster: Roster, place: Place, pod: Pod) -> dict[str, Any] | None:
    """Return the patch that marks a failed pod as kept, or None if it is marked."""
    labels = naming.task_labels(roster.cluster.name, place.task.job.name, place.task.index)
    return change_of(pod.meta, labels={**labels, naming.LABEL_KEPT: "true"})
