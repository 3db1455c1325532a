"""The yardstick: a baseline client that sends the very same bodies, and does nothing else.

The bodies are those that the operator sent, recorded on the way.  Only what would make the operator or the garbage
collector meddle is changed, and keeps its size: the API group in labels and annotations, and the owner, which is a
ConfigMap here.  It runs in a process of its own, as the operator does, with its connections open before the clock
starts: ``python -m bench.bare_client KUBECONFIG``.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.http import session

OUR_GROUP: Final = "tfcluster.dev"
#: As long, and used only for a copy of the CRD.
BARE_GROUP: Final = "tfbaselin.dev"
CHILDREN: Final = ("services", "networkpolicies", "configmaps", "pods")


@dataclass(frozen=True, slots=True)
class Request:
    """One write."""

    method: str
    path: str
    body: str = ""
    content: str = "application/json"


Posted = Sequence[tuple[str, bytes]]


def children_of(posted: Posted) -> list[tuple[str, bytes]]:
    """Return the operator's recorded POSTs of a TFCluster's objects, without events."""
    return [(path, body) for path, body in posted if path.rpartition("/")[2] in CHILDREN]


def bare_requests(posted: Posted, *, owner: dict[str, Any], namespace: str = "", suffix: str = "") -> list[Request]:
    """Turn the operator's recorded requests into those of the baseline client.

    Returns:
        The requests in order of dependency, the pods last.
    """
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made = []
    for path, body in children_of(posted):
        manifest = json.loads(body)
        if manifest["metadata"].get("ownerReferences"):
            manifest["metadata"]["ownerReferences"] = [reference]
        manifest["metadata"]["name"] += suffix
        parts = path.split("/")
        if namespace:
            parts[-2] = namespace
            manifest["metadata"].pop("namespace", None)
        text = json.dumps(manifest, separators=(",", ":")).replace(f"{OUR_GROUP}/", f"{BARE_GROUP}/")
        made.append(Request("POST", "/".join(parts), text))
    return sorted(made, key=lambda request: CHILDREN.index(request.path.rpartition("/")[2]))


def bare_declarations(manifests: Sequence[dict[str, Any]]) -> list[Request]:
    """Turn TFClusters into objects of the copied CRD, which no operator watches."""
    made = []
    for manifest in manifests:
        path = f"/apis/{BARE_GROUP}/v1alpha1/namespaces/{manifest['metadata']['namespace']}/tfclusters"
        made.append(Request("POST", path, json.dumps({**manifest, "apiVersion": f"{BARE_GROUP}/v1alpha1"})))
    return made


class BareClient:
    """The process, ready to send."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._files = itertools.count()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def load(self, requests: Sequence[Request], *, concurrency: int) -> None:
        """Set the next requests; the process reads all of them and opens its connections."""
        path = self._directory / f"requests-{next(self._files)}.json"
        path.write_text(json.dumps([asdict(request) for request in requests]), encoding="utf-8")
        await self._ask({"requests": str(path), "concurrency": concurrency})
        path.unlink()

    async def send(self) -> None:
        """Send all that is loaded; return when everything is answered."""
        await self._ask({})

    async def _ask(self, words: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        answer = await self._process.stdout.readline()
        assert answer == b"done\n", f"the baseline client failed: {answer!r}"


@asynccontextmanager
async def bare_client(kubeconfig: Path, directory: Path) -> AsyncIterator[BareClient]:
    """Run the baseline client for the length of a ``with`` block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.bare_client",
        str(kubeconfig),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield BareClient(process, directory)
    finally:
        # The process also ends when its input is closed because this process was killed.
        process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        await process.wait()


async def _serve(kubeconfig: Path) -> None:
    http, server = session(kubeconfig, connections=0)
    requests: list[Request] = []
    concurrency = 1

    async def warm() -> None:
        async with http.get(f"{server}/version") as answer:
            await answer.read()

    async def work(todo: Any) -> None:
        for method, url, body, headers in todo:
            async with http.request(method, url, data=body, headers=headers) as answer:
                await answer.read()
                if answer.status not in {200, 201}:
                    raise SystemExit(f"{method} {url}: {answer.status} {await answer.text()}")

    async with http:
        while line := await asyncio.to_thread(sys.stdin.readline):
            words = json.loads(line)
            if words:
                read = json.loads(await asyncio.to_thread(Path(words["requests"]).read_text, encoding="utf-8"))
                requests = [Request(**each) for each in read]
                concurrency = words["concurrency"]
                prepared = [
                    (r.method, server + r.path, r.body.encode() or None, {"Content-Type": r.content}) for r in requests
                ]
                await asyncio.gather(*(warm() for _ in range(concurrency)))
            else:
                todo = iter(prepared)
                await asyncio.gather(*(work(todo) for _ in range(concurrency)))
            print("done", flush=True)


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
