"""A minimal API server for the operator's process: discovery, TFClusters, Leases, and errors on demand."""

import asyncio
import json
from collections import Counter
from typing import Any, Self

from aiohttp import web

Object = dict[str, Any]
_CLUSTERS = "tfclusters"


class SmallServer:
    """The server. Tests set its attributes; ``requests`` has a line for each request, in order."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        #: The bodies of all writes except those to the Lease, with the loop's time.
        self.written: list[Object] = []
        #: Whether the kind TFCluster can be listed, and whether discovery includes it.
        self.kind_served = True
        self.kind_discovered = True
        #: The status of failed lists and watches of TFClusters, by namespace ("" for all).
        self.refused: dict[str, int] = {}
        #: Whether each watch ends immediately.
        self.ends_at_once = False
        self.page = 500
        self.lease: Object | None = None
        self.lease_refused = False
        self.url = ""
        self._clusters: dict[str, Object] = {}
        self._version = 100
        self._streams: list[tuple[str, asyncio.Queue[bytes | None]]] = []

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end_watches()
        await self._runner.cleanup()

    def put(self, name: str, namespace: str = "a", *, tell: bool = True) -> Object:
        self._version += 1
        uid = f"uid-of-{name}"
        kind = "MODIFIED" if uid in self._clusters else "ADDED"
        self._clusters[uid] = {
            "apiVersion": "tfcluster.dev/v1alpha1",
            "kind": "TFCluster",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(self._version)},
            "spec": {"jobs": {}},
        }
        if tell:
            self._tell(kind, self._clusters[uid])
        return self._clusters[uid]

    def remove(self, name: str, *, tell: bool = True) -> None:
        self._version += 1
        gone = self._clusters.pop(f"uid-of-{name}")
        if tell:
            self._tell("DELETED", gone)

    def say_error(self, code: int) -> None:
        """Send an ERROR to every watch of TFClusters, and end it."""
        event = {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "as the test wants it"}}
        for _, queue in self._streams:
            queue.put_nowait(json.dumps(event).encode() + b"\n")
        self.end_watches()

    def end_watches(self, namespace: str | None = None) -> None:
        """End the watches of TFClusters in a namespace, or (None) in all, as a server that stops does."""
        for of, queue in self._streams:
            if namespace in {None, of}:
                queue.put_nowait(None)

    @property
    def watches(self) -> Counter[str]:
        return Counter(namespace for namespace, _ in self._streams)

    def count(self, part: str) -> int:
        return sum(part in line for line in self.requests)

    def _tell(self, kind: str, body: Object) -> None:
        line = json.dumps({"type": kind, "object": body}).encode() + b"\n"
        for namespace, queue in self._streams:
            if namespace in {"", body["metadata"]["namespace"]}:
                queue.put_nowait(line)

    async def _serve(self, request: web.Request) -> web.StreamResponse:  # noqa: PLR0911 - one for each thing served
        self.requests.append(f"{request.method} {request.path_qs}")
        parts = [part for part in request.path.split("/") if part]
        match parts:
            case ["api"]:
                return web.json_response({"versions": ["v1"]})
            case ["apis"]:
                version = {"version": "v1alpha1", "groupVersion": "tfcluster.dev/v1alpha1"}
                group = {"name": "tfcluster.dev", "versions": [version], "preferredVersion": version}
                return web.json_response({"groups": [group] if self.kind_discovered else []})
            case ["api", "v1"]:
                # kopf waits for the kind Namespace before anything else.
                kind = {"name": "namespaces", "kind": "Namespace", "singularName": "", "namespaced": False}
                return web.json_response({"resources": [{**kind, "verbs": ["list", "watch"]}]})
            case ["apis", "tfcluster.dev", "v1alpha1"]:
                kind = {"name": _CLUSTERS, "kind": "TFCluster", "singularName": "tfcluster", "namespaced": True}
                return web.json_response({"resources": [{**kind, "verbs": ["list", "watch"]}]})
            case ["apis", "tfcluster.dev", "v1alpha1", *scope, "tfclusters"]:
                return await self._serve_clusters(request, scope[-1] if scope else "")
            case ["apis", "coordination.k8s.io", *_]:
                return await self._serve_lease(request)
        if request.method != "GET":
            self.written.append(await request.json())
            return web.json_response({"metadata": {"resourceVersion": "1"}})
        if "watch" in request.query:
            return await self._stream(request, "children", asyncio.Queue())
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async def _serve_clusters(self, request: web.Request, namespace: str) -> web.StreamResponse:
        if not self.kind_served:
            return web.Response(status=404, text="404 page not found")
        if status := self.refused.get(namespace):
            words = {"kind": "Status", "reason": "Forbidden", "message": "not for you", "code": status}
            return web.json_response(words, status=status)
        if "watch" in request.query:
            queue: asyncio.Queue[bytes | None] = asyncio.Queue()
            if self.ends_at_once:
                queue.put_nowait(None)
            return await self._stream(request, namespace, queue)
        found = [body for body in self._clusters.values() if namespace in {"", body["metadata"]["namespace"]}]
        start = int(request.query.get("continue", "0"))
        size = min(self.page, int(request.query.get("limit", "500")))
        rest = str(start + size) if start + size < len(found) else ""
        return web.json_response(
            {
                "apiVersion": "tfcluster.dev/v1alpha1",
                "kind": "TFClusterList",
                "metadata": {"resourceVersion": str(self._version), "continue": rest},
                "items": found[start : start + size],
            }
        )

    async def _stream(
        self, request: web.Request, namespace: str, queue: asyncio.Queue[bytes | None]
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        entry = (namespace, queue)
        await response.prepare(request)
        if namespace != "children":
            self._streams.append(entry)
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            if entry in self._streams:
                self._streams.remove(entry)
        return response

    async def _serve_lease(self, request: web.Request) -> web.Response:
        if self.lease_refused:
            return web.json_response({"reason": "Forbidden", "message": "not for you"}, status=403)
        if request.method != "GET":
            body = await request.json()
            wanted = body["metadata"].get("resourceVersion")
            if wanted is None and self.lease is not None:
                return web.json_response({"reason": "AlreadyExists", "message": "it exists"}, status=409)
            if self.lease is not None and wanted != self.lease["metadata"]["resourceVersion"]:
                return web.json_response({"reason": "Conflict", "message": "another version"}, status=409)
            self._version += 1
            self.lease = {"metadata": {"resourceVersion": str(self._version)}, "spec": body["spec"]}
        if self.lease is None:
            return web.json_response({"reason": "NotFound", "message": "no such lease"}, status=404)
        return web.json_response(self.lease)
