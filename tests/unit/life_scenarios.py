"""Every state of a task, and every event in it, in the world of in_memory.

It implements the words of the table in test_life_table.py. The subject is one task in a small cluster. Its result is
read from the world and the ledger afterwards, by one rule for all cells, and never from the code that planned it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from in_memory import RECREATE, InMemoryWorld, make_cluster, merge_patch, timestamp

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.plan.actions import Delete, Plan
from tfcluster_operator.report.status import status_of

SUBJECT: Final = "demo-worker-1"
_TEMPLATE: Final = {"spec": {"containers": [{"name": "task", "image": "image:1"}]}}
_ROUNDS: Final = 12


@dataclass
class Scenario:
    """One cluster: its declaration, the world, and the operator's reports.

    ``told`` holds each condition as (type, status, reason), ``posted`` the reasons of the events; ``deleted`` the UIDs
    of the objects that the operator deleted; ``stuck`` whether a pod was reported as stuck, ``removed`` whether the
    TFCluster was deleted. ``lost`` are pods whose node is dead, so that their end is never confirmed.
    """

    jobs: dict[str, Any]
    spec: dict[str, Any]
    subject: str = SUBJECT
    world: InMemoryWorld = field(default_factory=InMemoryWorld)
    generation: int = 1
    lost: set[str] = field(default_factory=set)
    stuck: bool = False
    removed: bool = False
    deleted: set[str] = field(default_factory=set)
    told: set[tuple[str, str, str]] = field(default_factory=set)
    posted: set[str] = field(default_factory=set)

    @property
    def cluster(self) -> TFCluster:
        return make_cluster(self.jobs, generation=self.generation, **{**RECREATE, **self.spec})

    def edit(self, *, jobs: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """Merge a change into the declaration."""
        self.jobs = merge_patch(self.jobs, jobs or {})
        self.spec = merge_patch(self.spec, spec)
        self.generation += 1

    def settle(self, *, let_run: bool = True) -> None:
        """Run the operator until it has neither actions nor waits."""
        for _ in range(_ROUNDS):
            cluster = self.cluster
            planned = self.world.plan(cluster)
            self._note(cluster, planned)
            at_rest = not planned.actions and planned.wake_after is None and not self._leaving()
            if self.removed or at_rest:
                return
            self.world.apply_all(planned.actions, cluster)
            self._let_time_pass(planned.wake_after)
            if let_run:
                self.world.all_pods_run()
        raise AssertionError(f"still at work after {_ROUNDS} rounds: {planned.actions} {planned.findings}")

    def _note(self, cluster: TFCluster, planned: Plan) -> None:
        roster = self.world.roster(cluster)
        said = status_of(roster, self.world.ledger, planned.views, planned.findings, self.world.now)
        self.told |= {(c["type"], c["status"], c["reason"]) for c in said["conditions"]}
        self.posted |= {action.reason for action in planned.actions}
        self.stuck = self.stuck or any(f.reason == reasons.STUCK_TERMINATING for f in planned.findings)
        self.removed = self.removed or any(
            isinstance(action, Delete) and action.kind == "TFCluster" for action in planned.actions
        )
        self.deleted |= {action.uid for action in planned.actions if isinstance(action, Delete)}

    def _leaving(self) -> list[str]:
        return [name for (_, name), found in self.world.objects.items() if "deletionTimestamp" in found["metadata"]]

    def _let_time_pass(self, wake_after: float | None) -> None:
        self.world.now += wake_after or 0.0
        if self.stuck or wake_after is None:
            self.lost.clear()  # the Node object is finally deleted, with its pods
        kept = {key: found for key, found in self.world.objects.items() if key[1] in self.lost}
        self.world.end_graceful_deletions()
        self.world.objects.update(kept)


@dataclass(frozen=True)
class Moment:
    """The observable state of a scenario at one time; the UIDs are those of the tasks' pods, by hostname."""

    uids: Mapping[str, str]
    ledger: Ledger
    now: float

    @classmethod
    def of(cls, scenario: Scenario) -> Moment:
        world = scenario.world
        pods = {task: world.objects["Pod", name]["metadata"]["uid"] for task, name in world.by_task().items()}
        return cls(pods, world.ledger, world.now)


def _outcome(scenario: Scenario, before: Moment, fails: Mapping[str, str]) -> str:
    after, name = Moment.of(scenario), scenario.subject
    if scenario.removed:
        return "delete"
    if after.ledger.verdict != before.ledger.verdict and (verdict := after.ledger.verdict) is not None:
        return "OK" if verdict.kind == "Succeeded" else fails[verdict.reason]
    was, now = before.uids.get(name), after.uids.get(name)
    if was is None:
        return "." if now is None else "start"
    if now is None:
        return "gone" if was in scenario.deleted else "gone by itself"
    if was != now:
        return _how_replaced(scenario, before, after)
    completed = {job: record.completed for job, record in after.ledger.jobs.items()}
    return "done" if any(ids - before.ledger.of(job).completed for job, ids in completed.items()) else "."


def _how_replaced(scenario: Scenario, before: Moment, after: Moment) -> str:
    replaced = sum(record.replaced for record in after.ledger.jobs.values())
    replaced -= sum(record.replaced for record in before.ledger.jobs.values())
    counts = (after.ledger.restarts - before.ledger.restarts, replaced)
    if counts == (1, 0):
        mates = [name for name in before.uids if name.startswith("demo-worker-") and name != scenario.subject]
        together = all(before.uids[name] != after.uids.get(name) for name in mates)
        return "all" if together else "retry"
    if counts == (0, 1):
        return "stuck" if scenario.stuck else "again"
    if counts == (0, 0):
        return "new" if after.now == before.now else "new after a pause"
    return f"restarts and replaced grew by {counts}"


# --- the states


def _running(*, subject: str = SUBJECT, spec: Mapping[str, Any] | None = None, **job: Any) -> Scenario:
    """Run a chief and two workers; the job's properties are those of the workers."""
    worker = {"replicas": 2, "maxReplicas": 3, "template": _TEMPLATE, **job}
    chief = {"replicas": 1, "maxReplicas": 3, "template": _TEMPLATE}
    scenario = Scenario({"chief": chief, "worker": worker}, dict(spec or {}), subject=subject)
    scenario.settle()
    return scenario


def _waits() -> Scenario:
    scenario = Scenario(
        {
            "chief": {"template": _TEMPLATE},
            "ps": {"template": _TEMPLATE},
            "worker": {"replicas": 2, "maxReplicas": 3, "template": _TEMPLATE, "startAfter": ["ps"]},
        },
        {},
    )
    scenario.settle(let_run=False)
    return scenario


def _pending() -> Scenario:
    scenario = Scenario(
        {
            "chief": {"template": _TEMPLATE},
            "worker": {"replicas": 2, "maxReplicas": 3, "template": _TEMPLATE},
        },
        {},
    )
    scenario.settle(let_run=False)
    for name in scenario.world.names("Pod"):
        scenario.world.edit("Pod", name, {"spec": {"nodeName": "node"}})  # it pulls the image there, for example
    return scenario


def _pauses() -> Scenario:
    scenario = _running()
    scenario.world.pod_ends(SUBJECT, "Failed")
    scenario.world.plan(scenario.cluster)
    return scenario


def _done() -> Scenario:
    scenario = _running()
    scenario.world.pod_ends(SUBJECT, "Succeeded")
    scenario.settle()
    return scenario


def _leaves() -> Scenario:
    scenario = _running()
    scenario.world.delete("Pod", SUBJECT)
    scenario.world.plan(scenario.cluster)
    return scenario


def _suspended() -> Scenario:
    scenario = _running()
    scenario.edit(suspend=True)
    scenario.settle()
    return scenario


def _finished(phase: str) -> Scenario:
    """End a cluster and keep its pods: all events of the subject are still possible."""
    scenario = _running(spec={"cleanPodPolicy": "None", "backoffLimit": 0})
    scenario.world.pod_ends("demo-chief-0", phase)
    scenario.settle()
    return scenario


STATES: Final[Mapping[str, Callable[[], Scenario]]] = {
    "waits": _waits,
    "pending": _pending,
    "OnFailure": _running,
    "ExitCode": lambda: _running(restartPolicy="ExitCode"),
    "Never": lambda: _running(restartPolicy="Never"),
    "Always": lambda: _running(restartPolicy="Always"),
    "scope": lambda: _running(restartScope="Job"),
    "decides": lambda: _running(subject="demo-chief-0"),
    "pauses": _pauses,
    "done": _done,
    "leaves": _leaves,
    "suspended": _suspended,
    "Succeeded": lambda: _finished("Succeeded"),
    "Failed": lambda: _finished("Failed"),
}


# --- the events


def _job_of(scenario: Scenario) -> str:
    return scenario.subject.split("-")[1]


def _exit(scenario: Scenario, code: int, reason: str = "Error") -> None:
    ended = {"exitCode": code, "reason": reason, "finishedAt": timestamp(scenario.world.now)}
    statuses = [{"name": "task", "state": {"terminated": ended}}]
    phase = "Failed" if code else "Succeeded"
    scenario.world.pod_ends(scenario.subject, phase, containerStatuses=statuses)


def _evict(scenario: Scenario) -> None:
    scenario.world.pod_ends(scenario.subject, "Failed", reason="Evicted", containerStatuses=[])


def _delete(scenario: Scenario) -> None:
    scenario.world.delete("Pod", scenario.subject)


def _lose_the_node(scenario: Scenario) -> None:
    """Delete as the node lifecycle controller does; no kubelet confirms it."""
    scenario.world.delete("Pod", scenario.subject)
    if ("Pod", scenario.subject) in scenario.world.objects:
        scenario.lost.add(scenario.subject)


def _edit_the_template(scenario: Scenario) -> None:
    image = {"spec": {"containers": [{"name": "task", "image": "image:2"}]}}
    scenario.edit(jobs={_job_of(scenario): {"template": image}})


def _scale(scenario: Scenario, by: int) -> None:
    job = _job_of(scenario)
    scenario.edit(jobs={job: {"replicas": scenario.jobs[job]["replicas"] + by}})


def _toggle_suspend(scenario: Scenario) -> None:
    scenario.edit(suspend=not scenario.spec.get("suspend"))


def _pass_the_deadline(scenario: Scenario) -> None:
    scenario.edit(activeDeadlineSeconds=100)
    scenario.world.now += 101.0


def _fail_at_the_limit(scenario: Scenario) -> None:
    """Fail with a signal, which every policy except Never restarts, after the maximal number of restarts."""
    scenario.edit(backoffLimit=0)
    _exit(scenario, 137)


def _let_the_ttl_pass(scenario: Scenario) -> None:
    scenario.edit(ttlSecondsAfterFinished=100)
    scenario.settle(let_run=False)
    scenario.world.now += 101.0


EVENTS: Final[Mapping[str, Callable[[Scenario], None]]] = {
    "exit 0": lambda s: _exit(s, 0, "Completed"),
    "exit 1": lambda s: _exit(s, 1),
    "exit 137": lambda s: _exit(s, 137),
    "OOM": lambda s: _exit(s, 137, "OOMKilled"),
    "evicted": _evict,
    "deleted": _delete,
    "node lost": _lose_the_node,
    "edit": _edit_the_template,
    "shrink": lambda s: _scale(s, -1),
    "grow": lambda s: _scale(s, +1),
    "suspend": _toggle_suspend,
    "deadline": _pass_the_deadline,
    "at limit": _fail_at_the_limit,
    "TTL": _let_the_ttl_pass,
}

_NO_POD: Final = ("exit 0", "exit 1", "exit 137", "OOM", "evicted", "deleted", "node lost", "at limit")
_ENDED: Final = ("exit 0", "exit 1", "exit 137", "OOM", "evicted", "at limit")

#: Impossible events: a task without a pod cannot lose it, a stopped program cannot end.
IMPOSSIBLE: Final = {
    *(("waits", event) for event in _NO_POD),
    *(("suspended", event) for event in _NO_POD),
    *(("pending", event) for event in _ENDED if event != "evicted"),
    *(("pauses", event) for event in _ENDED),
    *(("done", event) for event in _ENDED),
}


def happens(state: str, event: str, fails: Mapping[str, str]) -> tuple[str, Scenario]:
    """Run one event in one state.

    Args:
        state: a row of the table.
        event: a column of it.
        fails: the table's word for each reason of a failed cluster.

    Returns:
        The result for the subject in the table's words, and the scenario. The result without the event is ".": a
        leaving pod is replaced, a task in back-off is started again.
    """
    course, before, _ = _let(state, None, fails)
    found, _, scenario = _let(state, event, fails)
    if found == course:
        extra = Moment.of(scenario).uids.keys() - before.uids.keys() - {scenario.subject}
        return ("more" if extra else "."), scenario
    if found == "gone by itself":
        return ("." if course == "." else "gone"), scenario
    return found, scenario


def _let(state: str, event: str | None, fails: Mapping[str, str]) -> tuple[str, Moment, Scenario]:
    scenario = STATES[state]()
    before = Moment.of(scenario)
    scenario.stuck = False
    if event is not None:
        EVENTS[event](scenario)
    scenario.settle(let_run=state not in {"waits", "pending"})
    return _outcome(scenario, before, fails), before, scenario


def possible() -> Iterator[tuple[str, str]]:
    for state in STATES:
        for event in EVENTS:
            if (state, event) not in IMPOSSIBLE:
                yield state, event
