"""What one can wait for in a TFCluster, and what its status says of that: reached, on the way, or out of reach.

Nothing here asks anybody: a goal looks at a TFCluster as it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tfcluster_operator.declaration import reasons
from tfcluster_operator.report import conditions

Outcome = Literal["reached", "waiting", "impossible"]

#: The words for ``tfcluster wait --for``.
WORDS: Final = ("ready", "succeeded", "failed", "finished", "suspended", "resized", "updated", "deleted")
_CONDITION: Final = "condition="


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a status says of a goal.

    Attributes:
        outcome: whether it is reached, may still come, or cannot come any more.
        words: what is waited for, or why it cannot come, in a sentence without an end.
    """

    outcome: Outcome
    words: str


@dataclass(frozen=True, slots=True)
class Goal:
    """What is waited for.

    Attributes:
        word: one of WORDS, or "" where a condition is waited for.
        condition: the condition's type.
        status: the status that it should have.
    """

    word: str
    condition: str = ""
    status: str = "True"

    @classmethod
    def of(cls, text: str) -> Goal:
        """Read a goal as users write it: one of WORDS, or ``condition=TYPE`` or ``condition=TYPE=STATUS``.

        Raises:
            ValueError: it is none of these.
        """
        if text.startswith(_CONDITION):
            kind, _, status = text.removeprefix(_CONDITION).partition("=")
            if kind:
                return cls("", kind, status.capitalize() or "True")
        elif text in WORDS:
            return cls(text)
        raise ValueError(f"{text}: wait for one of {', '.join(WORDS)}, or for condition=TYPE or condition=TYPE=STATUS")

    def __str__(self) -> str:
        """Spell it as users do."""
        return self.word or f"{_CONDITION}{self.condition}" + ("" if self.status == "True" else f"={self.status}")

    def judge(self, body: Mapping[str, Any] | None) -> Judgement:
        """Look at a TFCluster."""
        if body is None:
            if self.word == "deleted":
                return Judgement("reached", "it is gone")
            return Judgement("impossible", "it was deleted")
        metadata, status = body["metadata"], body.get("status") or {}
        if self.word == "deleted":
            return Judgement("waiting", _leaving(metadata))
        if "deletionTimestamp" in metadata:
            return Judgement("impossible", "it is being deleted")
        seen = _seen(body)
        if seen is not None:
            return seen
        return self._judge(body.get("spec") or {}, status, conditions.by_type(status))

    def _judge(
        self, spec: Mapping[str, Any], status: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]
    ) -> Judgement:
        match self.word:
            case "ready":
                return _ready(spec, found)
            case "succeeded" | "failed" | "finished":
                return _finished(self.word, spec, found)
            case "suspended":
                return _suspended(spec, found)
            case "resized":
                return _resized(spec, status, found)
            case "updated":
                return _updated(spec, found)
            case _:
                return _condition(self.condition, self.status, found)


def _seen(body: Mapping[str, Any]) -> Judgement | None:
    """Tell whether the operator has seen the newest edit; what it reported before it says nothing."""
    manager = (body.get("spec") or {}).get("managedBy")
    generation = int(body["metadata"].get("generation", 0))
    if int((body.get("status") or {}).get("observedGeneration") or 0) >= generation:
        return None
    if manager and manager != "tfcluster.dev/tfcluster-operator":
        return Judgement("waiting", f"the controller {manager}, which is responsible for it, has not reported yet")
    return Judgement("waiting", "the operator has not seen the newest edit yet; if that lasts, ask `tfcluster doctor`")


def _leaving(metadata: Mapping[str, Any]) -> str:
    if "deletionTimestamp" not in metadata:
        return "nobody has deleted it yet"
    kept = metadata.get("finalizers") or ()
    return f"it is being deleted; the finalizers {', '.join(kept)} keep it" if kept else "it is being deleted"


def _message(condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return "nothing is reported yet"
    return str(condition.get("message") or condition.get("reason") or "no reason is given").rstrip(".")


def _is(found: Mapping[str, Mapping[str, Any]], kind: str) -> bool:
    return (found.get(kind) or {}).get("status") == "True"


def _verdict(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Give the verdict with its words, or nothing."""
    for kind in ("Failed", "Succeeded"):
        if _is(found, kind):
            return f"it has {kind.lower()}: {_message(found[kind])}"
    return ""


def _ready(spec: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    if _is(found, "Ready"):
        return Judgement("reached", _message(found["Ready"]))
    if _is(found, "Stalled"):
        return Judgement("impossible", _verdict(found) or _message(found["Stalled"]))
    if spec.get("suspend"):
        return Judgement("impossible", "it is suspended; start it with `tfcluster resume`")
    return Judgement("waiting", _message(found.get("Ready")))


def _finished(word: str, spec: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    verdict = _verdict(found)
    if verdict:
        reached = word == "finished" or _is(found, word.capitalize())
        return Judgement("reached" if reached else "impossible", verdict)
    if _is(found, "Stalled"):
        return Judgement("impossible", _message(found["Stalled"]))
    if spec.get("suspend"):
        return Judgement("impossible", "it is suspended; start it with `tfcluster resume`")
    if not _is(found, "Ready"):
        return Judgement("waiting", _message(found.get("Ready")))
    return Judgement("waiting", _message(found.get("Succeeded")))


def _suspended(spec: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    # NB: a cluster that waits in its queue has no pods either, and nobody has suspended it.
    if _is(found, "Suspended") and found["Suspended"].get("reason") != reasons.WAITING_FOR_QUOTA:
        return Judgement("reached", _message(found["Suspended"]))
    if verdict := _verdict(found):
        return Judgement("impossible", verdict)
    if not spec.get("suspend"):
        return Judgement("impossible", "spec.suspend is false; suspend it with `tfcluster suspend`")
    return Judgement("waiting", _message(found.get("Suspended")))


def _resized(spec: Mapping[str, Any], status: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    """Look whether every job has as many tasks as declared, and every running pod knows it."""
    if over := _verdict(found) or (_message(found["Stalled"]) if _is(found, "Stalled") else ""):
        return Judgement("impossible", over)
    if spec.get("suspend"):
        return Judgement("impossible", "it is suspended; start it with `tfcluster resume`")
    for name, job in (spec.get("jobs") or {}).items():
        declared, there = int(job.get("replicas", 1)), (status.get("jobs") or {}).get(name) or {}
        ready = int(there.get("ready", 0)) + int(there.get("succeeded", 0))
        created = int(there.get("created", 0))
        if created > declared:
            return Judgement("waiting", f"job {name} still has {created} pods, {declared} are declared")
        if ready < declared:
            count = f"{ready} of {declared} tasks of job {name} are ready"
            return Judgement("waiting", f"{count}; {_message(found.get('Ready'))}")
    if not _is(found, "MembershipPublished"):
        return Judgement("waiting", _message(found.get("MembershipPublished")))
    return Judgement("reached", "every task is ready and every view is delivered")


def _updated(spec: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    """Look whether every pod is made from the newest template, and works."""
    current = found.get("UpToDate") or {}
    if current.get("reason") == reasons.WAITING_FOR_DELETE:
        return Judgement("impossible", _message(current))
    judgement = _ready(spec, found)
    if judgement.outcome == "impossible" or _is(found, "UpToDate"):
        return judgement
    return Judgement("waiting", _message(current))


def _condition(kind: str, status: str, found: Mapping[str, Mapping[str, Any]]) -> Judgement:
    condition = found.get(kind)
    if condition is not None and str(condition.get("status")) == status:
        return Judgement("reached", _message(condition))
    verdict = _verdict(found)
    if verdict and kind in conditions.CONDITION_TYPES:
        return Judgement("impossible", verdict)
    if condition is None:
        return Judgement("waiting", f"nobody has reported the condition {kind} yet")
    return Judgement("waiting", f"{kind} is {condition.get('status')}: {_message(condition)}")
