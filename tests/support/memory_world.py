"""The world of tests/life in memory and in virtual time, with the methods of the one with a real control plane."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client.exceptions import ApiException
from simulation import dialect
from simulation.operator_process import Operator
from support.memory_kubernetes import (
    DEFAULT_RESOURCES,
    Change,
    Interceptor,
    MemoryKubernetes,
    Resource,
    resource_of_definition,
)

from tfcluster.local.store.serving import read_request

from .audit import AuditLog
from .audit import Request as Audited
from .objects import MERGE, STRATEGIC, Objects
from .operator_process import ALL_NAMESPACES
from .rbac import OPERATOR_USER
from .virtual_time import VirtualTimeLoop

_EPOCH: Final = 1_800_000_000.0
_DEFINITION: Final = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"
#: Seconds of a request of a test, of a short wait for the operator, and of its start.
_REQUEST: Final = 0.002
_AT_ONCE: Final = 0.05
_START: Final = 0.5
_NODES: Final = Resource(plural="nodes", kind="Node", namespaced=False, status=True, returns_deleted=True)
_SERVICE_ACCOUNTS: Final = Resource(plural="serviceaccounts", kind="ServiceAccount")
#: The merge keys of the lists in a pod's status (strategic merge patch).
_MERGE_KEYS: Final = {"conditions": "type", "containerStatuses": "name"}


class Plane:
    """An API server in memory with its own clock, which is also a :class:`~.clock.Clock` for the tests."""

    def __init__(self) -> None:
        self._loop = VirtualTimeLoop()
        defined = resource_of_definition(yaml.safe_load(_DEFINITION.read_text(encoding="utf-8")))
        others = [one for one in DEFAULT_RESOURCES if one.plural != defined.plural]
        self.kube = MemoryKubernetes(self.time, [*others, defined, _NODES, _SERVICE_ACCOUNTS])
        self.kube.subscribers.append(self._serve_namespace)
        self.run(self._begin())

    async def _begin(self) -> None:
        self._collecting = asyncio.ensure_future(self.kube.collect_garbage())

    def _serve_namespace(self, change: Change) -> None:
        if change.resource == "namespaces" and change.type == "ADDED":
            name = change.object["metadata"]["name"]
            self.kube.create("serviceaccounts", name, {"metadata": {"name": "default"}}, user="controller")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def monotonic(self) -> float:
        return self._loop.time()

    def time(self) -> float:
        return _EPOCH + self._loop.time()

    def sleep(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._collecting.cancel()
        self.sleep(_AT_ONCE)
        self._loop.close()


class MemoryObjects(Objects):
    """Objects on the API server in memory, with an administrator's permissions."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def _send(self, method: str, path: str, body: Any, *, content: str) -> bytes:
        if content == STRATEGIC:
            # The in-memory server merges as JSON: complete the lists of a kubelet's patch here.
            old = json.loads(self._send("GET", path.removesuffix("/status"), None, content=MERGE))
            body, content = {key: _strategic(old.get(key), body[key]) for key in body}, MERGE
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content, "User-Agent": "kubectl"}
        answer = self._plane.kube.serve(read_request(method, path, params={}, headers=headers, user="admin", body=data))
        self._plane.sleep(_REQUEST)
        if not 200 <= answer.status <= 299:
            error = ApiException(status=answer.status, reason="refused")
            error.body = answer.body.decode()
            raise error
        return answer.body or b"{}"


def _strategic(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    merged = dict(old or {})
    for key, value in change.items():
        if key in _MERGE_KEYS:
            by = {one[_MERGE_KEYS[key]]: one for one in merged.get(key) or []}
            for one in value:
                by[one[_MERGE_KEYS[key]]] = _strategic(by.get(one[_MERGE_KEYS[key]]), one)
            merged[key] = list(by.values())
        else:
            merged[key] = _strategic(merged.get(key), value) if isinstance(value, dict) else value
    return merged


class MemoryAudit(AuditLog):
    """The requests to the API server in memory. All are logged immediately."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def position(self) -> int:
        self._plane.sleep(_AT_ONCE)
        return len(self._plane.kube.requests)

    def since(self, position: int, *, user: str = "", namespace: str | None = None) -> list[Audited]:
        self._plane.sleep(_AT_ONCE)
        found = map(_audited, self._plane.kube.requests[position:])
        return [one for one in found if (not user or one.user == user) and namespace in {None, one.namespace}]


def _audited(request: Any) -> Audited:
    at = datetime.fromtimestamp(request.time, UTC)
    return Audited(
        user=OPERATOR_USER if request.user == dialect.OPERATOR else request.user,
        verb=request.verb,
        group="",
        resource=request.resource,
        subresource=request.subresource,
        namespace=request.namespace,
        name=request.name,
        code=request.status,
        received=at,
        finished=at,
        uri="",
    )


class MemoryOperator:
    """The same engine with the methods of :class:`~.operator_process.OperatorProcess`, in virtual time."""

    def __init__(self, plane: Plane, log: Path) -> None:
        self._plane = plane
        self._operator: Operator | None = None
        self._arguments: tuple[str, ...] = ()
        self.log = log
        log.touch()
        self._handler = logging.FileHandler(log)
        logging.getLogger().addHandler(self._handler)

    @property
    def running(self) -> bool:
        return self._operator is not None and self._operator.runs

    def start(self, *, arguments: Sequence[str] = ALL_NAMESPACES) -> None:
        assert not self.running, "the operator runs already"
        self._arguments = tuple(arguments)
        namespaces = [arguments[i + 1] for i, one in enumerate(arguments) if one == "--namespace"]
        self._operator = Operator(
            self._plane.kube,
            Interceptor(),
            wall=self._plane.time,
            namespaces=namespaces,
        )
        self._operator.tell = self._log_deaths
        self._plane.run(_call(self._operator.start))
        self._plane.sleep(_START)

    def _log_deaths(self, _: str) -> None:
        """Log an error that ended the operator, as its process would: the simulation starts it again."""
        assert self._operator is not None
        while self._operator.deaths:
            logging.getLogger(__name__).error("the operator ended", exc_info=self._operator.deaths.pop())

    def restore(self) -> None:
        """Run it for all namespaces again."""
        if not self.running or self._arguments != ALL_NAMESPACES:
            self.kill()
            self.start()

    def kill(self) -> None:
        if self._operator is not None:
            self._plane.run(_call(self._operator.stop))
            self._plane.sleep(_AT_ONCE)
            self._operator = None

    def stop(self) -> int:
        assert self._operator is not None, "the operator was never started"
        self._plane.run(self._operator.end())
        self._operator = None
        return 0

    def close(self) -> None:
        """End it, and close its log."""
        self.kill()
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


async def _call(function: Any) -> None:
    function()
