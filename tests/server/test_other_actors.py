"""Other actors of a real cluster: a policy engine, a mesh and an unavailable webhook change objects and requests."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kubernetes.client.exceptions import ApiException
from support.audit import AuditLog
from support.kubernetes_minor import require_kubernetes
from support.lives import await_another_pass, await_asked_to_go, launch_running, uids_of
from support.manifests import IMAGE, pod_template
from support.objects import PODS, Kind, Object
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World, task_names

ADMISSION = "admissionregistration.k8s.io/v1"
POLICIES = Kind(ADMISSION, "mutatingadmissionpolicies", namespaced=False)
BINDINGS = Kind(ADMISSION, "mutatingadmissionpolicybindings", namespaced=False)
WEBHOOKS = Kind(ADMISSION, "validatingwebhookconfigurations", namespaced=False)
#: The changes of a registry mirror and a mesh: the proxy is the first container.
MIRROR = "mirror.test/"
MIRRORED_AND_MESHED = f"""[
  JSONPatch{{
    op: "replace", path: "/spec/containers/0/image", value: "{MIRROR}" + object.spec.containers[0].image
  }},
  JSONPatch{{
    op: "add", path: "/spec/containers/0", value: Object.spec.containers{{name: "proxy", image: "mesh.test/proxy:1"}}
  }}
]"""

pytestmark = pytest.mark.usefixtures("operator")


#: The changes of a policy that allows only certain annotations on pods.
WITHOUT_ANNOTATIONS = """[JSONPatch{op: "add", path: "/metadata/annotations", value: {"allowed": "yes"}}]"""


@contextmanager
def mutating(world: World, expression: str, in_force: Callable[[Object], bool]) -> Iterator[None]:
    """Add a policy that changes each new pod of the namespace, for a ``with`` block."""
    require_kubernetes("1.36", "mutating admission policies")
    objects, name = world.objects, world.namespace
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"namespaceSelector": selector(name), "resourceRules": [rule]},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }
    objects.create(POLICIES, "", policy)
    objects.create(BINDINGS, "", {"metadata": {"name": name}, "spec": {"policyName": name}})
    eventually(lambda: dry_run(world), in_force, what="the policy is in force")
    yield
    objects.delete(BINDINGS, "", name)
    objects.delete(POLICIES, "", name)


@pytest.fixture
def mutated(world: World) -> Iterator[World]:
    """A namespace with a policy that rewrites the first image of each new pod and puts a proxy before it."""
    with mutating(world, MIRRORED_AND_MESHED, lambda pod: "proxy" in containers(pod)):
        yield world


def selector(namespace: str) -> Object:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def dry_run(world: World) -> Object:
    body = {"metadata": {"name": "dry"}, "spec": {"containers": [{"name": "train", "image": IMAGE}]}}
    return world.objects.request("POST", PODS.path(world.namespace) + "?dryRun=All", body)


def containers(pod: Object) -> dict[str, str]:
    return {one["name"]: one["image"] for one in pod["spec"]["containers"]}


def pods_written(audit: AuditLog, world: World, position: int) -> Counter[tuple[str, str]]:
    made = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    return Counter(
        (w.verb, w.name) for w in made if w.resource == "pods" and w.verb in {"create", "delete"} and w.code < 300
    )


#: The main container is the first of the template, not of the pod.
TRAIN = pod_template(name="train")


def test_mutated_pods_are_as_they_should_be(mutated, kubelet, audit, operator):
    """Pods that a policy changed at their creation are never replaced, not even after a restart of the operator."""
    position = audit.position()
    uids = launch_running(mutated, kubelet, "c", {"worker": {"replicas": 2, "template": TRAIN}})
    mutated.await_condition("c", "Ready", status="True")
    pod = mutated.demand(PODS, "c-worker-0")
    assert list(containers(pod).items()) == [("proxy", "mesh.test/proxy:1"), ("train", MIRROR + IMAGE)]
    await_another_pass(mutated, "c")
    operator.stop()
    operator.start()
    await_another_pass(mutated, "c")
    assert uids_of(mutated, "c") == uids
    assert pods_written(audit, mutated, position) == Counter(("create", name) for name in uids)
    assert mutated.condition("c", "UpToDate")["status"] == "True"


def test_mutated_pods_speak_by_their_own_program(mutated, kubelet):
    """The template's container decides the end of a task, not the proxy before it."""
    jobs = {"worker": {"replicas": 3, "template": TRAIN}}
    uids = launch_running(mutated, kubelet, "c", jobs, backoffLimit=5)
    kubelet.end_container("c-worker-0", container="proxy", exit_code=1)
    kubelet.end_container("c-worker-1", container="train", exit_code=0)
    kubelet.end_container("c-worker-2", container="train", exit_code=7)
    status = mutated.await_status(
        "c", lambda s: (s["jobs"]["worker"]["succeeded"], s["restarts"]) == (1, 1), what="each end counts as it should"
    )
    assert (status["lastRestart"]["task"], status["lastRestart"]["exitCode"]) == ("worker-2", 7)
    assert mutated.uid("c-worker-0") == uids["c-worker-0"]


@contextmanager
def dead_webhook(world: World) -> Iterator[None]:
    """Make the creation of pods in the namespace depend on a webhook that does not respond."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # it never listens
        name = world.namespace
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
        webhook = {
            "name": "policy.example.test",
            "clientConfig": {"url": f"https://127.0.0.1:{nobody.getsockname()[1]}/"},
            "rules": [rule],
            "namespaceSelector": selector(name),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        }
        world.objects.create(WEBHOOKS, "", {"metadata": {"name": name}, "webhooks": [webhook]})
        try:
            eventually(lambda: refusal_of_a_dry_run(world), what="the webhook is in force")
            yield
        finally:
            world.objects.delete(WEBHOOKS, "", name)


def refusal_of_a_dry_run(world: World) -> str:
    try:
        dry_run(world)
    except ApiException as error:
        return error.body if error.status == 500 else ""
    return ""


def test_unavailable_pod_webhook_is_reported_and_survived(world, kubelet):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}, "ps": {"replicas": 2}})
    world.await_condition("c", "Ready", status="True")
    with dead_webhook(world):
        world.delete(PODS, "c-worker-0")
        kubelet.stop("c-worker-0")
        generation = world.edit("c", {"jobs": {"worker": {"replicas": 3}, "ps": {"replicas": 1}}})
        told = world.await_condition("c", "Ready", status="False", reason="RequestFailed")
        told = eventually(
            lambda: world.condition("c", "Ready"),
            lambda ready: ready["observedGeneration"] == generation and ready["reason"] == "RequestFailed",
            what="it is told of the new generation",
        )
        assert 'failed calling webhook "policy.example.test"' in told["message"]
        status = world.status("c")
        assert (status["observedGeneration"], status["jobs"]["worker"]["created"]) == (generation, 1)
        await_asked_to_go(world, "c-ps-1")  # deletions that free quota do not wait
        kubelet.stop("c-ps-1")
    world.await_pods_of("c", task_names("c", worker=3, ps=1))
    kubelet.run(*task_names("c", worker=3))
    world.await_condition("c", "Ready", status="True")


def test_policy_that_removes_annotations_causes_back_off(world, audit):
    """test_holds has the back-off between the replacements."""
    position = audit.position()
    with mutating(world, WITHOUT_ANNOTATIONS, lambda pod: "allowed" in pod["metadata"].get("annotations", {})):
        world.launch("c", {"worker": {"replicas": 1}}, updateStrategy={"type": "Recreate"})
        told = world.await_condition("c", "Ready", status="False", reason="ConflictingWrites")["message"]
        assert "Pod c-worker-0 was corrected" in told
        eventually(
            lambda: pods_written(audit, world, position)["create", "c-worker-0"], lambda made: made >= 5, what="a fifth"
        )
    world.await_condition("c", "UpToDate", status="True")
    assert world.condition("c", "Ready")["reason"] == "TasksNotReady"  # no kubelet runs the pod here


def test_template_with_rejected_pods_keeps_the_old_pods(world, kubelet):
    """The API server validates the new pod before an old one is deleted: a rejection is reported, the pods stay."""
    jobs = {"worker": {"replicas": 2}, "ps": {}}
    uids = launch_running(world, kubelet, "c", jobs, updateStrategy={"type": "Recreate"})
    world.await_condition("c", "Ready", status="True")
    broken = {**pod_template(), "metadata": {"labels": {"team": "a b c!"}}}
    world.edit("c", {"jobs": {"worker": {"template": broken}, "ps": {"template": pod_template(image="other:1")}}})
    told = world.await_condition("c", "Ready", status="False", reason="Rejected")["message"]
    assert "metadata.labels" in told
    await_asked_to_go(world, "c-ps-0")
    await_another_pass(world, "c")
    assert {n: u for n, u in uids_of(world, "c").items() if "worker" in n} == {
        n: u for n, u in uids.items() if "worker" in n
    }
    world.edit("c", {"jobs": {"worker": {"template": {**broken, "metadata": {"labels": {"team": "a"}}}}}})
    await_asked_to_go(world, "c-worker-0", "c-worker-1")
