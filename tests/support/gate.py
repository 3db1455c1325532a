"""A gate before the API server of the simulated world: it notes the operator's writes, and rejects some of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE, OPERATOR
from simulation.workloads import job
from simulation.world import World
from support.async_tests import simulated
from support.memory_kubernetes import Refusal, Request

QUOTA = Refusal(403, "Forbidden", "exceeded quota: objects")
WEBHOOK = Refusal(500, "InternalError", 'failed calling webhook "policy.example.test": connection refused')
JOBS = {"chief": job(1), "ps": job(1), "worker": job(2)}
STATUS = f"patch tfclusters {CLUSTER} status"


class Write(NamedTuple):
    """One write of the operator: its time by the loop's clock, "create pods c-worker-0", and its parameters."""

    at: float
    brief: str
    params: dict[str, str]


class Gate:
    """The gate of one world; a write is rejected if its brief begins with one of those given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.writes: list[Write] = []
        self._refusal: Refusal | None = None
        self._briefs: tuple[str, ...] = ()
        world.kube.authorize.append(self._check)

    def _check(self, request: Request) -> None:
        if request.user != OPERATOR or request.verb not in {"create", "patch", "delete"}:
            return
        dry = "dry run of " if "dryRun" in request.params else ""
        brief = dry + " ".join(filter(None, (request.verb, request.resource, request.name, request.subresource)))
        self.writes.append(Write(self.world.elapsed(), brief, dict(request.params)))
        if self._refusal is not None and brief.startswith(self._briefs):
            raise self._refusal

    def reject(self, refusal: Refusal, *briefs: str) -> None:
        self._refusal, self._briefs = refusal, briefs

    def allow(self) -> None:
        self._refusal = None

    def written(self, *briefs: str, since: float = 0.0) -> list[str]:
        """Return the writes that begin with one of these, in order."""
        return [one.brief for one in self.writes if one.at >= since and one.brief.startswith(briefs)]

    async def come_up(self, jobs: dict[str, Any] | None = None, **spec: Any) -> None:
        """Declare a cluster, and wait until it is ready and reported."""
        self.declare(jobs, **spec)
        await self.world.await_silence(10.0)
        assert self.ready()[0] == "True"

    def declare(self, jobs: dict[str, Any] | None = None, **spec: Any) -> None:
        self.world.declare({"jobs": JOBS if jobs is None else jobs, **spec})

    def condition(self, kind: str) -> dict[str, Any]:
        return dialect.condition(self.world.cluster(), kind)

    def ready(self) -> tuple[str, str]:
        found = self.condition("Ready")
        return found.get("status", ""), found.get("reason", "")

    def pods(self) -> dict[str, str]:
        """Return the UID of each pod by the name of its task."""
        return {
            one["metadata"]["name"].removeprefix(f"{CLUSTER}-"): one["metadata"]["uid"] for one in self.world.pods()
        }

    def lose(self, *tasks: str) -> None:
        for task in tasks:
            self.world.kube.delete("pods", NAMESPACE, f"{CLUSTER}-{task}", grace=0, user="user")


@asynccontextmanager
async def gated() -> AsyncIterator[Gate]:
    """Start a simulated world behind a gate; its pods become ready immediately."""
    async with simulated() as world:
        world.nodes.hurried = True
        yield Gate(world)
