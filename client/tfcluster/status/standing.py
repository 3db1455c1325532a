"""The state of a TFCluster in one word, as its conditions have it."""

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
    """The state of a TFCluster in one word, its main reason and message, and the other conditions with a problem.

    "Updating" means that the operator has not seen the newest edit, "Unseen" that it has not seen the TFCluster.
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
    true = {kind for kind, one in conditions.items() if one.get("status") == "True"}
    for kind in (FAILED, SUCCEEDED):
        if kind in true:
            verdict = conditions[kind]
            return Standing(kind, str(verdict.get("reason", "")), clean(verdict.get("message", "")), notices)
    seen, newest = status.get("observedGeneration") or 0, metadata.get("generation") or 0
    if seen < newest:
        words = f"the operator has not seen generation {newest} yet; of generation {seen} it says {reason}: {message}"
        return Standing("Updating", reason, words, notices)
    if reason != reasons.SUSPENDED:  # a cluster that waits in its queue has the condition, too
        true.discard("Suspended")
    state = next((kind for kind in ("Ready", "Stalled", "Suspended") if kind in true), "NotReady")
    return Standing(state, reason, message, notices)


def _notices(conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    said = conditions.get("Ready", {}).get("message")
    for kind, good in _AS_IT_SHOULD_BE.items():
        one = conditions.get(kind, {})
        if one and one.get("status") != good and one.get("message") != said:
            yield f"{one.get('reason', kind)}: {clean(one.get('message', ''))}"
