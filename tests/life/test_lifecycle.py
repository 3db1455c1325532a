"""The life of a cluster and of the operator: deletion, re-creation, restarts, scope, permissions, and idle time."""

from collections import Counter

import pytest
from support.audit import Request
from support.lives import give_the_service_an_ip
from support.objects import CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, TFCLUSTERS
from support.rbac import OPERATOR_RULES, OPERATOR_USER, bind
from support.snapshot import snapshot
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("garbage_collector")

FILTERED = {
    "chief": {},
    "worker": {"replicas": 3, "deviceFilters": ["/job:ps", "/job:chief"]},
    "ps": {"replicas": 1, "deviceFilters": ["/job:worker", "/job:chief"]},
}


def everything(world: World) -> list[str]:
    return sorted([*world.pods(), *world.config_maps(), *world.services()])


@pytest.mark.usefixtures("operator")
def test_delete_leaves_other_clusters_alone(world):
    world.launch("c", {"worker": {"replicas": 2}})
    world.launch("c-worker", {"worker": {"replicas": 1}})
    world.await_settled("c")
    world.await_settled("c-worker")
    before = snapshot(world, "c-worker")

    world.remove("c")
    eventually(lambda: sorted(world.pods()), lambda left: left == ["c-worker-worker-0"], what="c's pods are gone")

    assert snapshot(world, "c-worker") == before


def test_delete_without_an_operator_removes_everything(world, operator):
    """Owner references suffice for the clean-up: it needs neither a finalizer nor an operator."""
    world.launch("c", FILTERED)
    world.await_settled("c")
    operator.stop()

    world.remove("c")

    eventually(lambda: everything(world), lambda left: not left, what="nothing is left")


@pytest.mark.usefixtures("operator")
def test_delete_in_the_foreground_is_not_fought(world, kubelet, audit):
    world.launch("c", {"worker": {"replicas": 3}})
    world.await_settled("c")
    kubelet.run(*task_names("c", worker=3))
    world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (3, 3), what="all are ready")
    position = audit.position()

    world.objects.request("DELETE", TFCLUSTERS.path(world.namespace, "c") + "?propagationPolicy=Foreground")
    eventually(
        lambda: [p for p in world.pods().values() if "deletionTimestamp" not in p["metadata"]],
        lambda left: not left,
        what="the pods are asked to go",
    )
    kubelet.stop(*task_names("c", worker=3))
    eventually(lambda: everything(world), lambda left: not left, what="nothing is left")
    eventually(lambda: world.get(TFCLUSTERS, "c"), lambda cluster: cluster is None, what="the cluster is gone")

    assert [
        w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.verb == "create"
    ] == []


@pytest.mark.parametrize("away", [False, True], ids=["the operator runs", "no operator runs"])
def test_recreate_of_the_same_name_is_a_new_cluster(world, operator, away):
    world.launch("c", FILTERED)
    world.await_settled("c")
    if away:
        operator.kill()

    world.remove("c")
    new = world.launch("c", {**FILTERED, "worker": {**FILTERED["worker"], "replicas": 1}})["metadata"]["uid"]
    if away:
        operator.start()

    world.await_pods(task_names("c", chief=1, worker=1, ps=1))
    await_owned_by(world, new)
    assert world.view("c", "worker")["cluster"]["uid"] == new


@pytest.mark.usefixtures("operator")
def test_recreate_waits_for_the_predecessors_pods(world, kubelet):
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_settled("c")
    kubelet.run(*task_names("c", worker=2))
    world.remove("c")
    new = world.launch("c", {"worker": {"replicas": 2}})["metadata"]["uid"]

    world.await_condition("c", "Ready", status="False", reason="WaitingForPredecessor")
    assert world.condition("c", "NameConflict")["status"] == "False"
    eventually(
        lambda: [p for p in world.pods().values() if "deletionTimestamp" not in p["metadata"]],
        lambda left: not left,
        what="the garbage collector asked the old pods to go",
    )
    kubelet.stop(*task_names("c", worker=2))

    world.await_pods(task_names("c", worker=2))
    await_owned_by(world, new)


def await_owned_by(world: World, uid: str) -> None:
    def owners() -> Counter[str]:
        found = [*world.pods().values(), *world.config_maps().values(), *world.services().values()]
        return Counter(thing["metadata"]["ownerReferences"][0]["uid"] for thing in found)

    world.await_settled("c")
    tasks = sum(job.get("replicas", 1) for job in world.cluster("c")["spec"]["jobs"].values())
    count = 1 + len(world.cluster("c")["spec"]["jobs"]) + tasks  # the Service; the resolver does not have an owner
    eventually(owners, lambda found: found == {uid: count}, what=f"all {count} objects belong to {uid}")


def test_restart_catches_up_with_what_was_missed(world, operator):
    world.launch("c", FILTERED)
    world.launch("doomed", {"worker": {}})
    world.await_settled("c")
    world.await_settled("doomed")
    operator.stop()
    world.scale("c", replicas=5)
    world.delete(PODS, "c-chief-0")
    world.delete(CONFIG_MAPS, "c-ps")
    world.remove("doomed")
    world.launch("late", {"worker": {"replicas": 2}})

    operator.start()

    world.await_pods([*task_names("c", chief=1, worker=5, ps=1), *task_names("late", worker=2)])
    world.await_settled("c")
    assert len(world.view("c", "ps")["jobs"]["worker"]) == 5


@pytest.mark.server
def test_stop_is_clean(operator):
    assert operator.stop() == 0


@pytest.mark.server
def test_scope_of_one_namespace(  # noqa: PLR0917 - fixtures, by name
    world, operator, new_namespace, objects, control_plane, audit
):
    elsewhere = World(objects, new_namespace())
    user = f"operator-{world.namespace}"
    bind(objects, user, world.namespace, "ClusterRole", OPERATOR_USER)
    operator.kill()
    position = audit.position()
    operator.start(kubeconfig=control_plane.kubeconfig_for(user), arguments=["--namespace", world.namespace])

    elsewhere.launch("c", {"worker": {}})
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_pods(task_names("c", worker=2))
    world.await_settled("c")

    assert everything(elsewhere) == []
    assert elsewhere.status("c") == {"observedGeneration": 0}
    requests = audit.since(position, user=user)
    # Cluster-scoped resources are read only for queues, if an administrator permits it.
    assert {str(r).partition(" ")[2] for r in requests if r.code == 403} <= {"list resourceflavors / -> 403"}
    assert {r.namespace for r in requests if r.resource in {"pods", "tfclusters"}} == {world.namespace}


def test_scope_of_two_namespaces(world, operator, new_namespace, objects):
    second, third = World(objects, new_namespace()), World(objects, new_namespace())
    operator.kill()
    operator.start(arguments=["--namespace", world.namespace, "--namespace", second.namespace])

    for each in (third, second, world):
        each.launch("c", {"worker": {}})
    for each in (second, world):
        each.await_pods(["c-worker-0"])
        each.await_settled("c")

    assert everything(third) == []


#: The API server checks these when an object that blocks its owner's deletion is created; they are never a request.
IMPLIED = {("tfclusters/finalizers", "update")}
OF_SHARING = {"scheduling.k8s.io", "kueue.x-k8s.io"}


@pytest.mark.server
def test_rights_used_are_the_rights_granted(world, operator, audit, kubelet):
    """A life with every kind of event uses each permission of the operator, and requests no other."""
    operator.kill()
    position = audit.position()
    operator.start()
    live_through_everything(world, kubelet)
    operator.kill()
    # Others are used only if the server has such objects: test_gangs.py and tests/sharing check those.
    granted = {(target, verb) for group, target, verbs in OPERATOR_RULES for verb in verbs if group not in OF_SHARING}

    def requests() -> list[Request]:
        of_operator = audit.since(position, user=OPERATOR_USER)
        return [
            request
            for request in of_operator
            if request.resource not in {"", "podgroups", "workloads", "resourceflavors"}
        ]

    used = eventually(
        lambda: {(request.target, request.verb) for request in requests()},
        lambda used: used >= granted - IMPLIED,
        what="each right was used",  # a watch is logged when it ends: some time after the operator
    )
    assert used == granted - IMPLIED
    assert [str(r) for r in requests() if r.code == 403 and r.namespace in {"", world.namespace}] == []


def live_through_everything(world: World, kubelet) -> None:
    world.launch("c", FILTERED)
    world.await_settled("c")
    kubelet.run("c-worker-2")
    world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (1, 5), what="one is ready")
    world.scale("c", replicas=1)
    kubelet.stop("c-worker-2")
    world.await_settled("c")
    world.patch(SERVICES, "c", {"spec": {"selector": {"color": "blue"}}})
    eventually(
        lambda: world.services()["c"]["spec"]["selector"], lambda s: "color" not in s, what="the selector is repaired"
    )
    give_the_service_an_ip(world)
    eventually(
        lambda: world.services().get("c", {}).get("spec", {}).get("clusterIP"),
        lambda address: address == "None",
        what="the Service is headless again",
    )
    world.edit("c", {"jobs": {"chief": None, "worker": {"deviceFilters": None}, "ps": {"deviceFilters": None}}})
    eventually(lambda: sorted(world.config_maps()), lambda names: names == ["c-ps", "c-worker"], what="c-chief is gone")
    world.patch(NETWORK_POLICIES, "c", {"spec": {"ingress": [{}]}})
    eventually(
        lambda: world.network_policies()["c"]["spec"]["ingress"],
        lambda rules: {} not in rules,
        what="the policy is right",
    )
    world.edit("c", {"isolation": {"mode": "None"}})
    eventually(world.network_policies, lambda found: not found, what="the policy is gone")
    for replicas, budget in ((1, {"minAvailable": 2}), (2, {"minAvailable": 2}), (1, None)):
        world.edit("c", {"jobs": {"ps": {"replicas": replicas, "disruptionBudget": budget}}})
        wanted = [] if budget is None else [replicas]  # never more than exist
        eventually(
            lambda: [one["spec"]["minAvailable"] for one in world.disruption_budgets().values()],
            lambda found, wanted=wanted: found == wanted,
            what=f"the budgets keep {wanted}",
        )
    world.launch("brief", {"worker": {}}, ttlSecondsAfterFinished=0)
    world.await_settled("brief")
    kubelet.succeed("brief-worker-0")
    world.await_removed("brief")
