"""The server under test has the requested Kubernetes version."""

import os

from support.kubernetes_minor import older_than, require_kubernetes
from support.lives import await_another_pass, launch_running, uids_of
from support.manifests import IMAGE
from support.objects import PODS
from support.rbac import OPERATOR_USER

from local_kubernetes import binaries
from local_kubernetes.control_plane import MINOR_VARIABLE

POD = {"containers": [{"name": "tensorflow", "image": IMAGE}]}


def test_server_is_of_the_version_that_was_asked_for(control_plane):
    _, told = control_plane.api.request("GET", "/version")
    assert told["gitVersion"] == binaries.kubernetes_version(os.environ.get(MINOR_VARIABLE, ""))


def test_unknown_field_of_a_newer_kubernetes_is_reported(operator, world):  # noqa: ARG001 - the operator works
    world.launch("c", {"worker": {"template": {"spec": {**POD, "schedulingGroup": {"podGroupName": "g"}}}}})
    if older_than("1.36"):
        told = world.await_condition("c", "Ready", status="False", reason="Rejected")
        assert 'unknown field "spec.schedulingGroup"' in told["message"]
    else:
        world.await_pods_of("c", ["c-worker-0"])


def test_field_of_a_disabled_feature_is_ignored(operator, world, kubelet, audit):  # noqa: ARG001 - likewise
    require_kubernetes("1.36", "schedulingGroup")
    jobs = {"worker": {"replicas": 2, "template": {"spec": {**POD, "schedulingGroup": {"podGroupName": "g"}}}}}
    uids = launch_running(world, kubelet, "c", jobs)
    assert "schedulingGroup" not in world.demand(PODS, "c-worker-0")["spec"]
    world.await_condition("c", "Ready", status="True")
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    await_another_pass(world, "c")
    assert world.condition("c", "UpToDate")["status"] == "True"
    assert uids_of(world, "c") == uids
    written = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    assert [request for request in written if request.resource == "pods"] == []
