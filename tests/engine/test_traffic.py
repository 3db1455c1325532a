"""The middleware that counts requests: their verb, their outcome and their duration."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from prometheus_client import generate_latest
from support.metrics import Scrape
from yarl import URL

from tfcluster_operator.kube.client import NotLeadingError
from tfcluster_operator.kube.metrics import Metrics, request_counter, verb_of

OURS = "/apis/tfcluster.dev/v1alpha1"
ASKED = {
    ("GET", "/api/v1/pods?labelSelector=a"): "list",
    ("GET", "/api/v1/namespaces/a/pods?watch=true"): "watch",
    ("GET", f"{OURS}/tfclusters?watch=true&resourceVersion=1"): "watch",
    ("GET", f"{OURS}/namespaces/a/tfclusters"): "list",
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/x"): "get",
    ("GET", OURS): "get",
    ("GET", "/api"): "get",
    ("GET", f"/k8s/clusters/a{OURS}/tfclusters"): "list",
    ("POST", "/api/v1/namespaces/a/pods?dryRun=All"): "create",
    ("PATCH", f"{OURS}/namespaces/a/tfclusters/x/status"): "patch",
    ("DELETE", "/api/v1/namespaces/a/pods/x"): "delete",
}


@pytest.mark.parametrize("request_line", ASKED, ids=" ".join)
def test_request_is_read_as_kubernetes_spells_it(request_line):
    """The verb is Kubernetes' own; the server can be behind the path of a proxy."""
    method, path = request_line
    assert verb_of(method, URL(f"https://server.test{path}")) == ASKED[request_line]


class Stage:
    """A middleware with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.count = request_counter(self.metrics, elapsed=lambda: self.now)

    def ask(self, method: str, path: str, end: int | BaseException, *, takes: float = 0.0) -> None:
        """Send a request, which takes some seconds."""
        request = SimpleNamespace(method=method, url=URL(f"https://server.test{path}"))

        async def handler(_: Any) -> Any:
            self.now += takes
            if isinstance(end, BaseException):
                raise end
            return SimpleNamespace(status=end)

        asyncio.run(self.count(request, handler))  # type: ignore[arg-type]  # all that it looks at

    def counted(self, name: str = "tfcluster_api_requests_total") -> dict[tuple[str, ...], float]:
        return Scrape(generate_latest(self.metrics.registry).decode()).not_zero(name)


CREATE, WATCH = ("POST", "/api/v1/namespaces/a/pods"), ("GET", "/api/v1/pods?watch=true")
#: A request, its end, the counts, and the measured durations by verb; writes that the fence blocks are not requests.
ENDS = {
    "an answer": (CREATE, 201, {("201", "create"): 1}, {("create",): 0.25}),
    "a refusal": (CREATE, 429, {("429", "create"): 1}, {("create",): 0.25}),
    "no connection": (CREATE, aiohttp.ClientConnectionError(), {("none", "create"): 1}, {("create",): 0.25}),
    "no answer in time": (CREATE, TimeoutError(), {("none", "create"): 1}, {("create",): 0.25}),
    "a cancellation": (CREATE, asyncio.CancelledError(), {("none", "create"): 1}, {("create",): 0.25}),
    "a blocked write": (CREATE, NotLeadingError("another leads"), {}, {}),
    "the end of a watch": (WATCH, 200, {("200", "watch"): 1}, {}),
}


@pytest.mark.parametrize("case", ENDS)
def test_each_request_is_counted_once_with_its_end(case):
    asked, end, counted, seconds = ENDS[case]
    stage = Stage()
    with pytest.raises(type(end)) if isinstance(end, BaseException) else nullcontext():
        stage.ask(*asked, end, takes=0.25)
    assert stage.counted() == counted
    assert stage.counted("tfcluster_api_request_duration_seconds_sum") == seconds
