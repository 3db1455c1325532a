"""Namespaces that enforce a Pod Security Standard: rejections are reported, and end with a valid template."""

import pytest
from support.lives import await_asked_to_go, launch_running
from support.manifests import pod_template
from support.objects import NAMESPACES, Object
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

HARMLESS: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = pod_template(securityContext=HARMLESS)
VIOLATIONS = (
    "allowPrivilegeEscalation != false",
    "unrestricted capabilities",
    "runAsNonRoot != true",
    "seccompProfile",
)


def enforce(world: World, level: str) -> None:
    label = {"pod-security.kubernetes.io/enforce": level}
    world.objects.patch(NAMESPACES, "", world.namespace, {"metadata": {"labels": label}})


def test_rejection_is_reported_and_can_be_fixed(world: World, kubelet):
    enforce(world, "restricted")
    world.launch("c", {"worker": {"replicas": 2, "template": pod_template()}})
    told = world.await_condition("c", "Ready", status="False", reason="Rejected")["message"]
    assert 'violates PodSecurity "restricted:latest"' in told
    assert [words for words in VIOLATIONS if words not in told] == []
    assert "Pod c-worker-" in told
    assert world.pods_of("c") == {}
    assert 'violates PodSecurity "restricted' in world.await_event("c", "Rejected")["message"]
    generation = world.edit("c", {"jobs": {"worker": {"template": RESTRICTED}}})
    names = task_names("c", worker=2)
    world.await_pods_of("c", names)
    kubelet.run(*names)
    assert world.await_condition("c", "Ready", status="True")["observedGeneration"] == generation


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
