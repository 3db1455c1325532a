"""The admission policy on a real API server: who may write a TFCluster, asked as several users."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
import yaml
from kubernetes.client.exceptions import ApiException
from on_server import FOREIGN, HOME, WATCHED, OnServer, access, grant
from rendering import CHART, ROOT, Helm, Object, look
from support.manifests import pod_template, tfcluster
from support.objects import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Objects
from support.rbac import bind, grant_operator_rights, may
from support.waiting import eventually
from test_docs_security import SECURITY, examples

ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Kind(ADMISSION, "validatingadmissionpolicies", namespaced=False)
BINDINGS = Kind(ADMISSION, "validatingadmissionpolicybindings", namespaced=False)
CLUSTERS = {("tfcluster.dev", "tfclusters"): ["create", "get", "patch", "update", "delete"]}
CREATES_PODS = {("", "pods"): ["create"]}
USES = {("", "serviceaccounts"): ["use"]}
SCALES = {("tfcluster.dev", "tfclusters/scale"): ["get", "patch", "update"]}
#: The most jobs that a TFCluster may have.
MOST_JOBS = 16

As = Callable[[str], Objects]


@pytest.fixture(scope="module")
def release(on_server: OnServer, server: Objects) -> str:
    """A release whose policy is in force in the namespaces HOME and WATCHED."""
    on_server("install", "first", CHART, values={"watchNamespaces": [HOME, WATCHED]})
    grant(server, "nobody", HOME, CLUSTERS)
    return "first"


@pytest.fixture(scope="module")
def people(release: str, bare_server) -> As:  # noqa: ARG001 - wants the release
    """The access of a user, who has the rights that a test gives."""
    known: dict[str, Objects] = {}

    def find(user: str) -> Objects:
        if user not in known:
            known[user] = access(bare_server.kubeconfig_for(user))
        return known[user]

    eventually(lambda: refusal(lambda: dry(find("nobody"), HOME)), what="the policy is in force")
    return find


@pytest.fixture
def cluster(server: Objects, people: As) -> Iterator[str]:  # noqa: ARG001 - wants the policy
    """A TFCluster that an administrator made, which runs as the ServiceAccount robot."""
    server.create(TFCLUSTERS, HOME, manifest("made", robot()))
    yield "made"
    if server.get(TFCLUSTERS, HOME, "made") is not None:
        server.patch(TFCLUSTERS, HOME, "made", {"metadata": {"finalizers": None}})
    server.delete(TFCLUSTERS, HOME, "made")


def robot(account: str = "robot") -> Object:
    return pod_template(spec={"serviceAccountName": account})


def manifest(name: str = "c", template: Object | None = None) -> Object:
    return tfcluster(name).job("worker", template=template or pod_template()).build()


def dry(user: Objects, namespace: str, body: Object | None = None) -> Object:
    """Create a TFCluster, but for the storing of it."""
    return user.request("POST", f"{TFCLUSTERS.path(namespace)}?dryRun=All", body or manifest())


def refusal(request: Callable[[], object]) -> str:
    """Give the message of a request that the policy refuses; empty where the server takes it or does not know of it."""
    try:
        request()
    except ApiException as error:
        message: str = json.loads(error.body)["message"]
        if error.status == 403 and "ValidatingAdmissionPolicy" in message:
            return message
        if error.status not in {404, 429}:  # the kind is not served yet
            raise
    return ""


def test_policy_has_no_type_errors(server: Objects, people: As):  # noqa: ARG001 - wants the policy
    """The server checked the expressions against the definition of the kind, and has no warning."""
    name = f"{HOME}.first-tfcluster-operator"
    found = eventually(
        lambda: server.get(POLICIES, "", name), lambda p: "typeChecking" in p.get("status", {}), what="it is checked"
    )
    assert found["status"]["typeChecking"] == {}


def test_who_holds_up_drains_needs_the_right_to_disruption_budgets(server: Objects, people: As):
    """A disruptionBudget holds up whoever drains a node; who has not changed it is not asked."""
    grant(server, "dora", HOME, {**CLUSTERS, **CREATES_PODS})
    dora = people("dora")
    body = manifest("kept")
    body["spec"]["jobs"]["worker"]["disruptionBudget"] = {"minAvailable": 1}

    told = eventually(lambda: refusal(lambda: dry(dora, HOME, body)), what="dora may create pods")
    assert '"dora" may not create poddisruptionbudgets in namespace' in told
    assert refusal(lambda: dry(dora, HOME, manifest("kept"))) == ""

    server.create(TFCLUSTERS, HOME, body)
    assert refusal(lambda: dora.patch(TFCLUSTERS, HOME, "kept", {"spec": {"jobs": {"worker": {"replicas": 2}}}})) == ""
    change = {"spec": {"jobs": {"worker": {"disruptionBudget": {"minAvailable": "100%"}}}}}
    assert "poddisruptionbudgets" in refusal(lambda: dora.patch(TFCLUSTERS, HOME, "kept", change))

    grant(server, "dora", HOME, {("policy", "poddisruptionbudgets"): ["create"]})
    eventually(
        lambda: refusal(lambda: dora.patch(TFCLUSTERS, HOME, "kept", change)),
        lambda message: message == "",
        what="dora may hold up drains",
    )
    server.delete(TFCLUSTERS, HOME, "kept")


def test_who_lets_others_in_needs_the_right_to_network_policies(server: Objects, people: As):
    """AllowFrom opens what another policy closes; who has not changed it is not asked, and who only closes is not."""
    grant(server, "ian", HOME, {**CLUSTERS, **CREATES_PODS})
    ian = people("ian")
    open_to_all = {"mode": "Cluster", "allowFrom": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}

    def isolated(**isolation: object) -> Object:
        body = manifest("guests")
        body["spec"]["isolation"] = isolation
        return body

    told = eventually(lambda: refusal(lambda: dry(ian, HOME, isolated(**open_to_all))), what="ian may create pods")
    assert '"ian" may not create networkpolicies in namespace' in told
    assert refusal(lambda: dry(ian, HOME, isolated(mode="DeviceFilters", ports="All"))) == ""

    server.create(TFCLUSTERS, HOME, isolated(**open_to_all))
    assert refusal(lambda: ian.patch(TFCLUSTERS, HOME, "guests", {"spec": {"jobs": {"worker": {"replicas": 2}}}})) == ""
    change = {"spec": {"isolation": {"allowFrom": [{"podSelector": {}}]}}}
    assert "networkpolicies" in refusal(lambda: ian.patch(TFCLUSTERS, HOME, "guests", change))

    grant(server, "ian", HOME, {("networking.k8s.io", "networkpolicies"): ["create"]})
    eventually(
        lambda: refusal(lambda: ian.patch(TFCLUSTERS, HOME, "guests", change)),
        lambda message: message == "",
        what="ian may let others in",
    )
    server.delete(TFCLUSTERS, HOME, "guests")


def test_who_may_not_create_pods_may_not_create_clusters(server: Objects, people: As):
    """Alice may create TFClusters and no pods: she is told which right she lacks, until she has it."""
    grant(server, "alice", HOME, CLUSTERS)

    said = refusal(lambda: dry(people("alice"), HOME))
    assert '"alice" may not create pods in namespace "home"' in said
    assert 'grant the verb "create" on "pods"' in said

    grant(server, "alice", HOME, CREATES_PODS)
    assert refusal(lambda: dry(people("alice"), HOME)) == ""


def test_right_in_another_namespace_does_not_help(server: Objects, people: As):
    """Who may create pods elsewhere may not create TFClusters here."""
    grant(server, "eve", HOME, CLUSTERS)
    grant(server, "eve", WATCHED, CREATES_PODS)

    assert '"eve" may not create pods' in refusal(lambda: dry(people("eve"), HOME))


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_other_account_needs_the_right_to_use_it(server: Objects, people: As, field: str):
    """Bob may create pods: he may name ServiceAccount default, and another one only if he may use that one."""
    user = f"bob-{field.lower()}"
    grant(server, user, HOME, CLUSTERS | CREATES_PODS)
    bob = people(user)

    def naming(account: str) -> Object:
        return manifest("c", pod_template(spec={field: account}))

    assert refusal(lambda: dry(bob, HOME, naming("default"))) == ""
    assert refusal(lambda: dry(bob, HOME, naming(""))) == ""
    said = refusal(lambda: dry(bob, HOME, naming("robot")))
    assert f'spec.jobs.worker.template.spec.serviceAccountName: "{user}" may not use ServiceAccount "robot"' in said
    assert 'grant the verb "use" on "serviceaccounts"' in said

    grant(server, user, HOME, USES, name="robot")
    assert refusal(lambda: dry(bob, HOME, naming("robot"))) == ""
    assert '"other"' in refusal(lambda: dry(bob, HOME, naming("other")))


def test_role_of_the_documentation_is_enough(server: Objects, people: As):
    """With the Role that docs/security.md shows, and no other right, a user may name the account that it names."""
    role, binding, template = examples()
    user, account = binding["subjects"][0]["name"], role["rules"][-1]["resourceNames"][0]
    for kind, found in ((ROLES, role), (ROLE_BINDINGS, binding)):
        server.create(kind, HOME, {**found, "metadata": {"name": found["metadata"]["name"]}})
    eventually(lambda: may(server, user, HOME, ("", "serviceaccounts", "use"), name=account), what="the Role counts")
    template["spec"]["serviceAccountName"] = account

    assert refusal(lambda: dry(people(user), HOME, manifest("c", template))) == ""
    said = refusal(lambda: dry(people(user), HOME, manifest("c", robot("other"))))
    told = said.partition("denied request: ")[2].replace("other", account).replace(HOME, "research")
    assert without_spaces(told) in without_spaces(SECURITY)


def without_spaces(text: str) -> str:
    """Give a text as it is however its lines are broken."""
    return "".join(text.split())


def test_the_newer_name_of_the_field_wins(server: Objects, people: As):
    """Where a template has both fields, the policy asks for the account that the API server lets win."""
    grant(server, "both", HOME, CLUSTERS | CREATES_PODS)
    grant(server, "both", HOME, USES, name="mine")

    def naming(newer: str, older: str) -> Object:
        return pod_template(spec={"serviceAccountName": newer, "serviceAccount": older})

    for account in ("mine", "theirs"):
        server.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": account}})
    pod = {"metadata": {"name": "p"}, **naming("mine", "theirs")}
    stored = server.request("POST", f"{PODS.path('default')}?dryRun=All", pod)
    assert stored["spec"]["serviceAccountName"] == "mine"

    assert refusal(lambda: dry(people("both"), HOME, manifest("c", naming("mine", "theirs")))) == ""
    assert '"theirs"' in refusal(lambda: dry(people("both"), HOME, manifest("c", naming("theirs", "mine"))))


def test_every_job_is_asked_about(server: Objects, people: As):
    """With as many jobs as there may be, each with an account of its own, the one that may not be used is named."""
    grant(server, "many", HOME, CLUSTERS | CREATES_PODS | USES)
    builder = tfcluster("c")
    for number in range(MOST_JOBS):
        builder.job(f"job{number}", template=robot(f"robot{number}"))
    assert refusal(lambda: dry(people("many"), HOME, builder.build())) == ""

    grant(server, "most", HOME, CLUSTERS | CREATES_PODS)
    for number in range(MOST_JOBS):
        if number != MOST_JOBS - 1:
            grant(server, "most", HOME, USES, name=f"robot{number}")
    said = refusal(lambda: dry(people("most"), HOME, builder.build()))
    assert f'spec.jobs.job{MOST_JOBS - 1}.template.spec.serviceAccountName: "most" may not use' in said


def test_policy_can_judge_as_many_jobs_as_there_may_be(helm: Helm):
    """The policy has a check of the account for each job that the definition allows."""
    definition = yaml.safe_load((ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    checks = look(helm.render(), "ValidatingAdmissionPolicy.spec.validations")

    assert schema["properties"]["spec"]["properties"]["jobs"]["maxProperties"] == MOST_JOBS
    assert sum("check('use')" in check["expression"] for check in checks) == MOST_JOBS
    assert checks[-1]["expression"] == f"size(variables.accounts) <= {MOST_JOBS}"


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": {"worker": {"replicas": 2}}},
        {"jobs": {"worker": {"template": robot("other")}}},
        {"jobs": {"worker": {"template": pod_template(image="other:1")}}},
        {"jobs": {"ps": {"template": pod_template()}}},
        {"backoffLimit": 3},
        {"suspend": True, "backoffLimit": 3},
    ],
    ids=["replicas", "account", "image", "job", "another field", "suspend and another field"],
)
def test_later_change_is_asked_about_too(server: Objects, people: As, cluster: str, change: Object):
    """Who may not use the account of a TFCluster may change nothing of what it runs."""
    if not may(server, "carol", HOME, ("tfcluster.dev", "tfclusters", "patch")):
        grant(server, "carol", HOME, CLUSTERS | CREATES_PODS)
    carol = people("carol")

    assert '"carol" may not use ServiceAccount' in refusal(
        lambda: carol.patch(TFCLUSTERS, HOME, cluster, {"spec": change})
    )
    # The field that was set comes off again: that is a change, too.
    server.patch(TFCLUSTERS, HOME, cluster, {"spec": {"backoffLimit": 7}})
    assert refusal(lambda: carol.patch(TFCLUSTERS, HOME, cluster, {"spec": {"backoffLimit": None}}))


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
def test_what_makes_no_other_pods_is_not_asked_about(server: Objects, people: As, cluster: str, change: Object):
    """Who may only patch TFClusters may suspend, resume and label one, as a queue and a cleaner do."""
    server.patch(TFCLUSTERS, HOME, cluster, {"spec": {"suspend": "suspend" not in change.get("spec", {})}})

    people("nobody").patch(TFCLUSTERS, HOME, cluster, change)


@pytest.mark.parametrize("label", ["queue-name", "priority-class"])
def test_change_of_the_queue_is_asked_about(server: Objects, people: As, cluster: str, label: str):
    """Who takes a TFCluster out of its queue makes pods: so who may not create pods may not."""
    nobody = people("nobody")
    queued = {"metadata": {"labels": {f"kueue.x-k8s.io/{label}": "team"}}}
    another = {"metadata": {"labels": {f"kueue.x-k8s.io/{label}": "another"}}}
    none = {"metadata": {"labels": {f"kueue.x-k8s.io/{label}": None}}}

    assert '"nobody" may not create pods' in refusal(lambda: nobody.patch(TFCLUSTERS, HOME, cluster, queued))
    server.patch(TFCLUSTERS, HOME, cluster, queued)
    for change in (another, none):
        assert '"nobody" may not create pods' in refusal(
            lambda change=change: nobody.patch(TFCLUSTERS, HOME, cluster, change)
        )
    server.patch(TFCLUSTERS, HOME, cluster, none)


def test_scaling_is_a_right_of_its_own(server: Objects, people: As, cluster: str):
    """Who may scale may scale and no more, as with a Deployment: an autoscaler needs no right to create pods."""
    grant(server, "scaler", HOME, SCALES)
    autoscaler = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"

    for user in ("scaler", autoscaler):
        assert not may(server, user, HOME, ("", "pods", "create"))
        scale = people(user).get(TFCLUSTERS, HOME, cluster, "scale")
        scale["spec"]["replicas"] += 1
        people(user).request("PUT", TFCLUSTERS.path(HOME, cluster, "scale"), scale)
        now = server.get(TFCLUSTERS, HOME, cluster)["spec"]["jobs"]["worker"]["replicas"]
        assert now == scale["spec"]["replicas"]


def test_operator_is_not_asked(server: Objects, people: As, cluster: str):
    """The operator writes the status of a TFCluster whose account it may not use, and deletes it at its end."""
    grant_operator_rights(server, user="operator")
    operator = people("operator")

    operator.patch(TFCLUSTERS, HOME, cluster, {"status": {"observedGeneration": 1}}, subresource="status")
    assert server.get(TFCLUSTERS, HOME, cluster)["status"]["observedGeneration"] == 1
    operator.delete(TFCLUSTERS, HOME, cluster)
    assert server.get(TFCLUSTERS, HOME, cluster) is None


def test_namespace_administrators_pass(server: Objects, people: As):
    """The role admin may name any account of its namespace; the role edit may create pods, and name default alone."""
    for user, role in (("head", "admin"), ("member", "edit")):
        bind(server, user, WATCHED, "ClusterRole", role)
    named = manifest("c", robot())

    assert refusal(lambda: dry(people("head"), WATCHED, named)) == ""
    assert refusal(lambda: dry(people("member"), WATCHED)) == ""
    assert '"member" may not use ServiceAccount "robot"' in refusal(lambda: dry(people("member"), WATCHED, named))


def test_cluster_administrators_apply(server: Objects, people: As):  # noqa: ARG001 - wants the policy
    """Whoever may do everything may apply and apply again, by the client or by the server."""
    named = manifest("applied", robot())
    path = f"{TFCLUSTERS.path(HOME, 'applied')}?fieldManager=test"
    for replicas in (1, 2):
        named["spec"]["jobs"]["worker"]["replicas"] = replicas
        server.request("PATCH", path, named, content="application/apply-patch+yaml")
    server.delete(TFCLUSTERS, HOME, "applied")


def test_policy_is_for_the_releases_namespaces(server: Objects, people: As):
    """Where the release does not work its policy has no say; nothing is run there."""
    grant(server, "nobody", FOREIGN, CLUSTERS)

    assert refusal(lambda: dry(people("nobody"), FOREIGN)) == ""


def test_large_clusters_can_be_judged(server: Objects, people: As):
    """A change of a TFCluster as large as an object can be costs no more than the server lets a policy cost."""
    grant(server, "large", HOME, CLUSTERS | CREATES_PODS | USES)
    large = people("large")
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


def test_policies_of_two_releases_live_side_by_side(server: Objects, people: As, on_server: OnServer):
    """A second release, cluster-wide and named alike in another namespace, has a policy of its own."""
    grant(server, "second", FOREIGN, CLUSTERS)
    on_server("install", "first", CHART, namespace=FOREIGN)
    eventually(lambda: refusal(lambda: dry(people("second"), FOREIGN)), what="its policy is in force everywhere")
    assert {found["metadata"]["name"] for found in server.list(POLICIES)} == {
        f"{place}.first-tfcluster-operator" for place in (HOME, FOREIGN)
    }

    on_server("uninstall", "first", namespace=FOREIGN)
    eventually(lambda: not refusal(lambda: dry(people("second"), FOREIGN)), what="its policy is gone")
    assert refusal(lambda: dry(people("nobody"), HOME))


def test_policy_can_be_tried_and_switched_off(server: Objects, people: As, on_server: OnServer):
    """With the action Warn everything passes; switched off, the policy and its binding are gone, and back after."""
    nobody, name = people("nobody"), f"{HOME}.first-tfcluster-operator"
    values = {"watchNamespaces": [HOME, WATCHED]}

    on_server("upgrade", "first", CHART, values={**values, "admissionPolicy": {"actions": ["Warn", "Audit"]}})
    eventually(lambda: not refusal(lambda: dry(nobody, HOME)), what="it only warns")
    on_server("upgrade", "first", CHART, values={**values, "admissionPolicy": {"enabled": False}})
    assert (server.get(POLICIES, "", name), server.get(BINDINGS, "", name)) == (None, None)
    assert refusal(lambda: dry(nobody, HOME)) == ""

    on_server("upgrade", "first", CHART, values={**values, "admissionPolicy": {"enabled": True}})
    eventually(lambda: refusal(lambda: dry(nobody, HOME)), what="the policy is in force again")
