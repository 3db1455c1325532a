"""A cluster for client tests: the real engine, and an API server in memory behind HTTP, with simulated nodes."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from client.played_logs import PlayedLogs
from simulation.nodes import Nodes
from support.manifests import tfcluster
from support.memory_kubernetes import MemoryKubernetes, Refusal
from support.waiting import GUARD

from tfcluster.client import Client
from tfcluster.commands.root import root
from tfcluster.errors import RefusedError
from tfcluster.kube.api import KubernetesApi
from tfcluster.local.plane import control_plane, kubeconfig, served

_T = TypeVar("_T")


class ClientWorld:
    """One control plane in its own thread; access ``kube``, ``nodes`` and ``played`` with ``at_once``."""

    kube: MemoryKubernetes
    nodes: Nodes
    played: PlayedLogs

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.logs: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(GUARD), "the control plane did not start"

    def stop(self) -> None:
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(GUARD)
        assert not self._thread.is_alive(), "the control plane did not end"
        self._loop.close()

    async def _run(self) -> None:
        self._over = asyncio.Event()
        self.kube = MemoryKubernetes(time.time, served())
        async with control_plane(self.kube, self._log_of) as (server, _):
            self.nodes = Nodes(self.kube, time.time)
            self.played = PlayedLogs(self.kube)
            self.kube.subscribers.append(lambda _: self.played.wake())
            self.kubeconfig.write_text(kubeconfig(server.url, server.token))
            self._up.set()
            await self._over.wait()
        await self._loop.shutdown_asyncgens()

    async def _log_of(self, namespace: str, pod: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        if pod not in self.logs:
            async for piece in self.played.serve(namespace, pod, query):
                yield piece
            return
        if self.kube.get("pods", namespace, pod) is None:
            raise Refusal(404, "NotFound", f'pods "{pod}" not found', details={"name": pod, "kind": "pods"})
        yield self.logs[pod].encode()

    def at_once(self, act: Callable[[], _T]) -> _T:
        async def do() -> _T:
            return act()

        return self.run(do())

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD)

    @contextmanager
    def client(self):
        with Client(KubernetesApi.connect(kubeconfig=self.kubeconfig)) as client:
            yield client

    def cli(self, *arguments: str, stdin: str | None = None) -> Result:
        command, *rest = arguments
        return CliRunner().invoke(root, [command, "--kubeconfig", str(self.kubeconfig), *rest], input=stdin)

    def ok(self, *arguments: str, stdin: str | None = None) -> Result:
        result = self.cli(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result

    def declare(self, name: str, spec: Mapping[str, Any] | None = None, **jobs: int | Mapping[str, Any]) -> None:
        """Create a TFCluster of jobs with these numbers of tasks, or with these fields."""
        builder = tfcluster(name).spec(**(spec or {}))
        for job, fields in jobs.items():
            builder.job(job, **({"replicas": fields} if isinstance(fields, int) else fields))
        body = builder.build()
        self.at_once(lambda: self.kube.create("tfclusters", "default", body))

    def launch(self, name: str, spec: Mapping[str, Any] | None = None, **jobs: int | Mapping[str, Any]) -> None:
        self.declare(name, spec, **jobs)
        self.await_condition(name, "Ready")

    def get(self, plural: str, name: str) -> dict[str, Any] | None:
        return self.at_once(lambda: self.kube.get(plural, "default", name))

    def cluster(self, name: str) -> dict[str, Any] | None:
        return self.get("tfclusters", name)

    def status(self, name: str) -> dict[str, Any]:
        return (self.cluster(name) or {}).get("status", {})

    def uids(self) -> dict[str, str]:
        pods = self.at_once(lambda: self.kube.list("pods"))
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods}

    def delete(self, plural: str, name: str) -> None:
        self.at_once(lambda: self.kube.delete(plural, "default", name))

    def scale(self, name: str, **jobs: int) -> None:
        change = {"spec": {"jobs": {job: {"replicas": replicas} for job, replicas in jobs.items()}}}
        self.at_once(lambda: self.kube.patch("tfclusters", "default", name, change))

    def exit(self, pod: str, code: int) -> None:
        self.at_once(lambda: self.nodes.exit(pod, code))

    def write(self, pod: str, *lines: str, at: datetime | None = None) -> None:
        self.at_once(lambda: self.played.write(pod, *lines, at=at))

    def keep_unready(self, pod: str) -> None:
        self.at_once(lambda: self.nodes.never_ready.add(pod))

    def refuse(self, message: str, plural: str, verb: str = "") -> None:
        """Reject requests at the API server as RBAC does."""

        def check(request: Any) -> None:
            if request.resource == plural and verb in ("", request.verb):
                raise Refusal(403, "Forbidden", message)

        self.at_once(lambda: self.kube.authorize.append(check))

    def await_condition(self, name: str, kind: str, status: str = "True") -> None:
        wanted = (kind, status)
        self.await_that(
            lambda: wanted in [(one["type"], one["status"]) for one in self.status(name).get("conditions", ())]
        )

    def await_that(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + GUARD
        while not holds():
            assert time.monotonic() < end, json.dumps(self.at_once(lambda: self.kube.list("tfclusters")), indent=1)
            time.sleep(0.02)


def refuse(monkeypatch: pytest.MonkeyPatch, *plurals: str) -> None:
    """Reject every request of the client for these kinds, as RBAC does."""
    whole = KubernetesApi._open

    def opened(self, method, path, **options):
        for plural in {*plurals} & {*path.split("/")}:
            raise RefusedError(f"{plural} is forbidden: User does not have access", status=403, reason="Forbidden")
        return whole(self, method, path, **options)

    monkeypatch.setattr(KubernetesApi, "_open", opened)
