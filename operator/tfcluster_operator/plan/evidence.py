"""Which facts the status must record before a plan is carried out, and what is recorded afterwards.

A task whose pod the operator deletes is not lost, and a failure is counted before its pod is deleted: after a crash the
operator must not confuse the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.life.stock import take_stock
from tfcluster_operator.plan.actions import Action, Create, Delete


def must_be_written_first(
    roster: Roster, known: Ledger, written: Ledger, planned: Iterable[Action], now: float
) -> bool:
    """Return whether the ledger must be in the status before a plan is carried out.

    The operator replaces a lost pod immediately.  Until the status counts the loss, it can be detected: at first the
    pod in the status does not exist, then the new pod has an annotation.
    """
    if known.holds_evidence(written):
        return True
    if not known.counts_more_than(written):
        return False
    if any(isinstance(one, Delete) and one.kind == "Pod" for one in planned) or any(
        lost.pod and written.of(name).lost.get(index) != lost
        for name, record in known.jobs.items()
        for index, lost in record.lost.items()
    ):
        return True  # what is left of a lost pod, or the annotation of a new one, will be deleted
    found_again = take_stock(roster, written, now)
    return known.counts_more_than(found_again)


def enter_deletions(roster: Roster, ledger: Ledger, planned: Iterable[Action]) -> Ledger:
    """Record the pods of declared tasks that will be deleted; return the same ledger if no pod is."""
    # Another ledger is written before the deletions: after a crash they would be counted as losses.
    own = [one for one in planned if isinstance(one, Delete) and one.reason in _OUR_REPLACEMENTS]
    return enter_done(roster, ledger, own) if own else ledger


#: Why the operator deletes the pod of a task that is to continue, without a failure of its job's tasks.
_OUR_REPLACEMENTS: Final = frozenset({reasons.TEMPLATE_CHANGED, reasons.GANG_CHANGED})


def enter_done(roster: Roster, ledger: Ledger, actions: Iterable[Action]) -> Ledger:
    """Record what was carried out: which tasks have a pod now, and whose pods the operator deleted."""
    if ledger.verdict is not None:
        return ledger
    names: dict[str, Task] = {}
    started = {name: set(record.started) for name, record in ledger.jobs.items()}
    failing = {name: dict(record.failing) for name, record in ledger.jobs.items()}
    lost = {name: dict(record.lost) for name, record in ledger.jobs.items()}
    anew = set()
    for action in actions:
        match action:
            case Create(task=Task() as task):
                started.setdefault(task.job.name, set()).add(task.index)
                lost.setdefault(task.job.name, {}).pop(task.index, None)
            case Delete(kind="Pod", name=name, reason=reason, force=False):  # a forced deletion completes another's
                names = names or {place.name: place.task for of in roster.places.values() for place in of}
                if (deleted := names.get(name)) is not None:
                    started.setdefault(deleted.job.name, set()).discard(deleted.index)
                    if reason == reasons.TEMPLATE_CHANGED:
                        # An edit that should fix a failure does not wait for the back-off.
                        failing.setdefault(deleted.job.name, {}).pop(deleted.index, None)
                        if roster.cluster.spec.update_strategy.type == "Recreate":
                            anew.add(deleted.job.name)
            case _:
                pass
    for name, indices in started.items():
        if name in anew and not indices:
            ledger = ledger.with_job(name, begun=False)
        changes = {"started": frozenset(indices), "failing": failing.get(name, {}), "lost": lost.get(name, {})}
        ledger = ledger.with_job(name, **changes)
    return ledger
