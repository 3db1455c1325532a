"""The claims of a cluster: its Workloads, which request quota from a queue (Kueue, "Workload").

Quota is given back when the pods that used it are deleted, not before, so that a queue never admits more than the nodes
hold.  A claim that has quota is not edited, because Kueue forbids that: ``reclaimablePods`` makes it smaller, and
another claim adds to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import SUCCEEDED, Ledger
from tfcluster_operator.declaration.spec import CHIEF, TFCluster
from tfcluster_operator.life import queueing
from tfcluster_operator.life.queueing import Claim, Turn
from tfcluster_operator.life.roster import Holder, Roster, Stage
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.workload import QuotaRequest, Workload, change_of
from tfcluster_operator.objects.workload import build as build_workload
from tfcluster_operator.plan.actions import Create, Finding
from tfcluster_operator.plan.objects import obstacle_of
from tfcluster_operator.plan.story import Story, gate_of

#: Seconds until the operator checks again for a queue API that the API server does not serve.
_LOOK_FOR_QUEUES_AGAIN: Final = 20.0
#: Kueue evaluates a claim within this time (seconds), unless other Workloads are before it.
_JUDGED_WITHIN: Final = 5
#: The longest time (seconds) between two reminders.
_LONGEST_PAUSE: Final = 300
#: The reasons of evictions whose Workload Kueue's own controllers requeue immediately.
_QUEUED_AGAIN_AT_ONCE: Final = frozenset({"Preempted", "NodeFailures"})
#: The most characters of a condition's message (Kubernetes, metav1.Condition).
_LONGEST_MESSAGE: Final = 32_768


def plan_claims(roster: Roster, known: Ledger, now: float, story: Story) -> None:
    """Request quota, use what was admitted, and give back what is no longer needed."""
    standing = roster.standing
    claims, at_work = (*standing.holding, *standing.rest), bool(roster.at_work)
    for claim in claims:
        _mark_again(roster.declared, claim, story)
    if known.verdict is not None:
        if not at_work:
            _finish(claims, known, now, story)
    elif standing.turn in {Turn.FREE, Turn.SUSPENDED}:
        # A cluster whose queue label was removed can run without a queue; a suspended one has pods until they end.
        if standing.turn is Turn.FREE or not at_work:
            _give_back(claims, story)
    elif standing.turn is Turn.UNKNOWN:
        story.wait(_no_queue(roster.cluster, standing.why), _LOOK_FOR_QUEUES_AGAIN)
    elif standing.turn is Turn.CHANGED:
        story.wait(_has_changed(roster.cluster))
        if not at_work:
            _give_back(claims, story)
    elif standing.turn is Turn.WAITING:
        _wait_in_line(roster, now, story)
    else:
        _grow_or_shrink(roster, now, story)
        _tell_of_missing_flavors(roster, story)


def wanted_claim(cluster: TFCluster, number: int, counts: Mapping[str, int]) -> QuotaRequest:
    """Build the wanted spec of a claim."""
    jobs = [job for job in cluster.jobs if counts.get(job.name)]
    least = queueing.may_be_fewer(cluster, counts, number=number)
    pod_sets = []
    for job in jobs:
        fewest = {"minCount": least[job.name]} if job.name in least else {}
        asked = {**fewest, "template": queueing.asked_of(job), **queueing.topology_request(job)}
        pod_sets.append({"name": naming.dns_job(job.name), "count": counts[job.name], **asked})
    of_pods = cluster.priority_class == ""
    names = [job.of_template("priorityClassName") for job in sorted(jobs, key=lambda job: job.name != CHIEF)]
    return QuotaRequest(
        name=naming.claim_name(cluster.name, number),
        queue=cluster.queue,
        pod_sets=tuple(pod_sets),
        asks=queueing.asks_annotation(jobs, least),
        priority_class=next((name for name in names if name), "") if of_pods else cluster.priority_class,
        priority_of_pods=of_pods,
    )


def _mark_again(cluster: TFCluster, claim: Claim, story: Story) -> None:
    """Restore the labels of a claim and, if it has quota, the annotation with its pods' requests."""
    labels, known = naming.cluster_labels(cluster.name), claim.workload.meta.labels
    change: dict[str, Any] = {}
    if wrong := {key: value for key, value in labels.items() if known.get(key) != value}:
        change["labels"] = wrong
    if claim.workload.granted is not None and not queueing.read_asks(claim.workload):
        jobs = [job for job in cluster.jobs if claim.count.get(job.name)]
        if jobs:
            change["annotations"] = {naming.ANNOTATION_ASKS: queueing.asks_annotation(jobs, {})}
    if change:
        _patch(claim, {"metadata": change}, story, reason=reasons.REPAIRED)


def _finish(claims: Sequence[Claim], known: Ledger, now: float, story: Story) -> None:
    verdict = known.verdict
    for claim in claims:
        if verdict is not None and not claim.workload.is_true("Finished"):
            reason = "Succeeded" if verdict.kind == SUCCEEDED else "Failed"
            said = _Saying("Finished", status=True, reason=reason, message=verdict.message)
            _set(claim, [said], now, story)


def _give_back(claims: Iterable[Claim], story: Story) -> None:
    for claim in claims:
        story.delete(claim.workload, reasons.UNUSED)


def _wait_in_line(roster: Roster, now: float, story: Story) -> None:
    """Keep exactly one claim, for the whole cluster, until it is admitted."""
    declared, at_work = roster.declared, bool(roster.at_work)
    first = next((claim for claim in roster.standing.rest if claim.number == 0), None)
    later = [claim for claim in roster.standing.rest if claim.number]
    if at_work:
        story.wait(_gives_way(roster.at_work, first))
        return
    _give_back(later, story)
    counts = {job.name: job.replicas for job in declared.jobs}
    wanted = wanted_claim(declared, 0, counts)
    if first is None:
        _create(roster, wanted, story)
    else:
        _renew(first, wanted, now, story)


def _create(roster: Roster, wanted: QuotaRequest, story: Story) -> None:
    gate, held = gate_of("Workload", wanted.name), roster.held(Workload, wanted.name)
    story.needed.add(gate)
    if held.holder is not Holder.NOBODY:
        story.close(gate, obstacle_of(held))
        return
    build = partial(build_workload, roster.cluster, wanted)
    story.do("publish", Create(held.kind, wanted.name, reasons.CREATED, build), gate=gate)
    words = f"Workload {wanted.name} was created in queue {wanted.queue}"
    story.wait(Finding(reasons.WAITING_FOR_QUOTA, words))


def _renew(claim: Claim, wanted: QuotaRequest, now: float, story: Story) -> None:
    """Correct a claim that does not have quota, or cannot use it."""
    workload = claim.workload
    story.needed.add(gate_of("Workload", wanted.name))
    story.wait(_waits(workload))
    if workload.is_true("Finished"):
        story.delete(claim.workload, reasons.UNUSED)
    elif workload.granted is not None:
        if workload.is_true("Evicted") or not workload.active:
            _clear(claim, now, story)
    elif claim.workload.spec.priority_class_ref.name != wanted.priority_class:
        # The priority value was stored with the claim, and belongs to another class.
        story.delete(claim.workload, reasons.UNUSED)
    elif change := change_of(wanted, workload):
        _patch(claim, _dated(change, now), story)
    elif workload.unjudged:
        _remind(claim, now, story)


def _remind(claim: Claim, now: float, story: Story) -> None:
    """Write to a claim that Kueue has not evaluated since it was changed.

    Kueue can miss a change while it evaluates the Workload, until the next change of any object.
    """
    asked_at, _, pause_told = claim.workload.meta.annotations.get(naming.ANNOTATION_ASKED_AT, "").partition("/")
    waited, pause = now - _number(asked_at, 0), _number(pause_told, _JUDGED_WITHIN)
    if 0 <= waited < pause:
        story.wake_after.append(pause - waited)
    else:
        # Kueue might be down for hours.
        _patch(claim, _dated({}, now, pause=min(2 * pause, _LONGEST_PAUSE)), story)


def _dated(change: Mapping[str, Any], now: float, *, pause: int = 0) -> dict[str, Any]:
    """Note when a claim was written to, and for how many seconds not to remind Kueue again."""
    about: Mapping[str, Any] = change.get("metadata") or {}
    noted = f"{int(now)}/{pause}" if pause else str(int(now))
    annotations = {**(about.get("annotations") or {}), naming.ANNOTATION_ASKED_AT: noted}
    return {**change, "metadata": {**about, "annotations": annotations}}


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else otherwise


def _grow_or_shrink(roster: Roster, now: float, story: Story) -> None:
    standing, declared = roster.standing, roster.declared
    granted = standing.granted
    lacking = {job.name: job.replicas - granted.get(job.name, 0) for job in declared.jobs}
    lacking = {name: count for name, count in lacking.items() if count > 0}
    next_one = standing.rest[0] if standing.rest else None
    later = standing.rest[1:]
    in_its_place = [pod for pod in roster.at_work if _is_covered(declared, pod, standing.rest)]
    if next_one is not None and in_its_place:
        story.wait(_gives_way(in_its_place, next_one))
    else:
        _give_back(later, story)
        if next_one is not None and lacking:
            _renew(next_one, wanted_claim(declared, next_one.number, lacking), now, story)
        elif next_one is not None:
            story.delete(next_one.workload, reasons.UNUSED)
        elif lacking:
            number = 1 + max(claim.number for claim in standing.holding)
            _create(roster, wanted_claim(declared, number, lacking), story)
    _shrink(roster, story)
    for claim in standing.holding:
        _tell_readiness(roster, claim, now, story)


def _shrink(roster: Roster, story: Story) -> None:
    """Give back the quota of tasks that are no longer declared, once their pods are deleted."""
    declared, granted = roster.declared, roster.standing.granted
    by_name = {job.name: job for job in declared.jobs}
    excess = {}
    for name, count in granted.items():
        job = by_name.get(name)
        kept = 0 if job is None else job.replicas
        if count > kept and not any(_is_of(declared, pod, name, kept) for pod in roster.at_work):
            excess[name] = count - kept
    for claim in reversed(roster.standing.holding):
        taken = {name: min(count, excess.get(name, 0)) for name, count in claim.count.items()}
        taken = {name: count for name, count in taken.items() if count}
        if not taken:
            continue
        for name, count in taken.items():
            excess[name] -= count
        if claim.number and all(taken.get(name, 0) == count for name, count in claim.count.items()):
            story.delete(claim.workload, reasons.UNUSED)
        else:
            _reclaim(claim, taken, story)


def _tell_readiness(roster: Roster, claim: Claim, now: float, story: Story) -> None:
    """Report to Kueue whether the tasks of a claim are ready: it might be configured to wait for that."""
    places = [
        place for job in roster.cluster.jobs for place in roster.of(job) if claim.covers(job.name, place.task.index)
    ]
    ready = all(place.serving or place.stage is Stage.COMPLETED for place in places)
    before = claim.workload.says("PodsReady")
    if ready == (before.get("status") == "True"):
        return
    if not ready:
        said = _Saying("PodsReady", status=False, reason="WaitForRecovery", message="a task is no longer ready")
    else:
        why = "Recovered" if before.get("reason") == "WaitForRecovery" else "Started"
        said = _Saying("PodsReady", status=True, reason=why, message="all tasks are ready or completed")
    _set(claim, [said], now, story)


def _tell_of_missing_flavors(roster: Roster, story: Story) -> None:
    for job, flavors in roster.standing.missing_flavors.items():
        why = f" ({roster.standing.why})" if roster.standing.why else ""
        message = (
            f"the quota of job {job} is from ResourceFlavor {', '.join(flavors)}, which the operator cannot read{why}: "
            "its pods need the node labels of that flavor"
        )
        story.close(gate_of("placement", job), Finding(reasons.QUEUE_UNAVAILABLE, message))
        story.wake_after.append(_LOOK_FOR_QUEUES_AGAIN)


def _patch(
    claim: Claim, change: Mapping[str, Any], story: Story, *, reason: str = reasons.QUOTA_REQUEST_CHANGED, **more: Any
) -> None:
    story.patch(claim.workload, change, reason, version=str(claim.workload.meta.version), **more)


class _Saying(NamedTuple):
    """A condition that the operator sets."""

    kind: str
    status: bool
    reason: str
    message: str


def _set(claim: Claim, said: Sequence[_Saying], now: float, story: Story, **more: Any) -> None:
    """Change conditions of a claim; the whole list is written, and only if the claim has not changed since."""
    changed = {one.kind: _condition(claim.workload, one, now) for one in said}
    kept = [dict(one) for one in claim.workload.status.conditions if one.get("type") not in changed]
    readiness = list(changed) == ["PodsReady"]
    reason = reasons.READINESS_REPORTED if readiness else reasons.QUOTA_REQUEST_CHANGED
    change = {"status": {**more, "conditions": [*kept, *changed.values()]}}
    _patch(claim, change, story, subresource="status", reason=reason)


def _condition(workload: Workload, said: _Saying, now: float) -> dict[str, Any]:
    before, word = workload.says(said.kind), "True" if said.status else "False"
    since = before.get("lastTransitionTime") if before.get("status") == word else None
    return {
        "type": said.kind,
        "status": word,
        "reason": said.reason,
        "message": said.message[:_LONGEST_MESSAGE],
        "lastTransitionTime": since or datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _clear(claim: Claim, now: float, story: Story) -> None:
    """Give back the quota of an evicted claim, as Kueue's own controllers do when the pods are deleted."""
    evicted = claim.workload.says("Evicted")
    message = str(evicted.get("message") or "The workload is deactivated")
    said = [_Saying("QuotaReserved", status=False, reason="Pending", message=message)]
    if claim.workload.says("Admitted"):
        words = "The workload has no reservation"
        said.append(_Saying("Admitted", status=False, reason="NoReservation", message=words))
    if claim.workload.is_true("PodsReady"):
        said.append(_Saying("PodsReady", status=False, reason="WaitForStart", message="its pods were deleted"))
    if (reason := str(evicted.get("reason", ""))) in _QUEUED_AGAIN_AT_ONCE:
        said.append(_Saying("Requeued", status=True, reason=reason, message=message))
    _set(claim, said, now, story, admission=None, reclaimablePods=None)


def _reclaim(claim: Claim, taken: Mapping[str, int], story: Story) -> None:
    workload = claim.workload
    counts = dict(workload.reclaimed)
    for name, count in taken.items():
        pod_set = naming.dns_job(name)
        # Example: 6 requested, 4 admitted; to keep 3 of them, 3 are given back.
        counts[pod_set] = workload.asked[pod_set] - (claim.count[name] - count)
    listed = [{"name": name, "count": counts[name]} for name in sorted(counts)]
    _patch(claim, {"status": {"reclaimablePods": listed}}, story, subresource="status")


def _is_of(cluster: TFCluster, pod: Pod, job: str, start: int) -> bool:
    """Return whether a pod belongs to a task of this job, from this index up."""
    first, index = naming.first_pod_name(pod.meta.name)[0], naming.index_of(pod.meta.name)
    return index >= start and first == naming.pod_name(cluster.name, job, index)


def _is_covered(cluster: TFCluster, pod: Pod, claims: Iterable[Claim]) -> bool:
    return any(_is_of(cluster, pod, job, claim.first[job]) for claim in claims for job in claim.count)


def _no_queue(cluster: TFCluster, why: str) -> Finding:
    message = (
        f"the label {naming.LABEL_QUEUE} selects queue {cluster.queue}, but the operator cannot create Workloads here "
        f"({why}): install Kueue, grant the operator its permissions, or remove the label"
    )
    return Finding(reasons.QUEUE_UNAVAILABLE, message)


def _has_changed(cluster: TFCluster) -> Finding:
    message = (
        f"the resources of its pods or the queue changed after admission: deleting the pods and waiting in queue "
        f"{cluster.queue} again"
    )
    return Finding(reasons.WAITING_FOR_QUOTA, message)


def _gives_way(leaving: Sequence[Pod], claim: Claim | None) -> Finding:
    count = len(leaving)
    pods = "its last pod" if count == 1 else f"its {count} pods"
    why = "no quota" if claim is None else _why(claim.workload)
    words = f"{why}; waiting for {pods} to end before requesting quota again"
    return Finding(reasons.WAITING_FOR_QUOTA, words)


def _waits(workload: Workload) -> Finding:
    message = f"Workload {workload.meta.name} waits in queue {workload.queue}: {_why(workload)}"
    return Finding(reasons.WAITING_FOR_QUOTA, message)


def _why(workload: Workload) -> str:
    evicted = workload.says("Evicted")
    if not workload.active:
        words = f" ({evicted.get('reason')}: {evicted.get('message')})" if evicted.get("status") == "True" else ""
        return f"the Workload is deactivated{words}: set its spec.active to true"
    if workload.is_true("Finished"):
        return "the Workload was marked as finished"
    if workload.granted is not None and evicted.get("status") == "True":
        return f"its quota was withdrawn ({evicted.get('reason')}): {evicted.get('message')}"
    if workload.granted is not None:
        checks = ", ".join(workload.pending_checks)
        return f"quota is reserved; waiting for admission checks{': ' + checks if checks else ''}"
    reserved = workload.says("QuotaReserved")
    return str(reserved.get("message") or "Kueue has not evaluated it yet")
