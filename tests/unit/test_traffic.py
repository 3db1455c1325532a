"""The middleware that counts requests: their resource, their outcome, and the last event of each watch."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from support.metrics import Scrape
from yarl import URL

from tfcluster_operator.kube import errors
from tfcluster_operator.kube.metrics import OPTIONAL, WATCHED, Metrics
from tfcluster_operator.kube.traffic import Traffic, read_request

OURS = "/apis/tfcluster.dev/v1alpha1"
ASKED = {
    ("GET", "/api/v1/pods?labelSelector=a"): ("list", "pods", None),
    ("GET", "/api/v1/namespaces/a/pods?watch=true"): ("watch", "pods", "a"),
    ("GET", "/api/v1/namespaces/api/pods?watch=false"): ("list", "pods", "api"),
    ("GET", f"{OURS}/tfclusters?watch=true&resourceVersion=1"): ("watch", "tfclusters", None),
    ("GET", f"{OURS}/namespaces/a/tfclusters"): ("list", "tfclusters", "a"),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x"): ("get", "leases", "a"),
    ("GET", OURS): ("get", "", None),
    ("GET", "/api"): ("get", "", None),
    ("POST", "/api/v1/namespaces/a/pods?dryRun=All"): ("create", "pods", "a"),
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x"): ("update", "leases", "a"),
    ("PATCH", f"{OURS}/namespaces/a/tfclusters/x/status"): ("patch", "tfclusters", "a"),
    ("DELETE", "/api/v1/namespaces/a/pods/x"): ("delete", "pods", "a"),
}


@pytest.mark.parametrize("prefix", ["", "/", "/k8s/clusters/api"], ids=["plain", "with a slash", "behind a proxy"])
@pytest.mark.parametrize("request_line", ASKED, ids=" ".join)
def test_request_is_read_as_kubernetes_spells_it(request_line, prefix):
    """The verb is Kubernetes' own; a path before the API's is ignored."""
    method, path = request_line
    assert read_request(method, URL(f"https://server.test{prefix.rstrip('/')}{path}"), prefix) == ASKED[request_line]


class Stage:
    """A middleware with a clock that the test sets."""

    def __init__(self, *scopes: str | None, server: str = "https://server.test") -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.traffic = Traffic(self.metrics, scopes, server, elapsed=lambda: self.now)

    def ask(self, method: str, path: str, end: int | BaseException, *pieces: bytes, takes: float = 0.0) -> list[float]:
        """Send a request; return the silence of pods after each piece of a watch."""
        request = SimpleNamespace(method=method, url=URL(f"https://server.test{path}"))

        async def handler(_: Any) -> Any:
            self.now += takes
            if isinstance(end, BaseException):
                raise end
            return SimpleNamespace(status=end, content=self._content(pieces))

        async def run() -> list[float]:
            response = await self.traffic(request, handler)  # type: ignore[arg-type]  # all that it looks at
            return [self.traffic.silences()["pods"] async for _ in response.content.iter_any()]

        return asyncio.run(run())

    def _content(self, pieces: tuple[bytes, ...]) -> Any:
        async def iter_any() -> Any:
            for piece in pieces:
                self.now += 50
                yield piece

        return SimpleNamespace(iter_any=iter_any, iter_chunked=lambda _: iter_any())

    def counted(self, name: str = "tfcluster_api_requests_total") -> dict[tuple[str, ...], float]:
        return Scrape(self.metrics.exposition("")[0].decode()).not_zero(name)


ENDS = {
    "an answer": (201, "201"),
    "a refusal": (429, "429"),
    "no connection": (aiohttp.ClientConnectionError(), "none"),
    "no answer in time": (TimeoutError(), "none"),
    "a cancellation": (asyncio.CancelledError(), "none"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_each_request_is_counted_once_with_its_end(end):
    """A response by its code, all others as none; the time is counted for both."""
    how, code = end
    stage = Stage(None)
    try:
        stage.ask("POST", "/api/v1/namespaces/a/pods", how, takes=0.25)
    except (aiohttp.ClientError, TimeoutError, asyncio.CancelledError):
        assert code == "none"
    assert stage.counted() == {(code, "create"): 1}
    assert stage.counted("tfcluster_api_request_duration_seconds_sum") == {("create",): 0.25}


def test_write_blocked_by_the_fence_is_not_counted():
    stage = Stage(None)
    with pytest.raises(errors.NotLeadingError):
        stage.ask("POST", "/api/v1/namespaces/a/pods", errors.NotLeadingError("another leads"))
    assert stage.counted() == {}


def test_watch_is_silent_since_its_last_piece():
    """It grows from the start of the process; every event ends it; a rejected watch does not."""
    stage = Stage(None)
    stage.now += 30
    assert stage.traffic.silences() == dict.fromkeys((one for one in WATCHED if one not in OPTIONAL), 30)
    stage.ask("GET", "/api/v1/pods?watch=true", 503)
    assert stage.traffic.silences()["pods"] == 30
    assert stage.ask("GET", "/api/v1/pods?watch=true", 200, b"a", b"b", takes=5) == [0, 0]
    stage.now += 7
    assert (stage.traffic.silences()["pods"], stage.traffic.silences()["services"]) == (7, 142)
    assert stage.counted("tfcluster_api_request_duration_seconds_count") == {}, "how long a watch lasts says nothing"


def test_watch_of_what_a_server_may_lack_is_silent_only_while_there_is_one():
    """A kind that the server never had, or no longer has, must not cause an alert."""
    stage, path = Stage(None), "/apis/scheduling.k8s.io/v1beta1/podgroups"
    assert "podgroups" not in stage.traffic.silences()
    stage.ask("GET", f"{path}?watch=true", 200)
    stage.now += 200
    assert stage.traffic.silences()["podgroups"] == 200
    stage.ask("GET", path, 404)
    assert "podgroups" not in stage.traffic.silences()


def test_worst_of_several_namespaces_is_reported():
    """One namespace whose watch is down is reported, although others are active; only our watches count."""
    stage = Stage("a", "b")
    stage.now += 60
    stage.ask("GET", "/api/v1/namespaces/a/pods?watch=true", 200)
    stage.ask("GET", "/api/v1/namespaces/c/pods?watch=true", 200)
    assert stage.traffic.silences()["pods"] == 60
    stage.ask("GET", "/api/v1/namespaces/b/pods?watch=true", 200)
    assert stage.traffic.silences()["pods"] == 0


def test_watch_is_restarted_when_it_is_opened_again():
    """The first watch of each namespace is not a restart, nor is a rejected attempt."""
    stage = Stage("a", "b")
    for scope, end in (("a", 200), ("b", 200), ("b", 410), ("b", 200), ("b", 200)):
        stage.ask("GET", f"/api/v1/namespaces/{scope}/pods?watch=true", end)
    assert stage.counted("tfcluster_watch_restarts_total") == {("pods",): 2}
