"""The chart on a real API server: what helm installs is accepted, grants what it says, and goes without harm.

There are no nodes here, so no operator runs; the end-to-end tests let it run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from rendering import CHART, ROOT, Helm, Object, look, of_kind
from support.manifests import tfcluster
from support.objects import CRDS, NAMESPACES, PODS, ROLE_BINDINGS, TFCLUSTERS, Kind, Objects
from support.rbac import OPERATOR_RULES
from support.waiting import eventually

from tfcluster_operator.settings import parse_arguments

ACCESS_REVIEWS = Kind("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
DEPLOYMENTS = Kind("apps/v1", "deployments")
CRD = "tfclusters.tfcluster.dev"
#: The namespace of the releases, one that they watch, and one that is none of their business.
HOME, WATCHED, FOREIGN = "home", "watched", "foreign"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
#: Each value set, as far as a cluster without further preparation can bear it.
EVERYTHING = {
    "replicas": 3,
    "imagePullSecrets": [{"name": "key"}],
    "watchNamespaces": [HOME, WATCHED],
    "serviceAccount": {"name": "robot", "annotations": {"a": "b"}},
    "networkPolicy": True,
    "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1500m"}},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"a.example/b": "c"},
    "podLabels": {"team": "vision"},
}

OnServer = Callable[..., Any]


@pytest.fixture(scope="module")
def server(bare_server) -> Objects:
    """A server with three namespaces, all of which take restricted pods only."""
    configuration = client.Configuration()
    config.load_kube_config(str(bare_server.kubeconfig), client_configuration=configuration)
    objects = Objects(client.ApiClient(configuration))
    for name in (HOME, WATCHED, FOREIGN):
        objects.create(NAMESPACES, "", {"metadata": {"name": name, "labels": RESTRICTED}})
    return objects


@pytest.fixture(scope="module")
def on_server(helm: Helm, server: Objects, bare_server) -> OnServer:  # noqa: ARG001 - wants the namespaces
    """Runs helm on the server, and wants it to succeed."""

    def run(*arguments: Any, values: Object | None = None) -> str:
        place = ("--kubeconfig", bare_server.kubeconfig, "--namespace", HOME)
        answer = helm.run(*arguments, *place, values=values)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return run


@pytest.fixture
def install(on_server: OnServer, request) -> Iterator[Callable[[Object], str]]:
    """Installs the chart and gives the release's name; it is uninstalled afterwards, if it is still there."""
    release = request.node.originalname.replace("_", "-").removeprefix("test-")[:40]

    def run(values: Object) -> str:
        on_server("install", release, CHART, values=values)
        return release

    yield run
    on_server("uninstall", release, "--ignore-not-found")


def may(server: Objects, user: str, namespace: str, right: tuple[str, str, str]) -> bool:
    """Ask the server's authorizer whether a user has a right (group, resource, verb) in a namespace; "" means all."""
    group, resource, verb = right
    resource, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace}
    review = server.create(ACCESS_REVIEWS, "", {"spec": {"user": user, "resourceAttributes": asked}})
    return review["status"]["allowed"]


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
    for values in ({}, EVERYTHING, {"clusterWide": True, "networkPolicy": True}):
        answer = helm.run("lint", "--strict", CHART, values=values)
        assert answer.returncode == 0, answer.stdout + answer.stderr


def test_chart_has_the_generated_definition():
    """The chart's copy of the CRD is the generated one, byte for byte."""
    assert (CHART / "crds" / "tfcluster.yaml").read_bytes() == (ROOT / "crds" / "tfcluster.yaml").read_bytes()


def test_pod_is_restricted_in_every_field(helm: Helm):
    """The operator's pod asks for less than the Pod Security Standard "restricted" allows."""
    pod = look(helm.render(), "Deployment.spec.template.spec")
    (container,) = pod["containers"]

    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
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


def test_network_policy_opens_the_named_ports_alone(helm: Helm):
    """With ``networkPolicy`` the operator's pod, and no other, takes connections to these two ports only."""
    objects = helm.render({"networkPolicy": True})

    selector = look(objects, "Deployment.spec.selector")
    assert look(objects, "NetworkPolicy.spec") == {
        "podSelector": selector,
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port} for port in ("health", "metrics")]}],
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


def test_install_brings_the_definition(server: Objects, install):
    """``helm install`` on a server that knows no TFCluster makes the kind usable."""
    server.delete(CRDS, "", CRD)  # left by an earlier test's release
    eventually(lambda: server.get(CRDS, "", CRD), lambda found: found is None, what="the kind is unknown")

    install({})

    definition = yaml.safe_load((ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8"))
    found = eventually(
        lambda: server.get(CRDS, "", CRD),
        lambda crd: any(c["type"] == "Established" and c["status"] == "True" for c in crd["status"]["conditions"]),
        what="the kind is established",
    )
    assert set(found["spec"]["names"]["shortNames"]) == set(definition["spec"]["names"]["shortNames"])
    eventually(lambda: creates_a_cluster(server), what="a TFCluster can be created")


def creates_a_cluster(server: Objects) -> bool:
    try:
        server.request("POST", f"{TFCLUSTERS.path(HOME)}?dryRun=All", tfcluster("c").job("worker").build())
    except ApiException as error:
        if error.status not in {404, 429}:  # not known yet, or its storage is being set up
            raise
        return False
    return True


def test_definition_is_upgraded_by_hand(server: Objects, install, on_server, bare_server):
    """``helm upgrade`` leaves an old definition old; ``kubectl apply`` of the chart's file brings it up to date."""
    from local_kubernetes.binaries import hyperkube

    release = install({})
    names = server.get(CRDS, "", CRD)["spec"]["names"]
    server.patch(CRDS, "", CRD, {"spec": {"names": {"shortNames": ["old"]}}})

    on_server("upgrade", release, CHART, values={"logLevel": "debug"})
    assert server.get(CRDS, "", CRD)["spec"]["names"]["shortNames"] == ["old"]

    kubectl = [hyperkube(), "kubectl", "--kubeconfig", bare_server.kubeconfig]
    subprocess.run([*kubectl, "apply", "-f", CHART / "crds" / "tfcluster.yaml"], check=True, capture_output=True)
    assert server.get(CRDS, "", CRD)["spec"]["names"] == names


def test_operator_has_its_rights_where_it_watches(server: Objects, install):
    """In the namespaces that it watches the operator has the rights that it needs, and none elsewhere."""
    release = install({"watchNamespaces": [WATCHED]})

    eventually(lambda: granted(server, release, WATCHED), lambda found: found == NEEDED, what="it has its rights")
    assert {namespace: granted(server, release, namespace) for namespace in (HOME, FOREIGN, "")} == {
        HOME: [],
        FOREIGN: [],
        "": [],
    }


def test_operator_has_its_rights_everywhere(server: Objects, install):
    """Cluster-wide the operator has the same rights in all namespaces, and no further one."""
    release = install({"clusterWide": True})

    eventually(lambda: granted(server, release, ""), lambda found: found == NEEDED, what="it has its rights")


def test_upgrade_takes_rights_away(server: Objects, install, on_server):
    """When a cluster-wide release is upgraded to watch one namespace, its other rights are gone."""
    release = install({"clusterWide": True})
    eventually(lambda: granted(server, release, FOREIGN), lambda found: found == NEEDED, what="it has its rights")

    # Given no value at all, helm would use those of the installation again.
    on_server("upgrade", release, CHART, values={"clusterWide": False})

    eventually(lambda: granted(server, release, FOREIGN), lambda found: not found, what="its rights are gone")
    eventually(lambda: granted(server, release, HOME), lambda found: found == NEEDED, what="it has them at home")


def test_users_may_do_with_clusters_what_they_may_do_with_pods(server: Objects, install):
    """Who may view a namespace may read its TFClusters; who may edit it may change them; nobody writes the status."""
    install({})
    for user, role in (("reader", "view"), ("writer", "edit")):
        if server.get(ROLE_BINDINGS, HOME, user) is None:
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            body = {"metadata": {"name": user}, "roleRef": reference, "subjects": [subject]}
            server.create(ROLE_BINDINGS, HOME, body)

    def verbs(user: str, resource: str = "tfclusters") -> set[str]:
        asked = ("create", "delete", "get", "list", "patch", "update", "watch")
        return {verb for verb in asked if may(server, user, HOME, ("tfcluster.dev", resource, verb))}

    eventually(lambda: verbs("reader"), lambda found: found == {"get", "list", "watch"}, what="a reader may read")
    eventually(lambda: len(verbs("writer")), lambda count: count == 7, what="a writer may do all")
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
    found = server.get(DEPLOYMENTS, HOME, f"{release}-tfcluster-operator")["spec"]["template"]
    for field in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert found["spec"][field] == wanted[field]
    assert found["metadata"]["annotations"] == EVERYTHING["podAnnotations"]
    assert {entry["kind"] for entry in manifest(on_server, release)} == {
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "RoleBinding",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Lease",
    }


def manifest(on_server: OnServer, release: str) -> list[Object]:
    return [found for found in yaml.safe_load_all(on_server("get", "manifest", release)) if found]


def test_uninstall_leaves_the_users_things(server: Objects, install, on_server):
    """``helm uninstall`` takes all that the release made, and leaves the kind and every TFCluster."""
    release = install({})
    eventually(lambda: creates_a_cluster(server), what="a TFCluster can be created")
    cluster = server.create(TFCLUSTERS, HOME, tfcluster("stays").job("worker").build())
    before = server.get(CRDS, "", CRD)["metadata"]["uid"]

    on_server("uninstall", release)

    assert server.get(CRDS, "", CRD)["metadata"]["uid"] == before
    assert server.get(TFCLUSTERS, HOME, "stays")["metadata"]["uid"] == cluster["metadata"]["uid"]
    assert server.list(DEPLOYMENTS, HOME) == []
    assert json.loads(on_server("list", "--output", "json")) == []
