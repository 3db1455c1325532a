"""What the tests of TFJob assert of it, numbers 1 to 25 of docs/tfjob.md: what is made, and what an end means.

Each test carries the number of its row there, and shows the verdict: the same, or better and how.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.lives import await_all_replaced, await_another_pass, await_pods_left, launch_running, uids_of
from support.manifests import pod_template
from support.objects import PODS, Object
from support.pods import StandInKubelet
from support.rbac import OPERATOR_USER
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

FOUR_AND_TWO = {"worker": {"replicas": 4}, "ps": {"replicas": 2}}
NEVER = {"restartPolicy": "Never"}


@pytest.fixture
def world(shared_world: World) -> World:
    """One namespace for all of them: every test has a cluster of its own in it."""
    return shared_world


@pytest.fixture
def kubelet(shared_kubelet: StandInKubelet) -> StandInKubelet:
    return shared_kubelet


def environment(pod: Object) -> set[str]:
    return {entry["name"] for entry in pod["spec"]["containers"][0]["env"]}


def addresses(world: World, cluster: str, job: str, count: int, *, domain: str = "") -> list[str]:
    end = f".svc.{domain}" if domain else ".svc"
    return [f"{cluster}-{job}-{i}.{cluster}.{world.namespace}{end}:2222" for i in range(count)]


def ends(world: World, name: str) -> dict[str, str]:
    return {kind: world.condition(name, kind)["status"] for kind in ("Ready", "Succeeded", "Failed")}


def test_behaviour_01_one_worker(world):
    """One worker is one pod and one Service; there is no TF_CONFIG, and a view like everybody's."""
    world.launch("b01", {"worker": {}})
    world.await_settled("b01")
    pods = world.pods_of("b01")

    assert list(pods) == ["b01-worker-0"]
    assert "b01" in world.services()
    assert "TF_CONFIG" not in environment(pods["b01-worker-0"])
    assert world.view("b01", "worker")["jobs"] == {"worker": addresses(world, "b01", "worker", 1)}


def test_behaviour_02_four_workers_and_two_ps(world):
    """Four workers and two ps are six pods, and one Service for all of them in place of six."""
    world.launch("b02", FOUR_AND_TWO)
    world.await_settled("b02")

    assert sorted(world.pods_of("b02")) == task_names("b02", ps=2, worker=4)
    assert [name for name in world.services() if name.startswith("b02")] == ["b02"]


def test_behaviour_03_only_the_missing_are_made(world, operator, audit):
    """With two workers and one ps there, exactly the three missing pods are made."""
    world.launch("b03", FOUR_AND_TWO)
    before = {n: p["metadata"]["uid"] for n, p in world.await_pods_of("b03", task_names("b03", ps=2, worker=4)).items()}
    operator.stop()
    missing = ["b03-ps-1", "b03-worker-1", "b03-worker-3"]
    for name in missing:
        world.delete(PODS, name)
    position = audit.position()
    operator.start()
    world.await_pods_of("b03", before)
    await_another_pass(world, "b03")

    made = Counter(
        w.name
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if (w.verb, w.target) == ("create", "pods") and w.name.startswith("b03")
    )
    assert made == Counter(missing)
    assert {n for n, uid in uids_of(world, "b03").items() if uid == before[n]} == set(before) - set(missing)


def test_behaviour_04_all_pending(world):
    """While all pods are pending nothing more is made, and the cluster is not Ready."""
    world.launch("b04", FOUR_AND_TWO)
    status = world.await_settled("b04")["status"]

    assert (status["ready"], ends(world, "b04")) == ("0/6", {"Ready": "False", "Succeeded": "False", "Failed": "False"})
    assert len(world.pods_of("b04")) == 6


def test_behaviour_05_all_running(world, kubelet):
    """When all pods run the counts are 4 and 2, the cluster is Ready, and it has a start time."""
    launch_running(world, kubelet, "b05", FOUR_AND_TWO)
    world.await_condition("b05", "Ready", status="True")
    status = world.status("b05")

    assert {job: found["ready"] for job, found in status["jobs"].items()} == {"worker": 4, "ps": 2}
    assert status["startTime"]


def test_behaviour_06_one_of_four_running(world, kubelet):
    """When one worker of four runs the cluster is not Ready, and says one of four."""
    world.launch("b06", {"worker": {"replicas": 4}})
    world.await_pods_of("b06", task_names("b06", worker=4))
    kubelet.run("b06-worker-0")

    world.await_status("b06", lambda s: s["ready"] == "1/4", what="one of four is ready")
    assert ends(world, "b06")["Ready"] == "False"


def test_behaviour_07_all_succeeded(world, kubelet):
    """When all tasks have ended well the cluster has Succeeded, and the counts are 4 and 2."""
    launch_running(world, kubelet, "b07", FOUR_AND_TWO, cleanPodPolicy="None")
    kubelet.succeed(*task_names("b07", ps=2), *task_names("b07", worker=3))
    world.await_status("b07", lambda s: s["jobs"]["ps"]["succeeded"] == 2, what="both ps are complete")
    kubelet.succeed("b07-worker-3")

    status = world.await_ended("b07", "Succeeded")
    assert {job: found["succeeded"] for job, found in status["jobs"].items()} == {"worker": 4, "ps": 2}


def test_behaviour_08_owner_references(world):
    """Every pod, ConfigMap and Service names its TFCluster as the controller: version, kind, name and UID."""
    uid = world.launch("b08", FOUR_AND_TWO)["metadata"]["uid"]
    world.await_settled("b08")
    views = {name: found for name, found in world.config_maps().items() if name.startswith("b08")}
    found = {**world.pods_of("b08"), **views}
    found["b08"] = world.services()["b08"]
    owner = {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "name": "b08",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }

    assert len(found) == 6 + 2 + 1
    assert {n: thing["metadata"]["ownerReferences"] for n, thing in found.items()} == {n: [owner] for n in found}


def test_behaviour_09_labels_and_annotations_of_the_template(world):
    """Labels and annotations of the template reach the pod."""
    about = {"labels": {"team": "vision"}, "annotations": {"example.test/note": "kept"}}
    world.launch("b09", {"worker": {"template": pod_template(metadata=about)}})
    pod = world.await_pods_of("b09", ["b09-worker-0"])["b09-worker-0"]

    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"]["example.test/note"] == "kept"


@pytest.mark.parametrize("domain", ["", "cluster.test"])
def test_behaviour_10_exact_cluster(world, domain):
    """The view holds workers and ps by exact address, with and without a cluster domain, and no evaluator."""
    name = "b10-with" if domain else "b10"
    jobs = {"worker": {"replicas": 4}, "ps": {"replicas": 2}, "evaluator": {}}
    world.launch(name, jobs, **({"clusterDomain": domain} if domain else {}))
    world.await_settled(name)

    for job in jobs:
        assert world.view(name, job)["jobs"] == {
            "worker": addresses(world, name, "worker", 4, domain=domain),
            "ps": addresses(world, name, "ps", 2, domain=domain),
        }


def test_behaviour_11_a_cluster_of_one_is_a_cluster(world):
    """Distributed or not is no case of its own: one worker, a ps alone and chief with worker all have their view."""
    cases = {
        "b11-one": {"worker": {}},
        "b11-two": {"worker": {}, "ps": {}},
        "b11-ps": {"worker": {"replicas": 0}, "ps": {}},
        "b11-chief": {"chief": {}, "worker": {}},
    }
    for name, jobs in cases.items():
        world.launch(name, jobs)
    for name, jobs in cases.items():
        world.await_settled(name)
        present = {job for job, fields in jobs.items() if fields.get("replicas", 1)}
        for job in jobs:
            assert {j for j, tasks in world.view(name, job)["jobs"].items() if tasks} == present, name


def test_behaviour_12_sparse_view(world):
    """By filters a worker sees all ps and no other worker, and a ps no worker at all; the chief sees everybody."""
    jobs = {
        "chief": {},
        "worker": {"replicas": 3, "deviceFilters": ["/job:ps"]},
        "ps": {"replicas": 2, "deviceFilters": ["/job:ps/replica:0/task:9"], "maxReplicas": 10},
    }
    world.launch("b12", jobs)
    world.await_settled("b12")

    assert world.view("b12", "worker")["jobs"] == {"ps": addresses(world, "b12", "ps", 2)}
    assert world.view("b12", "ps")["jobs"] == {}
    assert world.view("b12", "chief")["jobs"] == {
        job: addresses(world, "b12", job, count) for job, count in (("chief", 1), ("worker", 3), ("ps", 2))
    }


def test_behaviour_13_pods_never_restart_by_themselves(world):
    """Under each restartPolicy the pod's own is Never: the operator restarts, so that it can count and pause."""
    jobs = {"chief": "Never", "worker": "Always", "ps": "OnFailure", "evaluator": "ExitCode"}
    world.launch("b13", {job: {"restartPolicy": policy} for job, policy in jobs.items()})
    pods = world.await_pods_of("b13", [f"b13-{job}-0" for job in jobs])

    assert {pod["spec"]["restartPolicy"] for pod in pods.values()} == {"Never"}


def test_behaviour_16_scale_down(world, kubelet):
    """From three workers to two, worker 2 is deleted, and the others are told."""
    uids = launch_running(world, kubelet, "b16", {"worker": {"replicas": 3}})
    world.scale("b16", replicas=2)
    await_pods_left(world, kubelet, "b16", task_names("b16", worker=2))

    assert uids_of(world, "b16") == {n: uids[n] for n in task_names("b16", worker=2)}
    assert len(world.view("b16", "worker")["jobs"]["worker"]) == 2


def test_behaviour_17_scale_up(world, kubelet):
    """From one worker to three, two pods are made, and the one that runs is told of them."""
    uids = launch_running(world, kubelet, "b17", {"worker": {}})
    world.scale("b17", replicas=3)
    pods = world.await_pods_of("b17", task_names("b17", worker=3))
    world.await_settled("b17")

    assert pods["b17-worker-0"]["metadata"]["uid"] == uids["b17-worker-0"]
    told = {n: p["metadata"]["annotations"]["tfcluster.dev/view"] for n, p in world.pods_of("b17").items()}
    assert len(set(told.values())) == 1
    assert len(world.view("b17", "worker")["jobs"]["worker"]) == 3


def test_behaviour_18_chief_succeeds_though_workers_failed(world, kubelet):
    """A chief that ends well ends the cluster well, although four workers have failed before."""
    launch_running(world, kubelet, "b18", {"chief": {}, "worker": {"replicas": 4}})
    kubelet.fail(*task_names("b18", worker=4))
    world.await_status("b18", lambda s: s["restarts"] == 4, what="four failures are counted")
    kubelet.succeed("b18-chief-0")

    world.await_ended("b18", "Succeeded")
    assert ends(world, "b18") == {"Ready": "True", "Succeeded": "True", "Failed": "False"}


def test_behaviour_19_chief_runs_though_workers_failed(world, kubelet):
    """While the chief runs, failed workers are restarted, and nothing says that the cluster has failed."""
    uids = launch_running(world, kubelet, "b19", {"chief": {}, "worker": {"replicas": 2}})
    failed = {n: u for n, u in uids.items() if "worker" in n}
    kubelet.fail(*failed)
    kubelet.run(*await_all_replaced(world, kubelet, "b19", failed))

    world.await_condition("b19", "Ready", status="True")
    assert ends(world, "b19") == {"Ready": "True", "Succeeded": "False", "Failed": "False"}


def test_behaviour_20_ps_fails_while_the_chief_runs(world, kubelet):
    """A ps that fails under Never fails the cluster, though the chief runs."""
    launch_running(world, kubelet, "b20", {"chief": {}, "worker": {}, "ps": {"replicas": 2, **NEVER}})
    kubelet.fail("b20-ps-1")

    world.await_ended("b20", "Failed", "TaskFailed")
    assert "ps-1" in world.condition("b20", "Failed")["message"]


def test_behaviour_21_chief_fails_though_workers_succeeded(world, kubelet):
    """A chief that fails under Never fails the cluster, although all workers have ended well."""
    launch_running(world, kubelet, "b21", {"chief": NEVER, "worker": {"replicas": 2}})
    kubelet.succeed(*task_names("b21", worker=2))
    kubelet.fail("b21-chief-0")

    world.await_ended("b21", "Failed", "TaskFailed")


def test_behaviour_22_chief_fails_with_130_under_exit_code(world, kubelet):
    """A chief that ends with 130 under ExitCode is restarted, and the status tells of it."""
    uids = launch_running(world, kubelet, "b22", {"chief": {"restartPolicy": "ExitCode"}, "worker": {}})
    kubelet.fail("b22-chief-0", exit_code=130)
    world.await_replaced("b22-chief-0", uids["b22-chief-0"])

    status = world.await_status("b22", lambda s: s["restarts"] == 1, what="one restart is counted")
    assert (status["lastRestart"]["task"], status["lastRestart"]["exitCode"]) == ("chief-0", 130)
    assert ends(world, "b22")["Failed"] == "False"


def test_behaviour_23_success_without_a_chief(world, kubelet):
    """Without a chief all workers decide, or any one if the policy says so; one that fails under Never ends it."""
    launch_running(world, kubelet, "b23-all", {"worker": {"replicas": 4}})
    launch_running(world, kubelet, "b23-any", {"worker": {"replicas": 4}}, successPolicy={"tasks": "Any"})
    launch_running(world, kubelet, "b23-never", {"worker": {"replicas": 4, **NEVER}})
    kubelet.succeed("b23-all-worker-0", "b23-any-worker-0", "b23-never-worker-0")
    kubelet.fail("b23-never-worker-1")

    world.await_ended("b23-any", "Succeeded")
    world.await_ended("b23-never", "Failed", "TaskFailed")
    world.await_status("b23-all", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="one is complete")
    assert ends(world, "b23-all")["Succeeded"] == "False"
    kubelet.succeed(*task_names("b23-all", worker=4)[1:])
    world.await_ended("b23-all", "Succeeded")


def test_behaviour_24_two_of_four_succeeded(world, kubelet):
    """Two workers that have ended well and two that run are a cluster that runs, and is Ready."""
    launch_running(world, kubelet, "b24", {"worker": {"replicas": 4}})
    kubelet.succeed("b24-worker-1", "b24-worker-2")
    world.await_status("b24", lambda s: s["jobs"]["worker"]["succeeded"] == 2, what="two are complete")

    world.await_condition("b24", "Ready", status="True")
    assert ends(world, "b24") == {"Ready": "True", "Succeeded": "False", "Failed": "False"}


def test_behaviour_25_ended_is_not_running(world, kubelet):
    """A cluster that has succeeded is Ready, a failed one is not, though pods of both still run."""
    launch_running(world, kubelet, "b25-good", {"chief": {}, "worker": {"replicas": 2}}, cleanPodPolicy="None")
    launch_running(world, kubelet, "b25-bad", {"chief": NEVER, "worker": {"replicas": 2}}, cleanPodPolicy="None")
    kubelet.succeed("b25-good-chief-0")
    kubelet.fail("b25-bad-chief-0")
    world.await_ended("b25-good", "Succeeded")
    world.await_ended("b25-bad", "Failed")

    assert ends(world, "b25-good") == {"Ready": "True", "Succeeded": "True", "Failed": "False"}
    assert ends(world, "b25-bad") == {"Ready": "False", "Succeeded": "False", "Failed": "True"}
