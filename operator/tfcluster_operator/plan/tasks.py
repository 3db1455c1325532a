"""The actions for each task: a chain of small policies evaluates its pod, and the first one that applies decides."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import Ledger, timestamp
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life import departures
from tfcluster_operator.life.gangs import Gang, awaited, awaited_jobs, is_member
from tfcluster_operator.life.roster import Holder, Place, Roster, Stage, name_after
from tfcluster_operator.life.stock import pause_before_replacing
from tfcluster_operator.life.views import JobViews, tf_config_of
from tfcluster_operator.objects import pod_manifest
from tfcluster_operator.objects.base import change_of
from tfcluster_operator.objects.config_map import lasting
from tfcluster_operator.objects.pod import Ending, Pod, change_of_pod, words_for
from tfcluster_operator.objects.pod_group import name_for
from tfcluster_operator.plan.actions import EVIDENCE, MOST_STEPS, Create, Finding, Gate, Try
from tfcluster_operator.plan.objects import obstacle, policy_gate
from tfcluster_operator.plan.story import EXCEEDED_QUOTA, ISOLATION, RESOLVER, SERVICE, Story, gate_of

_TAKEN: Final = {Stage.FOREIGN: Holder.FOREIGN, Stage.PREDECESSOR: Holder.PREDECESSOR}


class JobPlan:
    """The decisions for the tasks of one job."""

    def __init__(  # noqa: PLR0917 - what a plan is made from
        self, roster: Roster, views: JobViews, gangs: Mapping[str, Gang], ledger: Ledger, now: float, story: Story
    ) -> None:
        self._roster, self._cluster, self._views = roster, roster.cluster, views
        self._ledger, self._now, self._story = ledger, now, story
        self._job, self._record = views.job, ledger.of(views.job.name)
        self._gangs, self._gang = gangs, gangs.get(name_for(roster.cluster, views.job, ledger))
        self._to_replace = frozenset[str]()

    def plan(self) -> None:
        """Decide what to do for each task."""
        self._roll_out()
        missing = []
        for place in self._roster.of(self._job):
            if place.settled and self._is_as_told(place):
                continue
            pod = place.pod
            if place.stage is Stage.MISSING:
                missing.append(place)
            elif place.stage in _TAKEN:
                self._story.wait(obstacle("Pod", place.name, _TAKEN[place.stage]))
            elif pod is None or (place.stage is Stage.COMPLETED and pod.meta.terminating):
                continue
            elif place.stage is Stage.TERMINATING:
                self._await_its_end(place, pod)
            elif place.stage is Stage.COMPLETED or not self._replaces(place, pod):
                # The pod of a completed task is kept as it is, and found by its labels.
                self._tell_and_relabel(place, pod)
        self._plan_missing(missing)

    def _roll_out(self) -> None:
        """Select the UIDs of the outdated pods to replace now, and plan a dry run of one replacement."""
        name, places = self._job.name, self._roster.of(self._job)
        chosen = departures.to_replace(self._cluster, departures.rollout_of(self._roster, self._job))
        # Check ``chosen`` first, to avoid a search through thousands of places.
        if chosen and (outdated := next((place for place in places if place.pod in chosen), None)) is not None:
            about = self._roster, self._views, outdated.task
            build = partial(_build, *about, name=outdated.name, view_digest="", attempt=0)
            trial = Try(outdated.name, reasons.TEMPLATE_CHANGED, build)
            self._story.do("tell", trial, gate=gate_of("template", name))
        self._to_replace = frozenset(pod.meta.uid for pod in chosen)

    def _is_as_told(self, place: Place) -> bool:
        """Return whether a settled pod has the current incarnation and view: then no policy applies."""
        pod = place.pod
        if pod is None or pod.incarnation != self._record.incarnation:
            return False
        return pod.told == self._views.told_for(place.task.index)

    def _plan_missing(self, missing: list[Place]) -> None:
        job, record, now, story = self._job, self._record, self._now, self._story
        if missing and awaited(self._gangs, job):
            missing = [place for place in missing if is_member(self._cluster, place)]
        if not missing:
            return
        if record.restart_at > now:
            self._back_off(f"job {job.name}", record.restart_at)
            return
        if jobs := awaited_jobs(self._roster, job, self._ledger):
            story.wait(Finding(reasons.WAITING_FOR_JOB, f"job {job.name} starts after {', '.join(jobs)}"))
            return
        gate = gate_of("pods", job.name)
        # After a rejection try another task first: a problem of one task must not stop the others.
        first = 0 if story.lacks_quota(gate) else story.tried(gate) % len(missing)
        room = MOST_STEPS
        for place in (*missing[first:], *missing[:first]):
            # Kept pods are deleted first if a pod quota would be exceeded otherwise.
            if place.kept and _is_full(self._roster, story):
                continue
            failing, lost = record.awaits_retry(place.task.index), record.lost.get(place.task.index)
            if failing is not None and failing.retry_at > now:
                self._back_off(str(place.task), failing.retry_at)
                continue
            if not room:
                continue  # beyond the limit of one reconcile; other tasks can still add findings
            room -= 1
            why = reasons.CREATED if lost is None else reasons.POD_DISRUPTED
            create = self._create(
                place,
                place.name,
                reasons.POD_FAILED if failing is not None else why,
                attempt=0 if lost is None else lost.attempt,
            )
            story.do("create", create, gate=gate, needs=self._what_a_pod_needs(place))

    def _back_off(self, what: str, at: float) -> None:
        last = self._ledger.last_restart
        if last is not None and not what.startswith("job ") and last.task != what:
            last = None  # it is about another task
        cause = f" after {last.task} failed: {last.message}" if last is not None else ""
        pause = f" in {at - last.time:.0f} s" if last is not None else ""
        message = f"{what} is restarted{cause}; next try{pause}, at {timestamp(at)[11:19]} UTC"
        self._story.wait(Finding(reasons.BACKING_OFF, message), at - self._now)

    def _group_to_join(self, place: Place) -> str:
        """Return the name of the PodGroup that a new pod joins; "" once the gang is scheduled."""
        gang = self._gang
        return gang.name if gang is not None and not gang.placed and is_member(self._cluster, place) else ""

    def _what_a_pod_needs(self, place: Place) -> tuple[Gate, ...]:
        of_job = [gate_of(of, self._job.name) for of in ("views", "placement")]
        of_job += [gate_of("gang", group)] if (group := self._group_to_join(place)) else []
        return SERVICE, ISOLATION, *map(policy_gate, self._roster.unsettled), *of_job, RESOLVER, EVIDENCE

    def _create(self, place: Place, name: str, reason: str, *, replaces: str = "", **told: Any) -> Create:
        """Return the action that creates a task's pod; see :func:`tfcluster_operator.objects.pod_manifest.build`."""
        told |= {"incarnation": self._record.incarnation, "group": self._group_to_join(place)}
        told["replacement"] = place.task.index in self._record.had_pod
        digest = self._views.told_for(place.task.index)
        build = partial(_build, self._roster, self._views, place.task, name=name, view_digest=digest, **told)
        return Create("Pod", name, reason, build, place.task, replaces)

    def _await_its_end(self, place: Place, pod: Pod) -> None:
        stuck_in = departures.seconds_until_stuck(pod, self._now)
        if stuck_in > 0:
            self._story.wake_after.append(stuck_in)
        else:
            message = f"{place.task}: {departures.stuck_words(self._cluster, pod)}"
            self._story.wait(Finding(reasons.STUCK_TERMINATING, message))

    # --- the policies for a pod that is ours and is not being deleted

    def _replaces(self, place: Place, pod: Pod) -> bool:
        """Let the first policy that applies decide; return whether one does."""
        return (
            self._replace_with_its_scope(place, pod)
            or self._replace_outdated(place, pod)
            or self._replace_one_of_another_gang(place, pod)
            or self._replace_ended(place, pod)
        )

    def _replace_with_its_scope(self, place: Place, pod: Pod) -> bool:
        if pod.incarnation == self._record.incarnation:
            return False
        if place.ending is Ending.FAILED and self._is_to_be_kept(pod):
            if pod.phase == "Failed":
                self._keep(place, pod)
            return True
        return self._delete(pod, reasons.RESTARTED_TOGETHER, toward=str(self._record.incarnation))

    def _replace_outdated(self, place: Place, pod: Pod) -> bool:
        # No running pod is deleted before the API server has validated its replacement.
        gate, outdated = gate_of("template", self._job.name), place.outdated and pod.meta.uid in self._to_replace
        return outdated and self._delete(pod, reasons.TEMPLATE_CHANGED, gate, toward=self._job.template_hash)

    def _replace_one_of_another_gang(self, place: Place, pod: Pod) -> bool:
        """Replace an unscheduled pod that should be scheduled with another gang, or on its own."""
        if pod.node or pod.phase != "Pending":
            return False
        gang, to_join = self._gang if is_member(self._cluster, place) else None, self._group_to_join(place)
        gates = [gate_of("gang", to_join)] if to_join else []
        chosen = self._cluster.chosen_scheduler(self._job)
        # Compare the chosen scheduler, not the pod's: an admission webhook can replace the latter.
        if pod.chosen_scheduler != chosen:
            return self._delete(pod, reasons.GANG_CHANGED, *gates, toward=chosen)
        if gang is not None and gang.leaving and to_join and pod.group == to_join:
            # A finalizer keeps the PodGroup until none of its pods is pending; a terminating one is never scheduled.
            return self._delete(pod, reasons.GANG_CHANGED, toward=to_join)
        # Its template can set a group, and the gang might have been scheduled just now.
        known = {to_join, *self._job.own_groups(), gang.name if gang is not None else ""}
        if pod.group in known and (pod.group or not to_join):
            return False
        return self._delete(pod, reasons.GANG_CHANGED, *gates, toward=to_join)

    def _replace_ended(self, place: Place, pod: Pod) -> bool:
        ending, task = place.ending, place.task
        if ending is None:
            return False
        pause, attempt = pause_before_replacing(pod)
        began: float | None = pod.noted.ended_at or self._now
        due = (pod.noted.ended_at or self._now) + pause
        failing, last = self._record.failing.get(task.index), self._ledger.last_restart
        if ending is Ending.FAILED and failing is not None:
            due, attempt = failing.retry_at, 0
            # A restarted operator sees the end again, and its message must not change then.
            began = last.time if last is not None and last.task == str(task) else None
        if due > self._now:
            wait = "" if began is None else f" in {due - began:.0f} s"
            message = f"{task} {_HOW[ending](pod)}; next try{wait}, at {timestamp(due)[11:19]} UTC"
            self._story.wait(Finding(reasons.BACKING_OFF, message), due - self._now)
            return True
        if pod.at_rest and pod.phase not in {"Succeeded", "Failed"}:
            # If it were deleted before its phase is set, it would be terminating for a while.
            return True
        needs, name, uid = self._what_a_pod_needs(place), place.name, pod.meta.uid
        if ending is Ending.FAILED and self._is_to_be_kept(pod):
            self._keep(place, pod)
            name, uid = name_after(naming.first_pod_name(pod.meta.name)[0], (*place.kept, pod)), ""
            needs = (*needs, gate_of("Pod", pod.meta.name))
        create = self._create(place, name, _WHY[ending], replaces=uid, attempt=attempt)
        self._story.do("replace" if uid else "create", create, gate=gate_of("pods", self._job.name), needs=needs)
        return True

    def _tell_and_relabel(self, place: Place, pod: Pod) -> None:
        if self._views.too_large:
            return
        # A pod of an older edit might be in another domain, and must not attract the new pods to it.
        near = {} if place.outdated else self._cluster.colocated(self._job)
        wanted = self._views.told_for(place.task.index)
        labels = {**naming.task_labels(self._cluster.name, self._job.name, place.task.index), **near}
        change, reason = change_of_pod(pod, labels=labels, view_digest=wanted), reasons.REPAIRED
        if change and naming.ANNOTATION_VIEW in change["metadata"].get("annotations", {}):
            reason = reasons.VIEW_REFRESHED if lasting(pod.told) == lasting(wanted) else reasons.VIEW_CHANGED
        self._story.patch(pod, change, reason, phase="tell", needs=(gate_of("views", self._job.name),))

    def _delete(self, pod: Pod, reason: str, *needs: Gate, toward: str = "") -> bool:
        self._story.delete(pod, reason, phase="replace", needs=(EVIDENCE, *needs), toward=toward)
        return True

    def _is_to_be_kept(self, pod: Pod) -> bool:
        """Return whether the failed pod of a task is kept, or will be once its phase is Failed."""
        # A pod whose sidecar still runs holds its resources and its address.
        return pod.at_rest and _limit(self._roster, self._job.history_limit, self._story) > 0

    def _keep(self, place: Place, pod: Pod) -> None:
        """Plan to mark the failed pod of a task as kept; it is then no longer the task's pod."""
        marking = _marking(self._roster, place, pod)
        self._story.patch(pod, marking, reasons.POD_KEPT, phase="replace", needs=(EVIDENCE,))


def _build(roster: Roster, views: JobViews, task: Task, **told: Any) -> dict[str, Any]:
    # Not a method: an action that held the plan would be a cycle, which stays in memory until a garbage collection.
    cluster, tf_config = roster.cluster, None
    if cluster.sets_tf_config and (view := views.text_for(task.index)):
        tf_config = tf_config_of(cluster, task, view)
    return pod_manifest.build(cluster, task, resolver=roster.resolver or None, tf_config=tf_config, **told)


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


#: Parts of the API server's message if a quota counts ended pods, too.
_QUOTA_OF_ALL_PODS: Final = (EXCEEDED_QUOTA, "count/pods=")


def plan_history(roster: Roster, story: Story) -> None:
    """Plan to delete kept pods beyond the limit, and to restore the labels of the rest."""
    for place in (place for job in roster.cluster.jobs for place in roster.of(job) if place.kept):
        kept = [pod for pod in place.kept if not pod.meta.terminating]
        beyond = max(0, len(kept) - _limit(roster, place.task.job.history_limit, story))
        for number, pod in enumerate(kept):
            if number < beyond:
                story.delete(pod, reasons.HISTORY_LIMIT)
            else:
                story.patch(pod, _marking(roster, place, pod), reasons.REPAIRED, phase="tell")


def _limit(roster: Roster, declared: int, story: Story) -> int:
    """Return how many failed pods of a task are kept: 0 while a quota rejects new pods because of them."""
    return 0 if _is_full(roster, story) else declared


def _is_full(roster: Roster, story: Story) -> bool:
    told = (story.refusal(gate_of("pods", job.name)) for job in roster.cluster.jobs)
    return any(all(words in message for words in _QUOTA_OF_ALL_PODS) for message in told)


def _marking(roster: Roster, place: Place, pod: Pod) -> dict[str, Any] | None:
    """Return the patch that marks a failed pod as kept, or None if it is marked."""
    labels = naming.task_labels(roster.cluster.name, place.task.job.name, place.task.index)
    return change_of(pod.meta, labels={**labels, naming.LABEL_KEPT: "true"})
