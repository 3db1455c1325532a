"""The chart's values: each has an effect, each is described, and what is wrong is refused before anything is sent."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any, get_args

import pytest
import yaml
from rendering import CHART, Helm, Object, leaves, look, nest, of_kind
from value_sets import EVERYTHING

from scripts import chart_values
from tfcluster_operator import logs
from tfcluster_operator.model.gang_schedulers import GangSchedulerKind
from tfcluster_operator.model.spec import IsolationMode
from tfcluster_operator.settings import Settings, parse_arguments
from tfcluster_resolver import __version__

POD = "Deployment.spec.template"
CONTAINER = f"{POD}.spec.containers[0]"
SCALE = "CustomResourceDefinition.spec.versions[0].subresources.scale"
TOLERATION = {
    "key": "gpu",
    "operator": "Equal",
    "value": "a",
    "effect": "NoExecute",
    "tolerationSeconds": 60,
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
        }
    }
}

DIGEST = f"sha256:{64 * 'a'}"
VOLUME = {"name": "scratch", "emptyDir": {}}
MOUNT = {"name": "scratch", "mountPath": "/scratch"}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
RULE = {"ports": [{"protocol": "TCP", "port": 9}]}
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
#: The values of the NetworkPolicy, which is there only where it is enabled.
OF_THE_NETWORK: dict[str, tuple[Any, str, Any]] = {
    "networkPolicy.apiServer.cidrs": (["10.0.0.1/32"], "egress[0].to", [{"ipBlock": {"cidr": "10.0.0.1/32"}}]),
    "networkPolicy.apiServer.ports": ([6443], "egress[0].ports", [{"protocol": "TCP", "port": 6443}]),
    "networkPolicy.dnsPorts": ([5353], "egress[1].ports[1]", {"protocol": "TCP", "port": 5353}),
    "networkPolicy.metricsFrom": ([PEER], "ingress[1].from", [PEER]),
    "networkPolicy.extraIngress": ([RULE], "ingress[2]", RULE),
    "networkPolicy.extraEgress": ([RULE], "egress[2]", RULE),
}

#: A value, what the user sets it to, where that shows, and what is there then.
EFFECTS: list[tuple[str, Any, str, Any]] = [
    ("image.registry", "registry.example:5000", f"{CONTAINER}.image", "registry.example:5000/tfcluster-operator:0.1.0"),
    ("image.repository", "registry.example:5000/x/tf", f"{CONTAINER}.image", "registry.example:5000/x/tf:0.1.0"),
    ("image.tag", "v2", f"{CONTAINER}.image", "tfcluster-operator:v2"),
    ("image.digest", DIGEST, f"{CONTAINER}.image", f"tfcluster-operator@{DIGEST}"),
    ("image.pullPolicy", "Never", f"{CONTAINER}.imagePullPolicy", "Never"),
    ("imagePullSecrets", [{"name": "key"}], f"{POD}.spec.imagePullSecrets", [{"name": "key"}]),
    ("replicas", 3, "Deployment.spec.replicas", 3),
    ("clusterWide", False, f"{CONTAINER}.args[1]", "home"),
    ("watchNamespaces", ["research"], f"{CONTAINER}.args[1]", "research"),
    ("watchNamespaces", ["research"], "Role:r-tfcluster-operator.metadata.namespace", "research"),
    ("leaderElection.createLease", False, "Lease", None),
    ("logLevel", "debug", f"{CONTAINER}.args[6]", "debug"),
    ("logFormat", "json", f"{CONTAINER}.args[8]", "json"),
    ("defaultIsolation", "DeviceFilters", f"{CONTAINER}.args[10]", "DeviceFilters"),
    ("gangs.scheduler", "Volcano", f"{CONTAINER}.args[17]", "Volcano"),
    (
        "gangs.scheduler",
        "Volcano",
        "ClusterRole:home:r-tfcluster-operator.rules[8].apiGroups[0]",
        "scheduling.volcano.sh",
    ),
    ("gangs.schedulerName", "team", f"{CONTAINER}.args[19]", "team"),
    ("extraArgs", ["--log-level=error"], f"{CONTAINER}.args[-1]", "--log-level=error"),
    ("extraEnv", [{"name": "A", "value": "b"}], f"{CONTAINER}.env", [{"name": "A", "value": "b"}]),
    ("extraVolumes", [VOLUME], f"{POD}.spec.volumes", [VOLUME]),
    ("extraVolumeMounts", [MOUNT], f"{CONTAINER}.volumeMounts", [MOUNT]),
    *(
        (f"{probe}.{field}", 7, f"{CONTAINER}.{probe}.{field}", 7)
        for probe in ("livenessProbe", "readinessProbe")
        for field in ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold")
    ),
    ("crds.enabled", False, "CustomResourceDefinition", None),
    ("crds.keep", False, "CustomResourceDefinition.metadata.annotations", None),
    ("crds.scaledJob", "data_worker", f"{SCALE}.specReplicasPath", ".spec.jobs.data_worker.replicas"),
    ("crds.scaledJob", "data_worker", f"{SCALE}.statusReplicasPath", ".status.jobs.data_worker.created"),
    ("crds.scaledJob", "data_worker", f"{SCALE}.labelSelectorPath", ".status.jobs.data_worker.selector"),
    ("serviceAccount.name", "robot", "ServiceAccount.metadata.name", "robot"),
    ("serviceAccount.name", "robot", f"{POD}.spec.serviceAccountName", "robot"),
    ("serviceAccount.name", "robot", "ClusterRoleBinding:home:r-tfcluster-operator.subjects[0].name", "robot"),
    ("serviceAccount.name", "robot", "RoleBinding:r-tfcluster-operator-election.subjects[0].name", "robot"),
    ("serviceAccount.annotations", {"iam": "role"}, "ServiceAccount.metadata.annotations", {"iam": "role"}),
    ("admissionPolicy.enabled", False, "ValidatingAdmissionPolicy", None),
    ("admissionPolicy.actions", ["Audit"], "ValidatingAdmissionPolicyBinding.spec.validationActions", ["Audit"]),
    ("networkPolicy.enabled", True, "NetworkPolicy.spec.policyTypes", ["Ingress", "Egress"]),
    ("resources.requests.cpu", 2, f"{CONTAINER}.resources.requests.cpu", 2),
    ("resources.requests.memory", "1Gi", f"{CONTAINER}.resources.requests.memory", "1Gi"),
    ("resources.limits.memory", "2Gi", f"{CONTAINER}.resources.limits.memory", "2Gi"),
    ("resources.limits.cpu", "1500m", f"{CONTAINER}.resources.limits.cpu", "1500m"),
    ("podSecurityContext", {"runAsUser": 7}, f"{POD}.spec.securityContext.runAsUser", 7),
    ("podSecurityContext", {"runAsNonRoot": None}, f"{POD}.spec.securityContext.runAsNonRoot", None),
    ("containerSecurityContext", {"runAsUser": 7}, f"{CONTAINER}.securityContext.runAsUser", 7),
    ("nodeSelector", {"disk": "ssd"}, f"{POD}.spec.nodeSelector", {"disk": "ssd"}),
    ("tolerations", [TOLERATION], f"{POD}.spec.tolerations", [TOLERATION]),
    ("affinity", AFFINITY, f"{POD}.spec.affinity", AFFINITY),
    ("topologySpreadConstraints", [SPREAD], f"{POD}.spec.topologySpreadConstraints[0].topologyKey", "zone"),
    ("priorityClassName", "high", f"{POD}.spec.priorityClassName", "high"),
    ("podAnnotations", {"a.example/b": "c"}, f"{POD}.metadata.annotations", {"a.example/b": "c"}),
    ("podLabels", {"team": "vision"}, f"{POD}.metadata.labels.team", "vision"),
    ("fullnameOverride", "trainer", "Deployment.metadata.name", "trainer"),
    ("fullnameOverride", "trainer", f"{CONTAINER}.args[13]", "trainer"),
    ("fullnameOverride", "trainer", "ValidatingAdmissionPolicy.metadata.name", "home.trainer"),
    ("commonLabels", {"team": "vision"}, "Deployment.metadata.labels.team", "vision"),
    ("commonLabels", {"team": "vision"}, f"{POD}.metadata.labels.team", "vision"),
]
#: Values whose effect is that objects come or go, or that needs another value; a test of their own shows it.
OTHER_EFFECTS = {"serviceAccount.create", "aggregateRoles", "rbac.create", "rbac.readQueues", *OF_THE_NETWORK}

#: Objects that are one value each: Kubernetes' own fields, with defaults.
WHOLE = chart_values.WHOLE

#: Values that must be refused, and the place that the message names.
REFUSED: list[tuple[Object, str]] = [
    ({"replicas": 0}, "/replicas"),
    ({"replicas": 6}, "/replicas"),
    ({"replicas": "2"}, "/replicas"),
    ({"replica": 2}, "replica"),
    ({"image": {"digest": "sha256:1"}}, "/image/digest"),
    ({"image": {"digest": f"md5:{64 * 'a'}"}}, "/image/digest"),
    ({"image": {"registry": "https://registry.example/"}}, "/image/registry"),
    ({"image": {"sha": "x"}}, "/image"),
    ({"gangs": {"scheduler": "Kueue"}}, "/gangs/scheduler"),
    ({"gangs": {"schedulerName": "Not A Name"}}, "/gangs/schedulerName"),
    ({"gangs": {"queue": "x"}}, "/gangs"),
    ({"extraArgs": "--x"}, "/extraArgs"),
    ({"extraEnv": [{"value": "x"}]}, "/extraEnv/0"),
    ({"extraVolumes": {"a": {}}}, "/extraVolumes"),
    ({"extraVolumeMounts": [{"name": "a"}]}, "/extraVolumeMounts/0"),
    ({"livenessProbe": {"periodSeconds": 0}}, "/livenessProbe/periodSeconds"),
    ({"readinessProbe": {"httpGet": {}}}, "/readinessProbe"),
    ({"crds": {"keep": "yes"}}, "/crds/keep"),
    ({"crds": {"install": True}}, "/crds"),
    ({"crds": {"scaledJob": "data-worker"}}, "/crds/scaledJob"),
    ({"crds": {"scaledJob": "a.b"}}, "/crds/scaledJob"),
    ({"crds": {"scaledJob": ""}}, "/crds/scaledJob"),
    ({"crds": {"scaledJob": 64 * "a"}}, "/crds/scaledJob"),
    ({"rbac": True}, "/rbac"),
    ({"admissionPolicy": {"actions": []}}, "/admissionPolicy/actions"),
    ({"admissionPolicy": {"actions": ["Deny", "Warn"]}}, "/admissionPolicy/actions"),
    ({"admissionPolicy": {"actions": ["Log"]}}, "/admissionPolicy/actions/0"),
    ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0"),
    ({"podSecurityContext": "restricted"}, "/podSecurityContext"),
    ({"fullnameOverride": "Trainer"}, "/fullnameOverride"),
    ({"fullnameOverride": 54 * "a"}, "/fullnameOverride"),
    ({"commonLabels": {"helm.sh/chart": "mine"}}, "/commonLabels"),
    ({"image": {"repository": ""}}, "/image/repository"),
    ({"image": {"repository": "Upper/case"}}, "/image/repository"),
    ({"image": {"repository": 7}}, "/image/repository"),
    ({"image": {"repository": "r.example/x:1.0"}}, "/image/repository"),
    ({"image": {"repository": "r.example:5000/x:1.0"}}, "/image/repository"),
    ({"image": {"repository": f"r.example/x@{DIGEST}"}}, "/image/repository"),
    ({"image": {"tag": 1.0}}, "/image/tag"),
    ({"image": {"tag": "a b"}}, "/image/tag"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"imagePullSecrets": ["key"]}, "/imagePullSecrets/0"),
    ({"imagePullSecrets": [{}]}, "/imagePullSecrets/0"),
    ({"imagePullSecrets": [{"name": "key", "namespace": "x"}]}, "/imagePullSecrets/0"),
    ({"clusterWide": "yes"}, "/clusterWide"),
    ({"watchNamespaces": "a"}, "/watchNamespaces"),
    ({"watchNamespaces": ["A"]}, "/watchNamespaces/0"),
    ({"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
    ({"watchNamespaces": ["*"]}, "/watchNamespaces/0"),
    ({"watchNamespaces": ["a" * 64]}, "/watchNamespaces/0"),
    ({"logLevel": "loud"}, "/logLevel"),
    ({"logFormat": "xml"}, "/logFormat"),
    ({"defaultIsolation": "Namespace"}, "/defaultIsolation"),
    ({"serviceAccount": {"create": False}}, "/serviceAccount/name"),
    ({"serviceAccount": {"create": False, "name": "x", "annotations": {"a": "b"}}}, "/serviceAccount/annotations"),
    ({"serviceAccount": {"annotations": {"a": 1}}}, "/serviceAccount/annotations/a"),
    ({"serviceAccount": {"token": "x"}}, "/serviceAccount"),
    ({"aggregateRoles": 1}, "/aggregateRoles"),
    ({"networkPolicy": {"ingress": []}}, "/networkPolicy"),
    ({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}}, "/networkPolicy/apiServer/cidrs/0"),
    ({"networkPolicy": {"apiServer": {"ports": []}}}, "/networkPolicy/apiServer/ports"),
    ({"networkPolicy": {"metricsFrom": [{}]}}, "/networkPolicy/metricsFrom/0"),
    ({"networkPolicy": {"metricsFrom": [{"pods": {}}]}}, "/networkPolicy/metricsFrom/0"),
    ({"networkPolicy": {"dnsPorts": [70000]}}, "/networkPolicy/dnsPorts/0"),
    ({"resources": {"requests": {"memory": "much"}}}, "/resources/requests/memory"),
    ({"resources": {"limits": {"cpu": -1}}}, "/resources/limits/cpu"),
    ({"resources": {"claims": []}}, "/resources"),
    ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu"),
    ({"tolerations": [{"keys": "a"}]}, "/tolerations/0"),
    ({"tolerations": [{"operator": "In"}]}, "/tolerations/0/operator"),
    ({"affinity": {"zone": {}}}, "/affinity"),
    ({"priorityClassName": "High Priority"}, "/priorityClassName"),
    ({"podAnnotations": {"a": 1}}, "/podAnnotations/a"),
    ({"podLabels": {"a": None, "b": 1}}, "/podLabels/b"),
    ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "/podLabels"),
    ({"podLabels": {"app.kubernetes.io/instance": "mine"}}, "/podLabels"),
]


#: test_chart_monitoring.py shows the effects of these.
MONITORING = ("metrics.podMonitor.", "metrics.serviceMonitor.", "metrics.rules.", "metrics.dashboard.")
OTHER_EFFECTS |= {
    path
    for path, _ in leaves(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8")))
    if path.startswith(MONITORING)
}


@pytest.fixture(scope="module")
def default(helm: Helm) -> list[Object]:
    """What the chart renders when the user sets nothing."""
    return helm.render()


@pytest.fixture(scope="module")
def values() -> Object:
    """The defaults."""
    return yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def schema() -> Object:
    return json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("effect", EFFECTS, ids=[f"{path} in {where}" for path, _, where, _ in EFFECTS])
def test_value_has_its_effect(helm: Helm, default, effect):
    """What the user sets shows in the rendered objects, and only because it was set."""
    path, value, where, expected = effect
    assert look(default, where) != expected

    assert look(helm.render(nest(path, value)), where) == expected


@pytest.mark.parametrize("path", OF_THE_NETWORK)
def test_value_of_the_network_policy_has_its_effect(helm: Helm, path: str):
    """What the user sets shows in the NetworkPolicy where there is one, and makes none where there is none."""
    value, where, expected = OF_THE_NETWORK[path]
    set_to = nest(path, value)
    assert look(helm.render(set_to), "NetworkPolicy") is None
    enabled = {"networkPolicy": {**set_to["networkPolicy"], "enabled": True}}
    default = helm.render({"networkPolicy": {"enabled": True}})
    assert look(default, f"NetworkPolicy.spec.{where}") != expected

    assert look(helm.render(enabled), f"NetworkPolicy.spec.{where}") == expected


def test_tag_and_digest_can_both_be_told(helm: Helm):
    """With a tag and a digest the reference has both: the digest decides, and the tag is for people."""
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
    """A server whose admission policies are switched off gets none, and neither does its test the right for them."""
    asked = [f"--api-versions={kind}" for kind in kinds]
    answer = helm.run("template", "r", CHART, *asked, values={})
    assert answer.returncode == 0, answer.stderr

    assert ("kind: ValidatingAdmissionPolicy" in answer.stdout) == is_there
    assert ("aggregate-to-admin" in answer.stdout) == is_there


@pytest.mark.parametrize(("version", "works"), [("v1.29.9", False), ("v1.30.0-eks-1", True), ("v1.37.1", True)])
def test_chart_refuses_servers_that_lack_its_kinds(helm: Helm, version: str, works: bool):
    """Helm refuses to install on a server that is too old, in words that say so."""
    answer = helm.run("template", "r", CHART, "--kube-version", version, values={})

    assert (answer.returncode == 0) == works
    assert ("requires kubeVersion" in answer.stderr) != works


def test_labels_of_all_reach_all(helm: Helm):
    """``commonLabels`` are on every object, also on those of ``helm test``, and choose no pods."""
    objects = helm.render(EVERYTHING, tests=True)

    assert all(found["metadata"]["labels"]["cost-center"] == "42" for found in objects)
    assert "cost-center" not in look(objects, "Deployment.spec.selector.matchLabels")


def test_label_of_one_object_wins_over_that_of_all(helm: Helm):
    """Where ``commonLabels`` and the labels of one object have a key in common, that object has its own value, once."""
    own, further = {"release": "own"}, {"enabled": True, "labels": {"release": "own"}}
    monitors = [
        {"podMonitor": further, "rules": further, "dashboard": further},
        {"serviceMonitor": further, "podMonitor": {"enabled": False}},
    ]
    for metrics in monitors:
        given = {"commonLabels": {"release": "all"}, "podLabels": own, "metrics": metrics}
        objects = helm.render(given)

        assert look(objects, "Deployment.metadata.labels.release") == "all"
        assert look(objects, f"{POD}.metadata.labels.release") == "own"
        answer = helm.run("template", "r", CHART, "--show-only", "templates/deployment.yaml", values=given)
        assert answer.stdout.count("release: all") + answer.stdout.count("release: own") == 2
        for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"):
            assert look(objects, f"{kind}.metadata.labels.release") in {"own", None}
        assert [found["metadata"]["labels"]["release"] for found in objects].count("own") == len(
            [one for one in metrics.values() if one["enabled"]]
        )


def test_account_of_the_user_is_taken(helm: Helm):
    """With ``serviceAccount.create: false`` the operator runs as an account that the chart does not make."""
    objects = helm.render({"serviceAccount": {"create": False, "name": "robot"}})

    assert not of_kind(objects, "ServiceAccount")
    assert look(objects, f"{POD}.spec.serviceAccountName") == "robot"
    assert look(objects, "ClusterRoleBinding:home:r-tfcluster-operator.subjects") == [
        {"kind": "ServiceAccount", "name": "robot", "namespace": "home"}
    ]


def test_roles_for_users_can_be_left_out(helm: Helm, default):
    """With ``aggregateRoles: false`` the roles of users stay as they were."""
    assert len(of_kind(default, "ClusterRole")) == 4
    assert len(of_kind(helm.render({"aggregateRoles": False}), "ClusterRole")) == 1


def test_every_value_is_shown_to_have_an_effect(values):
    """No value is without a test of its effect."""
    tested = {path for path, *_ in EFFECTS} | OTHER_EFFECTS
    assert tested - {"resources.limits.cpu"} == dict(leaves(values, whole=WHOLE)).keys()


def test_schema_describes_every_value_and_no_other(values, schema):
    """The schema has exactly the values of values.yaml, and ``global``, which is helm's own."""

    def compare(given: Object, described: Object) -> None:
        assert described["properties"].keys() == given.keys()
        for name, value in given.items():
            assert described["properties"][name]["description"]
            if "properties" in described["properties"][name] and value and name not in WHOLE:
                compare(value, described["properties"][name])

    compare({**values, "global": {}}, schema)


def test_schema_is_strict(schema):
    """Every object says what it may hold; only Kubernetes' own fields and helm's ``global`` hold anything."""
    open_ended = []

    def visit(part: Any, path: str) -> None:
        if isinstance(part, dict):
            if part.get("type") == "object":
                assert "additionalProperties" in part, path
                if part["additionalProperties"] is True:
                    assert part["$comment"], path
                    open_ended.append(path)
            for name, inner in part.items():
                visit(inner, f"{path}/{name}")

    visit(schema, "")
    affinity = "/properties/affinity/properties"
    network = "/properties/networkPolicy/properties"
    assert open_ended == [
        "/properties/extraEnv/items",
        "/properties/extraVolumes/items",
        "/properties/extraVolumeMounts/items",
        *(f"{network}/metricsFrom/items/properties/{peer}" for peer in ("podSelector", "namespaceSelector", "ipBlock")),
        f"{network}/extraIngress/items",
        f"{network}/extraEgress/items",
        "/properties/podSecurityContext",
        "/properties/containerSecurityContext",
        f"{affinity}/nodeAffinity",
        f"{affinity}/podAffinity",
        f"{affinity}/podAntiAffinity",
        "/properties/topologySpreadConstraints/items",
        "/properties/global",
    ]


@pytest.mark.parametrize(("given", "place"), REFUSED, ids=[json.dumps(given)[:60] for given, _ in REFUSED])
def test_bad_values_are_refused(helm: Helm, given, place):
    """A value that cannot work is refused before anything is sent, and the message names its place."""
    answer = helm.run("template", "r", CHART, values=given)

    assert answer.returncode != 0
    assert answer.stdout == ""
    assert "don't meet the specifications of the schema" in answer.stderr
    assert place in answer.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"image": {"repository": "r.example/x:1.0"}}, "write a tag as image.tag"),
        ({"image": {"repository": f"r.example/x@{DIGEST}"}}, "a digest as image.digest"),
        (
            {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
            "both would scrape each operator twice",
        ),
    ],
)
def test_refusal_says_what_to_write(helm: Helm, given, told):
    """Where the rule alone would not tell, the message says what to write instead."""
    answer = helm.run("template", "r", CHART, values=given)

    assert answer.returncode != 0
    assert told in answer.stderr


def test_readme_describes_the_values(values):
    """The README's tables are those that values.yaml gives: every value with its default, in its order."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| (.+) \|$", text, flags=re.MULTILINE)

    assert [(path, json.loads(default)) for path, default, _ in rows] == list(leaves(values, whole=WHOLE))
    assert chart_values.main(["--check"]) == 0


def test_stale_readme_is_found(tmp_path, capsys):
    """A value whose comment was edited, one that has none, and a README without the marks are each found and named."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    path = chart / "values.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("# Its tag;", "# The tag;"), encoding="utf-8")
    assert chart_values.main(["--check", "--chart", str(chart)]) == 1
    assert "README.md is not what values.yaml says: run `make chart-docs`" in capsys.readouterr().out
    assert chart_values.main(["--chart", str(chart)]) == 0
    assert chart_values.main(["--check", "--chart", str(chart)]) == 0
    assert "| The tag; empty" in (chart / "README.md").read_text(encoding="utf-8")

    lines = [line for line in text.splitlines(keepends=True) if "# Its tag;" not in line]
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"image\.tag: no comment"):
        chart_values.main(["--chart", str(chart)])


#: Choices of the operator's options, by the value that sets them.
CHOICES = {
    "logLevel": ["debug", "info", "warning", "error"],
    "logFormat": list(logs.FORMATS),
    "defaultIsolation": list(get_args(IsolationMode)),
}


@pytest.mark.parametrize(
    "chosen", [{value: choices[n % len(choices)] for value, choices in CHOICES.items()} for n in range(4)], ids=str
)
@pytest.mark.parametrize(
    ("given", "namespaces"),
    [({"clusterWide": False}, ("home",)), ({"watchNamespaces": ["a", "b"]}, ("a", "b")), ({}, ())],
    ids=["own namespace", "two namespaces", "all namespaces"],
)
def test_operator_understands_its_arguments(helm: Helm, given, namespaces, chosen):
    """The operator reads from its arguments what the user has set, and serves its health where the probes ask."""
    objects = helm.render({**given, **chosen})

    settings = parse_arguments(look(objects, f"{CONTAINER}.args"))
    assert settings == Settings(
        namespaces=namespaces,
        health_port=8080,
        metrics_port=8081,
        log_level=chosen["logLevel"],
        log_format=chosen["logFormat"],
        default_isolation=chosen["defaultIsolation"],
        leader_election=True,
        lease_name="r-tfcluster-operator",
        lease_namespace="home",
    )
    assert look(objects, f"{CONTAINER}.ports") == [
        {"name": "health", "containerPort": 8080},
        {"name": "metrics", "containerPort": 8081},
    ]


def test_schema_knows_the_operators_choices(schema):
    """What the schema lets a user choose from is what the operator does."""
    assert {value: schema["properties"][value]["enum"] for value in CHOICES} == CHOICES
    assert schema["properties"]["gangs"]["properties"]["scheduler"]["enum"] == list(get_args(GangSchedulerKind))


@pytest.mark.parametrize("scheduler", get_args(GangSchedulerKind))
@pytest.mark.parametrize("name", ["", "team.scheduler-1"])
def test_operator_is_told_who_places_gangs(helm: Helm, scheduler, name):
    """Whose PodGroups, and the name of the scheduler, where one is given."""
    objects = helm.render({"gangs": {"scheduler": scheduler, "schedulerName": name}})

    settings = parse_arguments(look(objects, f"{CONTAINER}.args"))
    assert (settings.gang_scheduler, settings.gang_scheduler_name) == (scheduler, name)


def test_tag_is_the_version_of_the_project(default):
    """Unless told otherwise the chart runs the image of its own version, which is the project's."""
    assert look(default, f"{CONTAINER}.image") == f"tfcluster-operator:{__version__}"


def test_chart_can_be_part_of_another(helm: Helm, tmp_path):
    """A chart that depends on this one can be installed: helm gives each dependency a value named ``global``."""
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    (parent / "Chart.yaml").write_text("{apiVersion: v2, name: parent, version: 1.0.0}")
    answer = helm.run(
        "template", "r", parent, values={"global": {"a": 1}, CHART.name: {"image": {"tag": "of-the-parent"}}}
    )

    assert answer.returncode == 0, answer.stderr
    objects = list(yaml.safe_load_all(answer.stdout))
    assert look(objects, f"{CONTAINER}.image") == "tfcluster-operator:of-the-parent"
