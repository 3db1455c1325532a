"""Writes the statuses of TFClusters, and the Events about what was done and what is in the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster_operator.declaration import ledger, reasons
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.engine.journal import Journal
from tfcluster_operator.kube import errors, events
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.clusters import Key, Parents
from tfcluster_operator.plan.actions import Action
from tfcluster_operator.report.conditions import GRAVITY, WAITS
from tfcluster_operator.report.status import is_starting, was_ready

#: At most one status write a second for each cluster, unless evidence must be kept before it is destroyed.
_STATUS_EVERY: Final = 1.0
#: How long (seconds) the status of a cluster that is becoming ready, for the first time or again, is not written.
_ON_ITS_WAY: Final = 1.0
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
OBSTACLES: Final = frozenset({*GRAVITY, reasons.GANG_TIMEOUT, reasons.ROLLOUT_STALLED}) - {
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
    #: When to report a cluster that is becoming ready in any case; None if none is or everything is reported.
    told_by: float | None = None


class StatusWriter:
    """Writes statuses when they are due."""

    def __init__(self, client: Client, parents: Parents, journal: Journal) -> None:
        self._client, self._parents, self._journal = client, parents, journal
        self._clock = client.clock.wall

    async def report(self, cluster: TFCluster, status: Mapping[str, Any], unwritten: Unwritten) -> float | None:
        """Write the status if it differs and is due, then post what was done; or return when to reconcile again."""
        key = cluster.namespace, cluster.name
        if self._parents.status_of(key) != status:
            unwritten.pending = status
            if (due_in := self._due_in(key, status, unwritten)) > 0:
                return due_in
            if (again := await self.write(key, cluster, status, unwritten)) is not None:
                return again
        unwritten.pending = unwritten.told_by = None
        untold, unwritten.untold = unwritten.untold, []
        await self.post_events(cluster, untold)
        return None

    def _due_in(self, key: Key, status: Mapping[str, Any], unwritten: Unwritten) -> float:
        """Return the seconds until a report can be written."""
        due, now = unwritten.written_at + _STATUS_EVERY, self._clock()
        # An operator that finds existing objects reports immediately: an earlier one might have put off the report and
        # crashed before it wrote it, or the Event of their creation.
        created = any(action.reason == reasons.CREATED for action in unwritten.untold)
        known = self._parents.status_of(key)
        new = created and not known.get("observedGeneration")
        # A cluster that was just created, or was ready a moment ago, and only lacks ready tasks will be ready soon: one
        # report covers all of that.
        if is_starting(status) and (new or was_ready(known, status)):
            if unwritten.told_by is None:
                unwritten.told_by = now + _ON_ITS_WAY
            due = max(due, unwritten.told_by)
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
        except errors.NotFoundError:
            again = await self._parents.when_leaving(key, cluster.uid)
            return _STATUS_EVERY if again is None else again
        except errors.ConflictError:
            # The spec or a condition was changed in the meantime: read that first.
            return await self._parents.read_again(key, cluster.uid)
        except errors.ApiError as error:
            if str(error) != unwritten.refusal:
                # While the status cannot be written, only the log and an Event can report this.
                unwritten.refusal = str(error)
                self._journal.status_refused(cluster, str(error))
                message = f"the status of the TFCluster cannot be written: {error.message or error}"
                await events.emit(self._client, cluster, reasons.REJECTED, message, warning=True)
            raise
        self._journal.written(cluster, before, status)
        unwritten.pending, unwritten.refusal, unwritten.told_by = None, "", None
        await self._tell_conditions(cluster, before, status)
        return None

    async def post_events(self, cluster: TFCluster, done: list[Action]) -> None:
        """Post an Event for each reason of what was done."""
        for reason, message in events.told([action for action in done if action.reason not in UNTOLD]):
            await events.emit(self._client, cluster, reason, message, warning=reason in WARNINGS)

    async def _tell_conditions(self, cluster: TFCluster, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Post an Event for each obstacle and each verdict that was not there before."""
        known = {(c["type"], c["status"], c["reason"]) for c in before.get("conditions") or ()}
        for condition in status["conditions"]:
            kind, reason = condition["type"], condition["reason"]
            verdict = kind in {ledger.SUCCEEDED, ledger.FAILED} and condition["status"] == "True"
            obstacle = reason in OBSTACLES and kind in {"Ready", "UpToDate"}
            if (verdict or obstacle) and (kind, condition["status"], reason) not in known:
                warning = kind != ledger.SUCCEEDED and reason not in WAITS
                await events.emit(self._client, cluster, reason, condition["message"], warning=warning)


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7386) from one object to another."""
    patch: dict[str, Any] = dict.fromkeys(key for key in before if key not in after)
    for key, value in after.items():
        known = before.get(key)
        if key in before and known == value:
            continue
        patch[key] = _merge_patch(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return patch
