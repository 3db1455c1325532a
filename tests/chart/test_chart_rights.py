"""What the chart lets the operator do: exactly what it needs, where it is asked to work, and nothing else."""

from __future__ import annotations

import pytest
from rendering import Helm, Object, look, of_kind, the_only
from support.rbac import INSTALL_CHECK_RULES, OPERATOR_RULES, QUEUE_RULES

#: API group, resource: verbs.  Whoever changes this list changes what a stolen token is worth.
RULES = {
    ("tfcluster.dev", "tfclusters"): ["delete", "get", "list", "watch"],
    ("tfcluster.dev", "tfclusters/status"): ["patch"],
    ("tfcluster.dev", "tfclusters/finalizers"): ["update"],
    ("", "pods"): ["create", "delete", "list", "patch", "watch"],
    ("", "services"): ["create", "delete", "list", "patch", "watch"],
    ("", "configmaps"): ["create", "delete", "list", "patch", "watch"],
    ("networking.k8s.io", "networkpolicies"): ["create", "delete", "list", "patch", "watch"],
    ("policy", "poddisruptionbudgets"): ["create", "delete", "list", "patch", "watch"],
    ("scheduling.k8s.io", "podgroups"): ["create", "delete", "list", "patch", "watch"],
    ("kueue.x-k8s.io", "workloads"): ["create", "delete", "list", "patch", "watch"],
    ("kueue.x-k8s.io", "workloads/status"): ["patch"],
    ("", "events"): ["create"],
}
#: What it reads in no namespace, and that tells it nothing of anybody's secrets.
CLUSTER_WIDE = {
    ("kueue.x-k8s.io", "resourceflavors"): ["list", "watch"],
    ("kueue.x-k8s.io", "workloadpriorityclasses"): ["get"],
    ("scheduling.k8s.io", "priorityclasses"): ["get"],
}
VIEWER_RULES = {
    ("tfcluster.dev", "tfclusters"): ["get", "list", "watch"],
    ("tfcluster.dev", "tfclusters/status"): ["get", "list", "watch"],
    ("tfcluster.dev", "tfclusters/scale"): ["get", "list", "watch"],
}
EDITOR_RULES = {
    ("tfcluster.dev", "tfclusters"): [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ],
    ("tfcluster.dev", "tfclusters/status"): ["get"],
    ("tfcluster.dev", "tfclusters/scale"): ["get", "patch", "update"],
}
AGGREGATION = "rbac.authorization.k8s.io/aggregate-to-"


ELECTION_RULES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["r-tfcluster-operator"],
        "verbs": ["get", "patch"],
    },
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
]


def for_clusters(objects: list[Object], kind: str) -> list[Object]:
    """Give the Roles or RoleBindings but those for the election."""
    return [found for found in of_kind(objects, kind) if not found["metadata"]["name"].endswith("-election")]


def rights(role: Object) -> dict[tuple[str, str], list[str]]:
    """Spell a role's rules by group and resource; a rule may say nothing but these three."""
    found: dict[tuple[str, str], list[str]] = {}
    for rule in role["rules"]:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                assert (group, resource) not in found
                found[group, resource] = sorted(rule["verbs"])
    return found


def aggregated_to(role: Object) -> list[str]:
    labels = role["metadata"]["labels"]
    return [label.removeprefix(AGGREGATION) for label, on in labels.items() if label.startswith(AGGREGATION) and on]


def test_rules_are_those_of_the_tests():
    """The integration tests run the operator with the rights that the chart gives."""
    assert {(group, kind): list(verbs) for group, kind, verbs in OPERATOR_RULES} == RULES
    assert {(group, kind): list(verbs) for group, kind, verbs in QUEUE_RULES} == CLUSTER_WIDE


@pytest.mark.parametrize(
    ("values", "namespaces"),
    [
        pytest.param({"clusterWide": False}, ["home"], id="the release's own namespace"),
        pytest.param({"watchNamespaces": ["one", "two"]}, ["one", "two"], id="the namespaces named"),
    ],
)
def test_rights_are_given_per_namespace(helm: Helm, values, namespaces):
    """The operator has the rules in the namespaces that it watches, and no right anywhere else."""
    objects = helm.render({**values, "aggregateRoles": False})

    roles, bindings = for_clusters(objects, "Role"), for_clusters(objects, "RoleBinding")
    assert [role["metadata"]["namespace"] for role in roles] == namespaces
    assert [binding["metadata"]["namespace"] for binding in bindings] == namespaces
    assert [rights(role) for role in roles] == [RULES] * len(namespaces)
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")
    for role, binding in zip(roles, bindings, strict=True):
        assert_binds(binding, role, objects)


def test_queues_of_namespaces_are_read_on_demand(helm: Helm):
    """Where the operator watches namespaces, it reads nothing outside of them unless somebody says so."""
    objects = helm.render({"clusterWide": False, "rbac": {"readQueues": True}, "aggregateRoles": False})

    role = the_only(objects, "ClusterRole")
    assert rights(role) == CLUSTER_WIDE
    assert_binds(the_only(objects, "ClusterRoleBinding"), role, objects)
    assert [rights(one) for one in for_clusters(objects, "Role")] == [RULES]


def test_rights_are_given_cluster_wide_by_default(helm: Helm):
    """Cluster-wide, the operator has the same rules, in one ClusterRole."""
    objects = helm.render({"aggregateRoles": False})

    role = the_only(objects, "ClusterRole")
    assert rights(role) == RULES | CLUSTER_WIDE
    assert aggregated_to(role) == []
    assert_binds(the_only(objects, "ClusterRoleBinding"), role, objects)
    assert not for_clusters(objects, "Role")
    assert not for_clusters(objects, "RoleBinding")


@pytest.mark.parametrize("values", [{}, {"clusterWide": False}])
@pytest.mark.parametrize(
    ("scheduler", "group"),
    [
        ("Kubernetes", "scheduling.k8s.io"),
        ("SchedulerPlugins", "scheduling.x-k8s.io"),
        ("Volcano", "scheduling.volcano.sh"),
    ],
)
def test_rights_on_pod_groups_are_for_the_chosen_scheduler_alone(helm: Helm, values, scheduler, group):
    """The operator writes the PodGroups of one scheduler, and may touch no other's."""
    objects = helm.render({**values, "gangs": {"scheduler": scheduler}, "aggregateRoles": False})

    role = for_clusters(objects, "Role")[0] if values else the_only(objects, "ClusterRole")
    found = rights(role)
    assert [key for key in found if key[1] == "podgroups"] == [(group, "podgroups")]
    assert found.pop((group, "podgroups")) == RULES["scheduling.k8s.io", "podgroups"]
    assert found.items() <= (RULES | CLUSTER_WIDE).items()


@pytest.mark.parametrize("values", [{}, {"clusterWide": False}, {"watchNamespaces": ["one"]}, {"replicas": 1}])
def test_rights_to_the_lease_are_those_of_the_release(helm: Helm, values):
    """Wherever the operator works, it may read and write its own Lease alone, in the release's namespace."""
    objects = helm.render(values)

    role = look(objects, "Role:r-tfcluster-operator-election")
    assert role["rules"] == ELECTION_RULES
    assert role["metadata"]["namespace"] == "home"
    binding = look(objects, "RoleBinding:r-tfcluster-operator-election")
    assert binding["metadata"]["namespace"] == "home"
    assert_binds(binding, role, objects)


def assert_binds(binding: Object, role: Object, objects: list[Object]) -> None:
    """A binding gives a role to the account that the operator runs as, and to nobody else."""
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": role["kind"],
        "name": role["metadata"]["name"],
    }
    account = the_only(objects, "ServiceAccount")["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    ]
    assert look(objects, "Deployment.spec.template.spec.serviceAccountName") == account["name"]
    assert look(objects, "Deployment.metadata.namespace") == account["namespace"]


def test_users_rights_are_aggregated(helm: Helm):
    """The roles view and edit, and no other, gain rights on TFClusters."""
    roles = of_kind(helm.render({"clusterWide": False}), "ClusterRole")

    assert {tuple(aggregated_to(role)): rights(role) for role in roles} == {
        ("view",): VIEWER_RULES,
        ("edit",): EDITOR_RULES,
        ("admin",): {("", "serviceaccounts"): ["use"]},
    }


def test_accounts_need_no_right_where_nobody_asks_for_it(helm: Helm):
    """Without the admission policy the verb ``use`` on ServiceAccounts means nothing, and nobody is given it."""
    roles = of_kind(helm.render({"clusterWide": False, "admissionPolicy": {"enabled": False}}), "ClusterRole")

    assert {tuple(aggregated_to(role)) for role in roles} == {("view",), ("edit",)}


@pytest.mark.parametrize("values", [{}, {"clusterWide": False}])
def test_rights_can_be_left_to_others(helm: Helm, values):
    """With ``rbac.create: false`` the chart makes no role and no binding, and all else as before."""
    objects = helm.render({**values, "rbac": {"create": False}}, tests=True)

    assert not [found["kind"] for found in objects if found["apiVersion"].startswith("rbac.")]
    assert {found["kind"] for found in helm.render(values) if not found["apiVersion"].startswith("rbac.")} == {
        found["kind"] for found in objects
    }


@pytest.mark.parametrize(
    ("values", "namespaces", "creates_pods"),
    [
        ({"clusterWide": False}, ["home"], True),
        ({"watchNamespaces": ["one", "two"]}, ["one", "two"], True),
        ({"admissionPolicy": {"enabled": False}}, ["home"], False),
    ],
)
def test_rights_of_the_test_are_few(helm: Helm, values, namespaces, creates_pods):
    """``helm test`` may write one TFCluster where the operator works, and read the Lease; all of it are hooks."""
    objects = helm.render(values, tests=True)
    name = "r-tfcluster-operator-test"
    hooks = [found for found in objects if found["metadata"]["name"].startswith(name)]
    assert {found["metadata"]["annotations"]["helm.sh/hook"] for found in hooks} == {"test"}

    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}] if creates_pods else []
    lease = {**ELECTION_RULES[0], "verbs": ["get"]}
    expected = [("home", f"{name}-lease", [lease])]
    expected += [(namespace, name, [*INSTALL_CHECK_RULES, *pods]) for namespace in namespaces]
    roles = [(one["metadata"]["namespace"], one["metadata"]["name"], one["rules"]) for one in of_kind(hooks, "Role")]
    assert roles == expected
    bindings = of_kind(hooks, "RoleBinding")
    assert [(one["metadata"]["namespace"], one["roleRef"]["name"]) for one in bindings] == [one[:2] for one in expected]
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": "home"}]
    pod = look(objects, "Pod")["spec"]
    assert pod["serviceAccountName"] == "r-tfcluster-operator-test"
    options = [option for namespace in namespaces for option in ("--namespace", namespace)]
    assert pod["containers"][0]["args"] == ["--lease", "home/r-tfcluster-operator", *options]


def test_pod_of_the_test_is_none_of_the_operators(helm: Helm):
    """The test's pod matches no selector of the operator's, and is as restricted as the operator's."""
    objects = helm.render({"networkPolicy": {"enabled": True}}, tests=True)
    labels = look(objects, "Pod.metadata.labels")
    selector = look(objects, "Deployment.spec.selector.matchLabels")

    assert not selector.items() <= labels.items()
    pod, operator = look(objects, "Pod.spec"), look(objects, "Deployment.spec.template.spec")
    assert pod["securityContext"] == operator["securityContext"]
    for field in ("securityContext", "image", "resources"):
        assert pod["containers"][0][field] == operator["containers"][0][field]


def test_releases_share_no_role(helm: Helm):
    """Releases of one name in two namespaces differ in the names of all that is in no namespace."""

    def names(namespace: str) -> set[str]:
        return {
            found["metadata"]["name"]
            for found in helm.render(namespace=namespace)
            if found["kind"].startswith("Cluster")
        }

    assert len(names("one")) == 4
    assert not names("one") & names("two")
