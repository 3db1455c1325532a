"""The metrics of the real process on a real API server: each is made to move, and moves by exactly what happened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fault_proxy import Fault, FaultProxy
from support.lives import await_all_replaced, confirm_ends, launch_running
from support.manifests import pod_template
from support.metrics import Scrape, documented, families
from support.objects import PODS, TFCLUSTERS, Kind, Objects
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.waiting import eventually
from support.world import World

import tfcluster_resolver

LEASES = Kind("coordination.k8s.io/v1", "leases")


class Observed:
    """An operator, and its metrics.

    Args:
        process: the operator.
    """

    def __init__(self, process: OperatorProcess) -> None:
        self.process = process

    def scrape(self) -> Scrape:
        text, _ = self.process.scrape()
        assert families(text).keys() == documented().keys()
        return Scrape(text)

    def until(self, accept: Callable[[Scrape], object], what: str) -> Scrape:
        return eventually(self.scrape, accept, what=what)


@pytest.fixture(scope="module")
def counted_world(objects: Objects, new_namespace: Callable[[], str]) -> World:
    return World(objects, new_namespace())


@pytest.fixture(scope="module")
def observed(
    operator_process: OperatorProcess, fault_proxy: FaultProxy, counted_world: World, tmp_path_factory
) -> Iterator[Observed]:
    """An operator that looks at one namespace alone: what others of the session's namespaces hold is not counted."""
    operator_process.kill()
    process = OperatorProcess(
        kubeconfig=fault_proxy.kubeconfig, log=tmp_path_factory.mktemp("metrics") / "operator.log"
    )
    arguments = ("--namespace", counted_world.namespace, "--log-level", "debug", "--log-format", "json")
    process.start(arguments=arguments)
    yield Observed(process)
    process.kill()


@pytest.fixture
def world(counted_world: World, observed: Observed) -> Iterator[World]:
    """The namespace that is counted, without TFClusters at the start of each test."""
    yield counted_world
    for found in counted_world.objects.list(TFCLUSTERS, counted_world.namespace):
        counted_world.remove(found["metadata"]["name"])
    for found in counted_world.objects.list(PODS, counted_world.namespace):
        counted_world.objects.delete(PODS, counted_world.namespace, found["metadata"]["name"], grace_seconds=0)
    observed.until(lambda now: not now.not_zero("tfcluster_clusters"), "no TFCluster is left")


@pytest.fixture(scope="module")
def kubelet(counted_world: World) -> Iterator[StandInKubelet]:
    """Plays the kubelet for the pods of the namespace, which it takes away at its end."""
    stand_in = StandInKubelet(counted_world.objects, counted_world.namespace)
    yield stand_in
    stand_in.close()


def conditions_of(now: Scrape, condition: str) -> dict[str, float]:
    """Return how many TFClusters have each status of a condition."""
    return {s: now.value("tfcluster_clusters", condition=condition, status=s) for s in ("True", "False", "Unknown")}


def test_clusters_and_tasks_are_counted_by_what_they_are(world, kubelet, observed):
    """A running, a suspended, a finished and an unready cluster: each condition, each task and the age of the last."""
    jobs = {"chief": {}, "worker": {"replicas": 3}, "ps": {}, "evaluator": {}, "my_data": {"replicas": 2}}
    pods = launch_running(world, kubelet, "runs", jobs)
    world.launch("rests", {"worker": {"replicas": 4}}, suspend=True)
    launch_running(world, kubelet, "ends", {"worker": {"replicas": 2}}, cleanPodPolicy="None")
    kubelet.succeed("ends-worker-0", "ends-worker-1")
    world.launch("starts", {"master": {"replicas": 2}})
    world.await_ended("ends", "Succeeded")
    world.await_condition("runs", "Ready", status="True")
    world.await_condition("starts", "Ready", status="False", reason="TasksNotReady")
    world.await_condition("rests", "Suspended", status="True")
    assert len(pods) == 8

    now = observed.until(
        lambda now: now.value("tfcluster_tasks", role="worker", state="ready") == 3, "all passes are made"
    )
    assert conditions_of(now, "Ready") == {"True": 2, "False": 2, "Unknown": 0}
    assert conditions_of(now, "Suspended") == {"True": 1, "False": 3, "Unknown": 0}
    assert conditions_of(now, "Succeeded") == {"True": 1, "False": 3, "Unknown": 0}
    assert conditions_of(now, "NameConflict") == {"True": 0, "False": 4, "Unknown": 0}
    assert now.not_zero("tfcluster_clusters_not_ready") == {("TasksNotReady",): 1}
    assert now.not_zero("tfcluster_tasks") == {
        ("chief", "ready"): 1,
        ("worker", "ready"): 3,
        ("ps", "ready"): 1,
        ("evaluator", "ready"): 1,
        ("other", "ready"): 2,
        ("worker", "idle"): 4,
        ("worker", "completed"): 2,
        ("master", "starting"): 2,
    }
    assert now.not_zero("tfcluster_clusters_finished_total") == {("TasksSucceeded",): 1}
    observed.until(lambda now: now.value("tfcluster_not_ready_oldest_seconds") >= 1, "the unready one grows old")

    kubelet.run("starts-master-0", "starts-master-1")
    world.await_condition("starts", "Ready", status="True")
    then = observed.until(lambda now: not now.not_zero("tfcluster_clusters_not_ready"), "all are ready")
    assert then.value("tfcluster_not_ready_oldest_seconds") == 0
    assert then.value("tfcluster_leader") == 1


def test_each_pod_that_is_replaced_is_counted_by_its_reason(world, kubelet, observed):
    """Failures of three causes, a success, a disruption, an edit of the template and one of a pod: each is one."""
    before = observed.scrape()
    always = {"replicas": 1, "restartPolicy": "Always"}
    jobs = {"worker": {"replicas": 3}, "ps": {"replicas": 2, "restartScope": "Job"}, "my_data": always}
    old = launch_running(world, kubelet, "replaced", jobs, backoffLimit=100, updateStrategy={"type": "Recreate"})
    world.await_condition("replaced", "Ready", status="True")

    kubelet.fail("replaced-worker-0", exit_code=3)
    kubelet.fail("replaced-worker-1", exit_code=137, reason="OOMKilled")
    kubelet.fail("replaced-ps-0", exit_code=139)
    kubelet.succeed("replaced-my-data-0")
    kubelet.disrupt("replaced-worker-2")
    new = await_all_replaced(world, kubelet, "replaced", old)
    kubelet.run(*new)
    world.await_condition("replaced", "Ready", status="True")

    now = observed.scrape()
    assert now.since(before, "tfcluster_task_failures_total") == {
        ("ExitCode", "worker"): 1,
        ("OOMKilled", "worker"): 1,
        ("KilledBySignal", "ps"): 1,
    }
    # A scope's pods go together, the one that failed among them.
    assert now.since(before, "tfcluster_pod_replacements_total") == {
        ("PodFailed",): 2,
        ("RestartedTogether",): 2,
        ("PodEnded",): 1,
        ("PodDisrupted",): 1,
    }
    assert world.status("replaced")["restarts"] == sum(now.since(before, "tfcluster_task_failures_total").values())

    world.edit("replaced", {"jobs": {"worker": {"template": pod_template(image="registry.test/train:2")}}})
    workers = {name: uid for name, uid in new.items() if "worker" in name}
    kubelet.run(*await_all_replaced(world, kubelet, "replaced", workers))
    world.await_condition("replaced", "Ready", status="True")

    last = observed.scrape()
    assert last.since(now, "tfcluster_pod_replacements_total") == {("TemplateChanged",): 3}
    assert last.since(now, "tfcluster_task_failures_total") == {}


def test_failure_that_is_final_is_counted(world, kubelet, observed):
    """A task whose job is never restarted fails once, and with it the cluster."""
    before = observed.scrape()
    launch_running(world, kubelet, "final", {"chief": {"restartPolicy": "Never"}})
    kubelet.fail("final-chief-0", exit_code=9)
    world.await_ended("final", "Failed", "TaskFailed")
    # The status is there a moment before the operator has the answer to its write.
    now = observed.until(lambda now: now.since(before, "tfcluster_clusters_finished_total"), "the end is counted")
    assert now.since(before, "tfcluster_clusters_finished_total") == {("TaskFailed",): 1}
    observed.until(
        lambda now: now.since(before, "tfcluster_task_failures_total") == {("ExitCode", "chief"): 1},
        "so is the failure",
    )
    assert now.since(before, "tfcluster_pod_replacements_total") == {}


def test_epochs_and_deliveries_are_those_of_edits(world, kubelet, observed):
    """A new cluster is an epoch; each edit of its membership is one more, and a delivery to those who run."""
    before = observed.scrape()
    launch_running(world, kubelet, "edited", {"worker": {"replicas": 2}})
    world.await_condition("edited", "Ready", status="True")
    created = observed.scrape()
    assert created.since(before, "tfcluster_epochs_total") == {(): 1}
    assert created.since(before, "tfcluster_view_delivery_seconds_count") == {}
    world.scale("edited", replicas=3)
    kubelet.run(*world.await_pods_of("edited", ["edited-worker-0", "edited-worker-1", "edited-worker-2"]))
    world.await_condition("edited", "Ready", status="True")
    world.scale("edited", replicas=1)
    eventually(lambda: confirm_ends(world, kubelet, "edited") or len(world.pods_of("edited")) == 1, what="two are gone")
    world.await_settled("edited")
    world.edit("edited", {"ttlSecondsAfterFinished": 60})  # changes no view
    world.await_settled("edited")
    now = observed.scrape()
    assert now.since(created, "tfcluster_epochs_total") == {(): 2}
    assert now.since(created, "tfcluster_view_delivery_seconds_count") == {(): 2}
    assert 0 < now.value("tfcluster_view_delivery_seconds_sum") < 60


def test_view_that_reaches_nobody_grows_old(world, kubelet, observed, fault_proxy):
    """While pods cannot be told, the age of their view grows; when they are told it is 0, and the delivery was slow."""
    launch_running(world, kubelet, "untold", {"worker": {"replicas": 2}})
    world.await_condition("untold", "Ready", status="True")
    before = observed.scrape()
    with fault_proxy.fault(Fault("refuse", resource="pods", method="PATCH", status=403)) as fault:
        world.scale("untold", replicas=3)
        world.await_condition("untold", "UpToDate", status="False", reason="Rejected")
        old = observed.until(
            lambda now: now.value("tfcluster_undelivered_view_oldest_seconds") >= 1, "the view grows old"
        )
        assert old.not_zero("tfcluster_clusters_not_ready") == {("TasksNotReady",): 1}
        assert conditions_of(old, "MembershipPublished") == {"True": 0, "False": 1, "Unknown": 0}
    now = observed.until(
        lambda now: now.since(before, "tfcluster_view_delivery_seconds_count") == {(): 1}, "the view is delivered"
    )
    assert now.value("tfcluster_undelivered_view_oldest_seconds") == 0
    assert now.since(before, "tfcluster_view_delivery_seconds_sum")[()] >= 1
    assert now.since(before, "tfcluster_api_requests_total")["403", "patch"] == len(fault.met)


def test_requests_are_counted_by_verb_and_code(world, observed, fault_proxy):
    """Answers of a server with no room, lost answers, and all others: each request is one."""
    before = observed.scrape()
    busy = Fault("refuse", resource="pods", method="POST", status=429, times=3)
    lost = Fault("commit-and-reset", resource="services", method="POST", times=1)
    with fault_proxy.fault(busy), fault_proxy.fault(lost):
        world.launch("asked", {"worker": {"replicas": 5}})
        world.await_settled("asked")
    now = observed.scrape()
    requests = now.since(before, "tfcluster_api_requests_total")
    assert (requests["429", "create"], requests["none", "create"]) == (3, 1)
    assert set(requests) <= {(c, v) for c in ("200", "201", "404", "409", "429", "none") for v in VERBS}
    timed = now.since(before, "tfcluster_api_request_duration_seconds_count")
    for verb in ("create", "patch", "list"):
        assert timed[verb,] == sum(count for (_, of), count in requests.items() if of == verb)


VERBS = ("create", "delete", "get", "list", "patch", "watch")


def test_writes_of_a_status_are_counted_by_their_end(world, observed, fault_proxy):
    world.launch("written", {"worker": {}})
    world.await_settled("written")
    before = observed.scrape()
    for replicas, status in ((2, 409), (3, 403)):
        fault = Fault("refuse", resource="tfclusters", method="PATCH", status=status, times=1)
        with fault_proxy.fault(fault):
            world.scale("written", replicas=replicas)
            world.await_settled("written")
        assert len(fault.met) == 1
    with fault_proxy.fault(Fault("call-before", resource="tfclusters", method="PATCH", action=lambda: None)):
        world.scale("written", replicas=4)
        observed.until(
            lambda now: now.since(before, "tfcluster_status_writes_total").get(("unanswered",)), "it is not answered"
        )
    world.await_settled("written")

    now = observed.scrape()
    writes = now.since(before, "tfcluster_status_writes_total")
    assert {key: count for key, count in writes.items() if key != ("written",)} == {
        ("conflict",): 1,
        ("refused",): 1,
        ("unanswered",): writes["unanswered",],
    }
    assert now.since(before, "tfcluster_passes_total").keys() == {("done",), ("retried",)}
    took = now.since(before, "tfcluster_pass_duration_seconds_count")[()]
    assert took == sum(now.since(before, "tfcluster_passes_total").values())


@pytest.mark.parametrize("kind", ["pods", "tfclusters"])
def test_watch_that_hears_nothing_falls_silent(observed, fault_proxy, kind):
    """While a watch cannot be opened its silence grows, and no other's; opened again, it is young and was restarted."""
    before = observed.scrape()
    with fault_proxy.fault(Fault("refuse", resource=kind, method="GET", watch=True, status=503)):
        fault_proxy.drop_watches(kind)
        old = before.value("tfcluster_watch_silence_seconds", kind=kind)
        silent = observed.until(
            lambda now: now.value("tfcluster_watch_silence_seconds", kind=kind) > old + 1, "it falls silent"
        )
    assert silent.since(before, "tfcluster_watch_restarts_total") == {}
    now = observed.until(lambda now: now.since(before, "tfcluster_watch_restarts_total"), "it is opened again")
    assert now.since(before, "tfcluster_watch_restarts_total") == {(kind,): 1}
    assert now.value("tfcluster_watch_silence_seconds", kind=kind) < 60


def test_a_standby_counts_no_cluster(control_plane, world, observed, tmp_path):
    """An operator that stands by says so, tells of its own requests and watches, and of no TFCluster."""
    world.launch("alone", {"worker": {}})
    world.await_settled("alone")
    now = "2100-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
    world.objects.create(LEASES, world.namespace, {"metadata": {"name": "tfcluster-operator"}, "spec": spec})
    standby = OperatorProcess(kubeconfig=Path(control_plane.kubeconfig), log=tmp_path / "standby.log")
    try:
        where = ("--namespace", world.namespace)
        standby.start(arguments=(*where, "--leader-election", "--lease-namespace", world.namespace))
        told = Scrape(standby.scrape()[0])
    finally:
        standby.kill()
    assert (told.value("tfcluster_leader"), observed.scrape().value("tfcluster_leader")) == (0, 1)
    of_the_leader = ("tfcluster_clusters", "tfcluster_tasks", "tfcluster_queue_depth", "tfcluster_clusters_not_ready")
    assert [name for name, _ in told if name in of_the_leader] == []
    assert told.not_zero("tfcluster_passes_total") == {}
    assert told.value("tfcluster_api_requests_total", verb="watch", code="200") >= 4
    assert told.value("tfcluster_api_requests_total", verb="get", code="200") >= 1


def test_what_waits_for_a_slow_server_is_seen(world, observed, fault_proxy):
    """While no pod can be made, 32 passes hang, so two of 34 clusters wait; when pods can be made, none waits."""
    with fault_proxy.fault(Fault("hang", resource="pods", method="POST")):
        for index in range(34):
            world.launch(f"slow-{index}", {"worker": {"replicas": 2}})
        now = observed.until(
            lambda now: (
                now.value("tfcluster_queue_depth") >= 2
                and now.value("tfcluster_queue_oldest_seconds") > 1
                and now.not_zero("tfcluster_clusters_not_ready") == {("NotReported",): 34}
            ),
            "passes wait",
        )
        assert conditions_of(now, "Ready") == {"True": 0, "False": 0, "Unknown": 34}
    then = observed.until(lambda now: now.value("tfcluster_tasks", role="worker", state="starting") == 68, "all go on")
    assert then.not_zero("tfcluster_clusters_not_ready") == {("TasksNotReady",): 34}
    eased = observed.until(lambda now: not now.value("tfcluster_queue_oldest_seconds"), "nobody waits")
    assert (eased.value("tfcluster_queue_depth"), eased.value("tfcluster_api_requests_waiting")) == (0, 0)


def test_process_tells_of_itself(observed):
    now = observed.scrape()
    resident, peak = observed.process.memory()
    assert resident / 2 < now.value("process_resident_memory_bytes") <= peak
    assert now.value("process_virtual_memory_bytes") > now.value("process_resident_memory_bytes")
    assert 0 < now.value("process_cpu_seconds_total") < observed.process.cpu_seconds() + 0.01
    started = Path(f"/proc/{observed.process.pid}").stat().st_mtime
    assert abs(now.value("process_start_time_seconds") - started) < 60
    assert 0 < now.value("process_open_fds") < now.value("process_max_fds")
    assert now.not_zero("tfcluster_build_info") == {(tfcluster_resolver.__version__,): 1}


def test_every_metric_is_asserted_here():
    """No metric of the table is without an assertion in this file; gangs have a server of their own, in another."""
    files = (Path(__file__), Path(__file__).with_name("test_gangs.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert {name for name in documented() if not re.search(rf'"{name}(_count|_sum)?"', text)} == set()
