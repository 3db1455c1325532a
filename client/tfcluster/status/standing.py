"""How a TFCluster stands: its state in one word, and the operator's reason for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.terminal import clean
from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import FAILED, SUCCEEDED
from tfcluster_operator.declaration.parse import is_ours
from tfcluster_operator.report.conditions import by_type

#: The conditions that are not reported while they have this status.
_AS_IT_SHOULD_BE: Final = {"MembershipPublished": "True", "UpToDate": "True", "NameConflict": "False"}


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a TFCluster.

    Attributes:
        state: "Ready", "NotReady", "Succeeded", "Failed", "Suspended", "Stalled", "Deleting", "Updating" (the operator
            has not seen the newest edit), "Unseen" (the operator has not seen it yet) or "Elsewhere" (it has another
            controller).
        reason: the most important reason, as in docs/reference/conditions.md; "" if the operator gave none.
        message: the message of the same condition.
        notices: the other conditions with a problem, one "Reason: words" each.
    """

    state: str
    reason: str = ""
    message: str = ""
    notices: tuple[str, ...] = ()


def standing_of(body: Mapping[str, Any]) -> Standing:
    metadata, status = body["metadata"], body.get("status") or {}
    conditions = by_type(status)
    ready = conditions.get("Ready", {})
    reason, message = str(ready.get("reason", "")), clean(ready.get("message", ""))
    notices = tuple(_notices(conditions))
    if "deletionTimestamp" in metadata:
        keepers = ", ".join(metadata.get("finalizers") or ())
        kept = f"it is being deleted; its finalizers keep it: {keepers}" if keepers else "it is being deleted"
        return Standing("Deleting", reasons.DELETING, kept, notices)
    if not is_ours(body):
        words = f"spec.managedBy leaves it to {clean(body['spec']['managedBy'])}; the operator does nothing for it"
        return Standing("Elsewhere", "", words)
    if not ready:
        words = "no operator has looked at it yet; if that lasts, `tfcluster doctor` says why"
        return Standing("Unseen", "", words)
    for kind in (FAILED, SUCCEEDED):
        if _is_true(conditions, kind):
            verdict = conditions[kind]
            return Standing(kind, str(verdict.get("reason", "")), clean(verdict.get("message", "")), notices)
    seen, newest = status.get("observedGeneration") or 0, metadata.get("generation") or 0
    if seen < newest:
        words = f"the operator has not seen generation {newest} yet; of generation {seen} it says {reason}: {message}"
        return Standing("Updating", reason, words, notices)
    state = "NotReady"
    if _is_true(conditions, "Ready"):
        state = "Ready"
    elif _is_true(conditions, "Stalled"):
        state = "Stalled"
    elif _is_true(conditions, "Suspended") and reason == reasons.SUSPENDED:
        state = "Suspended"
    return Standing(state, reason, message, notices)


def _is_true(conditions: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _notices(conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    said = conditions.get("Ready", {}).get("message")
    for kind, good in _AS_IT_SHOULD_BE.items():
        one = conditions.get(kind, {})
        if one and one.get("status") != good and one.get("message") != said:
            yield f"{one.get('reason', kind)}: {clean(one.get('message', ''))}"
