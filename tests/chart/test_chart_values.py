"""The chart's values: each has an effect and a description, and invalid ones are rejected before the installation."""

import json
import re
import shutil
from collections import Counter, defaultdict
from typing import Any, get_args

import pytest
from rendering import CHART, Helm, Object, leaves, look, merge, nest, of_kind, read_yaml
from value_sets import EVERYTHING

from scripts import chart_values
from tfcluster_operator import logs
from tfcluster_operator.declaration.gang_schedulers import GangSchedulerKind
from tfcluster_operator.declaration.spec import IsolationMode
from tfcluster_operator.settings import Settings, parse_arguments
from tfcluster_resolver import __version__

POD = "Deployment.spec.template"
CONTAINER = f"{POD}.spec.containers[0]"
SCALE = "CustomResourceDefinition.spec.versions[0].subresources.scale"
SPEC = "CustomResourceDefinition.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties"
NETWORK = "NetworkPolicy.spec"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        }
    }
}
TOLERATION = {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoExecute", "tolerationSeconds": 60}
DIGEST = f"sha256:{64 * 'a'}"
VOLUME = {"name": "scratch", "emptyDir": {}}
MOUNT = {"name": "scratch", "mountPath": "/scratch"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
RULE = {"ports": [{"protocol": "TCP", "port": 9}]}
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
PROBE = {"initialDelaySeconds": 11, "periodSeconds": 12, "timeoutSeconds": 13, "failureThreshold": 14}
RESOURCES = {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}}
DROP = {"action": "labeldrop", "regex": "instance"}
RUNBOOK = "PrometheusRule.spec.groups[0].rules[0].annotations.runbook_url"

#: A value, its setting, and the result in the objects.
EFFECTS: list[tuple[str, Any, dict[str, Any]]] = [
    ("image.registry", "r.example:5000", {f"{CONTAINER}.image": f"r.example:5000/tfcluster-operator:{__version__}"}),
    ("image.repository", "r.example:5000/x/tf", {f"{CONTAINER}.image": f"r.example:5000/x/tf:{__version__}"}),
    ("image.tag", "v2", {f"{CONTAINER}.image": "tfcluster-operator:v2"}),
    ("image.digest", DIGEST, {f"{CONTAINER}.image": f"tfcluster-operator@{DIGEST}"}),
    ("image.pullPolicy", "Never", {f"{CONTAINER}.imagePullPolicy": "Never"}),
    ("imagePullSecrets", [{"name": "key"}], {f"{POD}.spec.imagePullSecrets": [{"name": "key"}]}),
    ("replicas", 3, {"Deployment.spec.replicas": 3}),
    ("leaderElection.createLease", False, {"Lease": None}),
    ("extraArgs", ["--log-level=error"], {f"{CONTAINER}.args[-1]": "--log-level=error"}),
    ("extraEnv", [{"name": "A", "value": "b"}], {f"{CONTAINER}.env": [{"name": "A", "value": "b"}]}),
    ("extraVolumes", [VOLUME], {f"{POD}.spec.volumes": [VOLUME]}),
    ("extraVolumeMounts", [MOUNT], {f"{CONTAINER}.volumeMounts": [MOUNT]}),
    ("livenessProbe", PROBE, {f"{CONTAINER}.livenessProbe.{field}": set_to for field, set_to in PROBE.items()}),
    ("readinessProbe", PROBE, {f"{CONTAINER}.readinessProbe.{field}": set_to for field, set_to in PROBE.items()}),
    ("crds.enabled", False, {"CustomResourceDefinition": None}),
    ("crds.keep", False, {"CustomResourceDefinition.metadata.annotations": None}),
    ("defaultIsolation", "None", {f"{SPEC}.isolation.properties.mode.default": "None"}),
    ("crds.scaledJob", "data_worker", {f"{SCALE}.specReplicasPath": ".spec.jobs.data_worker.replicas"}),
    ("crds.scaledJob", "data_worker", {f"{SCALE}.statusReplicasPath": ".status.jobs.data_worker.created"}),
    ("crds.scaledJob", "data_worker", {f"{SCALE}.labelSelectorPath": ".status.jobs.data_worker.selector"}),
    ("serviceAccount.name", "robot", {"ServiceAccount.metadata.name": "robot"}),
    ("serviceAccount.name", "robot", {f"{POD}.spec.serviceAccountName": "robot"}),
    ("serviceAccount.name", "robot", {"ClusterRoleBinding:home:r-tfcluster-operator.subjects[0].name": "robot"}),
    ("serviceAccount.name", "robot", {"RoleBinding:r-tfcluster-operator-election.subjects[0].name": "robot"}),
    ("serviceAccount.annotations", {"iam": "role"}, {"ServiceAccount.metadata.annotations": {"iam": "role"}}),
    ("admissionPolicy.enabled", False, {"ValidatingAdmissionPolicy": None, "ValidatingAdmissionPolicyBinding": None}),
    ("admissionPolicy.actions", ["Audit"], {"ValidatingAdmissionPolicyBinding.spec.validationActions": ["Audit"]}),
    ("networkPolicy.enabled", True, {f"{NETWORK}.policyTypes": ["Ingress", "Egress"]}),
    ("networkPolicy.apiServer.cidrs", ["fd00::/64"], {f"{NETWORK}.egress[0].to": [{"ipBlock": {"cidr": "fd00::/64"}}]}),
    ("networkPolicy.apiServer.ports", [6443], {f"{NETWORK}.egress[0].ports": [{"protocol": "TCP", "port": 6443}]}),
    ("networkPolicy.dnsPorts", [5353], {f"{NETWORK}.egress[1].ports[1]": {"protocol": "TCP", "port": 5353}}),
    ("networkPolicy.metricsFrom", [PEER], {f"{NETWORK}.ingress[1].from": [PEER]}),
    ("networkPolicy.extraIngress", [RULE], {f"{NETWORK}.ingress[2]": RULE}),
    ("networkPolicy.extraEgress", [RULE], {f"{NETWORK}.egress[2]": RULE}),
    ("resources", RESOURCES, {f"{CONTAINER}.resources": RESOURCES}),
    ("podSecurityContext", {"runAsUser": 7}, {f"{POD}.spec.securityContext.runAsUser": 7}),
    ("podSecurityContext", {"runAsNonRoot": None}, {f"{POD}.spec.securityContext.runAsNonRoot": None}),
    ("containerSecurityContext", {"runAsUser": 7}, {f"{CONTAINER}.securityContext.runAsUser": 7}),
    ("nodeSelector", {"disk": "ssd"}, {f"{POD}.spec.nodeSelector": {"disk": "ssd"}}),
    ("tolerations", [TOLERATION], {f"{POD}.spec.tolerations": [TOLERATION]}),
    ("affinity", AFFINITY, {f"{POD}.spec.affinity": AFFINITY}),
    ("topologySpreadConstraints", [SPREAD], {f"{POD}.spec.topologySpreadConstraints[0].topologyKey": "zone"}),
    ("priorityClassName", "high", {f"{POD}.spec.priorityClassName": "high"}),
    ("hostNetwork", True, {f"{POD}.spec.hostNetwork": True}),
    ("dnsPolicy", "ClusterFirstWithHostNet", {f"{POD}.spec.dnsPolicy": "ClusterFirstWithHostNet"}),
    ("strategy", {"type": "Recreate", "rollingUpdate": None}, {"Deployment.spec.strategy": {"type": "Recreate"}}),
    ("podAnnotations", {"a.example/b": "c"}, {f"{POD}.metadata.annotations": {"a.example/b": "c"}}),
    ("podLabels", {"team": "vision"}, {f"{POD}.metadata.labels.team": "vision"}),
    ("fullnameOverride", "trainer", {"Deployment.metadata.name": "trainer", f"{CONTAINER}.args[11]": "trainer"}),
    ("fullnameOverride", "trainer", {"ValidatingAdmissionPolicy.metadata.name": "home.trainer"}),
    ("commonLabels", {"team": "vision"}, {"Deployment.metadata.labels.team": "vision"}),
    ("commonLabels", {"team": "vision"}, {f"{POD}.metadata.labels.team": "vision"}),
    ("metrics.podMonitor.labels", {"release": "p"}, {"PodMonitor.metadata.labels.release": "p"}),
    ("metrics.podMonitor.interval", "15s", {"PodMonitor.spec.podMetricsEndpoints[0].interval": "15s"}),
    ("metrics.podMonitor.scrapeTimeout", "5s", {"PodMonitor.spec.podMetricsEndpoints[0].scrapeTimeout": "5s"}),
    ("metrics.podMonitor.relabelings", [DROP], {"PodMonitor.spec.podMetricsEndpoints[0].relabelings": [DROP]}),
    (
        "metrics.podMonitor.metricRelabelings",
        [DROP],
        {"PodMonitor.spec.podMetricsEndpoints[0].metricRelabelings": [DROP]},
    ),
    ("metrics.serviceMonitor.relabelings", [DROP], {"ServiceMonitor.spec.endpoints[0].relabelings": [DROP]}),
    (
        "metrics.serviceMonitor.metricRelabelings",
        [DROP],
        {"ServiceMonitor.spec.endpoints[0].metricRelabelings": [DROP]},
    ),
    ("metrics.serviceMonitor.labels", {"release": "p"}, {"ServiceMonitor.metadata.labels.release": "p"}),
    ("metrics.serviceMonitor.interval", "15s", {"ServiceMonitor.spec.endpoints[0].interval": "15s"}),
    ("metrics.serviceMonitor.scrapeTimeout", "5s", {"ServiceMonitor.spec.endpoints[0].scrapeTimeout": "5s"}),
    ("metrics.rules.labels", {"release": "p"}, {"PrometheusRule.metadata.labels.release": "p"}),
    ("metrics.rules.runbooks", "http://wiki/", {RUNBOOK: "http://wiki/TFClusterNotReady.html"}),
    ("metrics.dashboard.labels", {"grafana_dashboard": "yes"}, {"ConfigMap.metadata.labels.grafana_dashboard": "yes"}),
    ("metrics.dashboard.annotations", {"folder": "ML"}, {"ConfigMap.metadata.annotations": {"folder": "ML"}}),
]
#: Values that add or remove objects; other tests cover them.
OF_OBJECTS = {"serviceAccount.create", "aggregateRoles", "rbac.create", "rbac.readQueues"} | {
    f"metrics.{part}.enabled" for part in ("podMonitor", "serviceMonitor", "rules", "dashboard")
}
#: Values that the operator reads from its arguments.
OF_THE_OPERATOR = {
    "clusterWide": [True, False],
    "watchNamespaces": [[], ["a"], ["a", "b"]],
    "logLevel": ["debug", "info", "warning", "error"],
    "logFormat": list(logs.FORMATS),
    "gangs.scheduler": list(get_args(GangSchedulerKind)),
    "gangs.schedulerName": ["", "team.scheduler-1"],
}
#: Objects that are one value each: Kubernetes' own fields, with defaults.
WHOLE = chart_values.WHOLE

#: Values that must be rejected, by the path in the message.
REFUSED: dict[str, list[Any]] = {
    "/replicas": [0, 6, "2"],
    "/image/digest": ["sha256:1", f"md5:{64 * 'a'}"],
    "/image/registry": ["https://registry.example/"],
    "/image/repository": ["", "Upper/case", 7, "r.example/x:1.0", "r.example:5000/x:1.0", f"r.example/x@{DIGEST}"],
    "/image/tag": [1.0, "a b"],
    "/image/pullPolicy": ["Sometimes"],
    "/imagePullSecrets/0": ["key", {}, {"name": "key", "namespace": "x"}],
    "/clusterWide": ["yes"],
    "/watchNamespaces": ["a", ["a", "a"]],
    "/watchNamespaces/0": ["A", "*", 64 * "a"],
    "/logLevel": ["loud"],
    "/logFormat": ["xml"],
    "/defaultIsolation": ["Namespace"],
    "/gangs/scheduler": ["Kueue"],
    "/gangs/schedulerName": ["Not A Name"],
    "/extraArgs": ["--x"],
    "/extraEnv/0": [{"value": "x"}],
    "/extraVolumes": [{"a": {}}],
    "/extraVolumeMounts/0": [{"name": "a"}],
    "/livenessProbe/periodSeconds": [0],
    "/crds/keep": ["yes"],
    "/crds/scaledJob": ["data-worker", "a.b", "", 64 * "a"],
    "/rbac": [True],
    "/serviceAccount/annotations/a": [1],
    "/aggregateRoles": [1],
    "/admissionPolicy/actions": [[], ["Deny", "Warn"]],
    "/admissionPolicy/actions/0": ["Log"],
    "/networkPolicy/apiServer/cidrs/0": ["10.0.0.1"],
    "/networkPolicy/apiServer/ports": [[]],
    "/networkPolicy/metricsFrom/0": [{}],
    "/networkPolicy/dnsPorts/0": [70000],
    "/resources/requests/memory": ["much"],
    "/resources/limits/cpu": [-1],
    "/podSecurityContext": ["restricted"],
    "/nodeSelector/gpu": [True],
    "/tolerations/0/operator": ["In"],
    "/topologySpreadConstraints/0": [{"maxSkew": 1}],
    "/priorityClassName": ["High Priority"],
    "/podAnnotations/a": [1],
    "/podLabels/b": [1],
    "/podLabels/app.kubernetes.io~1name": ["mine"],
    "/podLabels/app.kubernetes.io~1instance": ["mine"],
    "/fullnameOverride": ["Trainer", 54 * "a"],
    "/commonLabels/helm.sh~1chart": ["mine"],
    "/metrics/podMonitor/enabled": ["yes"],
    "/metrics/podMonitor/interval": [15, "15"],
    "/metrics/podMonitor/labels/app.kubernetes.io~1name": ["mine"],
    "/metrics/serviceMonitor/scrapeTimeout": ["0s"],
    "/metrics/rules/runbooks": ["", 'https://a/"b'],
    "/metrics/dashboard/labels/grafana_dashboard": [1],
}
#: Unknown values, and their parents.
UNKNOWN = {
    "": "replica",
    "/image": "sha",
    "/gangs": "queue",
    "/readinessProbe": "httpGet",
    "/crds": "install",
    "/serviceAccount": "token",
    "/networkPolicy": "ingress",
    "/networkPolicy/metricsFrom/0": "pods",
    "/resources": "claims",
    "/tolerations/0": "keys",
    "/affinity": "zone",
    "/metrics/podMonitor": "timeout",
}
#: Invalid combinations of values, the path in the message, and its text.
WRONG_TOGETHER: list[tuple[Object, str, str]] = [
    ({"serviceAccount": {"create": False}}, "/serviceAccount/name", "minLength"),
    (
        {"serviceAccount": {"create": False, "name": "x", "annotations": {"a": "b"}}},
        "/serviceAccount/annotations",
        "maxProperties",
    ),
    (
        {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
        "/metrics/serviceMonitor/enabled",
        "both would scrape each operator twice",
    ),
    ({"image": {"repository": "r.example/x:1.0"}}, "/image/repository", "write a tag as image.tag"),
    ({"image": {"repository": f"r.example/x@{DIGEST}"}}, "/image/repository", "a digest as image.digest"),
]


@pytest.fixture(scope="module")
def values() -> Object:
    return read_yaml((CHART / "values.yaml").read_text(encoding="utf-8"))[0]


@pytest.fixture(scope="module")
def schema() -> Object:
    return json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


def prepared(path: str) -> Object:
    part = re.match(r"networkPolicy(?=\.)|metrics\.\w+(?=\.)", path)
    if part and not path.endswith(".enabled"):
        return nest(f"{part[0]}.enabled", True)
    return {"crds": {}} if path.startswith(("crds.", "defaultIsolation")) else {}


@pytest.mark.parametrize(("path", "value", "effects"), EFFECTS, ids=[path for path, *_ in EFFECTS])
def test_value_has_its_effect(helm: Helm, path: str, value: Any, effects: dict[str, Any]):
    default, objects = helm.render(prepared(path)), helm.render(merge(prepared(path), nest(path, value)))
    for where, expected in effects.items():
        assert look(default, where) != expected
        assert look(objects, where) == expected


def test_values_of_disabled_parts_are_ignored(helm: Helm):
    given = [nest(path, value) for path, value, _ in EFFECTS if prepared(path).keys() & {"networkPolicy", "metrics"}]
    assert helm.render(merge(*given)) == helm.render()


def test_every_value_is_shown_to_have_an_effect(values):
    known = dict(leaves(values, whole=WHOLE)).keys()
    of_the_table = {path for at, value, _ in EFFECTS for path, _ in leaves(nest(at, value), whole=known)}
    assert (of_the_table | OF_OBJECTS | OF_THE_OPERATOR.keys()) - {"resources.limits.cpu"} == known


@pytest.mark.parametrize("turn", range(6))
def test_operator_understands_its_arguments(helm: Helm, turn: int):
    chosen = {path: choices[turn % len(choices)] for path, choices in OF_THE_OPERATOR.items()}
    objects = helm.render(merge(*(nest(path, value) for path, value in chosen.items())))
    settings = parse_arguments(look(objects, f"{CONTAINER}.args"))
    assert settings == Settings(
        namespaces=tuple(chosen["watchNamespaces"] or ([] if chosen["clusterWide"] else ["home"])),
        health_port=8080,
        metrics_port=8081,
        log_level=chosen["logLevel"],
        log_format=chosen["logFormat"],
        leader_election=True,
        lease_name="r-tfcluster-operator",
        lease_namespace="home",
        gang_scheduler=chosen["gangs.scheduler"],
        gang_scheduler_name=chosen["gangs.schedulerName"],
    )
    assert look(objects, f"{CONTAINER}.ports") == [
        {"name": "health", "containerPort": 8080},
        {"name": "metrics", "containerPort": 8081},
    ]


def test_schema_knows_the_operators_choices(schema):
    described = {**schema["properties"], "gangs.scheduler": schema["properties"]["gangs"]["properties"]["scheduler"]}
    chosen = ("logLevel", "logFormat", "gangs.scheduler")
    assert {path: described[path]["enum"] for path in chosen} == {path: OF_THE_OPERATOR[path] for path in chosen}
    assert schema["properties"]["defaultIsolation"]["enum"] == list(get_args(IsolationMode))


def test_image_has_a_tag_and_a_digest(helm: Helm):
    """By default the image has the project's version; if both are set, the digest decides, the tag is for readers."""
    assert look(helm.render(), f"{CONTAINER}.image") == f"tfcluster-operator:{__version__}"
    image = {"registry": "r.example", "repository": "a/b", "tag": "v2", "digest": DIGEST}
    assert look(helm.render({"image": image}), f"{CONTAINER}.image") == f"r.example/a/b:v2@{DIGEST}"


def test_spread_is_of_the_operators_pods_unless_it_says_otherwise(helm: Helm):
    """A rule without a selector gets the operator's own; one that has a selector keeps it."""
    own = {**SPREAD, "labelSelector": {"matchLabels": {"a": "b"}}}
    objects = helm.render({"topologySpreadConstraints": [SPREAD, own]})
    selector = look(objects, "Deployment.spec.selector")
    assert look(objects, f"{POD}.spec.topologySpreadConstraints") == [{**SPREAD, "labelSelector": selector}, own]


@pytest.mark.parametrize(
    ("kinds", "is_there"),
    [
        (["apps/v1/Deployment"], False),
        (["apps/v1/Deployment", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"], True),
        ([], True),
    ],
    ids=["a server without the kind", "a server with it", "no server"],
)
def test_policy_is_there_where_the_server_knows_it(helm: Helm, kinds: list[str], is_there: bool):
    objects = helm.render({}, *(f"--api-versions={kind}" for kind in kinds))
    assert bool(of_kind(objects, "ValidatingAdmissionPolicy")) == is_there
    assert any("use" in rule["verbs"] for role in of_kind(objects, "ClusterRole") for rule in role["rules"]) == is_there


@pytest.mark.parametrize(("version", "works"), [("v1.29.9", False), ("v1.30.0-eks-1", True), ("v1.37.1", True)])
def test_chart_rejects_unsupported_kubernetes_versions(helm: Helm, version: str, works: bool):
    answer = helm.run("template", "r", CHART, "--kube-version", version, values={"crds": {"enabled": False}})
    assert (answer.returncode == 0) == works
    assert ("requires kubeVersion" in answer.stderr) != works


def test_labels_of_all_reach_all(helm: Helm):
    objects = helm.render({**EVERYTHING, "crds": {}})
    assert all(found["metadata"]["labels"]["cost-center"] == "42" for found in objects)
    assert "cost-center" not in look(objects, "Deployment.spec.selector.matchLabels")


@pytest.mark.parametrize("parts", [["podMonitor", "rules", "dashboard"], ["serviceMonitor"]])
def test_label_of_one_object_wins_over_that_of_all(helm: Helm, parts: list[str]):
    own = {"release": "own"}
    metrics = {part: {"enabled": True, "labels": own} for part in parts}
    objects = helm.render({"commonLabels": {"release": "all"}, "podLabels": own, "metrics": metrics})
    assert look(objects, "Deployment.metadata.labels.release") == "all"
    assert look(objects, f"{POD}.metadata.labels.release") == "own"
    for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"):
        assert look(objects, f"{kind}.metadata.labels.release") in {"own", None}
    assert [found["metadata"]["labels"]["release"] for found in objects].count("own") == len(parts)


def test_account_of_the_user_is_taken(helm: Helm):
    objects = helm.render({"serviceAccount": {"create": False, "name": "robot"}})
    assert not of_kind(objects, "ServiceAccount")
    assert look(objects, f"{POD}.spec.serviceAccountName") == "robot"
    assert look(objects, "ClusterRoleBinding:home:r-tfcluster-operator.subjects") == [
        {"kind": "ServiceAccount", "name": "robot", "namespace": "home"}
    ]


def test_schema_describes_every_value_and_no_other(values, schema):
    def compare(given: Object, described: Object) -> None:
        assert described["properties"].keys() == given.keys()
        for name, value in given.items():
            assert described["properties"][name]["description"]
            if "properties" in described["properties"][name] and value and name not in WHOLE:
                compare(value, described["properties"][name])

    compare({**values, "global": {}}, schema)


def test_schema_is_strict(schema):
    """Every object has a closed list of fields, except Kubernetes' own fields and helm's ``global``."""
    open_ended = []

    def visit(part: Any, path: str) -> None:
        if isinstance(part, dict):
            if part.get("type") == "object":
                assert "additionalProperties" in part, path
                if part["additionalProperties"] is True:
                    assert part["$comment"], path
                    open_ended.append(path)
            for name, inner in part.items():
                visit(inner, f"{path}/{name}" if name not in {"properties", "items"} else path)

    visit(schema, "")
    assert open_ended == [
        "/extraEnv",
        "/extraVolumes",
        "/extraVolumeMounts",
        *(f"/networkPolicy/metricsFrom/{peer}" for peer in ("podSelector", "namespaceSelector", "ipBlock")),
        "/networkPolicy/extraIngress",
        "/networkPolicy/extraEgress",
        "/podSecurityContext",
        "/containerSecurityContext",
        *(f"/affinity/{kind}" for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")),
        "/topologySpreadConstraints",
        "/global",
    ]


def in_turns() -> list[dict[str, Any]]:
    """Group values to reject, with one of each part of the values per group, as one error can hide another."""
    turns: dict[int, dict[str, Any]] = defaultdict(dict)
    before: Counter[tuple[str, ...]] = Counter()
    for place, wrong in REFUSED.items():
        part = tuple(name for name in place.split("/") if not name.isdigit())[:3]
        for value in wrong:
            turns[before[part]][place] = value
            before[part] += 1
    return list(turns.values())


@pytest.mark.parametrize("wrong", in_turns(), ids=lambda wrong: f"{len(wrong)} values")
def test_invalid_values_are_rejected(helm: Helm, wrong: dict[str, Any]):
    assert helm.refusal(merge(*(nest(place, value) for place, value in wrong.items()))).keys() == wrong.keys()


def test_unknown_values_are_rejected(helm: Helm):
    told = helm.refusal(merge(*(nest(f"{place}/{name}", {}) for place, name in UNKNOWN.items())))
    assert told == {place: f"additional properties '{name}' not allowed" for place, name in UNKNOWN.items()}


@pytest.mark.parametrize(("given", "place", "words"), WRONG_TOGETHER, ids=[place for _, place, _ in WRONG_TOGETHER])
def test_rejection_of_values_names_the_remedy(helm: Helm, given: Object, place: str, words: str):
    """For invalid combinations, and unclear rules, the message says what to write instead."""
    told = helm.refusal(given)
    assert told.keys() == {place}
    assert words in told[place]


def test_page_describes_the_values(values):
    text = chart_values.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.+) \|$", text, flags=re.MULTILINE)
    assert [(path, json.loads(default)) for path, default, _ in rows] == list(leaves(values, whole=WHOLE))
    assert chart_values.page() == text


def test_chart_can_be_part_of_another(helm: Helm, tmp_path):
    """A chart with this one as a dependency can be installed: helm gives each dependency a value named ``global``."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    (parent / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")
    given = {"image": {"tag": "of-the-parent"}, "crds": {"enabled": False}}
    answer = helm.run("template", "r", parent, values={"global": {"a": 1}, CHART.name: given})
    assert answer.returncode == 0, answer.stderr
    assert look(read_yaml(answer.stdout), f"{CONTAINER}.image") == "tfcluster-operator:of-the-parent"
