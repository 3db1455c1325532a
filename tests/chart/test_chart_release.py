"""The chart on a real API server: what helm installs is accepted, grants what it says, and goes without harm.

There are no nodes here, so no operator runs; the end-to-end tests let it run.
"""

from __future__ import annotations

import json
import shlex

import pytest
import yaml
from on_server import FOREIGN, HOME, WATCHED, OnServer
from rendering import CHART, Helm, Object, look, of_kind
from support.guide import snippets
from support.manifests import tfcluster
from support.objects import NAMESPACES, PODS, TFCLUSTERS, Kind, Objects
from support.rbac import OPERATOR_RULES, bind, may
from support.waiting import eventually
from value_sets import EVERYTHING, MINIMAL

from tfcluster_operator.settings import parse_arguments

DEPLOYMENTS = Kind("apps/v1", "deployments")


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


def granted(server: Objects, release: str, namespace: str) -> list[tuple[str, str, str]]:
    """List which of the rights needed and forbidden the operator of a release has in a namespace."""
    user = f"system:serviceaccount:{HOME}:{release}-tfcluster-operator"
    return [right for right in NEEDED + FORBIDDEN if may(server, user, namespace, right)]


def test_chart_passes_lint(helm: Helm):
    """``helm lint --strict`` finds nothing to complain about, in no mode."""
    for values in ({}, EVERYTHING, MINIMAL):
        answer = helm.run("lint", "--strict", CHART, values=values)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_pod_is_restricted_in_every_field(helm: Helm):
    """The operator's pod asks for less than the Pod Security Standard "restricted" allows."""
    pod = look(helm.render(), "Deployment.spec.template.spec")
    (container,) = pod["containers"]

    # NB: no user: the image's is 65532, and OpenShift chooses one for each namespace.
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "volumes" not in pod
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert not any("hostPort" in port for port in container["ports"])


def test_a_new_operator_is_ready_before_an_old_one_ends(helm: Helm):
    """Two operators run, one of which leads; an upgrade adds a new one before it takes an old one away."""
    objects = helm.render()
    assert look(objects, "Deployment.spec.replicas") == 2
    assert look(objects, "Deployment.spec.strategy") == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_operators_elect_their_leader_by_the_releases_lease(helm: Helm):
    """The operator's settings name the Lease that its Role names, in the release's namespace."""
    objects = helm.render()

    settings = parse_arguments(look(objects, "Deployment.spec.template.spec.containers[0].args"))
    assert (settings.leader_election, settings.lease_namespace) == (True, "home")
    rules = look(objects, "Role:r-tfcluster-operator-election.rules")
    assert rules[0]["resourceNames"] == [settings.lease_name]


def test_several_operators_are_spread_and_kept(helm: Helm):
    """Two operators prefer two nodes, and an eviction takes one of them at most; a single one binds nobody."""
    objects = helm.render()
    selector = look(objects, "Deployment.spec.selector")
    (spread,) = look(objects, "Deployment.spec.template.spec.topologySpreadConstraints")
    assert spread == {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": selector,
    }
    assert look(objects, "PodDisruptionBudget.spec") == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": selector,
    }

    alone = helm.render({"replicas": 1})
    assert look(alone, "PodDisruptionBudget") is None
    assert look(alone, "Deployment.spec.template.spec.topologySpreadConstraints") is None


def test_probes_ask_the_operators_health(helm: Helm):
    """The kubelet asks /healthz whether the operator lives, and /readyz whether it is ready."""
    container = look(helm.render(), "Deployment.spec.template.spec.containers[0]")
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_network_policy_opens_what_the_operator_needs(helm: Helm):
    """With ``networkPolicy`` the operator's pod takes connections to its two ports, and opens them to API and DNS."""
    objects = helm.render({"networkPolicy": {"enabled": True}})

    selector = look(objects, "Deployment.spec.selector")
    assert look(objects, "NetworkPolicy.spec") == {
        "podSelector": selector,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port}]} for port in ("health", "metrics")],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]},
            {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        ],
    }
    assert selector["matchLabels"].items() <= look(objects, "Deployment.spec.template.metadata.labels").items()


def test_token_is_mounted_in_the_operators_pod_alone(helm: Helm):
    """Another pod that runs as the operator's account gets no token unless it asks."""
    objects = helm.render()
    assert look(objects, "ServiceAccount.automountServiceAccountToken") is False
    assert look(objects, "Deployment.spec.template.spec.automountServiceAccountToken") is True


def test_numeric_release_name_is_a_string(helm: Helm):
    """A release may be called 1: labels stay strings."""
    for found in helm.render(release="1"):
        assert all(isinstance(value, str) for value in found["metadata"]["labels"].values())


def test_long_release_name_fits(helm: Helm):
    """The longest name that helm allows gives names that a Deployment can bear."""
    name = look(helm.render(release="r" * 53), "Deployment.metadata.name")
    assert len(name) <= 63
    assert name[-1].isalnum()


def test_operator_has_its_rights_where_it_watches(server: Objects, install):
    """In the namespaces that it watches the operator has the rights that it needs, and none elsewhere."""
    release = install({"watchNamespaces": [WATCHED]})

    eventually(lambda: granted(server, release, WATCHED), lambda found: found == NEEDED, what="it has its rights")
    assert {namespace: granted(server, release, namespace) for namespace in (HOME, FOREIGN, "")} == {
        HOME: [],
        FOREIGN: [],
        "": [],
    }


@pytest.mark.exhaustive
def test_operator_has_its_rights_everywhere(server: Objects, install):
    """Cluster-wide the operator has the same rights in all namespaces, and no further one."""
    release = install({})

    eventually(lambda: granted(server, release, ""), lambda found: found == NEEDED, what="it has its rights")


@pytest.mark.exhaustive
def test_upgrade_takes_rights_away(server: Objects, install, on_server):
    """When a cluster-wide release is upgraded to watch one namespace, its other rights are gone."""
    release = install({})
    eventually(lambda: granted(server, release, FOREIGN), lambda found: found == NEEDED, what="it has its rights")

    # Given no value at all, helm would use those of the installation again.
    on_server("upgrade", release, CHART, values={"clusterWide": False})

    eventually(lambda: granted(server, release, FOREIGN), lambda found: not found, what="its rights are gone")
    eventually(lambda: granted(server, release, HOME), lambda found: found == NEEDED, what="it has them at home")


@pytest.mark.exhaustive
def test_missing_namespace_is_told_before_anything_is_made(
    server: Objects, helm: Helm, bare_server, kubectl, on_server
):
    """A watched namespace that is missing, or deleted later, is named, nothing is made, and the retry works."""
    place = ("--kubeconfig", bare_server.kubeconfig, "--namespace", HOME)
    mine = ("get", "all,roles,leases", "-A", "-o", "name", "-l", "app.kubernetes.io/instance=late")
    for watched in ([WATCHED, "late"], ["late"]):
        answer = helm.run("upgrade", "--install", "late", CHART, *place, values={"watchNamespaces": watched})
        assert answer.returncode != 0
        assert "namespace late does not exist" in answer.stderr
        assert kubectl(*mine) == ""
    # Rendered without a server nobody can know.
    assert look(helm.render({"watchNamespaces": ["late"]}), "Deployment")

    server.create(NAMESPACES, "", {"metadata": {"name": "late"}})
    on_server("upgrade", "--install", "late", CHART, values={"watchNamespaces": [WATCHED, "late"]})
    kubectl("delete", "namespace", "late")
    answer = helm.run("upgrade", "late", CHART, *place, values={"watchNamespaces": [WATCHED, "late"]})
    assert "remove it from watchNamespaces" in answer.stderr
    on_server("upgrade", "late", CHART, values={"watchNamespaces": [WATCHED]})
    on_server("uninstall", "late")


@pytest.mark.exhaustive
def test_users_may_do_with_clusters_what_they_may_do_with_pods(server: Objects, install):
    """Who may view a namespace may read its TFClusters; who may edit it may change them; nobody writes the status."""
    install({})
    for user, role in (("reader", "view"), ("writer", "edit")):
        bind(server, user, HOME, "ClusterRole", role)

    def verbs(user: str, resource: str = "tfclusters") -> set[str]:
        asked = ("create", "delete", "get", "list", "patch", "update", "watch")
        return {verb for verb in asked if may(server, user, HOME, ("tfcluster.dev", resource, verb))}

    assert verbs("reader") == {"get", "list", "watch"}
    assert len(verbs("writer")) == 7
    assert verbs("writer", "tfclusters/scale") >= {"get", "patch", "update"}
    assert verbs("writer", "tfclusters/status") <= {"get", "list", "watch"}


def test_restricted_namespace_takes_the_operators_pod(server: Objects, install):
    """Pod Security admission lets the operator's pods into a namespace that enforces "restricted"."""
    release = install({})

    selector = f"app.kubernetes.io/instance={release}"
    pods = eventually(
        lambda: server.list(PODS, HOME, selector=selector),
        lambda found: len(found) == 2,
        what="the operator's pods are admitted",
    )
    for pod in pods:
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "tfcluster-operator"


def test_server_accepts_every_value(server: Objects, install, on_server):
    """With every value set, the server knows each field and keeps it."""
    release = install(EVERYTHING)

    (rendered,) = of_kind(list(yaml.safe_load_all(on_server("get", "manifest", release))), "Deployment")
    wanted = rendered["spec"]["template"]["spec"]
    found = server.get(DEPLOYMENTS, HOME, "trainer")["spec"]["template"]
    for field in (
        "imagePullSecrets",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "securityContext",
    ):
        assert found["spec"][field] == wanted[field]
    for field in ("volumeMounts", "securityContext", "image"):
        assert found["spec"]["containers"][0][field] == wanted["containers"][0][field]
    assert found["metadata"]["annotations"] == EVERYTHING["podAnnotations"]
    assert {entry["kind"] for entry in manifest(on_server, release)} == {
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ConfigMap",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "RoleBinding",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Lease",
    }


def manifest(on_server: OnServer, release: str, namespace: str = HOME) -> list[Object]:
    """Give what belongs to a release; the definition belongs to the first one that a test has installed."""
    text = on_server("get", "manifest", release, namespace=namespace)
    found = [found for found in yaml.safe_load_all(text) if found]
    return [one for one in found if one["kind"] != "CustomResourceDefinition"]


@pytest.mark.exhaustive
def test_uninstall_takes_all_that_the_release_made(install, on_server, kubectl):
    """``helm uninstall`` leaves nothing of the release but the definition of the kind."""
    release = install(EVERYTHING)
    kinds = ",".join(sorted({found["kind"].lower() for found in manifest(on_server, release)}))
    mine = ("get", kinds, "--all-namespaces", "--output", "name", "--selector", f"app.kubernetes.io/instance={release}")
    assert len(kubectl(*mine).split()) == len(manifest(on_server, release))

    on_server("uninstall", release, "--wait")

    assert kubectl(*mine).split() == []
    assert json.loads(on_server("list", "--output", "json")) == []


@pytest.mark.exhaustive
def test_what_a_deleted_namespace_leaves_can_be_cleaned_up(server: Objects, on_server: OnServer, kubectl):
    """Where somebody deleted the release's namespace, the README's commands remove the rest but the definition."""
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
    (cleanup,) = [snippet for snippet in snippets(CHART / "README.md") if snippet.place == "cleanup"]
    for release in ("lost", "lost-too"):
        assert left(release)
        for command, _ in cleanup.commands():
            kubectl(*shlex.split(command.replace("instance=tfcluster", f"instance={release}"))[1:])
        assert left(release) == []
    assert "careless" not in kubectl("get", ",".join(sorted(kinds)), "--all-namespaces", "--output", "name")


@pytest.mark.exhaustive
def test_notes_tell_who_else_works_there(install, on_server: OnServer):
    """The notes name each other release in a namespace of this one, and where both work; apart, they say nothing."""
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
def test_notes_tell_which_clusters_nobody_serves(server: Objects, install, on_server: OnServer):
    """The notes name TFClusters outside of the release's namespaces, unless another release works there."""
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
