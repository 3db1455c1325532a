"""docs/reference/metrics.md and the code agree: each metric, its type, its labels and their values."""

import asyncio

import aiohttp
import pytest
from prometheus_client import generate_latest
from support.metrics import OPEN, Scrape, documented, families

from tfcluster_operator.kube.metrics import NO_CODE, VERBS, Figures, Metrics, serve_metrics


@pytest.fixture
def leader() -> Metrics:
    metrics = Metrics()
    metrics.figures = Figures
    metrics.leader.set(1)
    metrics.api_requests.labels("get", "200").inc()
    return metrics


def told(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_table_is_the_code(leader):
    served, rows = families(told(leader)), documented()
    assert {name: family.kind for name, family in served.items()} == {name: row.kind for name, row in rows.items()}
    assert {name: set(family.labels) for name, family in served.items()} == {n: set(r.labels) for n, r in rows.items()}
    for name, row in rows.items():
        for label, values in row.labels.items():
            if "code" not in row.labels and OPEN not in values:
                assert served[name].labels[label] == values, f"{name}, {label}"


def test_verbs_are_closed():
    """The table has every verb; the status codes are unpredictable."""
    rows = documented()
    assert rows["tfcluster_api_requests_total"].labels == {"verb": set(VERBS), "code": {OPEN, NO_CODE}}
    assert set(VERBS) - {"watch"} == rows["tfcluster_api_request_duration_seconds"].labels["verb"]


def test_a_standby_counts_no_cluster_twice(leader):
    """A standby exports the gauges of TFClusters and of the queue without samples."""
    leader.figures = lambda: None
    leader.leader.set(0)
    text, leaders = told(leader), documented()
    samples = Scrape(text)
    from_the_leader = {
        "tfcluster_clusters",
        "tfcluster_clusters_not_ready",
        "tfcluster_not_ready_oldest_seconds",
        "tfcluster_clusters_waiting",
        "tfcluster_waiting_oldest_seconds",
        "tfcluster_tasks",
        "tfcluster_queue_depth",
        "tfcluster_queue_oldest_seconds",
    }
    gauges = {name for name, row in leaders.items() if row.kind == "gauge" and name.startswith("tfcluster_")}
    assert {name for name in gauges if not any(of == name for of, _ in samples)} == from_the_leader
    assert all(f"# TYPE {name} gauge" in text for name in from_the_leader)
    assert samples.value("tfcluster_leader") == 0


def test_figures_are_exposed_as_metrics(leader):
    leader.figures = lambda: Figures(
        conditions={("Ready", "True"): 1},
        not_ready={("Rejected",): 2},
        not_ready_oldest=3.5,
        waiting={("WaitingForGang",): 9},
        waiting_oldest={("WaitingForGang",): 10.5},
        tasks={("worker", "ready"): 4},
        queue_depth=6,
        queue_oldest=7.5,
    )
    leader.requests_waiting.set(8)
    found = Scrape(told(leader))
    assert found.not_zero("tfcluster_clusters") == {("Ready", "True"): 1}
    assert found.not_zero("tfcluster_clusters_not_ready") == {("Rejected",): 2}
    assert found.not_zero("tfcluster_clusters_waiting") == {("WaitingForGang",): 9}
    assert found.not_zero("tfcluster_waiting_oldest_seconds") == {("WaitingForGang",): 10.5}
    assert found.not_zero("tfcluster_tasks") == {("worker", "ready"): 4}
    single = ("not_ready_oldest_seconds", "queue_depth", "queue_oldest_seconds")
    assert [found.value(f"tfcluster_{name}") for name in single] == [3.5, 6, 7.5]
    assert found.value("tfcluster_api_requests_waiting") == 8


def test_nothing_is_shared_between_two_operators_in_one_process():
    one, other = Metrics(), Metrics()
    one.leader.set(1)
    assert [Scrape(told(each)).value("tfcluster_leader") for each in (one, other)] == [1, 0]


ACCEPTED = {
    "nothing is said": ("", "text/plain; version=0.0.4; charset=utf-8"),
    "a browser": ("text/html,*/*;q=0.8", "text/plain; version=0.0.4; charset=utf-8"),
    "OpenMetrics": (
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    ),
}


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_prometheus_gets_the_format_that_it_asks_for(leader, case):
    """/metrics supports the text format and OpenMetrics, compressed if accepted; other paths do not exist."""
    accept, content_type = case

    async def run() -> None:
        runner = await serve_metrics(0, leader)
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with aiohttp.ClientSession(headers={"Accept": accept}) as session:
                answer = await session.get(f"{address}/metrics")
                assert (answer.status, answer.headers["Content-Encoding"]) == (200, "deflate")
                assert answer.headers["Content-Type"].partition("; escaping")[0] == content_type
                text = await answer.text()
                assert (await session.get(f"{address}/healthz")).status == 404
        finally:
            await runner.cleanup()
        assert "tfcluster_leader 1.0\n" in text
        assert text.endswith("# EOF\n") == content_type.startswith("application/openmetrics-text")

    asyncio.run(run())
