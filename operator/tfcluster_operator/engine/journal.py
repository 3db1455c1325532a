"""The log and the metrics of reconciles: one line per outcome, which never quotes what might contain a secret."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED, Ledger
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube import errors, events
from tfcluster_operator.kube.execute import Outcome
from tfcluster_operator.kube.metrics import REPLACEMENTS, VERDICTS, Metrics
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.plan.actions import Action, Create, Delete, Patch
from tfcluster_operator.report import conditions, tally
from tfcluster_operator.report.status import waiting_since

_log = logging.getLogger(__name__)

#: Why a pod that is to be replaced is deleted; its replacement is then created because the pod is missing.
_REPLACED_BY_DELETION: Final = (reasons.TEMPLATE_CHANGED, reasons.RESTARTED_TOGETHER)


@dataclass(slots=True)
class Account:
    """The journal's state of one cluster."""

    generation: int = 0
    #: The epoch that was published last; None before the first reconcile.
    epoch: int | None = None
    #: When the first edit that was not reconciled yet was heard of, and when the first view changed that some running
    #: pod was not notified of yet; by a monotonic clock.
    heard_at: float | None = None
    changed_at: float | None = None
    tasks: Mapping[tuple[str, str], int] = field(default_factory=dict)
    #: The logged rejections that have not succeeded since: generation, gate and reason.
    refused: set[tuple[int, str, str]] = field(default_factory=set)
    #: When it last stopped waiting for quota or nodes, in seconds since the epoch.
    placed_at: float = 0.0

    def hear(self, generation: int, now: float) -> bool:
        """Note the generation in an event; return whether it is new."""
        if generation == self.generation:
            return False
        self.generation = generation
        self.heard_at = now if self.heard_at is None else self.heard_at
        return True


class Journal:
    """Logs and counts reconciles."""

    def __init__(self, metrics: Metrics, elapsed: Callable[[], float]) -> None:
        self._metrics = metrics
        self._elapsed = elapsed

    def pass_begins(self, account: Account, actions: Iterable[Action]) -> None:
        """Note what a reconcile is about to do: the delay of a changed view counts from the event of the change."""
        heard_at, account.heard_at = account.heard_at, None
        if account.changed_at is None and any(action.reason == reasons.VIEW_CHANGED for action in actions):
            account.changed_at = self._elapsed() if heard_at is None else heard_at

    def failures_counted(self, cluster: TFCluster, ledger: Ledger) -> None:
        """Log the failures that were just recorded."""
        if not ledger.failures:
            return
        tasks: dict[str, list[str]] = defaultdict(list)
        for failure in ledger.failures:
            role = tally.role_of(failure.task.rpartition("-")[0])
            self._metrics.task_failures.labels(role, tally.cause_of(failure)).inc()
            code = "" if failure.exit_code is None else f", exit code {failure.exit_code}"
            tasks[failure.reason + code].append(failure.task)
        words = events.few([f"{events.few(of)} failed: {how}" for how, of in tasks.items()], "; ")
        why = [*dict.fromkeys(failure.reason for failure in ledger.failures)]
        _tell(cluster, words, reasons=why, failures=len(ledger.failures), restarts=ledger.restarts)

    def carried_out(self, roster: Roster, ledger: Ledger, account: Account, outcome: Outcome) -> None:
        """Log what a reconcile did and what was rejected; a rejection that repeats is logged once."""
        cluster, done = roster.cluster, outcome.actions
        for action in done:
            if (reason := _replacement(action, roster, ledger)) in REPLACEMENTS:
                self._metrics.replacements.labels(reason).inc()
        if done:
            told = [f"{reason}: {message}" for reason, message in events.told(done)]
            counts = Counter(action.reason for action in done)
            _tell(cluster, "; ".join(told), reasons=[*counts], objects=counts)
        refused = {(cluster.generation, gate, one.reason): one for gate, one in outcome.refused.items()}
        # A rejection is over once a request succeeds at the gate, or after an edit; not between two tries.
        passed = {step.gate for step in outcome.done}
        known = {one for one in account.refused if one[0] == cluster.generation and one[1] not in passed}
        if found := [finding for key, finding in refused.items() if key not in known]:
            words = events.few([f"{one.reason}: {errors.masked(one.message)}" for one in found], "; ")
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
        message = f"the status cannot be written: {errors.masked(words)}"
        _tell(cluster, message, level=logging.WARNING, reasons=[reasons.REJECTED])

    def pass_ends(
        self, account: Account, roster: Roster, ledger: Ledger, status: Mapping[str, Any], now: float
    ) -> None:
        """Update the cluster's figures at the end of a reconcile; now is in seconds since the epoch."""
        if waiting_since(roster.cluster.status) and not waiting_since(status):
            account.placed_at = now
        account.tasks = tally.tasks_of(roster, ledger)
        # Count it now and not when the status is written: two edits within a second are one status.
        before = roster.cluster.status.get("epoch") if account.epoch is None else account.epoch
        account.epoch = int(status["epoch"])
        if account.epoch > int(before or 0):
            self._metrics.epochs.inc()
        published = conditions.by_type(status)["MembershipPublished"]
        if account.changed_at is not None and published["status"] == "True":
            self._metrics.view_delivery.observe(self._elapsed() - account.changed_at)
            account.changed_at = None

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
