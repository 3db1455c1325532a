"""The chart on a real API server: helm's objects are accepted, grant the documented permissions, and can be removed."""

import json
import shlex

import pytest
from on_server import DEPLOYMENTS, FOREIGN, HOME, WATCHED, OnServer
from rendering import CHART, ROOT, Helm, Object, look, read_yaml, selects, the_only
from support.guide import snippets
from support.manifests import tfcluster
from support.objects import NAMESPACES, PODS, TFCLUSTERS, Objects
from support.rbac import OPERATOR_RULES, may
from support.waiting import eventually
from value_sets import EVERYTHING, MINIMAL

POD = "Deployment.spec.template.spec"
CONTAINER = f"{POD}.containers[0]"
SELECTOR = {"matchLabels": {"app.kubernetes.io/name": "tfcluster-operator", "app.kubernetes.io/instance": "r"}}
NEEDED = [(group, resource, verb) for group, resource, verbs in OPERATOR_RULES for verb in verbs]
FORBIDDEN = [
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "pods/exec", "create"),
    ("", "pods", "deletecollection"),
    ("", "serviceaccounts/token", "create"),
    ("", "nodes", "list"),
    ("", "namespaces", "list"),
    ("tfcluster.dev", "tfclusters", "patch"),
    ("tfcluster.dev", "tfclusters", "deletecollection"),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "patch"),
]
#: The default values of objects' fields.
DEFAULT = {
    "Deployment.spec.selector": SELECTOR,
    # Two operators run, and one leads; an upgrade adds a new one before it removes an old one.
    "Deployment.spec.replicas": 2,
    "Deployment.spec.strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    # They prefer two nodes, and an eviction takes one of them at most.
    f"{POD}.topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": SELECTOR,
        }
    ],
    "PodDisruptionBudget.spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": SELECTOR,
    },
    # Less than the Pod Security Standard "restricted" allows. No user: the image's is 65532, and OpenShift chooses one
    # for each namespace.
    f"{POD}.securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    f"{CONTAINER}.securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    f"{POD}.containers[1]": None,
    **{f"{POD}.{field}": None for field in ("initContainers", "volumes", "hostNetwork", "hostPID", "hostIPC")},
    # Another pod with the operator's account gets a token only if it requests one.
    f"{POD}.automountServiceAccountToken": True,
    "ServiceAccount.automountServiceAccountToken": False,
    f"{CONTAINER}.livenessProbe.httpGet": {"path": "/healthz", "port": "health"},
    f"{CONTAINER}.readinessProbe.httpGet": {"path": "/readyz", "port": "health"},
}


def granted(server: Objects, release: str, namespace: str) -> list[tuple[str, str, str]]:
    """Return which of the needed and forbidden permissions the operator of a release has in a namespace."""
    user = f"system:serviceaccount:{HOME}:{release}-tfcluster-operator"
    return [right for right in NEEDED + FORBIDDEN if may(server, user, namespace, right)]


def test_chart_passes_lint(helm: Helm):
    for values in ({}, EVERYTHING, MINIMAL):
        answer = helm.run("lint", "--strict", CHART, values=values)
        assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("where", DEFAULT)
def test_operators_are_restricted_and_kept(helm: Helm, where: str):
    assert look(helm.render(), where) == DEFAULT[where]


def test_operators_are_found_by_their_labels_and_one_alone_is_not_spread(helm: Helm):
    """A single operator is not spread over nodes, and blocks no eviction."""
    assert selects(SELECTOR["matchLabels"], look(helm.render(), "Deployment.spec.template.metadata.labels"))
    alone = helm.render({"replicas": 1})
    assert look(alone, "PodDisruptionBudget") is None
    assert look(alone, f"{POD}.topologySpreadConstraints") is None


def test_network_policy_opens_what_the_operator_needs(helm: Helm):
    assert look(helm.render({"networkPolicy": {"enabled": True}}), "NetworkPolicy.spec") == {
        "podSelector": SELECTOR,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port}]} for port in ("health", "metrics")],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]},
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        ],
    }


@pytest.mark.parametrize("name", ["1", "r" * 53])
def test_any_name_of_a_release_will_do(helm: Helm, name: str):
    """A release can be called 1, and labels stay strings; the longest name gives names within the limit."""
    for found in helm.render({"crds": {}, "metrics": {"serviceMonitor": {"enabled": True}}}, release=name):
        assert all(isinstance(value, str) for value in found["metadata"]["labels"].values())
        if found["kind"] in {"Deployment", "Service"}:
            assert len(found["metadata"]["name"]) <= 63
            assert found["metadata"]["name"][-1].isalnum()


def test_operator_has_permissions_only_in_watched_namespaces(server: Objects, install):
    release = install({"watchNamespaces": [WATCHED]})
    eventually(lambda: granted(server, release, WATCHED), lambda found: found == NEEDED, what="it has its rights")
    assert [granted(server, release, namespace) for namespace in (HOME, FOREIGN, "")] == [[], [], []]
    eventually(
        lambda: server.list(PODS, HOME, selector=f"app.kubernetes.io/instance={release}"),
        lambda found: len(found) == 2,
        what="the operator's pods are admitted",
    )


@pytest.mark.exhaustive
def test_missing_namespace_is_reported_before_any_object_is_created(
    server: Objects, helm: Helm, bare_server, kubectl, on_server
):
    place = ("--kubeconfig", bare_server.kubeconfig, "--namespace", HOME)
    mine = ("get", "all,roles,leases", "-A", "-o", "name", "-l", "app.kubernetes.io/instance=late")
    for watched in ([WATCHED, "late"], ["late"]):
        answer = helm.run("upgrade", "--install", "late", CHART, *place, values={"watchNamespaces": watched})
        assert answer.returncode != 0
        assert "namespace late does not exist" in answer.stderr
        assert kubectl(*mine) == ""
    # Without a server, rendering cannot know it.
    assert look(helm.render({"watchNamespaces": ["late"]}), "Deployment")
    server.create(NAMESPACES, "", {"metadata": {"name": "late"}})
    on_server("upgrade", "--install", "late", CHART, values={"watchNamespaces": [WATCHED, "late"]})
    kubectl("delete", "namespace", "late")
    answer = helm.run("upgrade", "late", CHART, *place, values={"watchNamespaces": [WATCHED, "late"]})
    assert "remove it from watchNamespaces" in answer.stderr
    on_server("upgrade", "late", CHART, values={"watchNamespaces": [WATCHED]})
    on_server("uninstall", "late")


def test_server_accepts_every_value(helm: Helm, server: Objects, install, on_server):
    made = manifest(on_server, install(EVERYTHING))
    wanted = the_only(made, "Deployment")["spec"]["template"]["spec"]
    template = server.get(DEPLOYMENTS, HOME, "trainer")["spec"]["template"]
    found = template["spec"]
    for field in (
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "securityContext",
    ):
        assert found[field] == wanted[field]
    for field in ("volumeMounts", "securityContext", "image"):
        assert found["containers"][0][field] == wanted["containers"][0][field]
    assert template["metadata"]["annotations"] == EVERYTHING["podAnnotations"]
    assert {entry["kind"] for entry in made} == {entry["kind"] for entry in helm.render(EVERYTHING)}


def manifest(on_server: OnServer, release: str, namespace: str = HOME) -> list[Object]:
    """Return the objects of a release; the CRD belongs to the first one that a test has installed."""
    found = read_yaml(on_server("get", "manifest", release, namespace=namespace))
    return [one for one in found if one["kind"] != "CustomResourceDefinition"]


@pytest.mark.exhaustive
def test_uninstall_takes_all_that_the_release_made(install, on_server, kubectl):
    release = install(EVERYTHING)
    kinds = ",".join(sorted({found["kind"].lower() for found in manifest(on_server, release)}))
    mine = ("get", kinds, "--all-namespaces", "--output", "name", "--selector", f"app.kubernetes.io/instance={release}")
    assert len(kubectl(*mine).split()) == len(manifest(on_server, release))
    on_server("uninstall", release, "--wait")
    assert kubectl(*mine).split() == []
    assert json.loads(on_server("list", "--output", "json")) == []


@pytest.mark.exhaustive
def test_what_a_deleted_namespace_leaves_can_be_cleaned_up(server: Objects, on_server: OnServer, kubectl):
    """After a user deleted the release's namespace, the documented commands remove everything except the CRD."""
    server.create(NAMESPACES, "", {"metadata": {"name": "careless"}})
    values = {"watchNamespaces": [WATCHED], "metrics": EVERYTHING["metrics"]}
    on_server("install", "lost", CHART, namespace="careless", values=values)
    on_server("install", "lost-too", CHART, namespace="careless")
    kinds = {found["kind"].lower() for found in manifest(on_server, "lost", namespace="careless")}
    kinds |= {found["kind"].lower() for found in manifest(on_server, "lost-too", namespace="careless")}

    def left(release: str) -> list[str]:
        mine = ("--all-namespaces", "--output", "name", "--selector", f"app.kubernetes.io/instance={release}")
        return kubectl("get", ",".join(sorted(kinds)), *mine).split()

    kubectl("delete", "namespace", "careless")
    (cleanup,) = [
        snippet for snippet in snippets(ROOT / "docs" / "get-started" / "installation.md") if snippet.place == "cleanup"
    ]
    for release in ("lost", "lost-too"):
        assert left(release)
        for command, _ in cleanup.commands():
            kubectl(*shlex.split(command.replace("instance=tfcluster", f"instance={release}"))[1:])
        assert left(release) == []
    assert "careless" not in kubectl("get", ",".join(sorted(kinds)), "--all-namespaces", "--output", "name")


@pytest.mark.exhaustive
def test_notes_tell_who_else_works_there(install, on_server: OnServer):
    first = install({"watchNamespaces": [WATCHED, HOME]})
    assert "ANOTHER RELEASE" not in on_server("get", "notes", first)
    lines = {}
    for values in ({"watchNamespaces": [FOREIGN]}, {"watchNamespaces": [FOREIGN, WATCHED]}, {"clusterWide": True}):
        on_server("upgrade", "--install", "second", CHART, namespace=FOREIGN, values={"clusterWide": False} | values)
        notes = on_server("get", "notes", "second", namespace=FOREIGN)
        lines[json.dumps(values)] = [line.strip() for line in notes.splitlines() if line.startswith("  release ")]
    assert list(lines.values()) == [
        [],
        [f"release {first} in namespace {HOME}: {WATCHED}"],
        [f"release {first} in namespace {HOME}: {WATCHED}, {HOME}"],
    ]
    on_server("upgrade", first, CHART, values={"clusterWide": True})
    assert f"  release second in namespace {FOREIGN}: every namespace" in on_server("get", "notes", first)
    on_server("uninstall", "second", namespace=FOREIGN)


@pytest.mark.exhaustive
def test_notes_list_clusters_that_no_release_serves(server: Objects, install, on_server: OnServer):
    release = install({})
    server.create(TFCLUSTERS, FOREIGN, tfcluster("lonely").spec(suspend=True).job("worker").build())
    server.create(TFCLUSTERS, WATCHED, tfcluster("served").spec(suspend=True).job("worker").build())
    assert "NO RELEASE SERVES" not in on_server("get", "notes", release)
    on_server("upgrade", release, CHART, values={"watchNamespaces": [WATCHED]})
    notes = on_server("get", "notes", release)
    assert f"  {FOREIGN}: lonely" in notes
    assert "served" not in notes.partition("NO RELEASE SERVES")[2]
    on_server("install", "second", CHART, namespace=FOREIGN, values={"clusterWide": False})
    assert "NO RELEASE SERVES" not in on_server("get", "notes", "second", namespace=FOREIGN)
    on_server("uninstall", "second", namespace=FOREIGN)
    for namespace, name in ((FOREIGN, "lonely"), (WATCHED, "served")):
        server.delete(TFCLUSTERS, namespace, name)
