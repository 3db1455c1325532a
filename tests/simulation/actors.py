"""Actions of other actors on the operator's objects, namespace and machine.

Some set the scene of a workload; those of ``STEP_ACTIONS`` strike at a step of any workload. Their effect is reverted
afterwards, so the end state must equal that of an undisturbed run.
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

#: A second namespace that the operator watches.
OTHER: Final = "other"
SECOND: Final = "d"
_HUGE: Final = 1_000
_FOREIGN: Final = {"labels": {"owner": "somebody"}}


# --- actions that set a scene


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
    """Allow at most this number of pods in the namespace; ``count/pods`` includes pods that have ended."""

    def act(world: World) -> None:
        world.kube.quota[NAMESPACE] = {what: pods}

    return act


def mutate(world: World) -> None:
    """Rewrite each new pod as policy engines and meshes do: change the image, prepend a proxy, remove a field."""

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
    world.kube.install(next(one for one in DEFAULT_RESOURCES if one.plural == "tfclusters"))


def uninstall_crd(world: World) -> None:
    world.kube.uninstall("tfclusters")


def lose_namespace(world: World) -> None:
    """Delete a watched namespace with the operator's permissions in it; then crash the operator."""
    world.kube.delete_namespace(OTHER)

    def authorize(request: Any) -> None:
        if request.namespace == OTHER and request.user == dialect.OPERATOR:
            raise Refusal(403, "Forbidden", f'{request.resource} is forbidden: cannot {request.verb} in "{OTHER}"')

    world.kube.authorize.append(authorize)
    world.operator.crash()


def tamper_with_service(world: World) -> None:
    world.kube.patch("services", NAMESPACE, CLUSTER, {"spec": {"selector": {"app": "other"}}}, user="somebody")


def tamper_with_view(world: World) -> None:
    world.kube.patch("configmaps", NAMESPACE, f"{CLUSTER}-ps", {"data": {"cluster.json": "{"}}, user="somebody")


def forge_resolver(world: World) -> None:
    """Replace the resolver's ConfigMap with one that has other code and the operator's labels."""
    labels = {"app.kubernetes.io/managed-by": "tfcluster-operator", "tfcluster.dev/cluster": ""}
    world.remove("configmaps", dialect.RESOLVER)
    forged = {
        "metadata": {"name": dialect.RESOLVER, "labels": labels},
        "immutable": True,
        "binaryData": {"tfcluster_resolver.zip": "Zm9yZ2Vk"},
    }
    world.kube.create("configmaps", NAMESPACE, forged, user="somebody")


def declare_two(spec: Mapping[str, Any]) -> Callable[[World], None]:
    """Declare a cluster and immediately another one like it: ``d``."""

    def act(world: World) -> None:
        world.declare(spec)
        world.declare(spec, name=SECOND)

    return act


def open_the_ports(world: World) -> None:
    """Allow all traffic to every task in the operator's NetworkPolicies."""
    for one in world.kube.list("networkpolicies", NAMESPACE):
        name = one["metadata"]["name"]
        world.kube.patch("networkpolicies", NAMESPACE, name, {"spec": {"ingress": [{}]}}, user="somebody")


def protect_everybody(world: World) -> None:
    """Widen the PodDisruptionBudgets: too many pods, and pods of others."""
    for one in world.kube.list("poddisruptionbudgets", NAMESPACE):
        change = {"spec": {"minAvailable": 9, "selector": {"matchLabels": {"tfcluster.dev/job": None, "app": "other"}}}}
        world.kube.patch("poddisruptionbudgets", NAMESPACE, one["metadata"]["name"], change, user="somebody")


def leave_no_room(world: World) -> None:
    world.nodes.room_for_gangs = False


def make_room(world: World) -> None:
    world.nodes.room_for_gangs = True
    for one in world.kube.list("podgroups", NAMESPACE):
        world.nodes.place_gang(NAMESPACE, one["metadata"]["name"])


def ask_for_less(world: World) -> None:
    """Lower the minimum of each PodGroup to one pod."""
    for one in world.kube.list("podgroups", NAMESPACE):
        change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
        world.kube.patch("podgroups", NAMESPACE, one["metadata"]["name"], change, user="somebody")


def leave_no_quota(world: World) -> None:
    """Set the quota of the queue to zero."""
    world.queue.set_quota(0)


def grant(pods: int) -> Callable[[World], None]:
    """Set for how many pods the queue has quota."""
    return lambda world: world.queue.set_quota(pods)


def preempt(world: World) -> None:
    """Evict all Workloads and set the quota to zero."""
    world.queue.quota = 0
    world.queue.take_back()


def preempt_growth(world: World) -> None:
    """Evict the Workloads of added tasks and set the quota to zero."""
    world.queue.quota = 0
    world.queue.take_back(growth_only=True)


def strip_notes(world: World) -> None:
    for found in world.kube.list("workloads", NAMESPACE):
        change = {"metadata": {"annotations": dict.fromkeys(found["metadata"]["annotations"])}}
        world.kube.patch("workloads", NAMESPACE, found["metadata"]["name"], change, user="somebody")


def strip_labels(world: World) -> None:
    for kind in ("pods", "services", "networkpolicies", "poddisruptionbudgets", "podgroups", "workloads", "configmaps"):
        for found in world.kube.list(kind, NAMESPACE):
            ours = [label for label in found["metadata"].get("labels") or {} if label.startswith("tfcluster.dev/")]
            forged = found["metadata"]["name"] == dialect.RESOLVER and not dialect.is_our_copy(found)
            if ours and not forged:
                change = {"metadata": {"labels": dict.fromkeys(ours)}}
                world.kube.patch(kind, NAMESPACE, found["metadata"]["name"], change, user="somebody")


def add_words(world: World) -> None:
    """Add another controller's condition and finalizer to the TFCluster."""
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
    world.kube.patch("tfclusters", NAMESPACE, CLUSTER, {"metadata": {"finalizers": None}}, user="somebody")


def kill_node(world: World) -> None:
    """Silence the first worker's node, then delete its pods as an administrator does."""
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
    """Return whether creation of the huge cluster has begun: its neighbour is declared then."""
    return len(world.pods()) > _HUGE // 10


def swap_pod(world: World) -> None:
    """Replace the second worker's pod with a pod of another owner, and immediately edit the template."""
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
    """Replace the workers' PodDisruptionBudget with one of another owner."""
    world.faults.see_late("poddisruptionbudgets", 3.0)
    world.kube.delete("poddisruptionbudgets", NAMESPACE, f"{CLUSTER}-worker", user="somebody")
    stranger = {"metadata": {"name": f"{CLUSTER}-worker", **_FOREIGN}, "spec": {"maxUnavailable": 0}}
    world.kube.create("poddisruptionbudgets", NAMESPACE, stranger, user="somebody")


# --- actions that strike at a step


def _away(seconds: float) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.faults.go_away(seconds)
        world.operator.lose_connections()

    return act


def _compact(world: World) -> None:
    """Delete the event history while the operator's watches are down: it must list again."""
    _note(world, 1.0, blinds=True)
    world.operator.lose_connections()
    asyncio.get_running_loop().call_later(0.001, lambda: world.kube.compact(world.kube.revision))


def _relist(world: World) -> None:
    """Make the operator list again; the API server answers as before."""
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
    """Send SIGTERM to the leader: its standby leads within 3 s."""
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
    """Remove the owner references of a view, and delete the view later."""
    views = [
        one["metadata"]["name"]
        for one in world.kube.list("configmaps", NAMESPACE)
        if one["metadata"].get("ownerReferences") and ".res" not in one["metadata"]["name"]
    ]
    for name in views[:1]:
        world.kube.patch("configmaps", NAMESPACE, name, {"metadata": {"ownerReferences": None}}, user="somebody")
        _later(world, 10.0, functools.partial(world.remove, "configmaps", name))


def _see_late(world: World) -> None:
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
    """Add a finalizer to a pod, and remove it later."""
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


#: Actions that can strike at a step, by their name in plans.
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
