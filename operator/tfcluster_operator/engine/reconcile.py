"""One reconcile of one cluster, for any cause: observe, plan, carry out, report.

Read this first.  Pure functions (packages life, plan and report) make every decision; this is their order.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.gang_schedulers import GangScheduler
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.parse import InvalidSpecError, is_ours, parse, with_status
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.engine.journal import Account, Journal, StatusWriter, Unwritten
from tfcluster_operator.engine.work_queue import NextPart, RetryLater
from tfcluster_operator.kube.client import ApiError, Client, KubeError
from tfcluster_operator.kube.clusters import Key, Parents
from tfcluster_operator.kube.execute import Executor, Outcome
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.life.queueing import Standing
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.life.stock import take_stock
from tfcluster_operator.life.views import Views, views_of
from tfcluster_operator.plan.actions import EVIDENCE, Delete, Finding, Gate, Plan
from tfcluster_operator.plan.plan import enter_deletions, enter_done, plan
from tfcluster_operator.plan.story import TAKEN, Holds
from tfcluster_operator.report.conditions import shorten, with_others
from tfcluster_operator.report.status import status_of, unreconciled_status

#: Seconds until the next reconcile while another owner's object has a name that the cluster needs: its events might
#: trigger another TFCluster's reconcile.
_LOOK_AGAIN: Final = 5.0
#: A cluster with more tasks yields to others between the parts of its reconcile.
_LARGE: Final = 500
#: The number of turns of the event loop: the first reads the bytes of a request, the next ones answer it.
_TURNS: Final = 3


@dataclass(slots=True)
class _Memory:
    uid: str
    #: Set by an event of the TFCluster itself: until the first reconcile after it, the cluster is known to exist.
    heard_of: bool = True
    #: Whether it was reconciled before: then an object that is missing was created earlier and has been deleted.
    visited: bool = False
    unwritten: Unwritten = field(default_factory=Unwritten)
    holds: Holds = field(default_factory=Holds)
    generation: int = 0
    pods: frozenset[str] = frozenset()
    views: Views | None = None
    #: The newest valid spec, as it was parsed; without a status, which changes more often.
    declared: TFCluster | None = None
    large: bool = False
    #: The newest roster, and the number of store changes that it includes.
    roll: Roster | None = None
    rolled_at: int = -1
    account: Account = field(default_factory=Account)


class Reconciler:
    """Reconciles all clusters."""

    def __init__(
        self,
        client: Client,
        parents: Parents,
        stores: Stores,
        executor: Executor,
        *,
        journal: Journal,
        gang_scheduler: GangScheduler,
    ) -> None:
        self._journal = journal
        self._parents = parents
        self._stores = stores
        self._statuses = StatusWriter(client, parents, self._journal)
        self._executor = executor
        self._gang_scheduler = gang_scheduler
        self._clock = client.clock.wall
        self._memories: dict[Key, _Memory] = {}

    def heard_of(self, key: Key, uid: str) -> bool:
        """Note an event of this TFCluster from the API server; return whether it is new or was edited."""
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memories[key] = _Memory(uid)
        memory.heard_of = True
        body = self._parents.bodies.get(key)
        return body is not None and memory.generation != body["metadata"]["generation"]

    def report_of(self, key: Key) -> tuple[Mapping[str, Any], Account]:
        """Return the newest status of a cluster, written or not, and the journal's state of it."""
        memory = self._memories.get(key) or _Memory(uid="")
        pending = memory.unwritten.pending
        return self._parents.status_of(key) if pending is None else pending, memory.account

    async def reconcile(self, key: Key, *, blind: str = "") -> float | None:
        """Reconcile one cluster, or report why not (``blind``); return the seconds until the next time, if any."""
        body = self._parents.bodies.get(key)
        if body is None or not is_ours(body):
            self._memories.pop(key, None)
            return None
        memory = self._memories.setdefault(key, _Memory(body["metadata"]["uid"]))
        memory.unwritten.version = body["metadata"]["resourceVersion"]
        try:
            return await self._visit(key, body, memory, blind)
        except KubeError as error:
            raise RetryLater(str(error)) from error

    async def _visit(self, key: Key, body: Mapping[str, Any], memory: _Memory, blind: str) -> float | None:
        why = (reasons.REJECTED, blind) if blind else None
        try:
            cluster = parse(body, gang_scheduler=self._gang_scheduler, before=memory.declared)
        except InvalidSpecError as error:
            cluster, why = error.cluster, (reasons.INVALID_SPEC, shorten(error.problems))
        else:
            memory.declared = with_status(cluster, {})
        if cluster.deleting:
            why = reasons.DELETING, "the TFCluster is being deleted: its objects are no longer created or repaired"
        if why is not None:
            status = unreconciled_status(cluster, *why, self._clock())
            return await self._statuses.report(cluster, status, memory.unwritten)
        memory.large = sum([job.replicas for job in cluster.jobs]) > _LARGE
        try:
            return await self._pass(key, cluster, memory)
        finally:
            if not memory.large:
                # For a small cluster this costs more memory than it saves time.
                memory.roll = None

    async def _pass(self, key: Key, cluster: TFCluster, memory: _Memory) -> float | None:
        written = cluster.ledger
        if memory.unwritten.pending is not None:
            cluster = with_status(cluster, with_others(memory.unwritten.pending, cluster.status))
        known = cluster.ledger
        roster = await self._call_roll(cluster, memory)
        roster, known, planned = await self._decide(roster, known, memory)
        # A recent event proves little: it might come from our own status write, and a deletion might follow.
        # If pods are lost, a deletion of everything might be in progress, and our watch of TFClusters might lag behind.
        doubtful = planned.creates and (memory.visited or known.counts_more_than(written))
        known_to_exist = planned.only_amends or (memory.heard_of and not doubtful)
        memory.heard_of, memory.visited = False, True
        closed, unwritten = set[Gate](), False
        entered = enter_deletions(roster, known, planned.actions)
        if entered is not known or known.holds_evidence(written):
            # A failure is counted before its pod is deleted; the plan is carried out on the API server's state.
            known = entered
            try:
                status = _status_of(roster, known, planned, planned.findings, self._clock())
                again = await self._statuses.write(key, cluster, status, memory.unwritten, urgent=True)
                if again is not None:
                    return again
                self._journal.failures_counted(cluster, known)
                # The write fails if the TFCluster no longer exists, is being deleted, or is another one.
                known_to_exist = True
            except ApiError:
                unwritten = True
                if known.holds_evidence(written):
                    closed.add(EVIDENCE)
        # Children vanish when the garbage collector is running, and it might be ahead of kopf's watch.
        if not known_to_exist and (again := await self._parents.when_leaving(key, cluster.uid)) is not None:
            return again
        wanted = partial(self._parents.wants_children, key, cluster.uid)
        outcome = await self._executor.carry_out(planned, roster.cluster, closed, wanted)
        self._journal.carried_out(roster, known, memory.account, outcome)
        now, done = self._clock(), outcome.actions
        memory.holds = memory.holds.after(outcome.refused, (step.gate for step in outcome.done), done, now)
        if any(isinstance(action, Delete) and action.kind == naming.KIND for action in done):
            await self._statuses.post_events(cluster, done)
            return None
        known = enter_done(roster, known, done)
        # Quota admitted in the meantime is for the next reconcile: these views and this ledger do not include it.
        roster = (await self._call_roll(cluster, memory, roster.standing)).completed_by(known)
        doubts = (hold.finding for hold in memory.holds.doubts(now))
        findings = (*planned.findings, *memory.holds.told(outcome.refused), *doubts)
        status = _status_of(roster, known, planned, findings, now)
        self._journal.pass_ends(memory.account, cluster, status, now)
        memory.unwritten.untold += done
        part = planned.partial and bool(done) and not (outcome.refused or outcome.again)
        due = await self._statuses.report(cluster, status, memory.unwritten, part=part)
        if outcome.cut_off or unwritten:
            raise RetryLater(outcome.cut_off or "the status could not be written")
        if part:
            # The objects of the next part were not created earlier.
            memory.heard_of, memory.visited = True, False
            raise NextPart
        waits = (due, *_waits(planned, outcome, memory.holds, now))
        return min((one for one in waits if one is not None), default=None)

    async def _decide(self, roster: Roster, known: Ledger, memory: _Memory) -> tuple[Roster, Ledger, Plan]:
        """Update the ledger and build the plan."""
        cluster, now = roster.cluster, self._clock()
        known = take_stock(roster, known, now)
        roster = roster.completed_by(known)
        await _breathe(memory)
        memory.views = views_of(roster, memory.views)
        await _breathe(memory)
        if memory.generation != cluster.generation or not memory.pods <= roster.uids:
            # An edit, or a deleted pod that freed resources, can let a rejected write succeed.
            memory.holds = memory.holds.lifted(now)
        memory.generation, memory.pods = cluster.generation, roster.uids
        planned = plan(roster, known, memory.views.of_jobs, now, holds=memory.holds)
        await _breathe(memory)
        return roster, known, planned

    async def _call_roll(self, cluster: TFCluster, memory: _Memory, standing: Standing | None = None) -> Roster:
        changes, known = self._stores.changes, memory.roll
        if known is not None and known.declared is cluster and memory.rolled_at == changes:
            return known
        resolver = self._executor.archive.delivered_to(cluster)
        observed = self._stores.observe(cluster, resolver=resolver)
        await _breathe(memory)
        roster = call_roll(cluster, observed, resolver=resolver, before=memory.roll, standing=standing)
        await _breathe(memory)
        memory.roll, memory.rolled_at = roster, changes
        return roster


async def _breathe(memory: _Memory) -> None:
    """Let others run between the parts of a large cluster's reconcile."""
    for _ in range(_TURNS if memory.large else 0):
        await asyncio.sleep(0)


def _status_of(roster: Roster, known: Ledger, planned: Plan, findings: Sequence[Finding], now: float) -> dict[str, Any]:
    main = [one for one in findings if planned.holds_up_tasks(one)]
    aside = [one for one in findings if not planned.holds_up_tasks(one)]
    return status_of(roster, known, planned.views, main, now, aside=aside)


def _waits(planned: Plan, outcome: Outcome, holds: Holds, now: float) -> Iterator[float | None]:
    """Yield the seconds until each time when a reconcile is worthwhile."""
    yield planned.wake_after
    yield from (hold.until - now for gate, hold in holds.gates.items() if gate in outcome.refused)
    yield from (hold.pause for hold in holds.doubts(now))
    if any(finding.reason in TAKEN for finding in planned.findings):
        yield _LOOK_AGAIN
    if outcome.again or (planned.partial and outcome.actions):
        yield 0.0
