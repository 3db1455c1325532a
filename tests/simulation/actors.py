"""What other actors do to the operator's objects, to its namespace and to its machine.

Some set a whole workload's scene; those of ``STEP_ACTIONS`` strike at a step of any, and what they took or forbade is
free again afterwards, so that the end must be the same as if nothing had been.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from simulation import dialect
from simulation.dialect import CLUSTER, NAMESPACE
from support.memory_kubernetes import DEFAULT_RESOURCES, Admission, Refusal

if TYPE_CHECKING:
    from simulation.world import World

#: A second namespace that the operator is told to watch.
OTHER: Final = "other"
#: A second TFCluster in the namespace.
SECOND: Final = "d"
_HUGE: Final = 1_000
_FOREIGN: Final = {"labels": {"owner": "somebody"}}


# --- what sets a scene


def squat(world: World) -> None:
    """Hold three of the names that the cluster needs, one of each kind."""
    kube = world.kube
    kube.create("services", NAMESPACE, {"metadata": {"name": CLUSTER, **_FOREIGN}, "spec": {"ports": [{"port": 80}]}})
    kube.create("configmaps", NAMESPACE, {"metadata": {"name": f"{CLUSTER}-worker", **_FOREIGN}, "data": {"a": "b"}})
    containers = [{"name": "theirs", "image": "theirs:1"}]
    kube.create(
        "pods", NAMESPACE, {"metadata": {"name": f"{CLUSTER}-worker-0", **_FOREIGN}, "spec": {"containers": containers}}
    )


def set_quota(pods: int, what: str = "pods") -> Callable[[World], None]:
    """Allow so many pods in the namespace, and no more; ``count/pods`` counts those that have ended, too."""

    def act(world: World) -> None:
        world.kube.quota[NAMESPACE] = {what: pods}

    return act


def mutate(world: World) -> None:
    """Rewrite each new pod as policy engines and meshes do: the image, a proxy before all others, a field less."""

    def admit(asked: Admission) -> None:
        if asked.resource != "pods" or asked.verb != "create" or asked.subresource:
            return
        spec = asked.object["spec"]
        for container in spec["containers"]:
            container["image"] = f"mirror/{container['image']}"
        spec["containers"] = [{"name": "proxy", "image": "proxy:1"}, *spec["containers"]]
        spec.pop("automountServiceAccountToken", None)

    world.kube.admission.append(admit)


def install_crd(world: World) -> None:
    """Let the API server serve TFClusters."""
    world.kube.install(next(one for one in DEFAULT_RESOURCES if one.plural == "tfclusters"))


def uninstall_crd(world: World) -> None:
    """Take the CRD away, and all TFClusters with it."""
    world.kube.uninstall("tfclusters")


def lose_namespace(world: World) -> None:
    """Delete a watched namespace, and with it the operator's rights in it; then let the operator crash."""
    world.kube.delete_namespace(OTHER)

    def authorize(request: Any) -> None:
        if request.namespace == OTHER and request.user == dialect.OPERATOR:
            raise Refusal(403, "Forbidden", f'{request.resource} is forbidden: cannot {request.verb} in "{OTHER}"')

    world.kube.authorize.append(authorize)
    world.operator.crash()


def tamper_with_service(world: World) -> None:
    """Point the Service elsewhere."""
    world.kube.patch("services", NAMESPACE, CLUSTER, {"spec": {"selector": {"app": "other"}}}, user="somebody")


def tamper_with_view(world: World) -> None:
    """Write nonsense into a view."""
    world.kube.patch("configmaps", NAMESPACE, f"{CLUSTER}-ps", {"data": {"cluster.json": "{"}}, user="somebody")


def forge_resolver(world: World) -> None:
    """Put a ConfigMap with other code in the place of the resolver, labelled as the operator labels its own."""
    labels = {"app.kubernetes.io/managed-by": "tfcluster-operator", "tfcluster.dev/cluster": ""}
    world.remove("configmaps", dialect.RESOLVER)
    forged = {
        "metadata": {"name": dialect.RESOLVER, "labels": labels},
        "immutable": True,
        "binaryData": {"tfcluster_resolver.zip": "Zm9yZ2Vk"},
    }
    world.kube.create("configmaps", NAMESPACE, forged, user="somebody")


def declare_two(spec: Mapping[str, Any]) -> Callable[[World], None]:
    """Declare a cluster and, at once, another one like it: ``d``."""

    def act(world: World) -> None:
        world.declare(spec)
        world.declare(spec, name=SECOND)

    return act


def open_the_ports(world: World) -> None:
    """Let everybody reach every task, as somebody in a hurry does."""
    for one in world.kube.list("networkpolicies", NAMESPACE):
        name = one["metadata"]["name"]
        world.kube.patch("networkpolicies", NAMESPACE, name, {"spec": {"ingress": [{}]}}, user="somebody")


def protect_everybody(world: World) -> None:
    """Let the budgets keep more pods than they should, and others' besides, as somebody in a hurry does."""
    for one in world.kube.list("poddisruptionbudgets", NAMESPACE):
        change = {"spec": {"minAvailable": 9, "selector": {"matchLabels": {"tfcluster.dev/job": None, "app": "other"}}}}
        world.kube.patch("poddisruptionbudgets", NAMESPACE, one["metadata"]["name"], change, user="somebody")


def leave_no_room(world: World) -> None:
    """Let the nodes have no room for gangs."""
    world.nodes.room_for_gangs = False


def make_room(world: World) -> None:
    """Let the nodes have room for gangs from now on."""
    world.nodes.room_for_gangs = True
    for one in world.kube.list("podgroups", NAMESPACE):
        world.nodes.place_gang(NAMESPACE, one["metadata"]["name"])


def ask_for_less(world: World) -> None:
    """Let the gangs be content with one pod, as somebody does who wants to see something run."""
    for one in world.kube.list("podgroups", NAMESPACE):
        change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
        world.kube.patch("podgroups", NAMESPACE, one["metadata"]["name"], change, user="somebody")


def leave_no_quota(world: World) -> None:
    """Let the queue have nothing to grant."""
    world.queue.set_quota(0)


def grant(pods: int) -> Callable[[World], None]:
    """Let the queue have quota for so many pods."""
    return lambda world: world.queue.set_quota(pods)


def preempt(world: World) -> None:
    """Let the queue take back all that it granted, and have nothing more."""
    world.queue.quota = 0
    world.queue.take_back()


def preempt_growth(world: World) -> None:
    """Let the queue take back what it granted to tasks that were added, and have nothing more."""
    world.queue.quota = 0
    world.queue.take_back(growth_only=True)


def strip_notes(world: World) -> None:
    """Take the annotations off all Workloads."""
    for found in world.kube.list("workloads", NAMESPACE):
        change = {"metadata": {"annotations": dict.fromkeys(found["metadata"]["annotations"])}}
        world.kube.patch("workloads", NAMESPACE, found["metadata"]["name"], change, user="somebody")


def strip_labels(world: World) -> None:
    """Take the operator's labels off all its objects."""
    for kind in ("pods", "services", "networkpolicies", "poddisruptionbudgets", "podgroups", "workloads", "configmaps"):
        for found in world.kube.list(kind, NAMESPACE):
            ours = [label for label in found["metadata"].get("labels") or {} if label.startswith("tfcluster.dev/")]
            forged = found["metadata"]["name"] == dialect.RESOLVER and not dialect.is_our_copy(found)
            if ours and not forged:
                change = {"metadata": {"labels": dict.fromkeys(ours)}}
                world.kube.patch(kind, NAMESPACE, found["metadata"]["name"], change, user="somebody")


def add_words(world: World) -> None:
    """Let another controller put its condition and its finalizer on the TFCluster."""
    cluster = world.cluster()
    assert cluster is not None
    theirs = {
        "type": "example.com/Approved",
        "status": "True",
        "reason": "Approved",
        "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }
    conditions = [*(cluster.get("status") or {}).get("conditions", ()), theirs]
    world.kube.patch(
        "tfclusters", NAMESPACE, CLUSTER, {"status": {"conditions": conditions}}, subresource="status", user="somebody"
    )
    change = {"metadata": {"finalizers": ["example.com/keep"]}}
    world.kube.patch("tfclusters", NAMESPACE, CLUSTER, change, user="somebody")


def take_words_away(world: World) -> None:
    """Let that controller take its finalizer off."""
    world.kube.patch("tfclusters", NAMESPACE, CLUSTER, {"metadata": {"finalizers": None}}, user="somebody")


def kill_node(world: World) -> None:
    """Let the node of the first worker fall silent, and somebody delete its pods."""
    pod = world.kube.get("pods", NAMESPACE, f"{CLUSTER}-worker-0")
    assert pod is not None
    world.nodes.kill(pod["spec"]["nodeName"])
    world.remove("pods", f"{CLUSTER}-worker-0")


def declare_huge(world: World) -> None:
    """Declare a cluster a thousand times the size of its neighbour."""
    world.nodes.hurried = True
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "image:1"}]}}
    world.declare({"jobs": {"worker": {"replicas": _HUGE, "template": template}}}, name="huge")


def huge_is_made(world: World) -> bool:
    """Return whether the huge cluster begins to be made: its neighbour comes then."""
    return len(world.pods()) > _HUGE // 10


def swap_pod(world: World) -> None:
    """Put a stranger's pod in the place of the second worker, and edit the template before the operator sees it."""
    name = f"{CLUSTER}-worker-1"
    world.faults.see_late("pods", 3.0)
    world.kube.delete("pods", NAMESPACE, name, grace=0, user="somebody")
    containers = [{"name": "theirs", "image": "theirs:1"}]
    stranger = {"metadata": {"name": name, **_FOREIGN}, "spec": {"containers": containers}}
    world.kube.create("pods", NAMESPACE, stranger, user="somebody")
    world.edit(
        {"jobs": {"worker": {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "image:2"}]}}}}}
    )


def swap_budget(world: World) -> None:
    """Put a stranger's budget in the place of the workers'."""
    world.faults.see_late("poddisruptionbudgets", 3.0)
    world.kube.delete("poddisruptionbudgets", NAMESPACE, f"{CLUSTER}-worker", user="somebody")
    stranger = {"metadata": {"name": f"{CLUSTER}-worker", **_FOREIGN}, "spec": {"maxUnavailable": 0}}
    world.kube.create("poddisruptionbudgets", NAMESPACE, stranger, user="somebody")


# --- what strikes at a step


def _away(seconds: float) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.faults.go_away(seconds)
        world.operator.lose_connections()

    return act


def _compact(world: World) -> None:
    """Forget all versions while the operator's watches are down: it has to list again."""
    _note(world, 1.0, blinds=True)
    world.operator.lose_connections()
    asyncio.get_running_loop().call_later(0.001, lambda: world.kube.compact(world.kube.revision))


def _relist(world: World) -> None:
    """Let the operator list again, and the API server answer as it was."""
    world.faults.list_from_the_past()
    world.faults.over_at += 1.0
    world.operator.lose_connections()


def _clock(seconds: float) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.clock_off = seconds

    return act


def _node_clocks(seconds: float) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.nodes.offsets = dict.fromkeys(world.nodes.offsets, seconds)

    return act


def _sigterm(world: World) -> None:
    _note(world, 1.0, blinds=True)
    world.background(world.acting().restart())


def _hand_over(world: World) -> None:
    """Ask the leader to end: its standby leads within 3 s."""
    _note(world, 3.0, blinds=True)
    world.background(world.acting().restart())


def _second(world: World) -> None:
    world.start_another()


def _full_quota(world: World) -> None:
    before = world.kube.quota.get(NAMESPACE, {})
    world.kube.quota[NAMESPACE] = {**before, "pods": len(world.pods())}
    _later(world, 10.0, lambda: world.kube.quota.update({NAMESPACE: before}))


def _webhook_down(world: World) -> None:
    def admit(asked: Admission) -> None:
        if asked.resource == "pods" and asked.verb == "create" and asked.user == dialect.OPERATOR:
            raise Refusal(500, "InternalError", 'failed calling webhook "pods.example.com": connection refused')

    world.kube.admission.append(admit)
    _later(world, 20.0, lambda: world.kube.admission.remove(admit))


def _strip_owners(world: World) -> None:
    """Take the owner references off a view; whoever did it deletes the view later."""
    views = [
        one["metadata"]["name"]
        for one in world.kube.list("configmaps", NAMESPACE)
        if one["metadata"].get("ownerReferences") and ".res" not in one["metadata"]["name"]
    ]
    for name in views[:1]:
        world.kube.patch("configmaps", NAMESPACE, name, {"metadata": {"ownerReferences": None}}, user="somebody")
        _later(world, 10.0, functools.partial(world.remove, "configmaps", name))


def _see_late(world: World) -> None:
    """Let every watch of the operator lag behind."""
    for resource in (
        "pods",
        "configmaps",
        "networkpolicies",
        "poddisruptionbudgets",
        "podgroups",
        "workloads",
        "services",
    ):
        world.faults.see_late(resource, 3.0)


def _finalizer(world: World) -> None:
    """Put a finalizer on a pod, and take it off later."""
    for pod in world.pods()[:1]:
        name = pod["metadata"]["name"]
        world.kube.patch("pods", NAMESPACE, name, {"metadata": {"finalizers": ["example.com/keep"]}}, user="somebody")
        _later(world, 10.0, functools.partial(_take_off, world, name))


def _take_off(world: World, name: str) -> None:
    if world.kube.get("pods", NAMESPACE, name) is not None:
        world.kube.patch("pods", NAMESPACE, name, {"metadata": {"finalizers": None}}, user="somebody")


def _later(world: World, seconds: float, act: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(seconds, act)
    _note(world, seconds, blinds=False)


def _note(world: World, seconds: float, *, blinds: bool) -> None:
    world.faults.met, world.faults.blinds = True, blinds
    world.faults.began_at = world.elapsed()
    world.faults.over_at = world.elapsed() + seconds


#: What may strike at a step, by its name in plans.
STEP_ACTIONS: Final[Mapping[str, Callable[[World], None]]] = {
    "API server away 10 s": _away(10.0),
    "API server away 90 s": _away(90.0),
    "API server away 10 min": _away(600.0),
    "relist from the past": _relist,
    "versions forgotten": _compact,
    "operator's clock +1 h": _clock(3600.0),
    "operator's clock -1 h": _clock(-3600.0),
    "node clocks +10 min": _node_clocks(600.0),
    "node clocks -10 min": _node_clocks(-600.0),
    "SIGTERM": _sigterm,
    "quota full for 10 s": _full_quota,
    "webhook down for 20 s": _webhook_down,
    "owner stripped": _strip_owners,
    "finalizer on a pod": _finalizer,
    "watches 3 s late": _see_late,
    "second operator": _second,
    "leader hands over": _hand_over,
}
