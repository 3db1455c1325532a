"""The workloads: actions of users, and the operator's own starts."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gates.soak import soak
from gates.world import ANOTHER_ARCHIVE, World
from simulation import dialect

_TEMPLATE: Final = {
    "spec": {
        "containers": [
            {
                "name": "tensorflow",
                "image": "registry.test/train:1",
                "command": ["python", "-m", "train", "--steps=1000"],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            }
        ]
    }
}


def training(tasks: int) -> dict[str, Any]:
    """Declare the jobs of parameter-server training: a chief, a tenth parameter servers, and workers."""
    servers = tasks // 10
    return {
        "chief": {"replicas": 1, "template": _TEMPLATE},
        "ps": {"replicas": servers, "template": _TEMPLATE, "deviceFilters": ["/job:worker", "/job:chief"]},
        "worker": {"replicas": tasks - servers - 1, "template": _TEMPLATE, "deviceFilters": ["/job:ps", "/job:chief"]},
    }


async def _hundred_tasks(world: World) -> None:
    await world.phase("create 1x100", lambda: world.declare("c", training(100)))
    assert world.count("pods") == 100


async def _three_hundred_tasks(world: World) -> None:
    await world.phase("create 1x300", lambda: world.declare("c", training(300)))
    assert world.count("pods") == 300
    await world.phase("resize 300 to 301", lambda: world.edit("c", jobs={"worker": {"replicas": 270}}))
    assert world.count("pods") == 301
    await world.phase("replace 1 pod of 301", lambda: world.remove("pods", "c-worker-7"))
    assert world.count("pods") == 301
    await world.phase("suspend 301", lambda: world.edit("c", suspend=True))
    assert world.count("pods") == 0
    await world.phase("resume 301", lambda: world.edit("c", suspend=False))
    assert world.count("pods") == 301
    await world.phase("delete 301", lambda: world.remove("tfclusters", "c"))
    assert (world.count("pods"), world.count("configmaps")) == (0, 1)


def _declare_many(world: World, clusters: int, tasks: int) -> None:
    for i in range(clusters):
        world.declare(f"c-{i:03}", {"worker": {"replicas": tasks, "template": _TEMPLATE}})


async def _hundred_clusters(world: World) -> None:
    await world.phase("create 100x2", lambda: _declare_many(world, 100, 2))
    assert world.count("pods") == 200


async def _lost_pods(world: World) -> None:
    for i in range(100):
        world.declare(f"c-{i:03}", training(10))
    await world.await_quiet()
    names = sorted(one["metadata"]["name"] for one in world.kube.list("pods", dialect.NAMESPACE))

    def lose() -> None:
        for name in random.sample(names, 100):
            world.remove("pods", name, by_force=True)

    await world.phase("lose 100 of 100x10", lose)
    assert world.count("pods") == 1_000


async def _two_thousand_pods(world: World) -> None:
    _declare_many(world, 100, 20)
    await world.await_quiet()
    assert world.count("pods") == 2_000
    await world.phase("60 s of rest, 100x20", lambda: None, seconds=60.0)
    await world.phase("cold start, 100x20", world.operator.crash)
    world.operator.archive = ANOTHER_ARCHIVE
    await world.phase("upgrade of the operator, 100x20", world.operator.restart)
    assert world.count("pods") == 2_000


WORKLOADS: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    "two thousand pods": _two_thousand_pods,
    "a day": soak,
    "three hundred tasks": _three_hundred_tasks,
    "lost pods": _lost_pods,
    "hundred clusters": _hundred_clusters,
    "hundred tasks": _hundred_tasks,
}


async def play(name: str, world: World) -> None:
    """Start the operator with an empty API server, and run a workload."""
    world.operator.start()
    await asyncio.sleep(1.0)
    await world.await_quiet()
    await WORKLOADS[name](world)
    await world.end()
