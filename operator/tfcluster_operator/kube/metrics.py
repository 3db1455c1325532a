"""Every metric of the operator, declared once; docs/reference/metrics.md describes each.

Counters and histograms are updated when something happens.  Gauges of clusters and of the queue are computed at
each scrape.  Each process (and each test) has a registry of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from tfcluster_operator import __version__
from tfcluster_operator.declaration import reasons
from tfcluster_operator.report import tally
from tfcluster_operator.report.conditions import CONDITION_TYPES, WAITS

# A setting of the whole library: without it each counter has a second series with its creation time.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it

#: The values of a gauge, by those of its labels.
Series = Mapping[tuple[str, ...], float]

STATUSES: Final = ("True", "False", "Unknown")
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
PASSES: Final = ("done", "retried", "failed")
STATUS_WRITES: Final = ("written", "conflict", "gone", "refused", "unanswered")
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete")
#: The code of a request without an answer.
NO_CODE: Final = "none"

_DELIVERY_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PASS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_REQUEST_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of all clusters and of the queue at one time; durations are in seconds."""

    conditions: Series = field(default_factory=dict)
    not_ready: Series = field(default_factory=dict)
    not_ready_oldest: float = 0.0
    waiting: Series = field(default_factory=dict)
    waiting_oldest: Series = field(default_factory=dict)
    tasks: Series = field(default_factory=dict)
    undelivered_oldest: float = 0.0
    queue_depth: int = 0
    queue_oldest: float = 0.0


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        #: The figures; None from a standby, so that nothing is counted twice.
        self.figures: Callable[[], Figures | None] = lambda: None
        #: Whether this operator acts.
        self.leads: Callable[[], bool] = lambda: False
        #: The number of waiting requests.
        self.waiting: Callable[[], int] = lambda: 0

        self.finished = self._counter(
            "tfcluster_clusters_finished",
            "TFClusters that finished, by the reason of Succeeded or Failed",
            reason=VERDICTS,
        )
        self.task_failures = self._counter(
            "tfcluster_task_failures", "Failures of tasks that count", role=tally.ROLES, cause=tally.CAUSES
        )
        self.replacements = self._counter(
            "tfcluster_pod_replacements", "Pods that were replaced, by reason", reason=REPLACEMENTS
        )
        self.epochs = self._counter("tfcluster_epochs", "Changes of membership")
        self.view_delivery = self._histogram(
            "tfcluster_view_delivery_seconds",
            "Time from an edit until all running pods were notified of their changed views",
            _DELIVERY_SECONDS,
        )
        self.passes = self._counter("tfcluster_passes", "Reconciles of TFClusters, by outcome", outcome=PASSES)
        self.pass_duration = self._histogram("tfcluster_pass_duration_seconds", "Duration of reconciles", _PASS_SECONDS)
        self.status_writes = self._counter(
            "tfcluster_status_writes", "Writes of the status of a TFCluster, by outcome", outcome=STATUS_WRITES
        )
        # The combinations are not known in advance; verbs and codes are each from a closed set.
        self.api_requests = Counter(
            "tfcluster_api_requests", "Requests to the API server", ["verb", "code"], registry=self.registry
        )
        self.api_duration = self._histogram(
            "tfcluster_api_request_duration_seconds",
            "Time until the answer to a request began",
            _REQUEST_SECONDS,
            verb=[verb for verb in VERBS if verb != "watch"],
        )
        self.registry.register(_AtScrape(self))
        prometheus_client.ProcessCollector(registry=self.registry)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics as text, and the type of that text."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # an invalid version
            encode, content_type = choose_encoder("")
        return encode(self.registry), content_type

    def _counter(self, name: str, text: str, **labels: Sequence[str]) -> Counter:
        counter = Counter(name, text, list(labels), registry=self.registry)
        _show(counter, labels)
        return counter

    def _histogram(self, name: str, text: str, buckets: Sequence[float], **labels: Sequence[str]) -> Histogram:
        histogram = Histogram(name, text, list(labels), buckets=buckets, registry=self.registry)
        _show(histogram, labels)
        return histogram


class _AtScrape:
    """The gauges, computed at each scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry would compute all gauges to learn their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the current gauges."""
        metrics = self._metrics
        yield from _of_clusters(metrics.figures())
        yield _gauge("tfcluster_api_requests_waiting", "Requests that wait for their turn", {(): metrics.waiting()})
        yield _gauge("tfcluster_leader", "Whether this operator acts", {(): float(metrics.leads())})
        version = (__version__,)
        yield _gauge("tfcluster_build_info", "The version of the operator", {version: 1}, version=version)


def _of_clusters(figures: Figures | None) -> Iterator[Metric]:
    """Return the gauges that only the leader has; a standby returns the families without samples."""
    known = Figures() if figures is None else figures
    gauges: tuple[tuple[str, str, Series, Mapping[str, Sequence[str]]], ...] = (
        (
            "tfcluster_clusters",
            "TFClusters by condition",
            known.conditions,
            {"condition": sorted(CONDITION_TYPES), "status": STATUSES},
        ),
        (
            "tfcluster_clusters_waiting",
            "TFClusters that wait for quota, or for the places of a gang",
            known.waiting,
            {"reason": WAITS},
        ),
        (
            "tfcluster_waiting_oldest_seconds",
            "The longest time that a TFCluster has waited for quota, or for the places of a gang",
            known.waiting_oldest,
            {"reason": WAITS},
        ),
        (
            "tfcluster_clusters_not_ready",
            "TFClusters that should be ready and are not, by the reason of Ready",
            known.not_ready,
            {"reason": tally.OBSTACLES},
        ),
        (
            "tfcluster_not_ready_oldest_seconds",
            "The longest time that a TFCluster which should be ready has not been",
            {(): known.not_ready_oldest},
            {},
        ),
        (
            "tfcluster_tasks",
            "Declared tasks by role and state",
            known.tasks,
            {"role": tally.ROLES, "state": tally.STATES},
        ),
        (
            "tfcluster_undelivered_view_oldest_seconds",
            "The longest time that a changed view has not been delivered",
            {(): known.undelivered_oldest},
            {},
        ),
        ("tfcluster_queue_depth", "TFClusters that wait for a reconcile", {(): known.queue_depth}, {}),
        (
            "tfcluster_queue_oldest_seconds",
            "The longest time that a TFCluster has waited for a reconcile",
            {(): known.queue_oldest},
            {},
        ),
    )
    for name, text, values, labels in gauges:
        yield _gauge(name, text, None if figures is None else values, **labels)


def _gauge(name: str, text: str, values: Series | None, **labels: Sequence[str]) -> Metric:
    """Build a gauge with a sample for each combination of its labels; without values it does not have samples."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    if values is not None:
        for key in product(*labels.values()):
            family.add_metric(key, values.get(key, 0.0))
    return family


def _show(metric: Counter | Histogram, labels: Mapping[str, Sequence[str]]) -> None:
    """Create each series at 0 from the start: a series that appears with its first event shows no increase."""
    for key in product(*labels.values()) if labels else ():
        metric.labels(*key)
