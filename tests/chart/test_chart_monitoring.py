"""Prometheus and Grafana objects of the chart: objects that their operators accept, alerts that fire, a dashboard."""

import json
import re
from itertools import pairwise

import pytest
from kubernetes.client.exceptions import ApiException
from on_server import HOME
from rendering import CHART, ROOT, Helm, Object, look, merge, nest, of_kind, read_yaml, selects, the_only
from support import prometheus
from support.objects import CONFIG_MAPS, CRDS, SERVICES, Kind, Objects
from support.waiting import eventually
from test_chart_values import EFFECTS

ALERTS = CHART / "monitoring" / "alerts.yaml"
DASHBOARD = CHART / "monitoring" / "dashboard.json"
PLAYED = ROOT / "tests" / "chart" / "alerts_test.yaml"
RUNBOOKS = ROOT / "docs" / "operate" / "runbooks"
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


def enabled(helm: Helm, part: str) -> list[Object]:
    return helm.render(nest(f"metrics.{part}.enabled", True))


def alerts() -> list[Object]:
    (file,) = read_yaml(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in file["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("part", KINDS)
def test_each_part_comes_alone(helm: Helm, part):
    """Each of the four is a separate option; a cluster without the Prometheus Operator accepts the chart."""
    default = {found["kind"] for found in helm.render()}
    assert not default & PLACES.keys()
    added = {found["kind"] for found in enabled(helm, part)} - default
    assert added == {KINDS[part], *(["Service"] if part == "serviceMonitor" else [])}


@pytest.mark.parametrize("part", ["podMonitor", "serviceMonitor"])
def test_monitor_finds_the_operators(helm: Helm, part):
    objects = enabled(helm, part)
    labels = look(objects, "Deployment.spec.template.metadata.labels")
    assert look(objects, "Deployment.spec.template.spec.containers[0].ports[1].name") == "metrics"
    monitor = the_only(objects, KINDS[part])["spec"]
    assert selects(monitor["selector"]["matchLabels"], labels)
    (endpoint,) = monitor["podMetricsEndpoints" if part == "podMonitor" else "endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("metrics", "/metrics")
    if part == "serviceMonitor":
        assert selects(monitor["selector"]["matchLabels"], look(objects, "Service.metadata.labels"))
        assert selects(look(objects, "Service.spec.selector"), labels)
        assert look(objects, "Service.spec.ports") == [{"name": "metrics", "port": 8081, "targetPort": "metrics"}]


@pytest.mark.exhaustive
def test_server_with_the_kinds_takes_it(helm: Helm, server: Objects):
    for definition in prometheus.definitions():
        server.create(CRDS, "", definition)
    given = [nest(path, value) for path, value, _ in EFFECTS if path.startswith("metrics.")]
    for parts in (("podMonitor", "rules", "dashboard"), ("serviceMonitor",)):
        rendered = helm.render(merge(*given, {"metrics": {part: {"enabled": True} for part in parts}}))
        found = [one for kind in PLACES for one in of_kind(rendered, kind)]
        assert len(found) == len(parts) + ("serviceMonitor" in parts)
        for one in found:
            _create_strictly(server, one)


def _create_strictly(objects: Objects, body: Object) -> None:
    path = f"{PLACES[body['kind']].path(HOME)}?fieldValidation=Strict"

    def served() -> bool:
        try:
            objects.request("POST", path, body)
        except ApiException as error:
            if error.status != 404:  # its kind is being initialized
                raise
            return False
        return True

    eventually(served, what=f"the server takes a {body['kind']}")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("prometheus_built")
def test_promtool_accepts_the_rules(tmp_path, helm: Helm):
    rendered = tmp_path / "rules.yaml"
    rendered.write_text(json.dumps(the_only(enabled(helm, "rules"), "PrometheusRule")["spec"]), encoding="utf-8")
    for file in (ALERTS, rendered):
        answer = prometheus.promtool("check", "rules", "--lint=all", "--lint-fatal", file)
        assert answer.returncode == 0, answer.stderr
        assert f"SUCCESS: {len(alerts())} rules found" in answer.stdout


@pytest.mark.exhaustive
@pytest.mark.usefixtures("prometheus_built")
def test_alerts_fire_when_they_should():
    answer = prometheus.promtool("test", "rules", PLAYED)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_each_alert_is_played_through():
    names = [rule["alert"] for rule in alerts()]
    played = read_yaml(PLAYED.read_text(encoding="utf-8"))[0]["tests"]
    cases = [case["name"].split(" ", 2)[:2] for case in played]
    assert all([name, verb] in cases for name in names for verb in ("fires", "stays"))
    for case in played:
        name, verb = case["name"].split(" ", 2)[:2]
        expected = [one for test in case.get("alert_rule_test", []) for one in test["exp_alerts"]]
        of_others = [t for t in case.get("alert_rule_test", []) if t["alertname"] != name]
        asked = [test["expr"] for test in case.get("promql_expr_test", [])]
        assert (verb == "fires") == bool(expected), case["name"]
        assert not of_others, case["name"]
        assert all(f'alertname="{name}"' in expression for expression in asked), case["name"]


def test_chart_only_scopes_the_absence_alert(helm: Helm):
    """The rules of a release are those of the file, except that the alert on absence names this release."""
    rendered = the_only(enabled(helm, "rules"), "PrometheusRule")["spec"]
    text = ALERTS.read_text(encoding="utf-8")
    assert text.count("absent(tfcluster_build_info)") == 1
    scoped = text.replace("absent(tfcluster_build_info)", 'absent(tfcluster_build_info{namespace="home"})')
    assert [rendered] == read_yaml(scoped)


def test_each_alert_says_what_to_do():
    """Each alert has a severity, a text, a runbook and a row in monitoring.md; no runbook is for another."""
    for rule in alerts():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/latest/operate/runbooks/{rule['alert']}.html")
    assert sorted(file.stem for file in RUNBOOKS.iterdir()) == sorted(rule["alert"] for rule in alerts())
    text = (ROOT / "docs" / "operate" / "monitoring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| .+ \|$", text, re.MULTILINE)
    assert rows == [(rule["alert"], rule["alert"], rule["labels"]["severity"]) for rule in alerts()]


def test_dashboard_is_well_formed(helm: Helm):
    """Helm installs it unchanged; its panels have ids, positions and the data source of the variable."""
    data = the_only(enabled(helm, "dashboard"), "ConfigMap")["data"]
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert json.loads(data["tfcluster-operator.json"]) == dashboard
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
