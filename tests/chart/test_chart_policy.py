"""The admission policy on a real API server: which users can write a TFCluster."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pytest
from kubernetes.client.exceptions import ApiException
from on_server import FOREIGN, HOME, WATCHED, OnServer, Rights, access, forget_definition, grant
from rendering import CHART, ROOT, Helm, Object, look, merge, read_yaml
from support.manifests import pod_template, tfcluster
from support.objects import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Objects
from support.rbac import bind, grant_operator_rights, may
from support.waiting import eventually

ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Kind(ADMISSION, "validatingadmissionpolicies", namespaced=False)
BINDINGS = Kind(ADMISSION, "validatingadmissionpolicybindings", namespaced=False)
POLICY = f"{HOME}.first-tfcluster-operator"
CLUSTERS = {("tfcluster.dev", "tfclusters"): ["create", "get", "patch", "update", "delete"]}
CREATES_PODS = {("", "pods"): ["create"]}
USES = {("", "serviceaccounts"): ["use"]}
SCALES = {("tfcluster.dev", "tfclusters/scale"): ["get", "patch", "update"]}
#: The maximal number of jobs of a TFCluster.
MOST_JOBS = 16


#: Returns the access of a user, after granting further permissions, as in `grant`.
People = Callable[..., Objects]


@pytest.fixture(scope="module")
def people(on_server: OnServer, server: Objects, bare_server) -> Iterator[People]:
    """Users, while a release's policy is in effect in the namespaces HOME and WATCHED."""
    access_of = cache(lambda user: access(bare_server.kubeconfig_for(user)))

    def find(user: str, rights: Rights | None = None, *, namespace: str = HOME, names: Sequence[str] = ()) -> Objects:
        if rights:
            grant(server, user, namespace, rights, names=names)
        return access_of(user)

    forget_definition(server)
    on_server("install", "first", CHART, values={"watchNamespaces": [HOME, WATCHED]})
    nobody = find("nobody", CLUSTERS)
    eventually(lambda: refused(nobody), what="the policy is in force")
    yield find
    on_server("uninstall", "first")


@pytest.fixture
def cluster(server: Objects, people: People) -> Iterator[str]:  # noqa: ARG001 - wants the policy
    """A TFCluster that an administrator created, which runs as the ServiceAccount robot."""
    server.create(TFCLUSTERS, HOME, manifest(serviceAccountName="robot", name="made"))
    yield "made"
    if server.get(TFCLUSTERS, HOME, "made") is not None:
        server.patch(TFCLUSTERS, HOME, "made", {"metadata": {"finalizers": None}})
    server.delete(TFCLUSTERS, HOME, "made")


def manifest(*, name: str = "c", **pod: str) -> Object:
    return tfcluster(name).job("worker", template=pod_template(spec=pod)).build()


def refusal(request: Callable[[], object]) -> str:
    """Return the message of the policy's rejection; empty if the request is accepted or the policy is not active."""
    try:
        request()
    except ApiException as error:
        message: str = json.loads(error.body)["message"]
        if error.status == 403 and "ValidatingAdmissionPolicy" in message:
            return message
        if error.status not in {404, 429}:  # the kind is not served yet
            raise
    return ""


def refused(user: Objects, body: Object | None = None, *, namespace: str = HOME) -> str:
    return refusal(
        lambda: user.request("POST", f"{TFCLUSTERS.path(namespace)}?dryRun=All", manifest() if body is None else body)
    )


def refused_change(user: Objects, name: str, change: Object) -> str:
    return refusal(lambda: user.patch(TFCLUSTERS, HOME, name, change))


@pytest.mark.usefixtures("people")
def test_policy_type_checks(server: Objects):
    """The server checked the expressions against the CRD, without a warning."""
    found = eventually(
        lambda: server.get(POLICIES, "", POLICY), lambda p: "typeChecking" in p.get("status", {}), what="it is checked"
    )
    assert found["status"]["typeChecking"] == {}


@pytest.mark.parametrize(
    ("group", "resource", "asked", "more", "harmless"),
    [
        # A disruptionBudget blocks drains of a node.
        (
            "policy",
            "poddisruptionbudgets",
            {"jobs": {"worker": {"disruptionBudget": {"minAvailable": 1}}}},
            {"jobs": {"worker": {"disruptionBudget": {"minAvailable": "100%"}}}},
            {},
        ),
        # AllowFrom opens what another policy closes; closing requires no permission.
        (
            "networking.k8s.io",
            "networkpolicies",
            {"isolation": {"mode": "Cluster", "allowFrom": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}},
            {"isolation": {"allowFrom": [{"podSelector": {}}]}},
            {"isolation": {"mode": "DeviceFilters", "portScope": "All"}},
        ),
    ],
    ids=["who holds up drains", "who lets others in"],
)
def test_right_to_an_object_that_acts_on_others_is_asked_for(  # noqa: PLR0917 - by name
    server: Objects, people: People, group, resource, asked, more, harmless
):
    """Setting a budget or an open policy requires the permission to create it; other edits do not."""
    user = people(resource, CLUSTERS | CREATES_PODS)
    body = merge(manifest(name="held"), {"spec": asked})
    assert f'"{resource}" cannot create {resource} in namespace' in refused(user, body)
    assert refused(user, merge(manifest(), {"spec": harmless})) == ""
    server.create(TFCLUSTERS, HOME, body)
    assert refused_change(user, "held", {"spec": {"jobs": {"worker": {"replicas": 2}}}}) == ""
    assert resource in refused_change(user, "held", {"spec": more})
    people(resource, {(group, resource): ["create"]})
    assert refused_change(user, "held", {"spec": more}) == ""
    server.delete(TFCLUSTERS, HOME, "held")


def test_user_without_pod_create_permission_cannot_create_clusters(people: People):
    alice = people("alice", CLUSTERS)
    people("alice", CREATES_PODS, namespace=WATCHED)
    said = refused(alice)
    assert '"alice" cannot create pods in namespace "home"' in said
    assert 'grant the verb "create" on "pods"' in said
    people("alice", CREATES_PODS)
    assert refused(alice) == ""


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_other_service_account_needs_the_use_permission(people: People, field: str):
    """Bob can create pods: he can name ServiceAccount default, and another one only with permission to use it."""
    user = f"bob-{field.lower()}"
    bob = people(user, CLUSTERS | CREATES_PODS)
    assert refused(bob, manifest(**{field: "default"})) == ""
    assert refused(bob, manifest(**{field: ""})) == ""
    said = refused(bob, manifest(**{field: "robot"}))
    assert f'spec.jobs.worker.template.spec.serviceAccountName: "{user}" cannot use ServiceAccount "robot"' in said
    assert 'grant the verb "use" on "serviceaccounts"' in said
    people(user, USES, names=["robot"])
    assert refused(bob, manifest(**{field: "robot"})) == ""
    assert '"other"' in refused(bob, manifest(**{field: "other"}))


def test_role_of_the_documentation_is_enough(server: Objects, people: People):
    text = (ROOT / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    role, binding = (one for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for one in read_yaml(block))
    user, account = binding["subjects"][0]["name"], role["rules"][-1]["resourceNames"][0]
    for kind, found in ((ROLES, role), (ROLE_BINDINGS, binding)):
        server.create(kind, HOME, {**found, "metadata": {"name": found["metadata"]["name"]}})
    eventually(lambda: may(server, user, HOME, ("", "serviceaccounts", "use"), name=account), what="the Role counts")
    assert refused(people(user), manifest(serviceAccountName=account)) == ""
    said = refused(people(user), manifest(serviceAccountName="other"))
    told = said.partition("denied request: ")[2].replace("other", account).replace(HOME, "research")
    # Independent of the document's line breaks.
    assert "".join(told.split()) in "".join(text.split())


def test_the_newer_name_of_the_field_wins(server: Objects, people: People):
    """If a template has both fields, the policy checks the account that the API server prefers."""
    both = people("both", CLUSTERS | CREATES_PODS)
    people("both", USES, names=["mine"])
    fields = {"serviceAccountName": "mine", "serviceAccount": "theirs"}
    for account in ("mine", "theirs"):
        server.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": account}})
    pod = {"metadata": {"name": "p"}, **pod_template(spec=fields)}
    stored = server.request("POST", f"{PODS.path('default')}?dryRun=All", pod)
    assert stored["spec"]["serviceAccountName"] == "mine"
    assert refused(both, manifest(**fields)) == ""
    assert '"theirs"' in refused(both, manifest(serviceAccountName="theirs", serviceAccount="mine"))


def test_every_job_is_asked_about(people: People):
    builder = tfcluster("c")
    accounts = [f"robot{number}" for number in range(MOST_JOBS)]
    for number, account in enumerate(accounts):
        builder.job(f"job{number}", template=pod_template(spec={"serviceAccountName": account}))
    assert refused(people("many", CLUSTERS | CREATES_PODS | USES), builder.build()) == ""
    people("most", CLUSTERS | CREATES_PODS)
    said = refused(people("most", USES, names=accounts[:-1]), builder.build())
    assert f'spec.jobs.job{MOST_JOBS - 1}.template.spec.serviceAccountName: "most" cannot use' in said


def test_policy_checks_the_maximum_number_of_jobs(helm: Helm):
    schema = "CustomResourceDefinition.spec.versions[0].schema.openAPIV3Schema"
    checks = look(helm.render(), "ValidatingAdmissionPolicy.spec.validations")
    assert look(helm.render({"crds": {}}), f"{schema}.properties.spec.properties.jobs.maxProperties") == MOST_JOBS
    assert sum("check('use')" in check["expression"] for check in checks) == MOST_JOBS
    assert checks[-1]["expression"] == f"size(variables.accounts) <= {MOST_JOBS}"


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": {"worker": {"replicas": 2}}},
        {"jobs": {"worker": {"template": pod_template(spec={"serviceAccountName": "other"})}}},
        {"jobs": {"worker": {"template": pod_template(image="other:1")}}},
        {"jobs": {"ps": {"template": pod_template()}}},
        {"backoffLimit": 3},
        {"suspend": True, "backoffLimit": 3},
    ],
    ids=["replicas", "account", "image", "job", "another field", "suspend and another field"],
)
def test_later_change_is_asked_about_too(server: Objects, people: People, cluster: str, change: Object):
    carol = people("carol")
    if not may(server, "carol", HOME, ("tfcluster.dev", "tfclusters", "patch")):
        people("carol", CLUSTERS | CREATES_PODS)
    assert '"carol" cannot use ServiceAccount' in refused_change(carol, cluster, {"spec": change})
    # Removing the field again is a change, too.
    server.patch(TFCLUSTERS, HOME, cluster, {"spec": {"backoffLimit": 7}})
    assert refused_change(carol, cluster, {"spec": {"backoffLimit": None}})


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"suspend": True}},
        {"spec": {"suspend": False}},
        {"metadata": {"labels": {"team": "vision"}}},
        {"metadata": {"finalizers": ["example.com/hold"]}},
    ],
    ids=["suspended", "resumed", "label", "finalizer"],
)
def test_suspend_and_metadata_edits_skip_the_pod_permission_check(
    server: Objects, people: People, cluster: str, change: Object
):
    server.patch(TFCLUSTERS, HOME, cluster, {"spec": {"suspend": "suspend" not in change.get("spec", {})}})
    people("nobody").patch(TFCLUSTERS, HOME, cluster, change)


@pytest.mark.parametrize("label", ["queue-name", "priority-class"])
def test_change_of_the_queue_is_asked_about(server: Objects, people: People, cluster: str, label: str):
    """Taking a TFCluster out of its queue creates pods, so it requires the permission to create pods."""
    queued, another, none = (
        {"metadata": {"labels": {f"kueue.x-k8s.io/{label}": value}}} for value in ("team", "another", None)
    )
    assert '"nobody" cannot create pods' in refused_change(people("nobody"), cluster, queued)
    server.patch(TFCLUSTERS, HOME, cluster, queued)
    for change in (another, none):
        assert '"nobody" cannot create pods' in refused_change(people("nobody"), cluster, change)


def test_scaling_has_its_own_permission(server: Objects, people: People, cluster: str):
    """The permission to scale covers only scaling, as for a Deployment; an autoscaler does not need more."""
    people("scaler", SCALES)
    for user in ("scaler", "system:serviceaccount:kube-system:horizontal-pod-autoscaler"):
        assert not may(server, user, HOME, ("", "pods", "create"))
        scale = people(user).get(TFCLUSTERS, HOME, cluster, "scale")
        scale["spec"]["replicas"] += 1
        people(user).request("PUT", TFCLUSTERS.path(HOME, cluster, "scale"), scale)
        now = server.get(TFCLUSTERS, HOME, cluster)["spec"]["jobs"]["worker"]["replicas"]
        assert now == scale["spec"]["replicas"]


def test_operator_is_not_asked(server: Objects, people: People, cluster: str):
    """The operator writes the status of a TFCluster whose account it cannot use, and deletes it at its end."""
    grant_operator_rights(server, user="operator")
    operator = people("operator")
    operator.patch(TFCLUSTERS, HOME, cluster, {"status": {"observedGeneration": 1}}, subresource="status")
    assert server.get(TFCLUSTERS, HOME, cluster)["status"]["observedGeneration"] == 1
    operator.delete(TFCLUSTERS, HOME, cluster)
    assert server.get(TFCLUSTERS, HOME, cluster) is None


def test_namespace_administrators_pass(server: Objects, people: People):
    """The role admin can name any account of its namespace; the role edit can create pods, and name only default."""
    for user, role in (("head", "admin"), ("member", "edit")):
        bind(server, user, WATCHED, "ClusterRole", role)
    named = manifest(serviceAccountName="robot")
    assert refused(people("head"), named, namespace=WATCHED) == ""
    assert refused(people("member"), namespace=WATCHED) == ""
    assert '"member" cannot use ServiceAccount "robot"' in refused(people("member"), named, namespace=WATCHED)


@pytest.mark.usefixtures("people")
def test_cluster_administrators_apply(server: Objects):
    named = manifest(name="applied", serviceAccountName="robot")
    path = f"{TFCLUSTERS.path(HOME, 'applied')}?fieldManager=test"
    for replicas in (1, 2):
        named["spec"]["jobs"]["worker"]["replicas"] = replicas
        server.request("PATCH", path, named, content="application/apply-patch+yaml")
    server.delete(TFCLUSTERS, HOME, "applied")


def test_large_clusters_can_be_judged(server: Objects, people: People):
    """A change of a TFCluster of the maximal size stays within the server's cost limit for a policy."""
    large = people("large", CLUSTERS | CREATES_PODS | USES)
    builder = tfcluster("large")
    for number in range(MOST_JOBS):
        env = [{"name": f"V{n}", "value": "x" * 200} for n in range(280)]
        template = pod_template(spec={"serviceAccountName": f"robot{number}"})
        template["spec"]["containers"][0]["env"] = env
        filters = {str(task): [f"/job:job{job}" for job in range(MOST_JOBS)] for task in range(32)}
        builder.job(f"job{number}", replicas=64, template=template, taskDeviceFilters=filters)
    body = builder.build()
    assert len(json.dumps(body)) > 1_000_000
    made = server.create(TFCLUSTERS, HOME, body)
    made["spec"]["jobs"][f"job{MOST_JOBS - 1}"]["replicas"] = 65
    assert refusal(lambda: large.replace(TFCLUSTERS, HOME, made)) == ""
    server.delete(TFCLUSTERS, HOME, "large")


def test_policies_of_two_releases_live_side_by_side(server: Objects, people: People, on_server: OnServer):
    second = people("second", CLUSTERS, namespace=FOREIGN)
    on_server("install", "first", CHART, namespace=FOREIGN, values={"crds": {"enabled": False}})
    eventually(lambda: refused(second, namespace=FOREIGN), what="its policy is in force everywhere")
    assert {found["metadata"]["name"] for found in server.list(POLICIES)} == {
        f"{place}.first-tfcluster-operator" for place in (HOME, FOREIGN)
    }
    on_server("uninstall", "first", namespace=FOREIGN)
    eventually(lambda: not refused(second, namespace=FOREIGN), what="its policy is gone")
    assert refused(people("nobody"))


def test_policy_can_be_tried_and_switched_off(server: Objects, people: People, on_server: OnServer):
    nobody = people("nobody")

    def upgrade(**policy: object) -> None:
        # The CRD stays, and need not be sent each time.
        given = {"watchNamespaces": [HOME, WATCHED], "admissionPolicy": policy, "crds": {"enabled": False}}
        on_server("upgrade", "first", CHART, values=given)

    upgrade(actions=["Warn", "Audit"])
    eventually(lambda: not refused(nobody), what="it only warns")
    upgrade(enabled=False)
    assert (server.get(POLICIES, "", POLICY), server.get(BINDINGS, "", POLICY)) == (None, None)
    assert refused(nobody) == ""
    upgrade(enabled=True)
    eventually(lambda: refused(nobody), what="the policy is in force again")
