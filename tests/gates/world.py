"""A world in virtual time without faults, and the counts of the operator's requests."""

import asyncio
import cProfile
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any, Final

from simulation import dialect
from simulation.nodes import Nodes
from simulation.operator_process import Operator
from support.memory_kubernetes import Interceptor, MemoryKubernetes, Request

import tfcluster_operator
from tfcluster.local.store.messages import Answer
from tfcluster.local.store.state import encode
from tfcluster_operator.kube.metrics import Metrics
from tfcluster_operator.objects.config_map import ResolverArchive

#: The wall clock at 0 of the loop's clock.
_EPOCH: Final = 1_800_000_000.0
#: Seconds without a change until a phase is complete.
_QUIET: Final = 5.0
_LOOK_EVERY: Final = 0.25
_AT_MOST: Final = 300.0
#: As large as the real one, and independent of the resolver's changes.
ARCHIVE: Final = ResolverArchive(bytes(60_000))
ANOTHER_ARCHIVE: Final = ResolverArchive(bytes([1]) * 60_000)

_SOURCES: Final = str(Path(tfcluster_operator.__file__).parent)
#: Python 3.12 no longer calls these.
_INLINED: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})

Counts = dict[str, float]

BYTES: Final = "bytes sent"
PASSES: Final = "passes"
CALLS: Final = "calls of the operator's functions"
CPU: Final = "CPU, in calibrations"


class _Counting(Interceptor):
    """Counts requests on their way to the API server."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def before(self, request: Request) -> Answer | None:
        what = f"{request.resource}/{request.subresource}" if request.subresource else request.resource
        self.counts[f"{request.verb} {what}" if what else f"get {request.path}"] += 1
        if request.body is not None:
            self.counts[BYTES] += len(encode(request.body))
        return None


def calibrate() -> float:
    """Measure the speed of this machine: CPU seconds of a constant loop."""

    def work() -> float:
        began = time.process_time()
        table: dict[str, int] = {}
        for i in range(200_000):
            key = f"task-{i % 997}"
            table[key] = table.get(key, 0) + len(key)
        return time.process_time() - began

    return min(work() for _ in range(5))


@dataclass(slots=True)
class World:
    """One API server, its nodes, and one operator with its defaults."""

    calibration: float
    kube: MemoryKubernetes = field(init=False)
    nodes: Nodes = field(init=False)
    operator: Operator = field(init=False)
    #: The cost of each phase, by its name.
    phases: dict[str, Counts] = field(default_factory=dict)
    _metrics: Metrics = field(default_factory=Metrics)
    _counting: _Counting = field(default_factory=_Counting)
    _garbage: asyncio.Task[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.kube = MemoryKubernetes(self.now, namespaces=(dialect.NAMESPACE,))
        self.nodes = Nodes(self.kube, self.now)
        self.operator = Operator(self.kube, self._counting, wall=self.now, archive=ARCHIVE, metrics=self._metrics)
        self._garbage = asyncio.create_task(self.kube.collect_garbage())

    def now(self) -> float:
        return _EPOCH + asyncio.get_running_loop().time()

    async def end(self) -> None:
        self.operator.stop()
        self._garbage.cancel()
        await asyncio.gather(self._garbage, return_exceptions=True)

    # --- a user

    def declare(self, name: str, jobs: Mapping[str, Any], **spec: Any) -> None:
        body = {
            "apiVersion": "tfcluster.dev/v1alpha1",
            "kind": "TFCluster",
            "metadata": {"name": name},
            "spec": {"isolation": {"mode": "Cluster"}, "jobs": dict(jobs), **spec},
        }
        self.kube.create("tfclusters", dialect.NAMESPACE, body, user="user")

    def edit(self, name: str, **spec: Any) -> None:
        self.kube.patch("tfclusters", dialect.NAMESPACE, name, {"spec": spec}, user="user")

    def remove(self, resource: str, name: str, *, by_force: bool = False) -> None:
        self.kube.delete(resource, dialect.NAMESPACE, name, grace=0 if by_force else None, user="user")

    def count(self, resource: str) -> int:
        return sum(len(names) for names in self.kube.state.demand(resource).objects.values())

    # --- phases

    async def phase(self, name: str, act: Callable[[], Awaitable[None] | None], *, seconds: float = 0.0) -> None:
        """Run an action, and count its cost until nothing changes."""
        with self._counted(name):
            done = act()
            if done is not None:
                await done
            await (asyncio.sleep(seconds) if seconds else self.await_quiet())

    async def await_quiet(self) -> None:
        elapsed = asyncio.get_running_loop().time
        began = since = elapsed()
        mark = self.kube.revision
        while elapsed() - since < _QUIET:
            await asyncio.sleep(_LOOK_EVERY)
            if self.kube.revision != mark:
                mark, since = self.kube.revision, elapsed()
            assert elapsed() - began < _AT_MOST, "something changes all the time"

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        self._counting.counts.clear()
        passes, profile = self._passes(), cProfile.Profile()
        # A full collection takes more CPU than a short phase, and would fall into a random one.
        gc.collect()
        gc.disable()
        began = time.process_time()
        profile.enable()
        try:
            yield
        finally:
            profile.disable()
            gc.enable()
        cpu = time.process_time() - began
        self.phases[name] = {
            **dict(sorted(self._counting.counts.items())),
            PASSES: self._passes() - passes,
            CALLS: _calls(profile),
            CPU: round(cpu / self.calibration, 1),
        }

    def _passes(self) -> int:
        samples = (s for family in self._metrics.passes.collect() for s in family.samples if s.name.endswith("_total"))
        return int(sum(sample.value for sample in samples))


def _calls(profile: cProfile.Profile) -> int:
    return sum(
        entry.callcount
        for entry in profile.getstats()
        if isinstance(entry.code, CodeType)
        and entry.code.co_filename.startswith(_SOURCES)
        and entry.code.co_name not in _INLINED
    )
