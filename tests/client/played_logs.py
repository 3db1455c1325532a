"""The logs of pods as kubelets serve them: with timestamps, from a time on, followed to the end, and interrupted."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from support.memory_kubernetes import MemoryKubernetes, Refusal


class StreamBrokenError(Exception):
    """The stream was interrupted; the client sees an incomplete response."""


class PlayedLogs:
    """The output of containers, by the pod's UID; used only on the API server's loop.

    Args:
        kube: the API server, for the pods' states.

    Attributes:
        requests: the queries of all log requests, with the pod's name.
        refuse: the rejection of every log request.
    """

    def __init__(self, kube: MemoryKubernetes) -> None:
        self._kube = kube
        self._lines: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        self._changed = asyncio.Event()
        self._break = 0
        self.requests: list[dict[str, str]] = []
        self.refuse: Refusal | None = None
        self.open = 0

    def write(self, pod: str, *lines: str, at: datetime | None = None) -> None:
        """Write lines as a pod's container; without a newline at its end, a line continues with the next write."""
        uid = self._uid(pod)
        for line in lines:
            self._lines[uid].append((at or datetime.now(UTC), line if line.endswith("\n") else f"{line}\n"))
        self.wake()

    def rotate(self, pod: str) -> None:
        """Rotate a log as the kubelet does: earlier output is no longer served."""
        self._lines[self._uid(pod)].clear()

    def cut(self) -> None:
        self._break += 1
        self.wake()

    def wake(self) -> None:
        """Check the pods' states again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _uid(self, pod: str) -> str:
        found = self._kube.get("pods", "default", pod)
        assert found is not None, f"no pod {pod}"
        return found["metadata"]["uid"]

    async def serve(self, namespace: str, pod: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Serve one request in chunks that do not end with lines."""
        self.requests.append({"pod": pod, **query})
        if self.refuse is not None:
            raise self.refuse
        found = self._kube.get("pods", namespace, pod)
        if found is None:
            raise Refusal(404, "NotFound", f'pods "{pod}" not found', details={"name": pod, "kind": "pods"})
        uid = found["metadata"]["uid"]
        if not self._state(namespace, pod, uid):
            message = f'container "tensorflow" in pod "{pod}" is waiting to start: ContainerCreating'
            raise Refusal(400, "BadRequest", message)
        self.open += 1
        try:
            async for piece in self._pieces(namespace, pod, uid, query):
                yield piece
        finally:
            self.open -= 1

    async def _pieces(self, namespace: str, pod: str, uid: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        lines, began = self._lines[uid], self._break
        since = datetime.fromisoformat(query.get("sinceTime") or "0001-01-01T00:00:00Z")
        at = max(0, len(lines) - int(query["tailLines"])) if query.get("tailLines") else 0
        while True:
            changed = self._changed
            over = self._state(namespace, pod, uid) != "running"
            stamped = "{:%Y-%m-%dT%H:%M:%S.%f}000Z {}" if query.get("timestamps") else "{1}"
            spelled = "".join(stamped.format(time, line) for time, line in lines[at:] if time >= since).encode()
            at = len(lines)
            for start in range(0, len(spelled), 999):
                yield spelled[start : start + 999]
            if over or query.get("follow") != "true":
                return
            await changed.wait()
            if self._break != began:
                # Half of the next line was sent when the stream breaks.
                yield b"2026-01-01T00:00:00.0000"
                raise StreamBrokenError

    def _state(self, namespace: str, pod: str, uid: str) -> str:
        found: dict[str, Any] | None = self._kube.get("pods", namespace, pod)
        if found is None or found["metadata"]["uid"] != uid:
            return "gone"
        states = [one["state"] for one in found["status"].get("containerStatuses") or ()]
        return next(("running" if "running" in state else "ended" for state in states if "waiting" not in state), "")
