"""Every metric of the operator, declared once, and the HTTP endpoints: /metrics, /healthz and /readyz."""

import asyncio
import collections
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeVar

import aiohttp
import prometheus_client
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import GaugeMetricFamily, Metric
from yarl import URL

from tfcluster_operator import __version__
from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.kube.client import SYSTEM_CLOCK
from tfcluster_operator.kube.informer import Source
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.report.conditions import CONDITION_TYPES, WAITS
from tfcluster_operator.report.status import CAUSES, OBSTACLES, ROLES, STATES

# A setting of the whole library: without it each counter has a second series with its creation time.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it

#: The values of a gauge, by those of its labels.
_Counts = collections.Counter[tuple[str, ...]]
_Labels = Mapping[str, Sequence[str]]
_Declared = TypeVar("_Declared", Counter, Histogram)

VERDICTS: Final = (
    reasons.TASKS_SUCCEEDED,
    reasons.TASK_FAILED,
    reasons.PERMANENT_EXIT_CODE,
    reasons.BACKOFF_LIMIT_EXCEEDED,
    reasons.DEADLINE_EXCEEDED,
    reasons.GANG_TIMEOUT,
)
REPLACEMENTS: Final = (
    reasons.POD_FAILED,
    reasons.POD_ENDED,
    reasons.POD_DISRUPTED,
    reasons.RESTARTED_TOGETHER,
    reasons.TEMPLATE_CHANGED,
)
VERBS: Final = ("get", "list", "watch", "create", "patch", "delete")
#: The code of a request without an answer.
NO_CODE: Final = "none"
#: The ends of a request without an answer.  aiohttp's own timeouts are cancellations here.
_NO_ANSWER: Final = (aiohttp.ClientError, OSError, TimeoutError, asyncio.CancelledError)
_VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
_PLURALS: Final = frozenset({naming.PLURAL, *(kind.plural for kind in KINDS.values())})

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


@dataclass(slots=True)
class Figures:
    """The gauges of all clusters and of the queue at one time; durations are in seconds."""

    queue_depth: int = 0
    queue_oldest: float = 0.0
    conditions: _Counts = field(default_factory=_Counts)
    not_ready: _Counts = field(default_factory=_Counts)
    not_ready_oldest: float = 0.0
    waiting: _Counts = field(default_factory=_Counts)
    waiting_oldest: dict[tuple[str, ...], float] = field(default_factory=dict)
    tasks: _Counts = field(default_factory=_Counts)


#: The name and the text of each figure, and the values of its labels.
_GAUGES: Final[Mapping[str, tuple[str, str, _Labels]]] = {
    "conditions": (
        "tfcluster_clusters",
        "TFClusters by condition",
        {"condition": sorted(CONDITION_TYPES), "status": ("True", "False", "Unknown")},
    ),
    "not_ready": ("tfcluster_clusters_not_ready", "TFClusters that are not ready", {"reason": OBSTACLES}),
    "not_ready_oldest": ("tfcluster_not_ready_oldest_seconds", "Longest time since a TFCluster should be ready", {}),
    "waiting": ("tfcluster_clusters_waiting", "TFClusters that wait for quota or for a gang", {"reason": WAITS}),
    "waiting_oldest": ("tfcluster_waiting_oldest_seconds", "Longest wait for quota or for a gang", {"reason": WAITS}),
    "tasks": ("tfcluster_tasks", "Tasks by role and state", {"role": ROLES, "state": [*STATES.values()]}),
    "queue_depth": ("tfcluster_queue_depth", "TFClusters that wait for a reconcile", {}),
    "queue_oldest": ("tfcluster_queue_oldest_seconds", "Longest wait for a reconcile", {}),
}


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        #: The figures; None from a standby, so that nothing is counted twice.
        self.figures: Callable[[], Figures | None] = lambda: None
        self.finished = self._declare(
            Counter, "tfcluster_clusters_finished", "TFClusters that finished, by reason", {"reason": VERDICTS}
        )
        causes = {"role": ROLES, "cause": CAUSES}
        self.task_failures = self._declare(Counter, "tfcluster_task_failures", "Failures of tasks that count", causes)
        self.replacements = self._declare(
            Counter, "tfcluster_pod_replacements", "Pods that were replaced, by reason", {"reason": REPLACEMENTS}
        )
        outcomes = {"outcome": ("done", "retried", "failed")}
        self.passes = self._declare(Counter, "tfcluster_passes", "Reconciles of TFClusters, by outcome", outcomes)
        self.pass_duration = self._declare(
            Histogram, "tfcluster_pass_duration_seconds", "Duration of reconciles", buckets=_SECONDS
        )
        # The combinations are not known in advance; verbs and codes are each from a closed set.
        self.api_requests = Counter(
            "tfcluster_api_requests", "Requests to the API server", ["verb", "code"], registry=self.registry
        )
        self.api_duration = self._declare(
            Histogram,
            "tfcluster_api_request_duration_seconds",
            "Time until the answer to a request began",
            {"verb": [verb for verb in VERBS if verb != "watch"]},
            buckets=_SECONDS,
        )
        self.requests_waiting = Gauge(
            "tfcluster_api_requests_waiting", "Requests that wait for their turn", registry=self.registry
        )
        self.leader = Gauge("tfcluster_leader", "Whether this operator acts", registry=self.registry)
        build = Gauge("tfcluster_build_info", "The version of the operator", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.registry.register(self)
        prometheus_client.ProcessCollector(registry=self.registry)

    def collect(self) -> Iterator[Metric]:
        """Return the current figures as gauges, with a sample for each combination of labels; none from a standby."""
        figures = self.figures()
        for figure, (name, text, labels) in _GAUGES.items():
            family = GaugeMetricFamily(name, text, labels=list(labels))
            if figures is not None:
                values = getattr(figures, figure)
                for key in product(*labels.values()):
                    family.add_metric(key, values.get(key, 0) if labels else values)
            yield family

    def _declare(
        self, kind: Callable[..., _Declared], name: str, text: str, labels: _Labels | None = None, **options: Any
    ) -> _Declared:
        """Create each series at 0 from the start: a series that appears with its first event shows no increase."""
        metric = kind(name, text, list(labels or ()), registry=self.registry, **options)
        for key in product(*labels.values()) if labels else ():
            metric.labels(*key)
        return metric


def verb_of(method: str, url: URL) -> str:
    """Return the Kubernetes verb of a request."""
    if method != "GET":
        return _VERBS[method]
    if url.query.get("watch") == "true":
        return "watch"
    return "list" if url.name in _PLURALS else "get"


def request_counter(
    metrics: Metrics, *, elapsed: Callable[[], float] = SYSTEM_CLOCK.elapsed
) -> aiohttp.ClientMiddlewareType:
    """Return a middleware that counts requests by verb and status code, and measures the time to the answer."""

    def note(verb: str, code: str, began: float) -> None:
        metrics.api_requests.labels(verb, code).inc()
        if verb != "watch":
            metrics.api_duration.labels(verb).observe(elapsed() - began)

    async def count(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        verb, began = verb_of(request.method, request.url), elapsed()
        try:
            response = await handler(request)
        except _NO_ANSWER:
            note(verb, NO_CODE, began)
            raise
        note(verb, str(response.status), began)
        return response

    return count


async def serve_probes(
    port: int,
    clusters: Sequence[Source],
    children: Sequence[Source],
    standing: Callable[[], str],
    parts: Sequence[asyncio.Task[None]],
) -> web.AppRunner:
    """Serve ``/healthz`` and ``/readyz`` on a port, 0 for none; ``standing`` says whether this operator leads."""

    async def healthz(_: web.Request) -> web.Response:
        # Of this process only: a restart does not help if the API server is unreachable, and loses the caches.
        if ended := [part.get_name() for part in parts if part.done()]:
            return web.Response(status=503, text=f"ended: {', '.join(ended)}\n")
        return web.Response(text="every part runs\n")

    async def readyz(_: web.Request) -> web.Response:
        lines, ready = [standing()], any(source.synced.is_set() for source in clusters)
        if not ready:
            lines.append("the kind TFCluster was not seen yet")
        for source in (*clusters, *children):
            # A namespace that is deleted or forbidden must not block the others.
            if source.refused:
                lines.append(f"{source.what}: refused: {source.refused}")
            elif not source.synced.is_set():
                ready = False
                lines.append(f"{source.what}: the list is not in")
        return web.Response(status=200 if ready else 503, text="\n".join([*lines, ""]))

    return await _serve(port, {"/healthz": healthz, "/readyz": readyz})


async def serve_metrics(port: int, metrics: Metrics) -> web.AppRunner:
    """Serve ``/metrics`` on a port, 0 for none; the server is to be cleaned up at the end."""
    return await _serve(port, {"/metrics": make_aiohttp_handler(metrics.registry)})


async def _serve(port: int, answers: Mapping[str, Handler]) -> web.AppRunner:
    application = web.Application()
    for path, answer in answers.items():
        application.router.add_get(path, answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    if port:
        await web.TCPSite(runner, port=port).start()
    return runner
