"""A node of `tfcluster local` with only an API server."""

import asyncio
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.memory_kubernetes import DEFAULT_RESOURCES, MemoryKubernetes, Resource
from support.waiting import GUARD

from tfcluster.local.addresses import Addresses, Ports
from tfcluster.local.environment import PathMapping, Surroundings
from tfcluster.local.node import Node

Object = dict[str, Any]
NAMESPACE = "default"
SLEEP = "import time; time.sleep(600)"


class NodeWorld:
    """An API server, a node, and the output of pods.

    Args:
        folder: for the node's files; its folder src replaces /opt/examples of every image.
    """

    def __init__(self, folder: Path) -> None:
        self.kube = MemoryKubernetes(time.time, (*DEFAULT_RESOURCES, Resource(plural="secrets", kind="Secret")))
        self.folder = folder
        self.lines: dict[str, list[str]] = {}
        self.notices: list[str] = []
        surroundings = Surroundings(
            folder=folder,
            python=Path(sys.executable),
            addresses=Addresses(Ports()),
            heard=self._hear,
            notice=self.notices.append,
            mapped=[PathMapping("/opt/examples", folder / "src")],
        )
        self.node = Node(self.kube, surroundings)
        self._changed = asyncio.Event()
        self.kube.subscribers.append(lambda _: self._changed.set())

    def _hear(self, _namespace: str, pod: str, _container: str, line: bytes) -> None:
        self.lines.setdefault(pod, []).append(line.decode())

    def pod(self, name: str = "p", program: str = "", *, main: Object | None = None, **spec: Any) -> None:
        spec = {"restartPolicy": "Never", "containers": [container(program, **(main or {}))], **spec}
        self.kube.create("pods", NAMESPACE, {"metadata": {"name": name}, "spec": spec})

    def config_map(self, name: str, **data: str) -> None:
        self.kube.create("configmaps", NAMESPACE, {"metadata": {"name": name}, "data": data})

    def secret(self, name: str, **data: str) -> None:
        self.kube.create("secrets", NAMESPACE, {"metadata": {"name": name}, "stringData": data})

    def status(self, name: str = "p") -> Object:
        return (self.kube.get("pods", NAMESPACE, name) or {}).get("status", {})

    def phase(self, name: str = "p") -> str:
        return self.status(name).get("phase", "")

    def condition(self, kind: str, name: str = "p") -> Object:
        return next((one for one in self.status(name).get("conditions", ()) if one["type"] == kind), {})

    def ready(self, name: str = "p") -> bool:
        return self.condition("Ready", name).get("status") == "True"

    def said(self, name: str = "p") -> list[str]:
        return self.lines.get(name, [])

    async def until(self, holds: Callable[[], object]) -> None:
        began = time.monotonic()
        while not holds():
            assert time.monotonic() < began + GUARD, (self.kube.list("pods"), self.lines, self.notices)
            self._changed.clear()
            waiting = asyncio.create_task(self._changed.wait())
            # Logs and files change without an event of the API server.
            await asyncio.wait([waiting], timeout=0.02)
            waiting.cancel()

    async def ended(self, name: str = "p") -> Object:
        await self.until(lambda: self.phase(name) in ("Succeeded", "Failed"))
        return self.status(name)["containerStatuses"][0]["state"]["terminated"]

    async def deleted(self, name: str = "p") -> None:
        self.kube.delete("pods", NAMESPACE, name)
        await self.until(lambda: self.kube.get("pods", NAMESPACE, name) is None)


def container(program: str = "", name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": "none", "command": ["python3", "-c", program], **fields}


def on_a_node() -> Callable[..., Any]:
    """Turn a coroutine with a world into a test; the world ends with it."""

    def wrap(story: Callable[..., Any]) -> Callable[..., None]:
        def test(tmp_path: Path, **fixtures: Any) -> None:
            async def whole() -> None:
                world = NodeWorld(tmp_path)
                try:
                    await story(world, **fixtures)
                finally:
                    await world.node.stop(0.0)

            asyncio.run(whole())

        folder = inspect.signature(test).parameters["tmp_path"]
        _, *fixtures = inspect.signature(story).parameters.values()
        test.__name__, test.__doc__ = story.__name__, story.__doc__
        test.__signature__ = inspect.Signature([folder, *fixtures])
        return test

    return wrap
