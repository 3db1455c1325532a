"""What the tests of TFJob assert of it, numbers 26 to 41 of docs/tfjob.md: clean-up, limits, suspension, defaults.

Each test carries the number of its row there, and shows the verdict: the same, or better and how.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from kubernetes.client.exceptions import ApiException
from support.lives import await_another_pass, await_pods_left, launch_running, uids_of
from support.manifests import pod_template
from support.objects import PODS, TFCLUSTERS
from support.pods import StandInKubelet
from support.rbac import OPERATOR_USER
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def world(shared_world: World) -> World:
    """One namespace for all of them: every test has clusters of its own in it."""
    return shared_world


@pytest.fixture
def kubelet(shared_kubelet: StandInKubelet) -> StandInKubelet:
    return shared_kubelet


def ran_for(status: dict) -> float:
    times = (datetime.fromisoformat(status[key]) for key in ("startTime", "completionTime"))
    began, ended = times
    return (ended - began).total_seconds()


def test_behaviour_28_deadline(world, kubelet):
    """After its deadline the cluster has failed and its pods are gone, by a timer and without any other event."""
    launch_running(world, kubelet, "b28", {"worker": {"replicas": 2}}, activeDeadlineSeconds=2)
    launch_running(
        world, kubelet, "b28-none", {"worker": {"replicas": 2}}, activeDeadlineSeconds=2, cleanPodPolicy="None"
    )

    assert ran_for(world.await_ended("b28", "Failed", "DeadlineExceeded")) >= 2
    await_pods_left(world, kubelet, "b28", [])
    world.await_ended("b28-none", "Failed", "DeadlineExceeded")
    assert len(uids_of(world, "b28-none")) == 2


def test_behaviour_31_suspended_at_creation(world):
    """Suspended at creation there is no pod and no start time; every condition is there from the first visit on."""
    world.launch("b31", {"worker": {"replicas": 2}}, suspend=True)
    world.await_condition("b31", "Suspended", status="True")
    await_another_pass(world, "b31")

    status = world.status("b31")
    assert (world.pods_of("b31"), "startTime" in status) == ({}, False)
    assert {c["type"] for c in status["conditions"] if c["status"] == "True"} == {
        "Suspended",
        "MembershipPublished",
        "UpToDate",
    }
    assert len(status["conditions"]) == 8


def test_behaviour_32_suspended_while_running(world, kubelet):
    """Suspended, the pods go and stay away; the Service and the views stay; resumed, the start time is new."""
    launch_running(world, kubelet, "b32", {"worker": {"replicas": 2}})
    world.await_condition("b32", "Ready", status="True")
    before = world.status("b32")["startTime"]
    world.edit("b32", {"suspend": True})
    await_pods_left(world, kubelet, "b32", [])
    await_another_pass(world, "b32")
    world.await_status("b32", lambda s: "startTime" not in s, what="it has no start time")
    assert (world.pods_of("b32"), "b32" in world.services()) == ({}, True)
    assert world.condition("b32", "Ready")["status"] == "False"

    world.edit("b32", {"suspend": False})
    world.await_pods_of("b32", task_names("b32", worker=2))
    world.await_condition("b32", "Suspended", status="False", reason="NotSuspended")
    assert world.status("b32")["startTime"] > before


@pytest.mark.server
def test_behaviour_33_managed_by_another(world, audit):
    """Managed by another it is neither made, reported on, nor cleaned up, and the field cannot be changed."""
    position = audit.position()
    jobs = {"worker": {"replicas": 2}}
    world.launch("b33", jobs, managedBy="kueue.x-k8s.io/multikueue", suspend=True, ttlSecondsAfterFinished=0)
    world.edit("b33", {"suspend": False})
    with pytest.raises(ApiException) as refusal:
        world.edit("b33", {"managedBy": "tfcluster.dev/tfcluster-operator"})
    assert refusal.value.status == 422
    assert (world.pods_of("b33"), world.status("b33")) == ({}, {"observedGeneration": 0})
    world.remove("b33")
    world.launch("b33", jobs)  # ours, of the same name: once it is settled, what came before has been looked at
    world.await_settled("b33")

    requests = [r for r in audit.since(position, namespace=world.namespace) if r.name.startswith("b33")]
    ours = max(i for i, r in enumerate(requests) if (r.verb, r.target) == ("create", "tfclusters"))
    assert [str(r) for r in requests[:ours] if r.user == OPERATOR_USER and r.is_write] == []
    assert [r.name for r in requests[ours:] if (r.verb, r.target) == ("create", "pods")] != []


def test_behaviour_34_the_service(world):
    """The Service is headless, has port 2222, selects the cluster's pods, and names them before they are ready."""
    world.launch("b34", {"worker": {"replicas": 2}})
    world.await_settled("b34")
    spec = world.services()["b34"]["spec"]

    assert (spec["clusterIP"], [port["port"] for port in spec["ports"]]) == ("None", [2222])
    assert spec["selector"] == {"tfcluster.dev/cluster": "b34"}
    assert spec["publishNotReadyAddresses"] is True


def test_behaviour_35_defaults(world):
    """The server fills the defaults in, so that they can be read: nothing is added in secret."""
    world.launch("b35", {"worker": {"template": pod_template(ports=[{"containerPort": 6006}])}})
    world.await_settled("b35")
    spec = world.cluster("b35")["spec"]
    ports = world.demand(PODS, "b35-worker-0")["spec"]["containers"][0]["ports"]

    assert (spec["port"], spec["cleanPodPolicy"], spec["suspend"]) == (2222, "Running", False)
    job = {key: spec["jobs"]["worker"][key] for key in ("replicas", "restartPolicy", "restartScope")}
    assert job == {"replicas": 1, "restartPolicy": "OnFailure", "restartScope": "Task"}
    assert [port["containerPort"] for port in ports] == [6006]


def test_behaviour_37_who_ends_the_job(world, kubelet):
    """A chief that exits with 0 ends the cluster; without a chief all workers do, none of them is special."""
    launch_running(world, kubelet, "b37-chief", {"chief": {}, "worker": {"replicas": 2}, "ps": {}})
    launch_running(world, kubelet, "b37-workers", {"worker": {"replicas": 2}, "ps": {}})
    kubelet.succeed("b37-chief-chief-0", "b37-workers-worker-0")

    world.await_ended("b37-chief", "Succeeded")
    world.await_status("b37-workers", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="worker 0 is complete")
    assert world.condition("b37-workers", "Succeeded")["status"] == "False"
    kubelet.succeed("b37-workers-worker-1")
    world.await_ended("b37-workers", "Succeeded")


def test_behaviour_40_names_of_pods(world):
    """A pod is called as its cluster, its job and its index."""
    world.launch("b40", {"worker": {"replicas": 2}, "parameter_server": {}})

    world.await_pods_of("b40", ["b40-worker-0", "b40-worker-1", "b40-parameter-server-0"])


@pytest.mark.server
def test_behaviour_41_invalid_spec(world):
    """An invalid spec is refused when it is created, with the path and the remedy, and no object is left behind."""
    with pytest.raises(ApiException) as refusal:
        world.launch("b41", {"worker": {"replicas": -1}})

    assert refusal.value.status == 422
    assert "spec.jobs.worker.replicas" in refusal.value.body.replace("[worker]", ".worker")
    assert world.get(TFCLUSTERS, "b41") is None
