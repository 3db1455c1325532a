"""The failed pods of a task that are kept for their logs: spec.failedPodsHistoryLimit."""

from __future__ import annotations

from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.roster import Place, Roster
from tfcluster_operator.objects.base import change_of
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.plan.actions import EVIDENCE
from tfcluster_operator.plan.story import EXCEEDED_QUOTA, Story, gate_of

#: Parts of the API server's message if a quota counts ended pods, too.
_QUOTA_OF_ALL_PODS: Final = (EXCEEDED_QUOTA, "count/pods=")


def plan_history(roster: Roster, story: Story) -> None:
    """Plan to delete kept pods beyond the limit, and to restore the labels of the rest."""
    for job in roster.cluster.jobs:
        for place in roster.of(job):
            if place.kept:
                _plan_history_of(roster, place, story)


def is_to_be_kept(roster: Roster, place: Place, pod: Pod, story: Story) -> bool:
    """Return whether the failed pod of a task is kept, or will be once its phase is Failed."""
    # A pod whose sidecar still runs holds its resources and its address.
    return pod.at_rest and _limit(roster, place.task, story) > 0


def gives_way(roster: Roster, place: Place, story: Story) -> bool:
    """Return whether kept pods of a task are deleted first, because a pod quota would be exceeded otherwise."""
    return bool(place.kept) and _is_full(roster, story)


def keep(roster: Roster, place: Place, pod: Pod, story: Story) -> None:
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
