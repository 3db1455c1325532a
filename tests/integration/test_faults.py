"""What the operator is told is late, cut short or wrong: a proxy in front of the API server lies to it.

The simulation has each fault at every write and every line of a watch: here is what needs a real watch or process.
"""

from __future__ import annotations

import pytest
from support.fault_proxy import Fault, FaultProxy
from support.lives import await_another_pass
from support.manifests import pod_template
from support.objects import CONFIG_MAPS, PODS, SERVICES, TFCLUSTERS
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_USER
from support.snapshot import snapshot
from support.waiting import eventually
from support.world import World, task_names

WATCHED = ["configmaps", "networkpolicies", "poddisruptionbudgets", "pods", "services", "tfclusters"]
RESOURCES = {"pods": (PODS, "c-worker-1"), "configmaps": (CONFIG_MAPS, "c-worker"), "services": (SERVICES, "c")}


@pytest.fixture
def launched(lied_to: OperatorProcess, world: World) -> World:  # noqa: ARG001 - it must run
    world.launch("c", {"worker": {"replicas": 3}})
    world.await_settled("c")
    world.await_condition("c", "MembershipPublished", status="True")
    return world


@pytest.mark.parametrize(
    ("resource", "end"), [("pods", "dropped"), ("configmaps", "expired"), ("services", "cut in the middle of a line")]
)
def test_watch_gap_hides_no_deletion(launched, fault_proxy, resource, end):
    kind, name = RESOURCES[resource]
    old = launched.demand(kind, name)["metadata"]["uid"]
    with fault_proxy.fault(Fault("refuse", resource=resource, method="GET", status=503)):
        end_watches(fault_proxy, resource, end)
        launched.delete(kind, name)
    eventually(
        lambda: (launched.get(kind, name) or {}).get("metadata", {}).get("uid"),
        lambda uid: uid not in {None, old},
        what=f"{name} is made again",
    )


@pytest.mark.usefixtures("garbage_collector")
def test_watch_gap_does_not_resurrect_a_deleted_cluster(launched, fault_proxy, audit):
    """A TFCluster deleted while its watch was down stays deleted: in the end nothing of it exists, or is made."""
    position = audit.position()
    with fault_proxy.fault(Fault("refuse", resource="tfclusters", method="GET", status=503)) as gap:
        end_watches(fault_proxy, "tfclusters", "dropped")
        launched.remove("c")
        eventually(lambda: launched.get(TFCLUSTERS, "c"), lambda cluster: cluster is None, what="the cluster is gone")
        eventually(lambda: len(gap.met), lambda met: met >= 1, what="the operator has missed the deletion")
    eventually(
        lambda: [*launched.pods(), *launched.config_maps(), *launched.services()],
        lambda left: not left,
        what="nothing is left of the deleted cluster",
    )
    launched.launch("c", {"worker": {"replicas": 3}}, suspend=True)  # one of its name, which wants no pod
    launched.await_condition("c", "Suspended", status="True")
    late = audit.writes(position, user=OPERATOR_USER, namespace=launched.namespace)
    assert [str(w) for w in late if (w.verb, w.resource) == ("create", "pods")] == []


@pytest.mark.usefixtures("garbage_collector")
def test_watch_gap_with_rebirth_is_noticed(launched, fault_proxy):
    """A TFCluster deleted and declared again while its watch was down gets objects of its own."""
    with fault_proxy.fault(Fault("refuse", resource="tfclusters", method="GET", status=503)):
        end_watches(fault_proxy, "tfclusters", "expired")
        launched.remove("c")
        new = launched.launch("c", {"worker": {"replicas": 2}})["metadata"]["uid"]
    launched.await_pods(task_names("c", worker=2))
    eventually(
        lambda: {p["metadata"]["ownerReferences"][0]["uid"] for p in launched.pods().values()},
        lambda owners: owners == {new},
        what="all pods belong to the new cluster",
    )


def end_watches(proxy: FaultProxy, resource: str, how: str) -> None:
    eventually(proxy.open_watches, lambda found: resource in found, what=f"{resource} are watched")
    match how:
        case "dropped":
            proxy.drop_watches(resource)
        case "expired":
            proxy.expire_watches(resource)
        case _:
            proxy.drop_watches(resource, farewell=b'{"type":"MODIFIED","object":{"meta')


@pytest.mark.usefixtures("lied_to")
def test_watch_that_is_dropped_writes_nothing(world, fault_proxy, audit):
    # Pods that no scheduler looks at: what it says of one is told, and it may say another thing at any time.
    world.launch("c", {"worker": {"replicas": 3, "template": pod_template(spec={"schedulerName": "nobody"})}})
    world.await_settled("c")
    await_another_pass(world, "c")
    position = audit.await_quiet(OPERATOR_USER, namespace=world.namespace)
    for drop in (fault_proxy.drop_watches, fault_proxy.expire_watches):
        eventually(fault_proxy.open_watches, lambda found: found == WATCHED, what="all six are watched")
        drop()
    eventually(fault_proxy.open_watches, lambda found: found == WATCHED, what="all six are watched")
    await_another_pass(world, "c")
    written = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    told = [("patch", "tfclusters/status", "c")]
    assert [(w.verb, w.target, w.name) for w in written] == told, [str(w) for w in written]


def test_restart_of_the_api_server_is_survived(launched, control_plane, lied_to):
    pid = lied_to.pid
    control_plane.restart_apiserver()
    control_plane.compact_etcd()
    launched.scale("c", replicas=5)
    launched.await_pods(task_names("c", worker=5))
    assert (lied_to.running, lied_to.pid) == (True, pid)


#: After so many tries of one request kopf gives up, and the process with it, unless it is told otherwise.
TRIES_OF_KOPF = 9


@pytest.mark.exhaustive
def test_unavailable_server_is_outlived(launched, lied_to, fault_proxy):
    """An outage longer than kopf's own patience costs no process, and what was missed is carried out."""
    pid = lied_to.pid
    with fault_proxy.fault(Fault("refuse", status=503)) as outage:
        fault_proxy.drop_watches()
        launched.scale("c", replicas=5)
        launched.delete(PODS, "c-worker-0")
        eventually(
            lambda: (lied_to.running, sum(call.resource == "tfclusters" for call in outage.met)),
            lambda state: not state[0] or state[1] > TRIES_OF_KOPF,
            what=f"lists and watches of TFClusters were refused more than {TRIES_OF_KOPF} times",
        )
    launched.await_pods(task_names("c", worker=5))
    launched.await_settled("c")
    assert (lied_to.running, lied_to.pid) == (True, pid)


AUDITED = {
    "type": "example.test/Audited",
    "status": "True",
    "reason": "Seen",
    "message": "by an auditor",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def audit_it(world):
    """Add a condition of our own to the cluster's status, as another controller would."""
    conditions = [*world.status("c")["conditions"], AUDITED]
    world.objects.patch(TFCLUSTERS, world.namespace, "c", {"status": {"conditions": conditions}}, subresource="status")


def test_condition_written_just_before_the_operators_own_is_kept(launched, fault_proxy):
    fault = Fault("call-before", resource="tfclusters", method="PATCH", times=1, action=lambda: audit_it(launched))
    with fault_proxy.fault(fault):
        launched.scale("c", replicas=2)
        launched.await_settled("c")
    assert len(fault.met) == 1
    assert launched.condition("c", AUDITED["type"]) == AUDITED


def test_cluster_written_by_others_while_its_watch_is_down_is_looked_after(launched, fault_proxy, kubelet):
    with fault_proxy.fault(Fault("refuse", resource="tfclusters", method="GET", watch=True, status=503)):
        fault_proxy.drop_watches("tfclusters")
        audit_it(launched)
        old = launched.uid("c-worker-1")
        kubelet.fail("c-worker-1", exit_code=143)
        eventually(lambda: launched.uid("c-worker-1"), lambda uid: uid not in {None, old}, what="it is made again")
        eventually(lambda: launched.status("c")["jobs"]["worker"]["restarts"], lambda n: n == 1, what="it is counted")
    assert launched.condition("c", AUDITED["type"]) == AUDITED


@pytest.mark.usefixtures("lied_to")
def test_late_watch_of_pods_causes_no_second_pod(world, fault_proxy, audit):
    """Pods whose watch is down are made once: the operator trusts the answers to its own writes."""
    position = audit.position()
    with fault_proxy.fault(Fault("hang", resource="pods", watch=True)):
        fault_proxy.drop_watches("pods")
        world.launch("c", {"worker": {"replicas": 5}})
        world.await_pods(task_names("c", worker=5))
    world.await_settled("c")
    made = [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.resource == "pods"]
    assert [(w.verb, w.code) for w in made] == [("create", 201)] * 5


@pytest.mark.usefixtures("operator")
def test_two_operators_at_once_agree(world, operator_kubeconfig, tmp_path):
    """A second operator, as while the old pod is not dead yet, leads to the same world and to no duplicate."""
    second = OperatorProcess(kubeconfig=operator_kubeconfig, log=tmp_path / "second.log")
    second.start()
    try:
        world.launch("c", {"worker": {"replicas": 6}, "ps": {"replicas": 2}})
        world.await_settled("c")
        world.scale("c", replicas=2)
        world.await_pods(task_names("c", ps=2, worker=2))
        world.await_settled("c")
        world.await_condition("c", "NameConflict", status="False")
        both = snapshot(world, "c")
    finally:
        second.kill()
    world.launch("c2", {"worker": {"replicas": 6}, "ps": {"replicas": 2}})
    world.await_settled("c2")
    assert snapshot(world, "c") == both
    assert "Traceback" not in second.log.read_text(encoding="utf-8")
