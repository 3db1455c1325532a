"""Helpers for the tests of the API server in memory: a server with the loop's clock, and small manifests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.memory_kubernetes import MemoryKubernetes, MemorySession, Refusal

Object = dict[str, Any]

EPOCH = 1_800_000_000.0
SERVER = "http://memory"
PODS = "/api/v1/namespaces/default/pods"


def make_kube(**arguments: Any) -> MemoryKubernetes:
    """Create a server; inside a loop it uses the loop's clock."""

    def wall() -> float:
        try:
            return EPOCH + asyncio.get_running_loop().time() - 1000.0
        except RuntimeError:
            return EPOCH

    return MemoryKubernetes(wall, **arguments)


def pod(name: str = "p", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "image:1"}], **spec}}


def named(name: str, **fields: Any) -> Object:
    return {"metadata": {"name": name, **fields}}


def owned(name: str, *owners: Object, **fields: Any) -> Object:
    references = [{"kind": "X", "apiVersion": "v1", "name": "x", "uid": one["metadata"]["uid"]} for one in owners]
    return named(name, ownerReferences=[{**one, **fields} for one in references])


def refusal_of(call: Any, *arguments: Any, **named_arguments: Any) -> Refusal:
    try:
        call(*arguments, **named_arguments)
    except Refusal as refusal:
        return refusal
    raise AssertionError("it was not refused")


async def ask(session: MemorySession, method: str, path: str, body: Any = None, **arguments: Any) -> tuple[int, Any]:
    """Send a request; return the status and the response, parsed if it is JSON."""
    data = None if body is None else json.dumps(body).encode()
    async with session.request(method, SERVER + path, data=data, **arguments) as response:
        text = await response.read()
    return response.status, json.loads(text) if text.startswith(b"{") else text.decode()


class Watcher:
    """Watches a path and records the time, type and name of each event, and the end of the watch."""

    def __init__(self, session: MemorySession, path: str = PODS, *, timeout: Any = None, **params: Any) -> None:
        self.session = session
        self.path = path
        self.timeout = timeout
        self.params = {"watch": "true", **params}
        self.events: list[Object] = []
        self.times: list[float] = []
        self.end: BaseException | None = None
        self.status = 0

    async def follow(self) -> None:
        try:
            async with self.session.get(SERVER + self.path, params=self.params, timeout=self.timeout) as response:
                self.status = response.status
                async for chunk in response.content.iter_any():
                    for line in chunk.splitlines():
                        self.events.append(json.loads(line))
                        self.times.append(asyncio.get_running_loop().time())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.end = error

    @property
    def heard(self) -> list[tuple[str, str]]:
        return [(one["type"], one["object"].get("metadata", {}).get("name", "")) for one in self.events]
