"""The claims of a cluster: its Workloads, which request quota from a queue (Kueue, "Workload").

Quota is given back when the pods that used it are deleted, not before, so that a queue never admits more than the nodes
hold.  A claim that has quota is not edited, because Kueue forbids that: ``reclaimablePods`` makes it smaller, and
another claim adds to it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import SUCCEEDED, Ledger, Verdict
from tfcluster_operator.declaration.spec import CHIEF, TFCluster
from tfcluster_operator.life import queueing
from tfcluster_operator.life.queueing import Claim, Turn
from tfcluster_operator.life.roster import Holder, Roster, Stage
from tfcluster_operator.objects.base import change_of as change_of_object
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

#: A condition that the operator sets: its status, reason and message.
_Says = tuple[bool, str, str]


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


class ClaimsPlan:
    """Requests quota, uses what was admitted, and gives back what is no longer needed."""

    def __init__(self, roster: Roster, ledger: Ledger, now: float, story: Story) -> None:
        self._roster, self._standing, self._declared = roster, roster.standing, roster.declared
        self._verdict, self._now, self._story = ledger.verdict, now, story

    def plan(self) -> None:
        """Decide what to do with each claim."""
        standing, at_work = self._standing, bool(self._roster.at_work)
        claims = (*standing.holding, *standing.rest)
        for claim in claims:
            self._mark_again(claim)
        if self._verdict is not None:
            self._finish(() if at_work else claims, self._verdict)
        elif standing.turn is Turn.UNKNOWN:
            self._story.wait(_no_queue(self._roster.cluster, standing.why), _LOOK_FOR_QUEUES_AGAIN)
        elif standing.turn is Turn.WAITING:
            self._wait_in_line()
        elif standing.turn is Turn.ADMITTED:
            self._grow()
            self._shrink()
            for claim in standing.holding:
                self._tell_readiness(claim)
            self._tell_of_missing_flavors()
        else:
            if standing.turn is Turn.CHANGED:
                why = "the resources of its pods or the queue changed after admission"
                self._wait(f"{why}: deleting the pods and waiting in queue {self._roster.cluster.queue} again")
            # A cluster whose queue label was removed can run without a queue; the others have pods until they end.
            if standing.turn is Turn.FREE or not at_work:
                self._give_back(claims)

    def _finish(self, claims: Iterable[Claim], verdict: Verdict) -> None:
        reason = "Succeeded" if verdict.kind == SUCCEEDED else "Failed"
        for claim in claims:
            if not claim.workload.is_true("Finished"):
                self._set(claim, {"Finished": (True, reason, verdict.message)})

    def _wait_in_line(self) -> None:
        """Keep exactly one claim, for the whole cluster, until it is admitted."""
        at_work, rest = self._roster.at_work, self._standing.rest
        first = next((claim for claim in rest if claim.number == 0), None)
        if at_work:
            self._wait(_gives_way(at_work, first))
            return
        self._give_back(claim for claim in rest if claim.number)
        self._ask(first, 0, {job.name: job.replicas for job in self._declared.jobs})

    def _grow(self) -> None:
        """Request quota for the tasks without quota, with one claim."""
        rest, granted = self._standing.rest, self._standing.granted
        lacking = {job.name: job.replicas - granted.get(job.name, 0) for job in self._declared.jobs}
        lacking = {name: count for name, count in lacking.items() if count > 0}
        in_its_place = [pod for pod in self._roster.at_work if _is_covered(self._declared, pod, rest)]
        if in_its_place:
            self._wait(_gives_way(in_its_place, rest[0]))
            return
        self._give_back(rest[1:] if lacking else rest)
        if lacking:
            claim = rest[0] if rest else None
            number = 1 + max(one.number for one in self._standing.holding) if claim is None else claim.number
            self._ask(claim, number, lacking)

    def _ask(self, claim: Claim | None, number: int, counts: Mapping[str, int]) -> None:
        """Create a claim for these tasks, or correct one that does not have quota, or cannot use it."""
        wanted, story = wanted_claim(self._declared, number, counts), self._story
        gate, held = gate_of("Workload", wanted.name), self._roster.held(Workload, wanted.name)
        story.needed.add(gate)
        if claim is None and held.holder is not Holder.NOBODY:
            story.close(gate, obstacle_of(held))
        elif claim is None:
            build = partial(build_workload, self._roster.cluster, wanted)
            story.do("publish", Create(held.kind, wanted.name, reasons.CREATED, build), gate=gate)
            self._wait(f"Workload {wanted.name} was created in queue {wanted.queue}")
        else:
            self._renew(claim, wanted)

    def _renew(self, claim: Claim, wanted: QuotaRequest) -> None:
        workload = claim.workload
        self._wait(f"Workload {workload.meta.name} waits in queue {workload.queue}: {_why(workload)}")
        if workload.is_true("Finished"):
            self._give_back([claim])
        elif workload.granted is not None:
            if workload.is_true("Evicted") or not workload.active:
                self._clear(claim)
        elif workload.spec.priority_class_ref.name != wanted.priority_class:
            # The priority value was stored with the claim, and belongs to another class.
            self._give_back([claim])
        elif change := change_of(wanted, workload):
            self._patch(claim, self._dated(change))
        elif workload.unjudged:
            self._remind(claim)

    def _remind(self, claim: Claim) -> None:
        """Write to a claim that Kueue has not evaluated since a change: it can miss one while it evaluates."""
        asked_at, _, pause_told = claim.workload.meta.annotations.get(naming.ANNOTATION_ASKED_AT, "").partition("/")
        waited, pause = self._now - _number(asked_at, 0), _number(pause_told, _JUDGED_WITHIN)
        if 0 <= waited < pause:
            self._story.wake_after.append(pause - waited)
        else:
            # Kueue might be down for hours.
            self._patch(claim, self._dated({}, pause=min(2 * pause, _LONGEST_PAUSE)))

    def _dated(self, change: Mapping[str, Any], *, pause: int = 0) -> dict[str, Any]:
        """Note when a claim was written to, and for how many seconds not to remind Kueue again."""
        about: Mapping[str, Any] = change.get("metadata") or {}
        noted = f"{int(self._now)}/{pause}" if pause else str(int(self._now))
        annotations = {**(about.get("annotations") or {}), naming.ANNOTATION_ASKED_AT: noted}
        return {**change, "metadata": {**about, "annotations": annotations}}

    def _shrink(self) -> None:
        """Give back the quota of tasks that are no longer declared, once their pods are deleted."""
        declared, excess = self._declared, {}
        for name, count in self._standing.granted.items():
            job = declared.job(name)
            kept = 0 if job is None else job.replicas
            if count > kept and not any(_is_of(declared, pod, name, kept) for pod in self._roster.at_work):
                excess[name] = count - kept
        for claim in reversed(self._standing.holding):
            taken = {name: min(count, excess.get(name, 0)) for name, count in claim.count.items()}
            taken = {name: count for name, count in taken.items() if count}
            for name, count in taken.items():
                excess[name] -= count
            if taken and claim.number and all(taken.get(name, 0) == count for name, count in claim.count.items()):
                self._give_back([claim])
            elif taken:
                self._reclaim(claim, taken)

    def _reclaim(self, claim: Claim, taken: Mapping[str, int]) -> None:
        workload, counts = claim.workload, dict(claim.workload.reclaimed)
        for name, count in taken.items():
            pod_set = naming.dns_job(name)
            # Example: 6 requested, 4 admitted; to keep 3 of them, 3 are given back.
            counts[pod_set] = workload.asked[pod_set] - (claim.count[name] - count)
        listed = [{"name": name, "count": counts[name]} for name in sorted(counts)]
        self._patch(claim, {"status": {"reclaimablePods": listed}}, subresource="status")

    def _tell_readiness(self, claim: Claim) -> None:
        """Report to Kueue whether the tasks of a claim are ready: it might be configured to wait for that."""
        places = (place for job in self._roster.cluster.jobs for place in self._roster.of(job))
        covered = [place for place in places if claim.covers(place.task.job.name, place.task.index)]
        ready = all(place.serving or place.stage is Stage.COMPLETED for place in covered)
        before = claim.workload.says("PodsReady")
        if ready == (before.get("status") == "True"):
            return
        if ready:
            why = "Recovered" if before.get("reason") == "WaitForRecovery" else "Started"
            said = True, why, "all tasks are ready or completed"
        else:
            said = False, "WaitForRecovery", "a task is no longer ready"
        self._set(claim, {"PodsReady": said})

    def _tell_of_missing_flavors(self) -> None:
        why = f" ({self._standing.why})" if self._standing.why else ""
        for job, flavors in self._standing.missing_flavors.items():
            whose = f"the quota of job {job} is from ResourceFlavor {', '.join(flavors)}"
            message = f"{whose}, which the operator cannot read{why}: its pods need the node labels of that flavor"
            self._story.close(gate_of("placement", job), Finding(reasons.QUEUE_UNAVAILABLE, message))
            self._story.wake_after.append(_LOOK_FOR_QUEUES_AGAIN)

    def _mark_again(self, claim: Claim) -> None:
        """Restore the labels of a claim and, if it has quota, the annotation with its pods' requests."""
        annotations = {}
        jobs = [job for job in self._declared.jobs if claim.count.get(job.name)]
        if jobs and claim.workload.granted is not None and not queueing.read_asks(claim.workload):
            annotations[naming.ANNOTATION_ASKS] = queueing.asks_annotation(jobs, {})
        labels = naming.cluster_labels(self._declared.name)
        change = change_of_object(claim.workload.meta, labels=labels, annotations=annotations)
        self._patch(claim, change, reason=reasons.REPAIRED)

    def _clear(self, claim: Claim) -> None:
        """Give back the quota of an evicted claim, as Kueue's own controllers do when the pods are deleted."""
        evicted = claim.workload.says("Evicted")
        message = str(evicted.get("message") or "The workload is deactivated")
        said: dict[str, _Says] = {"QuotaReserved": (False, "Pending", message)}
        if claim.workload.says("Admitted"):
            said["Admitted"] = (False, "NoReservation", "The workload has no reservation")
        if claim.workload.is_true("PodsReady"):
            said["PodsReady"] = (False, "WaitForStart", "its pods were deleted")
        if (reason := str(evicted.get("reason", ""))) in _QUEUED_AGAIN_AT_ONCE:
            said["Requeued"] = (True, reason, message)
        self._set(claim, said, admission=None, reclaimablePods=None)

    def _set(self, claim: Claim, said: Mapping[str, _Says], **more: Any) -> None:
        """Change conditions of a claim; the whole list is written, and only if the claim has not changed since."""
        kept = [dict(one) for one in claim.workload.status.conditions if one.get("type") not in said]
        changed = [self._condition(claim.workload, kind, *says) for kind, says in said.items()]
        reason = reasons.READINESS_REPORTED if list(said) == ["PodsReady"] else reasons.QUOTA_REQUEST_CHANGED
        change = {"status": {**more, "conditions": [*kept, *changed]}}
        self._patch(claim, change, reason=reason, subresource="status")

    def _condition(self, workload: Workload, kind: str, status: bool, reason: str, message: str) -> dict[str, Any]:
        before, word = workload.says(kind), "True" if status else "False"
        since = before.get("lastTransitionTime") if before.get("status") == word else None
        return {
            "type": kind,
            "status": word,
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "lastTransitionTime": since or datetime.fromtimestamp(self._now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _give_back(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._story.delete(claim.workload, reasons.UNUSED)

    def _patch(
        self,
        claim: Claim,
        change: Mapping[str, Any] | None,
        *,
        reason: str = reasons.QUOTA_REQUEST_CHANGED,
        subresource: str = "",
    ) -> None:
        version = str(claim.workload.meta.version)
        self._story.patch(claim.workload, change, reason, version=version, subresource=subresource)

    def _wait(self, message: str) -> None:
        self._story.wait(Finding(reasons.WAITING_FOR_QUOTA, message))


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() else otherwise


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


def _gives_way(leaving: Sequence[Pod], claim: Claim | None) -> str:
    pods = "its last pod" if len(leaving) == 1 else f"its {len(leaving)} pods"
    why = "no quota" if claim is None else _why(claim.workload)
    return f"{why}; waiting for {pods} to end before requesting quota again"


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
