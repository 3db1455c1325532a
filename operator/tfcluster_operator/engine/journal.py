"""The reports of a reconcile: the status, Events, one line in the log for each outcome, and the metrics.

The log never quotes what might contain a secret.  Events are a few per reconcile, and never one per task.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Ledger
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube.client import ApiError, Client, ConflictError, KubeError, NotFoundError, masked
from tfcluster_operator.kube.clusters import Key, Parents
from tfcluster_operator.kube.execute import Outcome
from tfcluster_operator.kube.metrics import REPLACEMENTS, VERDICTS, Metrics
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.plan.actions import Action, Create, Delete, Patch, Try
from tfcluster_operator.report import conditions
from tfcluster_operator.report.conditions import GRAVITY, WAITS, few
from tfcluster_operator.report.status import cause_of, is_starting, role_of, waiting_since, was_starting

_log = logging.getLogger(__name__)

#: Why a pod that is to be replaced is deleted; its replacement is then created because the pod is missing.
_REPLACED_BY_DELETION: Final = (reasons.TEMPLATE_CHANGED, reasons.RESTARTED_TOGETHER)


@dataclass(slots=True)
class Account:
    """The journal's state of one cluster."""

    #: The logged rejections that have not succeeded since: generation, gate and reason.
    refused: set[tuple[int, str, str]] = field(default_factory=set)
    #: When it last stopped waiting for quota or nodes, in seconds since the epoch.
    placed_at: float = 0.0


class Journal:
    """Logs and counts reconciles."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def failures_counted(self, cluster: TFCluster, ledger: Ledger) -> None:
        """Log the failures that were just recorded."""
        if not ledger.failures:
            return
        tasks: dict[str, list[str]] = defaultdict(list)
        for failure in ledger.failures:
            role = role_of(failure.task.rpartition("-")[0])
            self._metrics.task_failures.labels(role, cause_of(failure)).inc()
            code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
            tasks[failure.reason + code].append(failure.task)
        words = few([f"{few(of)} failed: {how}" for how, of in tasks.items()], "; ")
        why = [*dict.fromkeys(failure.reason for failure in ledger.failures)]
        _tell(cluster, words, reasons=why, failures=len(ledger.failures), restarts=ledger.restarts)

    def carried_out(self, roster: Roster, ledger: Ledger, account: Account, outcome: Outcome) -> None:
        """Log what a reconcile did and what was rejected; a rejection that repeats is logged once."""
        cluster, done = roster.cluster, outcome.actions
        for action in done:
            if (reason := _replacement(action, roster, ledger)) in REPLACEMENTS:
                self._metrics.replacements.labels(reason).inc()
        if done:
            told = [f"{reason}: {message}" for reason, message in summary_of(done)]
            counts = Counter(action.reason for action in done)
            _tell(cluster, "; ".join(told), reasons=[*counts], objects=counts)
        refused = {(cluster.generation, gate, one.reason): one for gate, one in outcome.refused.items()}
        # A rejection is over once a request succeeds at the gate, or after an edit; not between two tries.
        passed = {step.gate for step in outcome.done}
        known = {one for one in account.refused if one[0] == cluster.generation and one[1] not in passed}
        if found := [finding for key, finding in refused.items() if key not in known]:
            words = few([f"{one.reason}: {masked(one.message)}" for one in found], "; ")
            why = [*dict.fromkeys(one.reason for one in found)]
            _tell(cluster, words, level=logging.WARNING, reasons=why, refused=len(found))
        account.refused = known | refused.keys()

    def written(self, cluster: TFCluster, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Log a written status: a verdict, a change of Ready."""
        old, new = conditions.by_type(before), conditions.by_type(status)
        for kind in (SUCCEEDED, FAILED):
            verdict = new.get(kind, {})
            if verdict.get("status") == "True" != old.get(kind, {}).get("status") and verdict["reason"] in VERDICTS:
                self._metrics.finished.labels(verdict["reason"]).inc()
        ready, earlier = new.get("Ready", {}), old.get("Ready", {})
        if ready and any(ready[part] != earlier.get(part) for part in ("status", "reason")):
            _tell(cluster, f"Ready is {ready['status']}: {ready['reason']}", reasons=[ready["reason"]])

    def status_refused(self, cluster: TFCluster, words: str) -> None:
        """Log a status that the server rejected."""
        message = f"the status cannot be written: {masked(words)}"
        _tell(cluster, message, level=logging.WARNING, reasons=[reasons.REJECTED])

    def pass_ends(self, account: Account, cluster: TFCluster, status: Mapping[str, Any], now: float) -> None:
        """Note when the cluster stops waiting; now is in seconds since the epoch."""
        if waiting_since(cluster.status) and not waiting_since(status):
            account.placed_at = now

    def pass_took(self, seconds: float, outcome: str) -> None:
        """Count a reconcile."""
        self._metrics.passes.labels(outcome).inc()
        self._metrics.pass_duration.observe(seconds)


def _replacement(action: Action, roster: Roster, ledger: Ledger) -> str:
    """Return why an action replaces a pod, "" if it does not; each pod is replaced by one action."""
    match action:
        case Create(reason=reason):
            return reason
        case Delete(kind="Pod", reason=reason) if reason in _REPLACED_BY_DELETION:
            return reason
        case Patch(kind="Pod", reason=reasons.POD_KEPT, uid=uid):
            # The pod whose failure restarts its scope is kept, and its replacement is that of a missing pod.
            together = (
                place.pod.incarnation != ledger.of(job).incarnation
                for job, places in roster.places.items()
                for place in places
                if place.pod is not None and place.pod.meta.uid == uid
            )
            return reasons.RESTARTED_TOGETHER if any(together) else ""
        case _:
            return ""


def _tell(cluster: TFCluster, message: str, *, level: int = logging.INFO, **fields: Any) -> None:
    where = {"cluster": f"{cluster.namespace}/{cluster.name}", "generation": cluster.generation}
    _log.log(level, "%s", message, extra={"fields": {**where, **fields}})


#: At most one status write a second for each cluster, unless evidence must be kept before it is destroyed.  A report of
#: more ready tasks waits as long.
_STATUS_EVERY: Final = 1.0
#: The seconds between the reports of a cluster's creation in parts.
_BETWEEN_PARTS: Final = 20.0
#: The reasons of actions whose Events are warnings.
WARNINGS: Final = (
    reasons.POD_FAILED,
    reasons.POD_DISRUPTED,
    reasons.RECREATED,
    reasons.RESTARTED_TOGETHER,
    reasons.QUOTA_WITHDRAWN,
    reasons.FORCED,
)
#: Direct consequences of actions that other Events report already.
UNTOLD: Final = (reasons.VIEW_REFRESHED, reasons.READINESS_REPORTED)
#: Reasons of Ready and UpToDate that are posted as Events, too.
EVENTFUL: Final = frozenset({*GRAVITY, reasons.GANG_TIMEOUT, reasons.ROLLOUT_STALLED}) - {
    reasons.BACKING_OFF,
    reasons.GANG_UNAVAILABLE,
    reasons.TASKS_NOT_READY,
    reasons.WAITING_FOR_JOB,
}


@dataclass(slots=True)
class Unwritten:
    """The reports about one cluster that are not written yet: a crash can lose them, but never a counted failure."""

    #: The newest status that is not written yet.
    pending: Mapping[str, Any] | None = None
    #: The resourceVersion that the status is based on.
    version: str = ""
    #: The actions since the last Event.
    untold: list[Action] = field(default_factory=list)
    #: Why the status could not be written, if an Event has this.
    refusal: str = ""
    written_at: float = float("-inf")
    #: Since when the report of a cluster that is becoming ready is put off; None if none is.
    put_off_since: float | None = None


class StatusWriter:
    """Writes statuses when they are due."""

    def __init__(self, client: Client, parents: Parents, journal: Journal) -> None:
        self._client, self._parents, self._journal = client, parents, journal
        self._clock = client.clock.wall

    async def report(
        self, cluster: TFCluster, status: Mapping[str, Any], unwritten: Unwritten, *, part: bool = False
    ) -> float | None:
        """Write the status if it differs and is due, then post what was done; or return when to reconcile again."""
        key = cluster.namespace, cluster.name
        if self._parents.status_of(key) != status:
            unwritten.pending = status
            if (due_in := self._due_in(key, status, unwritten, part=part)) > 0:
                return due_in
            if (again := await self.write(key, cluster, status, unwritten)) is not None:
                return again
        unwritten.pending = unwritten.put_off_since = None
        untold, unwritten.untold = unwritten.untold, []
        await self.post_events(cluster, untold)
        return None

    def _due_in(self, key: Key, status: Mapping[str, Any], unwritten: Unwritten, *, part: bool) -> float:
        """Return the seconds until a report can be written."""
        due, now = unwritten.written_at + _STATUS_EVERY, self._clock()
        # An operator that finds existing objects reports immediately: an earlier one might have put off the report and
        # crashed before it wrote it, or the Event of their creation.
        created = any(action.reason == reasons.CREATED for action in unwritten.untold)
        known = self._parents.status_of(key)
        new = created and not known.get("observedGeneration")
        # Of a cluster that was just created, or was ready or starting, and only lacks ready tasks, more tasks will be
        # ready soon: one report covers them.
        if is_starting(status) and (part or new or was_starting(known, status)):
            if unwritten.put_off_since is None:
                unwritten.put_off_since = now
            due = max(due, unwritten.put_off_since + (_BETWEEN_PARTS if part else _STATUS_EVERY))
        return due - now

    async def write(
        self, key: Key, cluster: TFCluster, status: Mapping[str, Any], unwritten: Unwritten, *, urgent: bool = False
    ) -> float | None:
        """Write the status now; return None, or the seconds until the next reconcile if it was not written."""
        before = self._parents.status_of(key)
        unwritten.written_at = self._clock()
        try:
            change, version = _merge_patch(before, status), unwritten.version
            unwritten.version = await self._parents.write_status(key, cluster.uid, version, change, urgent=urgent)
        except NotFoundError:
            again = await self._parents.when_leaving(key, cluster.uid)
            return _STATUS_EVERY if again is None else again
        except ConflictError:
            # The spec or a condition was changed in the meantime: read that first.
            return await self._parents.read_again(key, cluster.uid)
        except ApiError as error:
            if str(error) != unwritten.refusal:
                # While the status cannot be written, only the log and an Event can report this.
                unwritten.refusal = str(error)
                self._journal.status_refused(cluster, str(error))
                message = f"the status of the TFCluster cannot be written: {error.message or error}"
                await _post_event(self._client, cluster, reasons.REJECTED, message, warning=True)
            raise
        self._journal.written(cluster, before, status)
        unwritten.pending, unwritten.refusal, unwritten.put_off_since = None, "", None
        await self._tell_conditions(cluster, before, status)
        return None

    async def post_events(self, cluster: TFCluster, done: list[Action]) -> None:
        """Post an Event for each reason of what was done."""
        for reason, message in summary_of([action for action in done if action.reason not in UNTOLD]):
            await _post_event(self._client, cluster, reason, message, warning=reason in WARNINGS)

    async def _tell_conditions(self, cluster: TFCluster, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Post an Event for each obstacle and each verdict that was not there before."""
        known = {(c["type"], c["status"], c["reason"]) for c in before.get("conditions") or ()}
        for condition in status["conditions"]:
            kind, reason = condition["type"], condition["reason"]
            verdict = kind in {SUCCEEDED, FAILED} and condition["status"] == "True"
            obstacle = reason in EVENTFUL and kind in {"Ready", "UpToDate"}
            if (verdict or obstacle) and (kind, condition["status"], reason) not in known:
                warning = kind != SUCCEEDED and reason not in WAITS
                await _post_event(self._client, cluster, reason, condition["message"], warning=warning)


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) from one object to another."""
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        known = before.get(key)
        if key in before and known == value:
            continue
        patch[key] = _merge_patch(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return patch


async def _post_event(client: Client, cluster: TFCluster, reason: str, message: str, *, warning: bool) -> None:
    """Post one Event about a TFCluster; a rejected Event is ignored."""
    wall = client.clock.wall()
    now = datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{cluster.name}.{int(wall * 1e9):x}", "namespace": cluster.namespace},
        "involvedObject": {
            "apiVersion": naming.API_VERSION,
            "kind": naming.KIND,
            "name": cluster.name,
            "namespace": cluster.namespace,
            "uid": cluster.uid,
        },
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message[:1000],
        "source": {"component": naming.FIELD_MANAGER},
        "reportingComponent": naming.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    with suppress(KubeError):
        await client.request("POST", f"/api/v1/namespaces/{cluster.namespace}/events", body=body, urgent=False)


def summary_of(actions: Iterable[Action]) -> Iterator[tuple[str, str]]:
    """Summarize what was done as (reason, message), one for each reason: a new cluster is one Event."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)  # reason, verb, kind
    for action in actions:
        groups[action.reason, _verb(action), action.kind].append(action.name)
    messages: dict[str, list[str]] = defaultdict(list)
    for (reason, verb, kind), names in groups.items():
        messages[reason].append(f"{verb} {len(names)} {_spell(kind, len(names))}: {few(names)}")
    if reasons.POD_KEPT in messages:
        messages[reasons.POD_KEPT].append("kubectl logs shows what they left")
    for reason, parts in messages.items():
        yield reason, "; ".join(parts)


def _spell(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return f"{kind.removesuffix('y')}ies" if kind.endswith("y") else f"{kind}s"


def _verb(action: Action) -> str:
    match action:
        case Create(task=None) | Create(reason=reasons.CREATED):
            return "created"
        case Create(reason=reason, name=name):
            # If the name is another one, the failed pod is kept and not replaced.
            later = naming.first_pod_name(name)[1] and reason == reasons.POD_FAILED
            return "restarted in" if later else "replaced"
        case Try():
            return "tried"
        case Patch(reason=reason):
            return "updated" if reason != reasons.POD_KEPT else "kept"
        case Delete():
            return "deleted"
