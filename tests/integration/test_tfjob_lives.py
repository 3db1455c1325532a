"""What the tests of TFJob assert of it, numbers 26 to 41 of docs/tfjob.md: clean-up, limits, suspension, defaults.

Each test carries the number of its row there, and shows the verdict: the same, or better and how.
"""

from __future__ import annotations

from datetime import datetime

import pytest
from kubernetes.client.exceptions import ApiException
from support.lives import await_pods_left, launch_running, settle_another, uids_of
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


def test_behaviour_26_clean_pod_policy(world, kubelet):
    """All leaves no pod, Running the completed ones, None all; the one Service stays as long as the TFCluster."""
    wanted = {"All": [], "Running": ["chief-0"], "None": ["chief-0", "worker-0", "worker-1"]}
    for policy in wanted:
        name = f"b26-{policy.lower()}"
        launch_running(world, kubelet, name, {"chief": {}, "worker": {"replicas": 2}}, cleanPodPolicy=policy)
        kubelet.succeed(f"{name}-chief-0")

    for policy, left in wanted.items():
        name = f"b26-{policy.lower()}"
        world.await_ended(name, "Succeeded")
        await_pods_left(world, kubelet, name, [f"{name}-{task}" for task in left])
        assert name in world.services()


def test_behaviour_27_clean_pod_policy_none_at_the_limit(world, kubelet):
    """Under None a used-up backoffLimit leaves the pods, those that run too."""
    uids = launch_running(world, kubelet, "b27", {"worker": {"replicas": 3}}, cleanPodPolicy="None", backoffLimit=0)
    kubelet.fail("b27-worker-0")
    world.await_ended("b27", "Failed", "BackoffLimitExceeded")
    settle_another(world, "after-b27")

    assert uids_of(world, "b27") == uids


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


def test_behaviour_29_backoff_limit(world, kubelet):
    """With backoffLimit 4 the failure after the fourth restart ends the cluster, and its running pods go."""
    uids = launch_running(world, kubelet, "b29", {"worker": {"replicas": 6}}, backoffLimit=4)
    kubelet.fail(*task_names("b29", worker=4))
    for name in task_names("b29", worker=4):
        world.await_replaced(name, uids[name])
    assert world.condition("b29", "Failed")["status"] == "False"
    kubelet.fail("b29-worker-4")

    assert world.await_ended("b29", "Failed", "BackoffLimitExceeded")["restarts"] == 4
    await_pods_left(world, kubelet, "b29", ["b29-worker-4"])


def test_behaviour_30_ttl(world, kubelet):
    """After its TTL a Succeeded and a Failed cluster are deleted; a running and a suspended one stay."""
    launch_running(world, kubelet, "b30-good", {"worker": {}}, ttlSecondsAfterFinished=1)
    launch_running(world, kubelet, "b30-bad", {"worker": {"restartPolicy": "Never"}}, ttlSecondsAfterFinished=1)
    launch_running(world, kubelet, "b30-now", {"worker": {}}, ttlSecondsAfterFinished=0)
    launch_running(world, kubelet, "b30-runs", {"worker": {}}, ttlSecondsAfterFinished=0)
    world.launch("b30-rests", {"worker": {}}, ttlSecondsAfterFinished=0, suspend=True)
    kubelet.succeed("b30-good-worker-0", "b30-now-worker-0")
    kubelet.fail("b30-bad-worker-0")

    for name in ("b30-good", "b30-bad", "b30-now"):
        world.await_removed(name)
    assert "completionTime" not in world.status("b30-runs")
    world.await_condition("b30-rests", "Suspended", status="True")


def test_behaviour_31_suspended_at_creation(world):
    """Suspended at creation there is no pod and no start time; every condition is there from the first visit on."""
    world.launch("b31", {"worker": {"replicas": 2}}, suspend=True)
    world.await_condition("b31", "Suspended", status="True")
    settle_another(world, "after-b31")

    status = world.status("b31")
    assert (world.pods_of("b31"), "startTime" in status) == ({}, False)
    assert {c["type"] for c in status["conditions"] if c["status"] == "True"} == {
        "Suspended",
        "MembershipPublished",
        "UpToDate",
    }
    assert len(status["conditions"]) == 7


def test_behaviour_32_suspended_while_running(world, kubelet):
    """Suspended, the pods go and stay away; the Service and the views stay; resumed, the start time is new."""
    launch_running(world, kubelet, "b32", {"worker": {"replicas": 2}})
    world.await_condition("b32", "Ready", status="True")
    before = world.status("b32")["startTime"]
    world.edit("b32", {"suspend": True})
    await_pods_left(world, kubelet, "b32", [])
    settle_another(world, "after-b32")
    world.await_status("b32", lambda s: "startTime" not in s, what="it has no start time")
    assert (world.pods_of("b32"), "b32" in world.services()) == ({}, True)
    assert world.condition("b32", "Ready")["status"] == "False"

    world.edit("b32", {"suspend": False})
    world.await_pods_of("b32", task_names("b32", worker=2))
    world.await_condition("b32", "Suspended", status="False", reason="NotSuspended")
    assert world.status("b32")["startTime"] > before


def test_behaviour_33_managed_by_another(world, audit):
    """Managed by another there are no pods and no status of the operator, and it cannot be changed."""
    position = audit.position()
    world.launch("b33", {"worker": {}}, managedBy="kueue.x-k8s.io/multikueue", suspend=True)
    world.edit("b33", {"suspend": False})
    settle_another(world, "after-b33")

    assert (world.pods_of("b33"), world.status("b33")) == ({}, {"observedGeneration": 0})
    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    assert [str(w) for w in writes if w.name.startswith("b33")] == []
    with pytest.raises(ApiException) as refusal:
        world.edit("b33", {"managedBy": "tfcluster.dev/tfcluster-operator"})
    assert refusal.value.status == 422


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


def test_behaviour_36_restart_matrix(world, kubelet):
    """What a ps' exit code leads to, by policy; exit 1 under OnFailure restarts, under Never and ExitCode it fails."""
    outcomes = {
        ("Always", 0): "again",
        ("Always", 1): "again",
        ("OnFailure", 1): "again",
        ("OnFailure", 0): "complete",
        ("Never", 0): "complete",
        ("Never", 1): "fails",
        ("ExitCode", 1): "fails",
        ("ExitCode", 130): "again",
    }
    old = {}
    for policy, code in outcomes:
        name = f"b36-{policy.lower()}-{code}"
        uids = launch_running(world, kubelet, name, {"worker": {}, "ps": {"restartPolicy": policy}})
        old[policy, code] = uids[f"{name}-ps-0"]
        kubelet.succeed(f"{name}-ps-0") if code == 0 else kubelet.fail(f"{name}-ps-0", exit_code=code)

    for (policy, code), outcome in outcomes.items():
        name = f"b36-{policy.lower()}-{code}"
        if outcome == "again":
            world.await_replaced(f"{name}-ps-0", old[policy, code])
        elif outcome == "complete":
            world.await_status(name, lambda s: s["jobs"]["ps"]["succeeded"] == 1, what=f"{name} is complete")
            assert world.uid(f"{name}-ps-0") == old[policy, code]
        else:
            world.await_ended(name, "Failed")


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


def test_behaviour_38_what_is_left_of_a_training(world, kubelet):
    """After success All leaves no pod; Running the completed chief and workers without ps; None ps that still run."""
    jobs = {"chief": {}, "worker": {"replicas": 2}, "ps": {"replicas": 2}}
    done = ["chief-0", "worker-0", "worker-1"]
    wanted = {"All": [], "Running": done, "None": [*done, "ps-0", "ps-1"]}
    for policy in wanted:
        name = f"b38-{policy.lower()}"
        launch_running(world, kubelet, name, jobs, cleanPodPolicy=policy)
        kubelet.succeed(f"{name}-worker-0", f"{name}-worker-1", f"{name}-chief-0")

    for policy, left in wanted.items():
        name = f"b38-{policy.lower()}"
        world.await_ended(name, "Succeeded")
        await_pods_left(world, kubelet, name, [f"{name}-{task}" for task in left])
    phases = {n: p["status"]["phase"] for n, p in world.pods_of("b38-none").items()}
    assert {phases[n] for n in task_names("b38-none", ps=2)} == {"Running"}


def test_behaviour_40_names_of_pods(world):
    """A pod is called as its cluster, its job and its index."""
    world.launch("b40", {"worker": {"replicas": 2}, "parameter_server": {}})

    world.await_pods_of("b40", ["b40-worker-0", "b40-worker-1", "b40-parameter-server-0"])


def test_behaviour_41_invalid_spec(world):
    """An invalid spec is refused when it is created, with the path and the remedy, and no object is left behind."""
    with pytest.raises(ApiException) as refusal:
        world.launch("b41", {"worker": {"replicas": -1}})

    assert refusal.value.status == 422
    assert "spec.jobs.worker.replicas" in refusal.value.body.replace("[worker]", ".worker")
    assert world.get(TFCLUSTERS, "b41") is None
