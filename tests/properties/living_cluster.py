"""A cluster that lives: pods that end, an operator that crashes between any two steps, and what truly happened.

The operator's pass is the real one in its order (observe, take stock, plan, evidence, actions, report) on the world of
in_memory; every write is checked against the reference model before it is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from properties.reference_life import Fact, Life, Task
from unit.in_memory import InMemoryWorld, RefusedError, make_body, timestamp

from tfcluster_operator.model import ledger, naming, reasons
from tfcluster_operator.model.actions import (
    EVIDENCE,
    Action,
    CreatePod,
    Delete,
    DeleteCluster,
    Finding,
    Gate,
    Kind,
    Plan,
    Step,
)
from tfcluster_operator.model.parse import parse
from tfcluster_operator.model.plan import plan
from tfcluster_operator.model.roster import call_roll
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.status import status_of
from tfcluster_operator.model.stock import enter_done, take_stock
from tfcluster_operator.model.views import views_of

_GRACE = 30
_READY = "Ready"
#: How a program can end: exit code (None where nobody can tell) and the kubelet's reason.
EXITS: Mapping[str, tuple[int | None, str]] = {
    "exit 0": (0, "Completed"),
    "exit 1": (1, "Error"),
    "exit 130": (130, "Error"),
    "exit 137": (137, "Error"),
    "OOM": (137, "OOMKilled"),
    "unknown": (None, ""),
}


def template(image: str, *, sidecar: bool) -> dict[str, Any]:
    """Make a pod template; its tasks' program is the first container."""
    containers = [{"name": "task", "image": image}, *([{"name": "sidecar", "image": "side:1"}] if sidecar else [])]
    return {"spec": {"containers": containers}}


class Nodes(InMemoryWorld):
    """The namespace, with nodes that run the pods and what only they know of them."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[str, Fact] = {}

    def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        made = super().create(kind, body)
        if kind == "Pod":
            labels, container = made["metadata"]["labels"], made["spec"]["containers"][0]
            task = labels[naming.LABEL_JOB], int(labels[naming.LABEL_TASK_INDEX])
            self.facts[made["metadata"]["name"]] = Fact(made["metadata"]["uid"], task, container["image"])
        return made

    def delete(self, kind: Kind, name: str, *, uid: str | None = None, force: bool = False) -> None:
        if kind == "Pod" and not force and name in self.facts and self.facts[name].asked_at is not None:
            self._get(kind, name, uid)
            return  # asked again
        super().delete(kind, name, uid=uid, force=force)
        if kind != "Pod":
            return
        if (kind, name) not in self.objects:
            del self.facts[name]
            return
        fact = self.facts[name]
        fact.asked_at, fact.proved_first = self.now, fact.ended_at is not None
        last = {"deletionTimestamp": timestamp(self.now + _GRACE), "deletionGracePeriodSeconds": _GRACE}
        self.edit("Pod", name, {"metadata": last})

    def run(self, name: str, *, ready: bool) -> None:
        fact = self.facts[name]
        fact.began_at, fact.ready = self.now, ready
        self.pod_runs(name, conditions=[{"type": _READY, "status": str(ready)}])

    def set_ready(self, name: str, *, ready: bool) -> None:
        self.facts[name].ready = ready
        self.edit("Pod", name, {"status": {"conditions": [{"type": _READY, "status": str(ready)}]}})

    def exit(self, name: str, how: str) -> None:
        """Let a program end; the kubelet tells of its container first, and of the phase later (see :meth:`rest`)."""
        fact, (code, reason) = self.facts[name], EXITS[how]
        fact.ended_at, fact.code, fact.ready = self.now, code, False
        if code is None:
            fact.at_rest = True
            self._status(name, phase="Failed", containerStatuses=[], conditions=[_not_ready(self.now)])
            return
        ended = {"exitCode": code, "reason": reason, "finishedAt": timestamp(self.now)}
        others = self.objects["Pod", name]["spec"]["containers"][1:]
        fact.at_rest = not others
        statuses = [{"name": "task", "state": {"terminated": ended}}]
        statuses += [{"name": one["name"], "state": {"running": {}}} for one in others]
        self._status(name, containerStatuses=statuses, conditions=[_not_ready(self.now)])

    def rest(self, name: str) -> None:
        """Let whatever else runs in an ended pod end, and the phase tell so."""
        fact = self.facts[name]
        fact.at_rest = True
        statuses = self.objects["Pod", name]["status"]["containerStatuses"]
        over = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": timestamp(self.now)}}
        statuses = [*statuses[:1], *({**one, "state": over} for one in statuses[1:])]
        self._status(name, phase="Succeeded" if fact.code == 0 else "Failed", containerStatuses=statuses)

    def take(self, name: str, how: str) -> None:
        """Let somebody take a pod away."""
        fact = self.facts[name]
        fact.ended_at, fact.taken, fact.at_rest, fact.ready = self.now, True, True, False
        conditions = [_not_ready(self.now)]
        statuses: list[dict[str, Any]] = []
        if how == "preempted":
            conditions.append({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"})
            ended = {"exitCode": 143, "reason": "Error", "finishedAt": timestamp(self.now)}
            statuses.append({"name": "task", "state": {"terminated": ended}})
        reason = {"evicted": "Evicted", "rejected": "OutOfcpu"}.get(how, "")
        self._status(name, phase="Failed", reason=reason, conditions=conditions, containerStatuses=statuses)

    def last_word(self, name: str, code: int) -> None:
        """Let a program obey SIGTERM, and the kubelet say that the pod may go: the grace is 0 from then on."""
        fact = self.facts[name]
        fact.confirmed = True
        if fact.ended_at is None and fact.began_at is not None:
            fact.ended_at, fact.code, fact.at_rest, fact.ready = self.now, code, True, False
            ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": timestamp(self.now)}
            self._status(name, containerStatuses=[{"name": "task", "state": {"terminated": ended}}])
        self.edit("Pod", name, {"metadata": {"deletionGracePeriodSeconds": 0}})

    def vanish(self, name: str) -> None:
        del self.objects["Pod", name]
        del self.facts[name]

    def _status(self, name: str, **status: Any) -> None:
        # NB: what a node says of a pod from now on speaks of the deletion as well, where there was one.
        self.facts[name].proved_first = False
        self._tell(name, status)

    def seen(self) -> None:
        """Note what the operator can know from now on: which ends came before a deletion."""
        for name, fact in self.facts.items():
            fact.told = int(self.objects["Pod", name]["metadata"]["resourceVersion"])
            fact.seen_first = (
                fact.seen_first or fact.proved_first or (fact.ended_at is not None and fact.asked_at is None)
            )

    def restart_operator(self) -> None:
        super().restart_operator()
        for fact in getattr(self, "facts", {}).values():
            fact.seen_first = False


def _not_ready(now: float) -> dict[str, str]:
    return {"type": _READY, "status": "False", "lastTransitionTime": timestamp(now)}


class LivingCluster:
    """One TFCluster, its operator, and the reference model beside it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.generation = 1
        self.world = Nodes()
        self.status: dict[str, Any] = {}
        self.life = Life()  # as the operator should know it
        self.durable = Life()  # as the status should hold it
        self.pending: dict[str, Any] | None = None
        self.written_at = float("-inf")
        self.startable: set[str] = set()
        self.deleted = False

    @property
    def facts(self) -> dict[str, Fact]:
        return self.world.facts

    def cluster(self, status: Mapping[str, Any]) -> TFCluster:
        body = make_body({}, generation=self.generation, status=dict(status))
        body["spec"] = self.spec
        return parse(body)

    def crash(self) -> None:
        """Lose all that the operator has not written down."""
        self.pending, self.written_at = None, float("-inf")
        self.world.restart_operator()
        self.life = self.durable.copy()

    # --- one pass, in the order of engine/reconcile.py

    def one_pass(self, *, stop: str = "", after: int = 99, refuse: int = 99) -> Plan | None:
        """Let the operator make one pass.

        Args:
            stop: where it crashes: before the evidence, in the actions (after so many), before the report, or nowhere.
            after: how many actions are carried out before it crashes in the actions.
            refuse: the number of the action that the API server refuses.

        Returns:
            The plan; None where the pass ended early.
        """
        base = self.pending if self.pending is not None else self.status
        cluster, life = self.cluster(base), self.life.copy()
        self.world.seen()
        called = call_roll(cluster, self.world.observe(cluster))
        known = take_stock(called, ledger.read(base), self.world.now)
        roster = called.completed_by(known)
        planned = plan(roster, known, views_of(roster).of_jobs, self.world.now, holds=self.world.holds)
        life.look(self.spec, self.facts.values(), self.world.now)
        self._begin(life)
        _assert_same(known, life)
        self._check_rollout(planned, life)
        closed: set[Gate] = set()
        if known.tells_more_than(ledger.read(self.status)):
            if stop == "the write is refused":
                closed.add(EVIDENCE)
            elif stop == "before the evidence":
                self.crash()
                return None
            else:
                self._write(status_of(roster, known, planned.views, planned.findings, self.world.now), life)
        self.life = life
        done, crashed = self._carry_out(
            planned, cluster, closed, after=after if stop == "in the actions" else 99, refuse=refuse
        )
        if self.deleted:
            return planned
        known = enter_done(roster, known, done)
        if crashed or stop == "before the report":
            self.crash()
            return None
        self._report(cluster, known, planned, refused=EVIDENCE in closed)
        return planned

    def _begin(self, life: Life) -> None:
        """Note which jobs have started: those that have a pod, or a task that was started again."""
        if life.end is None and not self.spec.get("suspend"):
            life.begun |= {fact.task[0] for fact in self.facts.values() if fact.uid not in life.condemned}
            life.begun |= {task[0] for task in life.in_row if isinstance(task, tuple)}
        # NB: as the pass finds them: a ps that the same pass replaces does not stop the workers.
        self.startable = {
            name
            for name, job in self.spec["jobs"].items()
            if all(self._is_ready(task, life) for task in self._tasks() if task[0] in job.get("startAfter", ()))
        }

    def _tasks(self) -> list[Task]:
        return [(name, index) for name, job in self.spec["jobs"].items() for index in range(job["replicas"])]

    def _is_ready(self, task: Task, life: Life) -> bool:
        fact = self.facts.get("demo-{}-{}".format(*task))
        ready = fact is not None and fact.serving and fact.uid not in life.condemned
        return ready or task in life.done

    def _report(self, cluster: TFCluster, known: ledger.Ledger, planned: Plan, *, refused: bool) -> None:
        self.world.seen()
        roster = call_roll(cluster, self.world.observe(cluster)).completed_by(known)
        status = status_of(roster, known, planned.views, planned.findings, self.world.now)
        if status == self.status:
            self.pending = None
        elif refused or self.world.now - self.written_at < 1.0:
            self.pending = status
        else:
            self._write(status, self.life)

    def _write(self, status: dict[str, Any], life: Life) -> None:
        before, after = _ends(self.status), _ends(status)
        assert len(after) <= 1, f"two final states: {after}"
        assert before in ((), after), f"{before} became {after}"
        if after:
            assert status["completionTime"] == self.status.get("completionTime", status["completionTime"])
        self.status, self.pending, self.written_at = status, None, self.world.now
        self.durable = life.copy()

    def _carry_out(
        self, planned: Plan, cluster: TFCluster, closed: set[Gate], *, after: int, refuse: int
    ) -> tuple[list[Action], bool]:
        done: list[Step] = []
        refused: dict[Gate, Finding] = {}
        number, crashed = 0, False
        for step in (step for group in planned.groups for step in group.steps):
            if step.gate in closed or not closed.isdisjoint(step.needs):
                continue
            if crashed := number == after:
                break
            number += 1
            if number - 1 == refuse:
                closed.add(step.gate)
                refused[step.gate] = Finding(reasons.REFUSED, "no quota")
                continue
            self._check(step.action)
            try:
                self.world.apply(step.action, cluster)
            except RefusedError:
                closed.add(step.gate)
                continue
            self._note(step.action)
            done.append(step)
        actions = [step.action for step in done]
        gates = (step.gate for step in done)
        self.world.holds = self.world.holds.after(refused, gates, actions, self.world.now)
        return actions, crashed or after <= number

    def _note(self, action: Action) -> None:
        if isinstance(action, CreatePod):
            self.life.begun.add(action.task.job.name)
        elif isinstance(action, Delete) and action.reason == reasons.TEMPLATE_CHANGED:
            job, _, index = action.name.removeprefix("demo-").rpartition("-")
            self.life.forgive((job, int(index)))
        elif isinstance(action, DeleteCluster):
            self.deleted = True

    # --- what no action may do

    def _check(self, action: Action) -> None:
        match action:
            case CreatePod(name=name, replaces=replaces):
                self._check_creation((action.task.job.name, action.task.index))
                if replaces:
                    self._check_replacement(self.facts[name], replaces)
            case Delete(kind="Pod", name=name, uid=uid, force=force):
                fact = self.facts.get(name)
                if fact is not None and fact.uid == uid:
                    self._check_evidence(fact)
                    (self._check_force if force else self._check_deletion)(fact)
            case DeleteCluster():
                left = self.life.ended_at + self.spec["ttlSecondsAfterFinished"] - self.world.now
                assert self.durable.end is not None, "the TTL of a cluster that has not finished"
                assert left <= 0.001, f"{left} s before its TTL"

    def _check_creation(self, task: Task) -> None:
        job = self.spec["jobs"][task[0]]
        assert self.life.end is None, f"{task} is created after the end"
        assert not self.spec.get("suspend"), f"{task} is created while the cluster is suspended"
        assert task[1] < job["replicas"], f"{task} is not declared"
        assert task not in self.life.done, f"{task} had completed and runs again"
        early = self.life.may_create_after(task) - self.world.now
        assert early <= 0.001, f"{task} is tried again {early} s too early"
        assert task[0] in self.life.begun | self.startable, f"{task} starts before {job.get('startAfter')} are ready"

    def _check_replacement(self, fact: Fact, uid: str) -> None:
        assert fact.uid == uid
        assert fact.ended_at is not None, f"{fact} is replaced while it runs"
        self._check_evidence(fact)

    def _check_evidence(self, fact: Fact) -> None:
        """No pod goes before what it proves is written down."""
        for what in ("counted", "condemned"):
            assert fact.uid not in getattr(self.life, what) - getattr(self.durable, what), f"{fact} is {what}: evidence"
        assert self.life.done <= self.durable.done or fact.task not in self.life.done - self.durable.done, fact
        assert self.life.end == self.durable.end, "the end is not written down"

    def _check_force(self, fact: Fact) -> None:
        grace = self.spec.get("terminatingGraceSeconds")
        assert grace is not None
        assert fact.asked_at is not None
        assert self.world.now >= fact.asked_at + (0 if fact.confirmed else _GRACE) + grace

    def _check_deletion(self, fact: Fact) -> None:
        job = self.spec["jobs"][fact.task[0]]
        if self.life.end is not None:
            policy = self.spec.get("cleanPodPolicy", "Running")
            assert policy == "All" or (policy == "Running" and not fact.at_rest), f"{fact} is cleaned up under {policy}"
        elif self.spec.get("suspend"):
            assert not self.durable.started_at, "pods go before it is written that the counts are zero"
        elif fact.uid in self.life.condemned:
            pass
        elif fact.task[1] < job["replicas"]:
            assert fact.task not in self.life.done, f"{fact} is complete and is deleted"
            assert fact.image != _image(job), f"{fact} is deleted for nothing"
            assert self._strategy != "OnDelete", f"{fact} is replaced under OnDelete"
        elif job.get("drainSeconds") and fact.ended_at is None and fact.began_at is not None:
            assert fact.surplus_since is not None, f"{fact} is not drained"
            assert self.world.now - fact.surplus_since >= job["drainSeconds"], f"{fact} is not drained long enough"

    @property
    def _strategy(self) -> str:
        kind: str = self.spec.get("updateStrategy", {}).get("type", "Recreate")
        return kind

    def _check_rollout(self, planned: Plan, life: Life) -> None:
        gone = {action.name for action in planned.actions if isinstance(action, Delete)}
        for fact in self.facts.values():
            declared = not self.spec.get("suspend") and fact.task[1] < self.spec["jobs"][fact.task[0]]["replicas"]
            fact.surplus_since = None if declared else (fact.surplus_since or self.world.now)
        if self._strategy != "RollingUpdate" or self.spec.get("suspend") or life.end is not None:
            return
        for name, job in self.spec["jobs"].items():
            tasks = [(name, index) for index in range(job["replicas"]) if (name, index) not in life.done]
            pods = {task: self.facts.get("demo-{}-{}".format(*task)) for task in tasks}
            serving = {task for task, fact in pods.items() if fact is not None and fact.serving}
            serving = {task for task in serving if pods[task].uid not in life.condemned}  # type: ignore[union-attr]  # serving
            taken = {task for task in serving if "demo-{}-{}".format(*task) in gone}
            room = self.spec["updateStrategy"].get("rollingUpdate", {}).get("maxUnavailable", 1)
            assert not taken or len(tasks) - len(serving) + len(taken) <= room, f"{taken} of {tasks} are taken down"
            outdated = {task for task in serving if pods[task].image != _image(job)}  # type: ignore[union-attr]  # serving
            assert not taken or min(taken) > max(outdated - taken, default=("", -1)), "not from the highest index"

    # --- the end of a story

    def calm_down(self, *, rounds: int = 60) -> None:
        """Let nothing more happen: every pod runs, what terminates goes, time passes as the operator asks."""
        for _ in range(rounds):
            for name, fact in list(self.facts.items()):
                if fact.asked_at is not None:
                    self.world.vanish(name)
                elif fact.ended_at is not None and not fact.taken and fact.code is not None:
                    self.world.rest(name)
                elif fact.ended_at is None and not fact.ready:
                    self.world.run(name, ready=True)
            planned = self.one_pass()
            if self.deleted:
                return
            assert planned is not None
            going = any(f.asked_at is not None or f.surplus_since is not None for f in self.facts.values())
            if not planned.actions and not planned.findings and self._all_ready() and (self.life.end or not going):
                break
            self.world.now += float(int(planned.wake_after or 0.0) + 1)
        else:
            raise AssertionError(f"still at work: {planned.actions} {planned.findings}")
        self.world.now += 2.0
        last = self.one_pass()
        assert last is None or self.deleted or self.life.end or not last.actions, last
        if not self.deleted and (last is None or not last.actions):
            self._assert_settled()

    def _all_ready(self) -> bool:
        return all(fact.ready or fact.ended_at is not None for fact in self.facts.values())

    def _assert_settled(self) -> None:
        tasks = set(self._tasks())
        pods = {fact.task for fact in self.facts.values()}
        if self.life.end is not None:
            policy = self.spec.get("cleanPodPolicy", "Running")
            assert policy != "All" or not pods
            assert policy != "Running" or all(fact.at_rest for fact in self.facts.values())
            return
        if self.spec.get("suspend"):
            assert not pods, f"{pods} while suspended"
            return
        assert tasks - self.life.done <= pods <= tasks, f"{pods} of {tasks}, complete {self.life.done}"
        for fact in self.facts.values():
            current = fact.image == _image(self.spec["jobs"][fact.task[0]])
            assert current or fact.task in self.life.done or self._strategy == "OnDelete"


def _image(job: Mapping[str, Any]) -> str:
    image: str = job["template"]["spec"]["containers"][0]["image"]
    return image


def _ends(status: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (one["type"], one["reason"], one["message"])
        for one in status.get("conditions", ())
        if one["type"] in {"Succeeded", "Failed"} and one["status"] == "True"
    )


def _assert_same(known: ledger.Ledger, life: Life) -> None:
    """What the operator knows is what is true."""
    end = None if known.verdict is None else (known.verdict.kind, known.verdict.reason)
    assert end == life.end, f"{known.verdict} where the end is {life.end}"
    assert (known.restarts, known.started_at, known.finished_at) == (life.total, life.started_at, life.ended_at)
    restarts = {job: record.restarts for job, record in known.jobs.items() if record.restarts}
    assert restarts == {job: count for job, count in life.restarts.items() if count}
    done = {(job, index) for job, record in known.jobs.items() for index in record.completed}
    assert done == life.done, f"{done} where {life.done} are complete"
