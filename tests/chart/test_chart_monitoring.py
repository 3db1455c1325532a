"""What the chart gives Prometheus and Grafana: objects that their operators take, alerts that fire, a dashboard."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from rendering import CHART, ROOT, Helm, Object, leaves, look, nest, of_kind, the_only
from support import prometheus
from support.objects import CONFIG_MAPS, CRDS, NAMESPACES, SERVICES, Kind, Objects
from support.waiting import eventually

ALERTS = CHART / "monitoring" / "alerts.yaml"
DASHBOARD = CHART / "monitoring" / "dashboard.json"
PLAYED = ROOT / "tests" / "chart" / "alerts_test.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
KINDS = {
    "podMonitor": "PodMonitor",
    "serviceMonitor": "ServiceMonitor",
    "rules": "PrometheusRule",
    "dashboard": "ConfigMap",
}
PLACES = {
    "PodMonitor": Kind("monitoring.coreos.com/v1", "podmonitors"),
    "ServiceMonitor": Kind("monitoring.coreos.com/v1", "servicemonitors"),
    "PrometheusRule": Kind("monitoring.coreos.com/v1", "prometheusrules"),
    "ConfigMap": CONFIG_MAPS,
    "Service": SERVICES,
}

#: A value below ``metrics``, what the user sets it to, where that shows once its part is enabled, and what is there.
EFFECTS: list[tuple[str, Any, str, Any]] = [
    ("podMonitor.labels", {"release": "p"}, "PodMonitor.metadata.labels.release", "p"),
    ("podMonitor.interval", "15s", "PodMonitor.spec.podMetricsEndpoints[0].interval", "15s"),
    ("podMonitor.scrapeTimeout", "5s", "PodMonitor.spec.podMetricsEndpoints[0].scrapeTimeout", "5s"),
    ("serviceMonitor.labels", {"release": "p"}, "ServiceMonitor.metadata.labels.release", "p"),
    ("serviceMonitor.interval", "15s", "ServiceMonitor.spec.endpoints[0].interval", "15s"),
    ("serviceMonitor.scrapeTimeout", "5s", "ServiceMonitor.spec.endpoints[0].scrapeTimeout", "5s"),
    ("rules.labels", {"release": "p"}, "PrometheusRule.metadata.labels.release", "p"),
    (
        "rules.runbooks",
        "http://wiki/",
        "PrometheusRule.spec.groups[0].rules[0].annotations.runbook_url",
        "http://wiki/TFClusterNotReady.md",
    ),
    ("dashboard.labels.grafana_dashboard", "yes", "ConfigMap.metadata.labels.grafana_dashboard", "yes"),
    ("dashboard.annotations", {"grafana_folder": "ML"}, "ConfigMap.metadata.annotations", {"grafana_folder": "ML"}),
]

REFUSED: list[tuple[Object, str]] = [
    ({"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}, "/metrics/serviceMonitor/enabled"),
    ({"podMonitor": {"enabled": "yes"}}, "/metrics/podMonitor/enabled"),
    ({"podMonitor": {"interval": 15}}, "/metrics/podMonitor/interval"),
    ({"podMonitor": {"interval": "15"}}, "/metrics/podMonitor/interval"),
    ({"podMonitor": {"timeout": "5s"}}, "/metrics/podMonitor"),
    ({"serviceMonitor": {"scrapeTimeout": "0s"}}, "/metrics/serviceMonitor/scrapeTimeout"),
    ({"podMonitor": {"labels": {"app.kubernetes.io/name": "mine"}}}, "/metrics/podMonitor/labels"),
    ({"rules": {"runbooks": ""}}, "/metrics/rules/runbooks"),
    ({"rules": {"runbooks": 'https://a/"b'}}, "/metrics/rules/runbooks"),
    ({"dashboard": {"labels": {"grafana_dashboard": 1}}}, "/metrics/dashboard/labels/grafana_dashboard"),
]


def enabled(helm: Helm, *parts: str, **more: Any) -> list[Object]:
    """Render the chart with these parts of ``metrics`` enabled."""
    return helm.render({"metrics": {part: {"enabled": True} for part in parts}}, **more)


def alerts() -> list[Object]:
    """Give the rules of the chart's file."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def played() -> list[Object]:
    """Give what the tests of the rules play through."""
    return yaml.safe_load(PLAYED.read_text(encoding="utf-8"))["tests"]


def selects(selector: Object, labels: Object) -> bool:
    """Say whether ``matchLabels`` pass these labels."""
    return bool(selector) and selector.items() <= labels.items()


def test_nothing_of_it_is_there_unless_asked_for(helm: Helm):
    """A cluster without the Prometheus Operator takes the chart as it is."""
    assert not {found["kind"] for found in helm.render()} & {*KINDS.values(), "Service"}


@pytest.mark.parametrize("part", KINDS)
def test_each_part_comes_alone(helm: Helm, part):
    """Each of the four is a choice of its own."""
    added = {found["kind"] for found in enabled(helm, part)} - {found["kind"] for found in helm.render()}
    assert added == {KINDS[part], *(["Service"] if part == "serviceMonitor" else [])}


@pytest.mark.parametrize("effect", EFFECTS, ids=[f"{path} in {where}" for path, _, where, _ in EFFECTS])
def test_value_has_its_effect(helm: Helm, effect):
    """What the user sets shows in the object of its part, and only because it was set."""
    path, value, where, expected = effect
    part = path.split(".")[0]
    assert look(enabled(helm, part), where) != expected

    given = nest(path, value)
    given[part]["enabled"] = True
    assert look(helm.render({"metrics": given}), where) == expected


def test_every_value_is_shown_to_have_an_effect():
    """No value of the four parts is without a test of its effect."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["metrics"]
    shown = {path for path, *_ in EFFECTS} | {f"{part}.enabled" for part in KINDS}
    assert shown == {path for path, _ in leaves({part: values[part] for part in KINDS})}


@pytest.mark.parametrize(("given", "place"), REFUSED, ids=[json.dumps(given)[:70] for given, _ in REFUSED])
def test_bad_values_are_refused(helm: Helm, given, place):
    """A value that cannot work is refused before anything is sent, and the message names its place."""
    answer = helm.run("template", "r", CHART, values={"metrics": given})

    assert answer.returncode != 0
    assert place in answer.stderr


@pytest.mark.parametrize("part", ["podMonitor", "serviceMonitor"])
def test_monitor_finds_the_operators(helm: Helm, part):
    """What the monitor selects, at the port that it names, is the operator's container and nothing else."""
    objects = enabled(helm, part)
    pod = the_only(objects, "Deployment")["spec"]["template"]
    ports = {port["name"]: port["containerPort"] for one in pod["spec"]["containers"] for port in one["ports"]}
    monitor = the_only(objects, KINDS[part])["spec"]
    assert selects(monitor["selector"]["matchLabels"], pod["metadata"]["labels"])
    if part == "podMonitor":
        assert [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]] == ["metrics"]
    else:
        service = the_only(objects, "Service")
        assert selects(monitor["selector"]["matchLabels"], service["metadata"]["labels"])
        assert selects(service["spec"]["selector"], pod["metadata"]["labels"])
        (port,) = service["spec"]["ports"]
        assert [endpoint["port"] for endpoint in monitor["endpoints"]] == [port["name"]]
        assert (port["targetPort"], port["port"]) == ("metrics", ports["metrics"])
    assert "metrics" in ports


def test_names_stay_short_enough(helm: Helm):
    """A Service's name has at most 63 characters, also where the release's name leaves it little."""
    objects = enabled(helm, "serviceMonitor", release="r" * 53)
    assert len(the_only(objects, "Service")["metadata"]["name"]) <= 63


@pytest.fixture(scope="module")
def server(control_plane) -> Objects:
    """An API server with the namespace `home`, and none of the Prometheus Operator's kinds."""
    configuration = client.Configuration()
    config.load_kube_config(str(control_plane.kubeconfig), client_configuration=configuration)
    objects = Objects(client.ApiClient(configuration))
    objects.create(NAMESPACES, "", {"metadata": {"name": "home"}})
    return objects


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", ["podMonitor", "serviceMonitor", "rules"])
def test_server_without_the_kinds_refuses_it(helm: Helm, server: Objects, control_plane, part):
    """Without the Prometheus Operator's kinds helm installs nothing of a release that asks for one, and names it."""
    place = ("--kubeconfig", control_plane.kubeconfig, "--namespace", "home")
    answer = helm.run("install", "r", CHART, *place, values={"metrics": {part: {"enabled": True}}})

    assert answer.returncode != 0
    assert f'no matches for kind "{KINDS[part]}"' in answer.stderr
    assert server.get(Kind("apps/v1", "deployments"), "home", "r-tfcluster-operator") is None


@pytest.mark.exhaustive
def test_server_with_the_kinds_takes_it(helm: Helm, server: Objects):
    """With the Prometheus Operator's own definitions the API server takes each object, down to every field."""
    objects = server
    for definition in prometheus.definitions():
        objects.create(CRDS, "", definition)
    given = {path: value for path, value, *_ in EFFECTS}
    for parts in (("podMonitor", "rules", "dashboard"), ("serviceMonitor",)):
        values: Object = {part: {"enabled": True} for part in parts}
        for path, value in given.items():
            part, *way = path.split(".")
            if part in parts:
                values[part] |= nest(".".join(way), value)
        rendered = helm.render({"metrics": values})
        found = [one for kind in (*KINDS.values(), "Service") for one in of_kind(rendered, kind)]
        assert len(found) == len(parts) + ("serviceMonitor" in parts)
        for one in found:
            _create_strictly(objects, one)


def _create_strictly(objects: Objects, body: Object) -> None:
    path = f"{PLACES[body['kind']].path('home')}?fieldValidation=Strict"

    def served() -> bool:
        try:
            objects.request("POST", path, body)
        except ApiException as error:
            if error.status != 404:  # its kind is being set up
                raise
            return False
        return True

    eventually(served, what=f"the server takes a {body['kind']}")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("prometheus_built")
def test_promtool_has_nothing_to_say_of_the_rules(tmp_path, helm: Helm):
    """`promtool check rules` passes the file, and what the chart makes of it."""
    rendered = tmp_path / "rules.yaml"
    rendered.write_text(yaml.safe_dump(the_only(enabled(helm, "rules"), "PrometheusRule")["spec"]), encoding="utf-8")
    for file in (ALERTS, rendered):
        answer = prometheus.promtool("check", "rules", "--lint=all", "--lint-fatal", file)
        assert answer.returncode == 0, answer.stderr
        assert f"SUCCESS: {len(alerts())} rules found" in answer.stdout


@pytest.mark.exhaustive
@pytest.mark.usefixtures("prometheus_built")
def test_alerts_fire_when_they_should():
    """`promtool test rules` plays each case through: its alert fires with these words, or stays quiet."""
    answer = prometheus.promtool("test", "rules", PLAYED)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_each_alert_is_played_through():
    """For each alert there is a case in which it fires and one in which it does not."""
    names = [rule["alert"] for rule in alerts()]
    cases = [case["name"].split(" ", 2)[:2] for case in played()]
    for name in names:
        assert [name, "fires"] in cases
        assert [name, "stays"] in cases
    for case in played():
        name, verb = case["name"].split(" ", 2)[:2]
        expected = [one for test in case.get("alert_rule_test", []) for one in test["exp_alerts"]]
        of_others = [t for t in case.get("alert_rule_test", []) if t["alertname"] != name]
        asked = [test["expr"] for test in case.get("promql_expr_test", [])]
        assert (verb == "fires") == bool(expected), case["name"]
        assert not of_others, case["name"]
        assert all(f'alertname="{name}"' in expression for expression in asked), case["name"]


def test_chart_changes_no_more_of_the_rules_than_it_must(helm: Helm):
    """The rules of a release are those of the file; the alert that nobody is there speaks of this release alone."""
    rendered = the_only(enabled(helm, "rules"), "PrometheusRule")["spec"]
    text = ALERTS.read_text(encoding="utf-8")
    assert text.count("absent(tfcluster_build_info)") == 1
    scoped = text.replace("absent(tfcluster_build_info)", 'absent(tfcluster_build_info{namespace="home"})')
    assert rendered == yaml.safe_load(scoped)


def test_each_alert_says_what_to_do():
    """Each alert has a severity, says what is wrong, and has a runbook; no runbook is left of an alert that is gone."""
    for rule in alerts():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{rule['alert']}.md")
    assert sorted(file.stem for file in RUNBOOKS.iterdir()) == sorted(rule["alert"] for rule in alerts())


@pytest.mark.parametrize("name", [rule["alert"] for rule in alerts()])
def test_runbook_is_whole(name):
    """A runbook says what the alert means, what to look at and what to do, and its links lead somewhere."""
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What it means", "What to look at", "What to do"]
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (RUNBOOKS / link).resolve().is_file(), link


def test_documents_list_the_alerts():
    """docs/monitoring.md has a row for each alert, with its severity and a link to its runbook."""
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| .+ \|$", text, re.MULTILINE)
    assert rows == [(rule["alert"], rule["alert"], rule["labels"]["severity"]) for rule in alerts()]


def test_dashboard_arrives_as_it_is(helm: Helm):
    """The ConfigMap holds the file's dashboard, and templates of Grafana survive those of helm."""
    data = the_only(enabled(helm, "dashboard"), "ConfigMap")["data"]
    assert json.loads(data["tfcluster-operator.json"]) == json.loads(DASHBOARD.read_text(encoding="utf-8"))


def test_dashboard_is_well_formed():
    """Panels have ids and places of their own, and take their data source from the variable."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = sorted((p["gridPos"]["y"], p["gridPos"]["x"], p["gridPos"]["w"]) for p in panels)
    for (y, x, width), (next_y, next_x, _) in pairwise(places):
        assert x + width <= 24
        assert next_y > y or next_x >= x + width
    known = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval"}
    for panel in panels:
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known
