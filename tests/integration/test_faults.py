"""What the operator is told is late, cut short or wrong: a proxy in front of the API server lies to it."""

from __future__ import annotations

import pytest
from support.fault_proxy import Fault, FaultProxy
from support.lives import await_another_pass
from support.manifests import pod_template
from support.objects import CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, TFCLUSTERS
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_USER
from support.snapshot import snapshot
from support.waiting import eventually
from support.world import World, task_names

WATCHED = ["configmaps", "networkpolicies", "poddisruptionbudgets", "pods", "services", "tfclusters"]
RESOURCES = {
    "pods": (PODS, "c-worker-1"),
    "configmaps": (CONFIG_MAPS, "c-worker"),
    "networkpolicies": (NETWORK_POLICIES, "c"),
    "services": (SERVICES, "c"),
}


@pytest.fixture
def launched(lied_to: OperatorProcess, world: World) -> World:  # noqa: ARG001 - it must run
    world.launch("c", {"worker": {"replicas": 3}})
    world.await_settled("c")
    world.await_condition("c", "MembershipPublished", status="True")
    return world


@pytest.mark.parametrize("end", ["dropped", "expired", "cut in the middle of a line"])
@pytest.mark.parametrize("resource", RESOURCES)
def test_watch_gap_hides_no_deletion(launched, fault_proxy, resource, end):
    """An object deleted while its watch was down is made again once the watch is back."""
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


@pytest.mark.parametrize("end", ["dropped", "expired"])
def test_watch_gap_hides_no_edit_of_the_cluster(launched, fault_proxy, end):
    """An edit of a TFCluster that happened while its watch was down is carried out."""
    with fault_proxy.fault(Fault("refuse", resource="tfclusters", method="GET", status=503)):
        end_watches(fault_proxy, "tfclusters", end)
        launched.scale("c", replicas=5)

    launched.await_pods(task_names("c", worker=5))


@pytest.mark.parametrize("end", ["dropped", "expired"])
@pytest.mark.usefixtures("garbage_collector")
def test_watch_gap_does_not_resurrect_a_deleted_cluster(launched, fault_proxy, audit, end):
    """A TFCluster deleted while its watch was down stays deleted: in the end nothing of it exists, or is made."""
    position = audit.position()
    with fault_proxy.fault(Fault("refuse", resource="tfclusters", method="GET", status=503)) as gap:
        end_watches(fault_proxy, "tfclusters", end)
        launched.remove("c")
        eventually(lambda: launched.get(TFCLUSTERS, "c"), lambda cluster: cluster is None, what="the cluster is gone")
        eventually(lambda: len(gap.met), lambda met: met >= 1, what="the operator has missed the deletion")

    eventually(
        lambda: [*launched.pods(), *launched.config_maps(), *launched.services(), *launched.resolver_copies()],
        lambda left: not left,
        what="nothing is left of the deleted cluster",
    )
    launched.launch("c", {"worker": {"replicas": 3}}, suspend=True)  # one of its name, which wants no pod
    launched.await_condition("c", "Suspended", status="True")
    late = audit.writes(position, user=OPERATOR_USER, namespace=launched.namespace)
    assert [str(w) for w in late if (w.verb, w.resource) == ("create", "pods")] == []


@pytest.mark.usefixtures("garbage_collector")
def test_watch_gap_with_rebirth_is_noticed(launched, fault_proxy):
    """A TFCluster deleted and declared anew while its watch was down gets objects of its own."""
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


@pytest.mark.exhaustive
def test_watches_dropped_again_and_again_are_opened_again(launched, fault_proxy):
    """Watches cut twenty times in a row are opened again, and the operator still follows."""
    for _ in range(20):
        eventually(fault_proxy.open_watches, lambda found: found == WATCHED, what="all six are watched")
        fault_proxy.drop_watches()

    launched.scale("c", replicas=4)
    launched.await_pods(task_names("c", worker=4))


@pytest.mark.usefixtures("lied_to")
def test_watch_that_is_dropped_writes_nothing(world, fault_proxy, audit):
    """Lists and watches begun anew are no reason to write."""
    # NB: pods that no scheduler looks at: what it says of one is told, and it may say another thing at any time.
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
    """When the API server restarts and its history is compacted, the operator follows again without a restart."""
    pid = lied_to.pid
    control_plane.restart_apiserver()
    control_plane.compact_etcd()

    launched.scale("c", replicas=5)

    launched.await_pods(task_names("c", worker=5))
    assert (lied_to.running, lied_to.pid) == (True, pid)


@pytest.mark.exhaustive
@pytest.mark.parametrize("status", [409, 429, 500, 503, 504])
@pytest.mark.parametrize("resource", ["pods", "configmaps", "networkpolicies", "services"])
@pytest.mark.usefixtures("lied_to")
def test_refused_creates_are_tried_again(world, fault_proxy, resource, status):
    """A create that is refused a few times is carried out in the end, and the world is whole."""
    fault = Fault("refuse", resource=resource, method="POST", status=status, times=3)
    with fault_proxy.fault(fault):
        world.launch("c", {"worker": {"replicas": 3}, "ps": {"replicas": 2}})
        world.await_pods(task_names("c", ps=2, worker=3))
        world.await_settled("c")

    assert len(fault.met) == 3
    assert (sorted(world.config_maps()), list(world.services())) == (["c-ps", "c-worker"], ["c"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("status", [409, 429, 500, 503])
@pytest.mark.parametrize("resource", ["pods", "configmaps", "tfclusters"])
def test_refused_patches_are_tried_again(launched, fault_proxy, resource, status):
    """A patch of a pod, a ConfigMap or the status that is refused is carried out in the end."""
    fault = Fault("refuse", resource=resource, method="PATCH", status=status, times=2)
    with fault_proxy.fault(fault):
        launched.scale("c", replicas=4)
        launched.await_pods(task_names("c", worker=4))
        launched.await_condition("c", "MembershipPublished", status="True")
        launched.await_settled("c")

    assert len(fault.met) == 2
    assert len(launched.view("c", "worker")["jobs"]["worker"]) == 4


@pytest.mark.exhaustive
@pytest.mark.usefixtures("lied_to")
def test_storm_of_too_many_requests_is_weathered(world, fault_proxy, audit):
    """Forty writes of pods answered by 429 with Retry-After: every pod is made, and once."""
    position = audit.position()
    fault = Fault("refuse", resource="pods", writes=True, status=429, retry_after=1, times=40)
    with fault_proxy.fault(fault):
        world.launch("c", {"worker": {"replicas": 40}, "ps": {"replicas": 20}})
        world.await_pods(task_names("c", ps=20, worker=40))

    assert len(fault.met) == 40
    made = [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.resource == "pods"]
    assert [(w.verb, w.code) for w in made] == [("create", 201)] * 60


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("resource", ["pods", "configmaps", "networkpolicies", "services"])
@pytest.mark.usefixtures("lied_to")
def test_create_whose_answer_is_lost_makes_one_object(world, fault_proxy, audit, resource):
    """A create whose answer was lost is tried once more at most; that is refused, and there is one object."""
    position = audit.position()
    with fault_proxy.fault(Fault("commit-and-reset", resource=resource, method="POST", times=1)) as fault:
        world.launch("c", {"worker": {"replicas": 3}, "ps": {"replicas": 1}})
        world.await_pods(task_names("c", ps=1, worker=3))
        world.await_settled("c")

    (lost,) = fault.met
    assert world.condition("c", "NameConflict")["status"] == "False"
    assert [e["message"] for e in world.events("c") if e["reason"] == "NameTaken"] == []
    answers: dict[str, list[int]] = {}
    for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace):
        if w.verb == "create" and w.resource != "events":
            answers.setdefault(f"{w.resource}/{w.name}", []).append(w.code)
    held = {"pods": world.pods(), "configmaps": {**world.config_maps(), **world.resolver_copies()}}
    held |= {"services": world.services(), "networkpolicies": world.network_policies()}
    assert sorted(answers) == sorted(f"{kind}/{name}" for kind, found in held.items() for name in found)
    for subject, codes in answers.items():
        allowed = ([201], [201, 409]) if subject == f"{resource}/{lost.name}" else ([201],)
        assert codes in allowed, (subject, codes)


@pytest.mark.exhaustive
def test_patch_whose_answer_is_lost_does_no_harm(launched, fault_proxy):
    """A view rewritten by a patch whose answer was lost is published, and its pods are told."""
    with fault_proxy.fault(Fault("commit-and-reset", resource="configmaps", method="PATCH", times=1)) as fault:
        launched.scale("c", replicas=2)
        launched.await_pods(task_names("c", worker=2))
        launched.await_settled("c")
        launched.await_condition("c", "MembershipPublished", status="True")

    assert len(fault.met) == 1


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
    """A condition that another controller writes between the operator's reading and its writing is not overwritten."""
    fault = Fault("call-before", resource="tfclusters", method="PATCH", times=1, action=lambda: audit_it(launched))
    with fault_proxy.fault(fault):
        launched.scale("c", replicas=2)
        launched.await_settled("c")

    assert len(fault.met) == 1
    assert launched.condition("c", AUDITED["type"]) == AUDITED


def test_cluster_written_by_others_while_its_watch_is_down_is_looked_after(launched, fault_proxy, kubelet):
    """What others wrote to a TFCluster unheard is neither overwritten nor does it keep a failure from being counted."""
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
