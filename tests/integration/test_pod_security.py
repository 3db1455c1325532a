"""Namespaces that enforce a Pod Security Standard: rejections are reported, and end with a valid template."""

from __future__ import annotations

import pytest
from support.audit import AuditLog
from support.lives import await_another_pass, await_asked_to_go, launch_running
from support.manifests import pod_template
from support.objects import NAMESPACES, Object
from support.rbac import OPERATOR_USER
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

HARMLESS: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = pod_template(securityContext=HARMLESS)
#: The enforced standard, a rejected template, an accepted template, and the parts of the message.
STANDARDS = [
    pytest.param(
        "restricted",
        pod_template(),
        RESTRICTED,
        ["allowPrivilegeEscalation != false", "unrestricted capabilities", "runAsNonRoot != true", "seccompProfile"],
        id="restricted",
    ),
    pytest.param(
        "baseline",
        pod_template(securityContext={"privileged": True}),
        pod_template(),
        ['privileged (container "tensorflow" must not set securityContext.privileged=true)'],
        id="baseline",
    ),
    pytest.param(
        "baseline",
        pod_template(spec={"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}),
        pod_template(),
        ['hostPath volumes (volume "host")'],
        id="baseline, a volume",
    ),
]


def enforce(world: World, level: str) -> None:
    label = {"pod-security.kubernetes.io/enforce": level}
    world.objects.patch(NAMESPACES, "", world.namespace, {"metadata": {"labels": label}})


@pytest.mark.parametrize(("level", "refused", "taken", "named"), STANDARDS)
def test_rejection_is_reported_and_can_be_fixed(world: World, kubelet, operator, level, refused, taken, named):  # noqa: PLR0917 - fixtures, by name
    """The condition names the standard and each violation; with another template the pods are created."""
    enforce(world, level)
    pid = operator.pid
    world.launch("c", {"worker": {"replicas": 2, "template": refused}})
    told = world.await_condition("c", "Ready", status="False", reason="Rejected")["message"]
    assert f'violates PodSecurity "{level}:latest"' in told
    for words in named:
        assert words in told
    assert "Pod c-worker-" in told
    assert world.pods_of("c") == {}
    assert f'violates PodSecurity "{level}' in world.await_event("c", "Rejected")["message"]
    # Null removes what the new template does not have.
    template = {**taken, "spec": {"volumes": None, **taken["spec"]}}
    generation = world.edit("c", {"jobs": {"worker": {"template": template}}})
    names = task_names("c", worker=2)
    world.await_pods_of("c", names)
    kubelet.run(*names)
    assert world.await_condition("c", "Ready", status="True")["observedGeneration"] == generation
    assert operator.pid == pid


def test_rejected_pods_are_tried_one_by_one(world: World, audit: AuditLog):
    enforce(world, "restricted")
    world.launch("c", {"worker": {"replicas": 50}})
    world.await_condition("c", "Ready", status="False", reason="Rejected")
    position = audit.position()
    await_another_pass(world, "c")
    made = [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.resource == "pods"]
    assert {w.code for w in made} == {403}
    # The back-off after the first rejection can have ended in the meantime, which adds a reconcile.
    assert len(made) <= 3


def test_running_pods_outlive_a_stricter_standard(world: World, kubelet):
    """A later standard ends no pod; the replacement of an ended one is rejected, reported, and created once allowed."""
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 2}})
    world.await_condition("c", "Ready", status="True")
    enforce(world, "restricted")
    kubelet.fail("c-worker-1", exit_code=137)
    await_asked_to_go(world, "c-worker-1")
    kubelet.stop("c-worker-1")
    world.await_condition("c", "Ready", status="False", reason="Rejected")
    assert world.uid("c-worker-0") == uids["c-worker-0"]
    enforce(world, "privileged")
    world.await_pods_of("c", task_names("c", worker=2))
    kubelet.run("c-worker-1")
    world.await_condition("c", "Ready", status="True")
    assert world.uid("c-worker-0") == uids["c-worker-0"]
