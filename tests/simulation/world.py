"""A small world in virtual time: the API server, nodes, the garbage collector, the operator, and other actors."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simulation import dialect
from simulation.faults import Faults
from simulation.nodes import Nodes
from simulation.operator_process import Operator
from simulation.plans import Plan
from simulation.quota import Queue
from simulation.truth import Truth
from support.memory_kubernetes import Admission, Change, MemoryKubernetes, Record, Refusal

#: The wall clock at 0 of the loop's clock.
_EPOCH: Final = 1_800_000_000.0
#: Seconds without a change until a step is complete.
_QUIET: Final = 2.5
_LOOK_EVERY: Final = 0.25


@dataclass(slots=True)
class Moment:
    """The time and the author of a revision, by the right clock."""

    at: float
    user: str


@dataclass(slots=True)
class World:
    """All objects and actors of one run; without namespaces the operator watches all."""

    plan: Plan
    namespaces: tuple[str, ...] = ()
    recording: bool = False
    kube: MemoryKubernetes = field(init=False)
    nodes: Nodes = field(init=False)
    queue: Queue = field(init=False)
    faults: Faults = field(init=False)
    operator: Operator = field(init=False)
    truth: Truth = field(init=False)
    #: The error of the operator's clock, in seconds.
    clock_off: float = 0.0
    #: The number of changes, without leases.
    changes: int = 0
    #: The time of each revision.
    moments: dict[int, Moment] = field(default_factory=dict)
    #: Objects of others that the operator deleted.
    trespasses: list[str] = field(default_factory=list)
    #: When the effects of other actors end, by the loop's clock.
    disturbed_until: float = 0.0
    #: Receives the trace.
    tell: Callable[[str], None] = lambda _: None
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    _others: list[Operator] = field(default_factory=list)
    _writer: str = ""

    def __post_init__(self) -> None:
        namespaces = sorted({dialect.NAMESPACE, *self.namespaces})
        self.kube = MemoryKubernetes(self.now, namespaces=namespaces)
        self.kube.subscribers.append(self._time)
        self.kube.admission.append(self._note)
        self.nodes = Nodes(self.kube, self.now)
        self.queue = Queue(self.kube, self.now)
        self.truth = Truth(self.kube, self.nodes, self.now)
        self.faults = Faults(self.plan, self.crash, recording=self.recording)
        self.operator = self.another_operator("a" if self.plan.action in dialect.ELECTED else "")

    def another_operator(self, name: str) -> Operator:
        """Create another replica of the operator; with a name, it takes part in the election."""
        return Operator(
            self.kube, self.faults, wall=lambda: self.now() + self.clock_off, namespaces=self.namespaces, name=name
        )

    def now(self) -> float:
        return _EPOCH + asyncio.get_running_loop().time()

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()

    def crash(self) -> None:
        """Kill the operator that leads; it starts again."""
        self.acting().crash()

    def acting(self) -> Operator:
        """Return the operator that leads, or the first if none leads."""
        return next((one for one in (self.operator, *self._others) if one.leads), self.operator)

    def _note(self, asked: Admission) -> None:
        self._writer = asked.user
        if asked.verb == "delete" and asked.user == dialect.OPERATOR and not self._is_operators(asked):
            self.trespasses.append(f"{asked.resource} {asked.old['metadata']['name']}")

    def _time(self, change: Change) -> None:
        self.moments[change.revision] = Moment(self.now(), self._writer)
        self.changes += change.resource != "leases"  # the leader renews them forever

    def _is_operators(self, asked: Admission) -> bool:
        if asked.resource == "tfclusters":
            return asked.old["spec"].get("ttlSecondsAfterFinished") is not None
        if asked.resource == "configmaps" and asked.old["metadata"]["name"] == dialect.RESOLVER:
            return dialect.is_our_copy(asked.old)
        owners = asked.old["metadata"].get("ownerReferences") or ()
        return any(one["kind"] == "TFCluster" and one.get("controller") for one in owners)

    def begin(self) -> None:
        self._tasks.append(asyncio.create_task(self.kube.collect_garbage()))
        self.operator.start()
        if self.plan.action in {"leader dies", "leader hands over"}:
            self.start_another()

    async def end(self) -> None:
        for operator in (self.operator, *self._others):
            operator.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def strike(self, act: Callable[["World"], None]) -> None:
        self.tell(f"actor: {self.plan.action}")
        self.faults.met = True
        self.faults.over_at = self.elapsed()
        act(self)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def start_another(self) -> None:
        second = self.another_operator("b")
        self._others.append(second)
        second.start()

    def listen(self, trace: Callable[[float, str], None]) -> None:
        def tell(what: str) -> None:
            trace(self.elapsed(), what)

        def change(one: Change) -> None:
            tell(f"  {self._writer}: {one.type} {one.resource}/{one.object['metadata']['name']} at {one.revision}")

        self.tell = self.faults.tell = tell
        self.operator.tell = lambda what: tell(f"operator {what}")
        self.kube.subscribers.append(change)

    def blind(self) -> tuple[float, float] | None:
        """Return from when to when the operator could not observe or report the truth, by the right clock."""
        if not (self.faults.met and self.faults.blinds):
            return None
        began = _EPOCH + self.faults.began_at
        return began, max(_EPOCH + self.faults.over_at, began)

    def requests_since(self, since: float) -> list[Record]:
        """Return the requests since a moment of the loop's clock."""
        return [one for one in self.kube.requests if one.time - _EPOCH >= since]

    async def await_silence(self, seconds: float) -> None:
        """Wait until nothing has changed for a time."""
        await asyncio.sleep(seconds)

    # --- a user

    def declare(
        self,
        spec: Mapping[str, Any],
        name: str = dialect.CLUSTER,
        namespace: str = dialect.NAMESPACE,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        body = {
            "apiVersion": "tfcluster.dev/v1alpha1",
            "kind": "TFCluster",
            "metadata": {"name": name, **({"labels": dict(labels)} if labels else {})},
            "spec": spec,
        }
        self.kube.create("tfclusters", namespace, body, user="user")
        self.truth.look()

    def edit(self, spec: Mapping[str, Any], name: str = dialect.CLUSTER) -> None:
        self.kube.patch("tfclusters", dialect.NAMESPACE, name, {"spec": spec}, user="user")
        self.truth.look()

    def remove(self, resource: str, name: str, namespace: str = dialect.NAMESPACE) -> None:
        try:
            self.kube.delete(resource, namespace, name, user="user")
        except Refusal as refusal:
            if refusal.status != 404:
                raise
        self.truth.look()

    def cluster(self, name: str = dialect.CLUSTER, namespace: str = dialect.NAMESPACE) -> dict[str, Any] | None:
        return self.kube.get("tfclusters", namespace, name)

    def pods(self, namespace: str = dialect.NAMESPACE) -> list[dict[str, Any]]:
        return self.kube.list("pods", namespace)

    # --- waiting

    async def await_leader(self) -> None:
        while not self.acting().leads:  # noqa: ASYNC110 - virtual time passes at once
            await asyncio.sleep(_LOOK_EVERY)

    async def await_quiet(self, until: Callable[["World"], bool], within: float) -> bool:
        """Wait until a condition holds and nothing changes."""
        began = self.elapsed()
        mark, since = self.changes, began
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = self.elapsed()
            if self.changes != mark:
                mark, since = self.changes, now
            over_at = max(began, self.disturbed_until, self.faults.over_at if self.faults.met else 0.0)
            if now - since >= _QUIET and now >= over_at + 1.0 and self.operator.runs and until(self):
                return True
            if now > over_at + within:
                return False
