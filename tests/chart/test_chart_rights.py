"""The operator's permissions in the chart: exactly those that it needs, in its namespaces, and no others."""

import re
from collections import defaultdict

import pytest
from rendering import ROOT, Helm, Object, look, of_kind, the_only
from support.rbac import OPERATOR_RULES, QUEUE_RULES

#: Verbs by API group and resource.
RULES = {(group, resource): list(verbs) for group, resource, verbs in OPERATOR_RULES}
#: Cluster-scoped resources that it reads; they contain no secrets of users.
CLUSTER_WIDE = {(group, resource): list(verbs) for group, resource, verbs in QUEUE_RULES}
READS = ["get", "list", "watch"]
VIEWER_RULES = {("tfcluster.dev", f"tfclusters{part}"): READS for part in ("", "/status", "/scale")}
EDITOR_RULES = {
    ("tfcluster.dev", "tfclusters"): sorted([*READS, "create", "delete", "deletecollection", "patch", "update"]),
    ("tfcluster.dev", "tfclusters/status"): ["get"],
    ("tfcluster.dev", "tfclusters/scale"): ["get", "patch", "update"],
}
ACCOUNT_RULES = {("", "serviceaccounts"): ["use"]}
AGGREGATION = "rbac.authorization.k8s.io/aggregate-to-"
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
OWN_LEASE = {**LEASES, "resourceNames": ["r-tfcluster-operator"]}
ELECTION_RULES = [{**OWN_LEASE, "verbs": ["get", "patch"]}, {**LEASES, "verbs": ["create"]}]

PER_NAMESPACE: Object = {"clusterWide": False}
TWO: Object = {"watchNamespaces": ["one", "two"]}


def for_clusters(objects: list[Object], kind: str) -> list[Object]:
    """Return the Roles or RoleBindings except those for the election."""
    return [found for found in of_kind(objects, kind) if not found["metadata"]["name"].endswith("-election")]


def rights(role: Object) -> dict[tuple[str, str], list[str]]:
    """Return a role's rules by group and resource; a rule must have only these three fields."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                assert (group, resource) not in found
                found[group, resource] = sorted(rule["verbs"])
    return found


def aggregated(objects: list[Object]) -> dict[tuple[str, ...], dict[tuple[str, str], list[str]]]:
    """Return the permissions of each ClusterRole by the users' roles that get them."""
    found = {}
    for role in of_kind(objects, "ClusterRole"):
        labels = role["metadata"]["labels"]
        gaining = (label.removeprefix(AGGREGATION) for label, on in labels.items() if AGGREGATION in label and on)
        found[tuple(gaining)] = rights(role)
    return found


def assert_binds(binding: Object, role: Object, objects: list[Object]) -> None:
    """A binding gives a role, in its namespace, only to the operator's account."""
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": role["kind"],
        "name": role["metadata"]["name"],
    }
    assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")
    account = the_only(objects, "ServiceAccount")["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert look(objects, "Deployment.spec.template.spec.serviceAccountName") == account["name"]
    assert look(objects, "Deployment.metadata.namespace") == account["namespace"]


@pytest.mark.parametrize(
    ("scheduler", "group"),
    [
        ("Kubernetes", "scheduling.k8s.io"),
        ("SchedulerPlugins", "scheduling.x-k8s.io"),
        ("Volcano", "scheduling.volcano.sh"),
    ],
)
@pytest.mark.parametrize(
    ("values", "namespaces", "cluster_wide"),
    [
        pytest.param({}, [], CLUSTER_WIDE, id="everywhere"),
        pytest.param(PER_NAMESPACE, ["home"], None, id="the release's own namespace"),
        pytest.param(TWO, ["one", "two"], None, id="the namespaces named"),
        pytest.param({**PER_NAMESPACE, "rbac": {"readQueues": True}}, ["home"], CLUSTER_WIDE, id="its own, and queues"),
    ],
)
def test_operator_has_exactly_its_permissions_in_its_namespaces(  # noqa: PLR0917 - by name
    helm: Helm, values, namespaces, cluster_wide, scheduler, group
):
    objects = helm.render({**values, "gangs": {"scheduler": scheduler}, "aggregateRoles": False})
    rules = {(group if resource == "podgroups" else of, resource): verbs for (of, resource), verbs in RULES.items()}
    roles, bindings = for_clusters(objects, "Role"), for_clusters(objects, "RoleBinding")
    assert [role["metadata"]["namespace"] for role in roles] == namespaces
    assert [rights(role) for role in roles] == [rules] * len(namespaces)
    everywhere = {} if namespaces else rules
    expected = {(): everywhere | cluster_wide} if cluster_wide else {}
    assert aggregated(objects) == expected
    roles += of_kind(objects, "ClusterRole")
    for role, binding in zip(roles, bindings + of_kind(objects, "ClusterRoleBinding"), strict=True):
        assert_binds(binding, role, objects)


@pytest.mark.parametrize("values", [{}, PER_NAMESPACE, TWO, {"replicas": 1}])
def test_rights_to_the_lease_are_those_of_the_release(helm: Helm, values):
    """In every namespace, the operator can access only its own Lease, in the release's namespace."""
    objects = helm.render(values)
    role = look(objects, "Role:r-tfcluster-operator-election")
    assert role["rules"] == ELECTION_RULES
    assert role["metadata"]["namespace"] == "home"
    assert_binds(look(objects, "RoleBinding:r-tfcluster-operator-election"), role, objects)


@pytest.mark.parametrize(
    ("values", "gained"),
    [
        ({}, {("view",): VIEWER_RULES, ("edit",): EDITOR_RULES, ("admin",): ACCOUNT_RULES}),
        # The verb "use" on ServiceAccounts is for the policy only, and is not granted without it.
        ({"admissionPolicy": {"enabled": False}}, {("view",): VIEWER_RULES, ("edit",): EDITOR_RULES}),
        ({"aggregateRoles": False}, {}),
    ],
    ids=["with the policy", "without the policy", "left out"],
)
def test_users_rights_are_aggregated(helm: Helm, values, gained):
    """The roles view, edit and admin, and no other, get permissions on TFClusters, unless this is disabled."""
    assert aggregated(helm.render({**PER_NAMESPACE, **values})) == gained
    assert aggregated(helm.render(values)) == gained | {(): RULES | CLUSTER_WIDE}


@pytest.mark.parametrize("values", [{}, PER_NAMESPACE])
def test_rights_can_be_left_to_others(helm: Helm, values):
    others = [found for found in helm.render(values) if not found["apiVersion"].startswith("rbac.")]
    assert helm.render({**values, "rbac": {"create": False}}) == others


def test_releases_share_no_role(helm: Helm):
    one, two = (
        {found["metadata"]["name"] for found in helm.render(namespace=home) if found["kind"].startswith("Cluster")}
        for home in ("home", "two")
    )
    assert len(one) == 4
    assert not one & two


def test_docs_list_the_operator_permissions():
    text = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    rows = re.search(r"\| resource \| verbs \| why \|\n\|.*\n((?:\|.*\n)+)", text)[1]
    told = defaultdict(set)
    for resources, verbs in re.findall(r"^\| (.+?) \| (.+?) \|", rows, re.MULTILINE):
        for resource in re.findall(r"`(.+?)`", resources):
            told[resource] |= set(verbs.split(", "))
    assert told.pop("leases") == {"get", "patch its own; create"}
    assert told == {resource: set(verbs) for _, resource, verbs in (*OPERATOR_RULES, *QUEUE_RULES)}
