"""A real Prometheus scrapes the real operator as in monitoring.md, and evaluates the dashboard and the alerts."""

import math
import re
from collections.abc import Callable, Iterator

import pytest
from support import prometheus
from support.lives import launch_running
from support.manifests import pod_template
from support.monitored import (
    HOME,
    Query,
    alert_rules,
    announce,
    configuration,
    dashboard,
    documented_configuration,
    documented_queries,
    queries,
)
from support.objects import LEASES, Object, Objects
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.prometheus import Prometheus
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.exhaustive

#: The window of rates: all events of this module are within it.
WINDOW = "5m"
QUERIES = [query for panel in dashboard()["panels"] for query in queries(panel, rate_interval=WINDOW)]


@pytest.fixture(scope="module")
def own_world(objects: Objects, new_namespace: Callable[[], str]) -> World:
    """A namespace of this module, so that other namespaces of the session are not counted."""
    return World(objects, new_namespace())


@pytest.fixture(scope="module")
def operators(own_world: World, control_plane, tmp_path_factory) -> Iterator[list[OperatorProcess]]:
    """Two operators of that namespace; the first one leads immediately, as its Lease exists."""
    folder, namespace = tmp_path_factory.mktemp("operators"), own_world.namespace
    arguments = ("--namespace", namespace, "--leader-election", "--lease-namespace", namespace)
    pair = [OperatorProcess(kubeconfig=control_plane.kubeconfig, log=folder / f"{i}.log") for i in range(2)]
    own_world.objects.create(LEASES, namespace, {"metadata": {"name": "tfcluster-operator"}})
    try:
        pair[0].start(arguments=arguments)
        eventually(lambda: "leading as" in pair[0].tail(), what="the first operator leads")
        pair[1].start(arguments=arguments)
        yield pair
    finally:
        for process in pair:
            process.kill()


@pytest.fixture(scope="module")
def scraped(
    prometheus_built, operators: list[OperatorProcess], objects: Objects, control_plane, tmp_path_factory
) -> Iterator[Prometheus]:
    """A Prometheus that has discovered both and scraped them once."""
    del prometheus_built  # the programs exist
    announce(objects, *(process.metrics_port for process in operators))
    with Prometheus(tmp_path_factory.mktemp("prometheus"), configuration(control_plane.kubeconfig)) as running:
        eventually(lambda: running.query("count(up == 1) == 2"), what="Prometheus has scraped both operators")
        yield running


@pytest.fixture(scope="module")
def lived(scraped: Prometheus, own_world: World) -> Iterator[Prometheus]:
    """The same after clusters have run, grown, failed, waited, been rejected, been suspended and succeeded."""
    world, kubelet = own_world, StandInKubelet(own_world.objects, own_world.namespace)
    launch_running(world, kubelet, "grown", {"worker": {"replicas": 2}, "ps": {"replicas": 1}})
    world.await_condition("grown", "Ready", status="True")
    world.scale("grown", replicas=3)
    kubelet.run(*world.await_pods_of("grown", task_names("grown", worker=3, ps=1)))
    world.await_condition("grown", "Ready", status="True")
    launch_running(world, kubelet, "failing", {"worker": {"replicas": 2}})
    old = world.uid("failing-worker-1")
    kubelet.fail("failing-worker-1", exit_code=137, reason="OOMKilled")
    world.await_replaced("failing-worker-1", old)
    launch_running(world, kubelet, "done", {"worker": {"replicas": 1}})
    kubelet.succeed("done-worker-0")
    world.await_ended("done", "Succeeded")
    world.launch("waiting", {"worker": {"replicas": 4}})
    world.launch("refused", {"worker": {"template": pod_template(spec={"priorityClassName": "unknown"})}})
    world.await_condition("refused", "Ready", status="False", reason="Rejected")
    world.launch("idle", {"worker": {"replicas": 2}}, suspend=True)
    world.await_condition("idle", "Suspended", status="True")
    yield scraped
    kubelet.close()


def values(answer: list[Object]) -> dict[str, float]:
    return {next(iter(series["metric"].values()), ""): float(series["value"][1]) for series in answer}


def selectors(tree: object) -> Iterator[Object]:
    if isinstance(tree, dict):
        if tree.get("type") in {"vectorSelector", "matrixSelector"}:
            yield tree
        for part in tree.values():
            yield from selectors(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from selectors(part)


def matching(selector: Object) -> str:
    """Format a selector; an HTTP status must only be documented, as the server's status is unpredictable."""
    labels = [
        (one["name"], '!=""') if one["name"] == "code" else (one["name"], f'{one["type"]}"{one["value"]}"')
        for one in selector["matchers"]
        if one["name"] != "__name__"
    ]
    return f"{selector['name']}{{{', '.join(name + test for name, test in labels)}}}"


def test_documented_configuration_finds_the_operators(scraped):
    """Each target has the labels that alerts and dashboard use, and the health port is not a target."""
    (documented,) = documented_configuration()["scrape_configs"]
    targets = scraped.ask("targets", state="active")["activeTargets"]
    assert len({target["labels"]["pod"] for target in targets}) == len(targets) == 2
    for target in targets:
        assert target["labels"].items() >= {"namespace": HOME, "job": documented["job_name"]}.items()
        assert target["health"] == "up", target["lastError"]


def test_promtool_accepts_the_metrics(lived, operators):
    del lived  # each series that appears with its first event exists
    for process in operators:
        text, _ = process.scrape()
        answer = prometheus.promtool("check", "metrics", "--extended", stdin=text)
        assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("query", QUERIES, ids=map(str, QUERIES))
def test_dashboard_is_answered(lived, query: Query):
    def answer() -> list[Object]:
        return [series for series in lived.query(query.expression) if math.isfinite(float(series["value"][1]))]

    found = eventually(answer, what=f"there is data for {query.expression}")
    for label in re.findall(r"{{(\w+)}}", query.legend):
        assert all(series["metric"].get(label) for series in found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Operators and leaders: operators", {"": 2}),
        ("Operators and leaders: leaders", {"": 1}),
        ("Ready: ready", {"": 1}),
        ("Not ready: not ready", {"": 3}),
        ("Not ready or waiting, by reason: {{reason}}", {"TasksNotReady": 2, "Rejected": 1}),
        ("Tasks, by state: {{state}}", {"declared": 14, "created": 11, "ready": 5, "succeeded": 1}),
    ],
)
def test_dashboard_tells_the_truth(lived, name, expected):
    (query,) = (query for query in QUERIES if str(query) == name)
    eventually(
        lambda: values(lived.query(query.expression)), lambda found: found == expected, what=f"{name}: {expected}"
    )


@pytest.mark.parametrize(
    ("panel", "label"),
    [
        ("Failures of tasks, by cause", "OOMKilled"),
        ("Replaced pods, by reason", "PodFailed"),
        ("Finished, by reason", "TasksSucceeded"),
    ],
)
def test_dashboard_shows_what_happened(lived, panel, label):
    (query,) = (query for query in QUERIES if query.panel == panel)
    eventually(
        lambda: values(lived.query(query.expression)), lambda found: found[label] > 0, what=f"{panel} has {label}"
    )


def test_prometheus_works_the_alerts_out(lived):
    """Prometheus has loaded each rule and evaluates it without an error; none fires in a small healthy world."""
    expected = sorted(rule["alert"] for rule in alert_rules())

    def rules() -> list[Object]:
        return [rule for group in lived.ask("rules")["groups"] for rule in group["rules"]]

    found = eventually(rules, lambda all_: all(rule["health"] == "ok" for rule in all_), what="every rule is well")
    assert sorted(rule["name"] for rule in found) == expected
    assert [rule["name"] for rule in found if rule["state"] == "firing"] == []


@pytest.mark.parametrize("rule", alert_rules(), ids=lambda rule: rule["alert"])
def test_alert_looks_at_what_is_there(lived, rule):
    wanted = list(selectors(lived.ask("parse_query", query=rule["expr"])))
    assert wanted
    for selector in wanted:
        assert lived.query(f"last_over_time({matching(selector)}[{WINDOW}])"), selector


@pytest.mark.parametrize(("page", "query"), list(documented_queries()))
def test_documented_query_looks_at_what_is_there(lived, page, query):
    lived.query(query)
    wanted = list(selectors(lived.ask("parse_query", query=query)))
    assert wanted, page
    for selector in wanted:
        assert lived.query(f"last_over_time({matching(selector)}[{WINDOW}])"), selector


def test_loss_of_the_leader_and_absence_are_noticed(lived, operators):
    """A single standby does not count as leader, and stopped operators are absent: their series end with them."""
    rules = {rule["alert"]: rule["expr"] for rule in alert_rules()}
    without_leader, absent = rules["TFClusterOperatorWithoutLeader"], rules["TFClusterOperatorAbsent"]
    assert lived.query(without_leader) == lived.query(absent) == []
    operators[0].kill()
    moments = f"last_over_time(({without_leader})[{WINDOW}:1s])"  # the other one can lead after 15 seconds
    eventually(lambda: lived.query(moments), what="nobody leads, or led")
    assert lived.query(absent) == []
    operators[1].kill()
    eventually(lambda: lived.query(absent), what="the operators are absent")
    assert lived.query(without_leader) == []
