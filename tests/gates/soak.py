"""A day of created, changed, damaged and deleted clusters; at its end the operator has no trace of them."""

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from gates.world import World

_HOUR: Final = 3600.0
#: Seconds until a new cluster is created and the oldest one deleted.
_EVERY: Final = 900.0
_LIVING: Final = 3
#: The maximal growth of the process's objects from the second hour to the last.
_GROWTH: Final = 1.05
#: Permitted remains of deleted clusters, by the end of the path from the engine, with the maximal number of entries.
_MAY_STAY: Final = {
    # So that a late event of a deleted TFCluster does not restore it.
    "_parents._deleted": 5_000,
    # Cached comparisons; removed when they exceed this number.
    "_queue._rest_until": 1_000,
    "_queue._rest_until[]": 2_000,
}


async def soak(world: World) -> None:
    before = _entries(world.operator.engine)
    tracked: dict[int, int] = {}

    async def day() -> None:
        clusters = 0
        for hour in range(1, 25):
            for _ in range(int(_HOUR / _EVERY)):
                await _live_on(world, clusters)
                clusters += 1
            tracked[hour] = _tracked(world)

    await world.phase("24 h of churn", day)
    for cluster in world.kube.list("tfclusters"):
        world.remove("tfclusters", cluster["metadata"]["name"])
    await asyncio.sleep(3_700.0)  # a copy of the resolver stays for an hour
    left = _entries(world.operator.engine)
    leaks = [
        f"{path}: {count} entries, {before[path]} at the start"
        for path, count in left.items()
        if count > max(before[path], *(most for end, most in _MAY_STAY.items() if path.endswith(end)), 0)
    ]
    assert not leaks, "left of clusters that are gone:\n" + "\n".join(leaks)
    assert tracked[24] <= tracked[2] * _GROWTH, f"objects of the process, by hour: {tracked}"


async def _live_on(world: World, number: int) -> None:
    """Create a cluster, run its event, and delete the oldest one."""
    name = f"c-{number}"
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "image:1"}]}}
    jobs: dict[str, Any] = {"worker": {"replicas": 3, "template": template, "restartPolicy": "OnFailure"}}
    if number % 2:
        jobs["chief"] = {"replicas": 1, "template": template}
    limit = {"backoffLimit": 2} if number % 3 == 0 else {}
    world.declare(name, jobs, updateStrategy={"type": "Recreate"}, **limit)
    await asyncio.sleep(60.0)
    match number % 6:
        case 0:
            world.nodes.exit(f"{name}-worker-1", 1)
        case 1:
            world.edit(name, jobs={"worker": {"replicas": 5}})
            await asyncio.sleep(60.0)
            world.edit(name, jobs={"worker": {"replicas": 2}})
        case 2:
            world.remove("pods", f"{name}-worker-2")
        case 3:
            newer = {"spec": {"containers": [{"name": "tensorflow", "image": "image:2"}]}}
            world.edit(name, jobs={"worker": {"template": newer}})
        case 4:
            world.edit(name, suspend=True)
            await asyncio.sleep(60.0)
            world.edit(name, suspend=False)
        case _:
            world.nodes.take(f"{name}-worker-0")
            world.operator.lose_connections()
    if number >= _LIVING:
        world.remove("tfclusters", f"c-{number - _LIVING}")
    await asyncio.sleep(_EVERY - asyncio.get_running_loop().time() % _EVERY)


def _tracked(world: World) -> int:
    """Count the objects that Python's garbage collector tracks, without the API server's memory."""
    world.kube.requests.clear()
    world.kube.history.clear()
    world.kube.compact(world.kube.revision)
    world.nodes.owners.clear()
    gc.collect()
    return len(gc.get_objects())


def _entries(engine: Any) -> Counter[str]:
    """Count the entries of the operator's containers, by their path from the engine."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    todo: list[tuple[str, Any]] = [("", engine)]
    while todo:
        path, one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Mapping | AbstractSet | list | tuple | deque):
            found[path] += len(one)
            todo += [(f"{path}[]", item) for item in (one.values() if isinstance(one, Mapping) else one)]
        elif type(one).__module__.startswith("tfcluster_operator"):
            todo += [(f"{path}.{name}".lstrip("."), value) for name, value in _attributes(one)]
    return found


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    names = dict.fromkeys(getattr(one, "__dict__", ()))
    for kind in type(one).__mro__:
        names.update(dict.fromkeys(getattr(kind, "__slots__", ())))
    return ((name, getattr(one, name)) for name in names if hasattr(one, name))
