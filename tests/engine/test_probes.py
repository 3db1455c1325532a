"""The responses of /healthz and /readyz over HTTP."""

import asyncio
from dataclasses import dataclass, field

import aiohttp
import pytest

from tfcluster_operator.kube.metrics import serve_probes


@dataclass
class Listed:
    what: str
    refused: str = ""
    synced: asyncio.Event = field(default_factory=asyncio.Event)


def listed(what: str, *, there: bool = True, refused: str = "") -> Listed:
    source = Listed(what, refused)
    if there:
        source.synced.set()
    return source


def ask(path: str, clusters: list[Listed], children: list[Listed], *, seconds: float = 1e9) -> tuple[int, str]:
    async def run() -> tuple[int, str]:
        parts = [asyncio.create_task(asyncio.sleep(seconds), name="engine")]
        await asyncio.sleep(0)
        runner = await serve_probes(0, clusters, children, lambda: "standby", parts)
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            async with aiohttp.ClientSession() as session:
                answer = await session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/{path}")
                return answer.status, await answer.text()
        finally:
            parts[0].cancel()
            await runner.cleanup()

    return asyncio.run(run())


CASES = {
    "all is in": ([listed("tfclusters in a")], [listed("pods in a")], 200, "standby\n"),
    "the kind was not seen": (
        [listed("tfclusters in a", there=False)],
        [listed("pods in a")],
        503,
        "standby\nthe kind TFCluster was not seen yet\ntfclusters in a: the list is not in\n",
    ),
    "one of two namespaces is refused": (
        [listed("tfclusters in a", there=False, refused="403 Forbidden: no"), listed("tfclusters in b")],
        [listed("pods in a", there=False, refused="403 Forbidden: no"), listed("pods in b")],
        200,
        "standby\ntfclusters in a: refused: 403 Forbidden: no\npods in a: refused: 403 Forbidden: no\n",
    ),
    "every namespace is refused": (
        [listed("tfclusters in a", there=False, refused="403 Forbidden: no")],
        [],
        503,
        "standby\nthe kind TFCluster was not seen yet\ntfclusters in a: refused: 403 Forbidden: no\n",
    ),
    "a list of children is not in": (
        [listed("tfclusters in a")],
        [listed("pods in a", there=False), listed("services in a")],
        503,
        "standby\npods in a: the list is not in\n",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_readiness_names_what_is_missing(case):
    """/readyz needs each list complete or rejected, and the kind in some namespace; its text names what is missing."""
    clusters, children, status, text = case
    assert ask("readyz", clusters, children) == (status, text)


def test_health_is_of_the_process_alone():
    """/healthz is 200 while every part runs, independent of the API server; 503 names the part that ended."""
    unready = [listed("tfclusters in a", there=False)]
    assert ask("healthz", unready, []) == (200, "every part runs\n")
    assert ask("healthz", unready, [], seconds=0) == (503, "ended: engine\n")
