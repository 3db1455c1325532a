"""A reference model of a cluster's life, written from lifecycle.md and not from the policies.

It judges facts that no operator observes completely: which pod ended when and how, and which actor deleted it. It keeps
counts in the simplest way (growing sets of UIDs), without objects, annotations, indices or plans.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Task = tuple[str, int]

_LONG_RUN = 600.0
_LONGEST_PAUSE = 300.0


@dataclass
class Fact:
    """The true state of one pod; times are seconds since the epoch.

    ``code`` is the exit code of its program, None if unknown; ``taken`` is whether another actor deleted the pod;
    ``asked_at`` is the time of the deletion request. ``told`` is the number of the last write to it. ``first`` says
    that its end came before its deletion and that this can be known: the operator observed it, or the last status from
    its node is older than the deletion. ``kept`` says that the pod is only kept for its log.
    """

    uid: str
    task: Task
    image: str
    began_at: float | None = None
    ready: bool = False
    ended_at: float | None = None
    code: int | None = None
    taken: bool = False
    at_rest: bool = False
    asked_at: float | None = None
    confirmed: bool = False
    told: int = 0
    seen_first: bool = False
    proved_first: bool = False
    surplus_since: float | None = None
    kept: bool = False

    @property
    def serving(self) -> bool:
        return self.ready and self.ended_at is None and self.asked_at is None

    @property
    def speaks(self) -> bool:
        """Whether its end is the program's own: without a deletion before it."""
        if self.ended_at is None or self.taken:
            return False
        return self.asked_at is None or self.seen_first or self.proved_first


@dataclass
class Life:
    started_at: float = 0.0
    end: tuple[str, str] | None = None
    ended_at: float = 0.0
    restarts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    done: set[Task] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    condemned: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    in_row: dict[Task | str, int] = field(default_factory=dict)
    not_before: dict[Task | str, float] = field(default_factory=dict)

    def copy(self) -> "Life":
        return copy.deepcopy(self)

    def look(self, spec: Mapping[str, Any], facts: Iterable[Fact], now: float) -> None:
        facts = [fact for fact in facts if not fact.kept]
        if self.end is not None:
            return
        if spec.get("suspend"):
            self._rest()
            return
        self.started_at = self.started_at or now
        failed = self._take_in(spec["jobs"], facts)
        if self._succeeded(spec):
            self.end = ("Succeeded", "TasksSucceeded")
        for fact in sorted(failed, key=lambda one: (one.told, one.task)):
            if self.end is None and fact.uid not in self.condemned:
                self._fail(spec, fact, facts, now)
        limit = spec.get("activeDeadlineSeconds")
        if self.end is None and limit is not None and now >= self.started_at + limit:
            self.end = ("Failed", "DeadlineExceeded")
        if self.end is not None:
            self.ended_at = now

    def _take_in(self, jobs: Mapping[str, Any], facts: Iterable[Fact]) -> list[Fact]:
        """Record the complete tasks, and return the failures that are not counted yet."""
        self.done = {(job, index) for job, index in self.done if index < jobs[job]["replicas"]}
        for task in [one for one in self.in_row if isinstance(one, tuple) and one[1] >= jobs[one[0]]["replicas"]]:
            self.forgive(task)  # it is no longer declared: later it is a new task
        failed = []
        for fact in facts:
            job, index = fact.task
            if not fact.speaks or fact.uid in self.condemned or index >= jobs[job]["replicas"]:
                continue
            if fact.code != 0 and fact.uid not in self.counted:
                failed.append(fact)
            elif fact.code == 0 and _policy(jobs[job]) != "Always":
                self.done.add(fact.task)
        return failed

    def forgive(self, task: Task) -> None:
        """Reset the back-off of a task: its template was edited."""
        self.in_row.pop(task, None)
        self.not_before.pop(task, None)

    def _row(self, whose: Task | str, now: float) -> int:
        """Return the number of consecutive failures: one long after the last start is the first again."""
        return 0 if now - self.not_before.get(whose, now) >= _LONG_RUN else self.in_row.get(whose, 0)

    def _rest(self) -> None:
        self.started_at, self.total = 0.0, 0
        for kept in (self.restarts, self.done, self.counted, self.begun, self.in_row, self.not_before):
            kept.clear()

    def _succeeded(self, spec: Mapping[str, Any]) -> bool:
        jobs, policy = spec["jobs"], spec.get("successPolicy") or {}
        first = next(([job] for job in ("chief", "worker") if job in jobs), [job for job in jobs if job != "evaluator"])
        named = policy.get("jobs") or first
        done = sum(job in named for job, _ in self.done)
        if policy.get("tasks") == "Any":
            return done > 0
        return 0 < done == sum(jobs[job]["replicas"] for job in named)

    def _fail(self, spec: Mapping[str, Any], fact: Fact, facts: Iterable[Fact], now: float) -> None:
        job = spec["jobs"][fact.task[0]]
        limit = spec.get("backoffLimit")
        if _policy(job) == "Never":
            self.end = ("Failed", "TaskFailed")
        elif _policy(job) == "ExitCode" and fact.code is not None and fact.code < 128:
            self.end = ("Failed", "PermanentExitCode")
        elif limit is not None and self.total >= limit:
            self.end = ("Failed", "BackoffLimitExceeded")
        else:
            self._restart(spec, fact, facts, now)

    def _restart(self, spec: Mapping[str, Any], fact: Fact, facts: Iterable[Fact], now: float) -> None:
        name = fact.task[0]
        self.total += 1
        self.restarts[name] = self.restarts.get(name, 0) + 1
        self.counted.add(fact.uid)
        scope = spec["jobs"][name].get("restartScope", "Task")
        if scope == "Task":
            row = self._row(fact.task, now)
            self.in_row[fact.task] = row + 1
            self.not_before[fact.task] = now + min(_LONGEST_PAUSE, 2.0**row)
            return
        together = set(spec["jobs"]) if scope == "Cluster" else {name}
        row = max(self._row(job, now) for job in together)
        for job in together:
            self.in_row[job] = row + 1
            self.not_before[job] = now + min(_LONGEST_PAUSE, 2.0**row)
        self.begun -= together
        self.done = {task for task in self.done if task[0] not in together}
        self.condemned |= {one.uid for one in facts if one.task[0] in together}
        for task in [one for one in self.in_row if isinstance(one, tuple) and one[0] in together]:
            self.forgive(task)


def _policy(job: Mapping[str, Any]) -> str:
    policy: str = job.get("restartPolicy", "OnFailure")
    return policy
