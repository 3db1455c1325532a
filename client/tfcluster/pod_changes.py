"""Which pods an edit of a TFCluster replaces, deletes and creates, why, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.edited import edited_field
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life.rollout import rollout_of
from tfcluster_operator.life.roster import Place, Roster, Stage
from tfcluster_operator.objects.pod import Pod


@dataclass(frozen=True, slots=True)
class PodChange:
    """What becomes of the pods of some tasks of one job.

    Attributes:
        what: what is done to them.
        job: the job.
        tasks: the indices, in the order in which it is done.
        reason: the reason that the operator's events will carry.
        words: why and how, for people.
        field: of a replacement, the first field that the edit changes; "" otherwise.
    """

    what: Literal["create", "replace", "delete", "keep"]
    job: str
    tasks: tuple[int, ...]
    reason: str
    words: str
    field: str = ""


def pod_changes(before: Roster | None, after: Roster, known: Ledger) -> list[PodChange]:
    """Work out what an edit does to pods."""
    if known.verdict is not None:
        return []
    if after.cluster.suspend:
        return [*_suspended(before, after)]
    found = [*_deleted(after)]
    resumed = before is not None and before.cluster.suspend
    for job in after.cluster.jobs:
        found += _replaced(before, after, job)
    for job in after.cluster.jobs:
        was = None if before is None or resumed else before.cluster.job(job.name)
        declared = 0 if was is None else was.replicas
        new = [place.task.index for place in after.of(job) if place.task.index >= declared and _has_no_pod(place)]
        if new:
            found.append(PodChange("create", job.name, tuple(new), reasons.CREATED, _when(job)))
    return found


def _has_no_pod(place: Place) -> bool:
    return place.stage is Stage.MISSING


def _when(job: Job) -> str:
    return f"when {', '.join(job.start_after)} is ready (startAfter)" if job.start_after else ""


def _suspended(before: Roster | None, after: Roster) -> Iterator[PodChange]:
    if before is None or before.cluster.suspend:
        return
    why = (reasons.SUSPENDED, "spec.suspend")
    if not after.declared.suspend:
        why = (reasons.QUOTA_WITHDRAWN, f"it waits in queue {after.declared.queue}")
    for job, indices in _by_job(before.staying()):
        yield PodChange("delete", job, indices, *why)


def _deleted(after: Roster) -> Iterator[PodChange]:
    for name, indices in _by_job(after.surplus):
        job = after.cluster.job(name)
        if job is None:
            yield PodChange("delete", name, indices, reasons.JOB_REMOVED, "at once: the job is declared no more")
        elif job.drain_timeout_seconds:
            words = f"{job.drain_timeout_seconds} s after the smaller view is published (drainTimeoutSeconds)"
            yield PodChange("delete", name, indices, reasons.SCALED_DOWN, words)
        else:
            yield PodChange("delete", name, indices, reasons.SCALED_DOWN, "at once: the job has no drainTimeoutSeconds")


def _by_job(pods: Iterator[Pod] | Sequence[Pod]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Give the tasks of pods by job, the highest index first, as the operator deletes them."""
    found: dict[str, list[int]] = {}
    for pod in pods:
        labels = pod.meta.labels
        index = labels.get(naming.LABEL_TASK_INDEX, "")
        if index.isascii() and index.isdecimal():
            found.setdefault(labels.get(naming.LABEL_JOB, ""), []).append(int(index))
    for job in sorted(found):
        yield job, tuple(sorted(set(found[job]), reverse=True))


def _replaced(before: Roster | None, after: Roster, job: Job) -> Iterator[PodChange]:
    old = rollout_of(after, job).old
    if not old:
        return
    was = () if before is None or (former := before.cluster.job(job.name)) is None else rollout_of(before, former).old
    under_way = {place.name for place in was}
    field = edited_field(None if before is None else before.declared, after.declared, job.name) or "template"
    for late, places in (
        (True, [p for p in old if p.name in under_way]),
        (False, [p for p in old if p.name not in under_way]),
    ):
        if places:
            indices = [place.task.index for place in places]
            yield _replacement(after.cluster, job, indices, field, under_way=late)


def _replacement(cluster: TFCluster, job: Job, indices: list[int], field: str, *, under_way: bool) -> PodChange:
    strategy, reason = cluster.update_strategy, reasons.TEMPLATE_CHANGED
    now = "; their template is older than the present one, too" if under_way else ""
    if strategy.type == "OnDelete":
        words = f"each stays as it is until you delete it (updateStrategy OnDelete){now}"
        return PodChange("keep", job.name, tuple(indices), reason, words, field)
    if strategy.type == "Recreate":
        return PodChange(
            "replace", job.name, tuple(indices), reason, f"all at once (updateStrategy Recreate){now}", field
        )
    most = strategy.within(job.replicas)
    words = f"{most} at a time, the highest index first (updateStrategy RollingUpdate){now}"
    return PodChange("replace", job.name, tuple(reversed(indices)), reason, words, field)
