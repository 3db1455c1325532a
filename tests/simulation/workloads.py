"""The workloads: short lives of small clusters; each step has a condition that ends it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulation import actors, dialect, faults
from simulation.dialect import CLUSTER, NAMESPACE
from simulation.quota import granted
from simulation.world import World

Act = Callable[[World], None]
Until = Callable[[World], bool]


@dataclass(frozen=True, slots=True)
class Step:
    """One event and its expected result, at most ``within`` seconds after a fault."""

    name: str
    act: Act
    until: Until
    within: float = 150.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A life; ``setup`` comes before the operator starts, and without ``namespaces`` it watches all."""

    name: str
    steps: tuple[Step, ...]
    setup: Act = lambda _: None
    namespaces: tuple[str, ...] = ()
    #: No fault strikes: it costs seconds, or a fault can change its end.
    undisturbed: bool = False
    #: The operator already crashes in it: no plan adds the death of a leader.
    crashes: bool = False


# --- declarations


#: Makes an edit of a template replace all pods of a job immediately.
RECREATE: Final = {"type": "Recreate"}


def template(image: str = "image:1", **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "tensorflow", "image": image}], **spec}}


def job(replicas: int, image: str = "image:1", **fields: Any) -> dict[str, Any]:
    return {"replicas": replicas, "template": template(image), **fields}


def _declare(jobs: Mapping[str, Any], **spec: Any) -> Act:
    return lambda world: world.declare({"jobs": dict(jobs), **spec})


def _edit(jobs: Mapping[str, Any] | None = None, **spec: Any) -> Act:
    change = {**({"jobs": dict(jobs)} if jobs else {}), **spec}
    return lambda world: world.edit(change)


def _image(image: str, *jobs: str) -> Act:
    return _edit({name: {"template": template(image)} for name in jobs})


def _exit(code: int, *pods: str) -> Act:
    def act(world: World) -> None:
        for pod in pods:
            world.nodes.exit(f"{CLUSTER}-{pod}", code)

    return act


def _drain_while_ps_is_down(world: World) -> None:
    world.nodes.never_ready.add(f"{CLUSTER}-ps-0-r2")
    world.nodes.exit(f"{CLUSTER}-ps-0-r1", 1)
    for index in range(2):
        world.remove("pods", f"{CLUSTER}-worker-{index}")


def _delete(resource: str, *names: str) -> Act:
    def act(world: World) -> None:
        for name in names:
            world.remove(resource, name)

    return act


# --- conditions


def current(world: World, name: str = CLUSTER, namespace: str = NAMESPACE) -> dict[str, Any] | None:
    """Return the status if it is of the newest generation."""
    cluster = world.cluster(name, namespace)
    if cluster is None or (cluster.get("status") or {}).get("observedGeneration") != cluster["metadata"]["generation"]:
        return None
    status: dict[str, Any] = cluster["status"]
    return status


def ready(world: World, name: str = CLUSTER, namespace: str = NAMESPACE) -> bool:
    """Return whether every task is ready, the status says so, and no object is terminating."""
    told = current(world, name, namespace)
    going = any("deletionTimestamp" in pod["metadata"] for pod in world.pods(namespace))
    return told is not None and not going and dialect.condition({"status": told}, "Ready").get("status") == "True"


def says(kind: str, status: str, reason: str = "") -> Until:
    def until(world: World) -> bool:
        found = dialect.condition({"status": current(world) or {}}, kind)
        return found.get("status") == status and reason in {"", found.get("reason")}

    return until


def over(kind: str, reason: str) -> Until:
    """Test how the cluster ended, and that no object is terminating."""

    def until(world: World) -> bool:
        cluster = world.cluster()
        going = any("deletionTimestamp" in pod["metadata"] for pod in world.pods())
        return cluster is not None and not going and dialect.verdict(cluster.get("status") or {}) == (kind, reason)

    return until


def pods_are(*names: str) -> Until:
    wanted = {f"{CLUSTER}-{name}" for name in names}
    return lambda world: {one["metadata"]["name"] for one in world.pods()} == wanted and current(world) is not None


def pods_are_only(*names: str) -> Until:
    """Test the names of the first cluster's pods, independent of its status."""
    wanted = {f"{CLUSTER}-{name}" for name in names}
    return lambda world: (
        {one["metadata"]["name"] for one in world.pods() if one["metadata"]["name"].startswith(f"{CLUSTER}-")} == wanted
    )


def has_the_resolver(world: World) -> bool:
    """Return whether the namespace has exactly one copy of the resolver, the right one."""
    found = _copies(world)
    return len(found) == 1 and dialect.is_our_copy(found[0])


def _copies(world: World) -> list[dict[str, Any]]:
    found = world.kube.list("configmaps", NAMESPACE)
    return [one for one in found if one["metadata"]["name"].startswith("tfcluster-resolver-")]


def _two_are_ready(world: World) -> bool:
    return ready(world) and ready(world, actors.SECOND)


def _second_is_ready(world: World) -> bool:
    return ready(world, actors.SECOND)


def _edit_second(**spec: Any) -> Act:
    return lambda world: world.edit(spec, name=actors.SECOND)


def gone(world: World) -> bool:
    """Return whether all objects of all clusters were deleted."""
    return not world.kube.list("tfclusters", NAMESPACE) and _nothing_is_left(world)


def _nothing_is_left(world: World) -> bool:
    """Return whether only the copy of the resolver is left, which the operator keeps for an hour."""
    kinds = ("pods", "services", "networkpolicies", "poddisruptionbudgets", "podgroups", "workloads", "configmaps")
    left = (one for kind in kinds for one in world.kube.list(kind, NAMESPACE))
    return all(one["metadata"]["name"].startswith("tfcluster-resolver-") for one in left)


def is_leaving(world: World) -> bool:
    """Return whether the TFCluster is terminating with a finalizer of another controller."""
    return "deletionTimestamp" in (world.cluster() or {}).get("metadata", {})


def restarts(count: int) -> Until:
    """Test the number of restarts, with all tasks ready again."""
    return lambda world: ready(world) and (current(world) or {}).get("restarts") == count


def is_ours(kind: str, name: str) -> Until:
    def until(world: World) -> bool:
        found = world.kube.get(kind, NAMESPACE, name)
        return found is not None and bool(found["metadata"].get("ownerReferences"))

    return until


def policies_are(*names: str) -> Until:
    """Test the names of the NetworkPolicies, and that each restricts its sources."""

    def until(world: World) -> bool:
        found = world.kube.list("networkpolicies", NAMESPACE)
        closed = all({} not in one["spec"]["ingress"] for one in found)
        return closed and {one["metadata"]["name"] for one in found} == set(names)

    return until


def budgets_are(**least: int) -> Until:
    """Test how many tasks of each job an eviction must leave, and that the budgets protect no other pods."""

    def until(world: World) -> bool:
        found = world.kube.list("poddisruptionbudgets", NAMESPACE)
        kept = {one["metadata"]["name"]: one["spec"]["minAvailable"] for one in found}
        selected = [one["spec"]["selector"]["matchLabels"] for one in found]
        ours = all(labels.keys() == {"tfcluster.dev/cluster", "tfcluster.dev/job"} for labels in selected)
        return ours and kept == {f"c-{job}": number for job, number in least.items()}

    return until


def groups_are(**counts: int) -> Until:
    """Test the minimum of each PodGroup, by round: ``round_0`` is the first start."""
    wanted = {name.replace("round_", f"{CLUSTER}."): count for name, count in counts.items()}

    def until(world: World) -> bool:
        found = world.kube.list("podgroups", NAMESPACE)
        return {one["metadata"]["name"]: one["spec"]["schedulingPolicy"]["gang"]["minCount"] for one in found} == wanted

    return until


def _leaves(job: str, *tasks: int) -> Until:
    """Test the range of leaving tasks of a job in every view; None if there are none."""
    said = {job: [list(tasks)]} if tasks else {}

    def until(world: World) -> bool:
        files = (one.get("data") or {} for one in world.kube.list("configmaps", NAMESPACE))
        views = [json.loads(data["cluster.json"]) for data in files if "cluster.json" in data]
        return bool(views) and all(view.get("leaving", {}) == said for view in views)

    return until


def _keep(least: int | str) -> dict[str, Any]:
    return {"disruptionBudget": {"minAvailable": least}}


def both(*tests: Until) -> Until:
    return lambda world: all(test(world) for test in tests)


def image_is(image: str, *pods: str) -> Until:
    def until(world: World) -> bool:
        found = {one["metadata"]["name"]: one["spec"]["containers"] for one in world.pods()}
        return ready(world) and all(
            any(one["image"] == image for one in found.get(f"{CLUSTER}-{pod}", ())) for pod in pods
        )

    return until


# --- the lives

_PS: Final = {"deviceFilters": ["/job:worker", "/job:chief"]}
_WORKER: Final = {"deviceFilters": ["/job:ps", "/job:chief"]}
_TRIO: Final = {"chief": job(1), "ps": job(1, **_PS), "worker": job(2, maxReplicas=4, **_WORKER)}
_TRIO_AND_ONE: Final = ("chief-0", "ps-0", "worker-0", "worker-1", "worker-2")
_PAIR: Final = {"ps": job(1), "worker": job(2)}


def _workloads() -> tuple[Workload, ...]:
    create = Step("create", _declare(_TRIO), ready)
    return (
        Workload("create", (create, Step("delete", _delete("tfclusters", CLUSTER), gone))),
        Workload(
            "scale",
            (
                create,
                Step("up", _edit({"worker": {"replicas": 4}}), both(ready, pods_are("chief-0", "ps-0", *_workers(4)))),
                Step("down", _edit({"worker": {"replicas": 1}}), both(ready, pods_are("chief-0", "ps-0", "worker-0"))),
            ),
        ),
        Workload(
            "TF_CONFIG",
            (
                Step("create", _declare(_PAIR, resolver={"tfConfig": "Environment"}), ready),
                Step("up", _edit({"worker": {"replicas": 3}}), both(ready, pods_are("ps-0", *_workers(3)))),
                Step("fails", _exit(1, "worker-0"), restarts(1)),
            ),
        ),
        Workload(
            "filters",
            (
                create,
                Step("filters", _edit({"ps": {"deviceFilters": ["/job:chief"]}}), ready),
                Step("own", _edit({"worker": {"taskDeviceFilters": {"1": ["/job:ps"]}}}), ready),
                Step(
                    "job gone", _edit({"ps": None, "worker": {"deviceFilters": None, "taskDeviceFilters": None}}), ready
                ),
            ),
        ),
        Workload(
            "recreate",
            (
                Step("create", _declare(_PAIR, updateStrategy=RECREATE), ready),
                Step("image", _image("image:2", "worker"), image_is("image:2", "worker-0", "worker-1")),
                Step("port", _edit(port=7000), ready),
            ),
        ),
        Workload(
            "rolling",
            (
                Step("create", _declare({"worker": job(3)}, updateStrategy=dialect.rolling_update(1)), ready),
                Step("image", _image("image:2", "worker"), image_is("image:2", *_workers(3))),
            ),
        ),
        Workload(
            "on delete",
            (
                Step("create", _declare({"worker": job(2)}), ready),
                Step("image", _image("image:2", "worker"), says("UpToDate", "False", "WaitingForDelete")),
                Step("one goes", _delete("pods", "c-worker-0"), image_is("image:2", "worker-0")),
            ),
        ),
        Workload(
            "on failure",
            (
                Step("create", _declare(_PAIR, backoffLimit=6), ready),
                Step("fails", _exit(1, "worker-1"), restarts(1)),
                Step("two fail", _exit(137, "worker-1-r1", "ps-0"), restarts(3)),
            ),
        ),
        Workload(
            "failed pods",
            (
                Step("create", _declare({"worker": job(1, maxReplicas=2)}), ready),
                Step("fails", _exit(1, "worker-0"), _at_work("worker-0-r1", kept=["worker-0"])),
                Step("again", _exit(1, "worker-0-r1"), _at_work("worker-0-r2", kept=["worker-0-r1"])),
                Step("one goes", _delete("pods", "c-worker-0-r2"), _at_work("worker-0-r2", kept=["worker-0-r1"])),
                Step("suspend", _edit(suspend=True), both(says("Suspended", "True"), pods_are("worker-0-r1"))),
                Step("resume", _edit(suspend=False), _at_work("worker-0-r2", kept=["worker-0-r1"])),
                Step("none", _edit({"worker": {"replicas": 0}}), pods_are()),
            ),
        ),
        Workload(
            "quota of kept pods",
            (
                Step("create", _declare({"ps": job(1), "worker": job(1)}), ready),
                Step("fails", _exit(1, "worker-0"), both(restarts(1), pods_are("ps-0", "worker-0"))),
            ),
            setup=actors.set_quota(2, "count/pods"),
        ),
        Workload(
            "no failed pods",
            (
                Step("create", _declare({"worker": job(2)}, failedPodsHistoryLimit=0), ready),
                Step("fails", _exit(1, "worker-1"), restarts(1)),
            ),
        ),
        Workload(
            "exit code",
            (
                Step("create", _declare({"worker": job(2, restartPolicy="ExitCode")}), ready),
                Step("killed", _exit(137, "worker-0"), restarts(1)),
                Step("fails", _exit(3, "worker-1"), over("Failed", "PermanentExitCode")),
            ),
        ),
        Workload(
            "never",
            (
                Step("create", _declare({"worker": job(2, restartPolicy="Never")}, cleanPodPolicy="All"), ready),
                Step("fails", _exit(1, "worker-1"), both(over("Failed", "TaskFailed"), pods_are())),
            ),
        ),
        Workload(
            "always",
            (
                Step("create", _declare({"chief": job(1), "worker": job(1, restartPolicy="Always")}), ready),
                Step("ends", _exit(0, "worker-0"), _is_replaced("worker-0", counted=1)),
                Step("deleted", _delete("pods", "c-worker-0"), _is_replaced("worker-0", counted=2)),
                Step("evicted", lambda world: world.nodes.take("c-worker-0"), _is_replaced("worker-0", counted=3)),
            ),
        ),
        Workload(
            "job scope",
            (
                Step("create", _declare({"ps": job(1), "worker": job(2, restartScope="Job")}), ready),
                Step("fails", _exit(1, "worker-1"), restarts(1)),
            ),
        ),
        Workload(
            "cluster scope",
            (
                # Which of two concurrent failures the operator records first, and therefore keeps, is random.
                Step(
                    "create",
                    _declare(
                        {"ps": job(1), "worker": job(2, restartScope="Cluster")},
                        backoffLimit=1,
                        failedPodsHistoryLimit=0,
                    ),
                    ready,
                ),
                Step("two fail", _exit(1, "worker-0", "worker-1"), restarts(1)),
                Step("fails again", _exit(1, "worker-0"), over("Failed", "BackoffLimitExceeded")),
            ),
        ),
        Workload(
            "success",
            (
                Step("create", _declare({"ps": job(1), "worker": job(2)}), ready),
                Step("one ends", _exit(0, "worker-0"), ready),
                Step("all end", _exit(0, "worker-1"), over("Succeeded", "TasksSucceeded")),
            ),
        ),
        Workload(
            "drain",
            (
                Step("create", _declare({"chief": job(1), "worker": job(2, drainTimeoutSeconds=5)}), ready),
                Step("down", _edit({"worker": {"replicas": 1}}), both(ready, pods_are("chief-0", "worker-0"))),
            ),
        ),
        Workload(
            "leave",
            (
                Step("create", _declare({"chief": job(1), "worker": job(3, drainTimeoutSeconds=3600)}), ready),
                Step("down", _edit({"worker": {"replicas": 1}}), both(ready, _leaves("worker", 1, 3))),
                Step("one goes", _exit(143, "worker-2"), both(ready, _leaves("worker", 1, 2))),
                Step("up", _edit({"worker": {"replicas": 2}}), both(ready, _leaves("worker"))),
                Step("down again", _edit({"worker": {"replicas": 1}}), both(ready, _leaves("worker", 1, 2))),
                Step(
                    "the last goes",
                    _exit(0, "worker-1"),
                    both(ready, pods_are("chief-0", "worker-0"), _leaves("worker")),
                ),
            ),
        ),
        Workload(
            "deadline",
            (
                Step(
                    "create",
                    _declare({"worker": job(2)}, activeDeadlineSeconds=20),
                    both(over("Failed", "DeadlineExceeded"), pods_are()),
                ),
            ),
        ),
        Workload(
            "ttl",
            (
                Step("create", _declare({"worker": job(1)}, ttlSecondsAfterFinished=10, cleanPodPolicy="None"), ready),
                Step("ends", _exit(0, "worker-0"), gone),
            ),
        ),
        Workload(
            "suspend",
            (
                Step("create", _declare({"ps": job(1), "worker": job(1)}), ready),
                Step("suspend", _edit(suspend=True), both(says("Suspended", "True"), pods_are())),
                Step("resume", _edit(suspend=False), ready),
            ),
        ),
        Workload(
            "start after",
            (
                Step("create", _declare({"ps": job(1), "worker": job(2, startAfter=["ps"])}), ready),
                Step("ps fails", _exit(1, "ps-0"), restarts(1)),
                Step(
                    "drained while ps is down",
                    _drain_while_ps_is_down,
                    both(says("Ready", "False"), pods_are_only("ps-0-r1", "ps-0-r2", "worker-0", "worker-1")),
                ),
            ),
        ),
        Workload("again", (Step("create", _declare(_PAIR), ready), Step("delete, create", _delete_and_create, ready))),
        Workload(
            "foreign names",
            (
                Step("create", _declare({"chief": job(1), "worker": job(1)}), says("NameConflict", "True")),
                Step(
                    "free Service",
                    lambda world: world.remove("services", "c"),
                    both(says("NameConflict", "True"), is_ours("services", "c")),
                ),
                Step(
                    "free view",
                    lambda world: world.remove("configmaps", "c-worker"),
                    both(says("NameConflict", "True"), is_ours("configmaps", "c-worker")),
                ),
                Step("free pod", lambda world: world.remove("pods", "c-worker-0"), ready),
            ),
            setup=actors.squat,
        ),
        Workload(
            "tampering",
            (
                Step("create", _declare({"ps": job(1), "worker": job(1)}), ready),
                Step("Service", actors.tamper_with_service, ready),
                Step("view", actors.tamper_with_view, ready),
                Step("labels", actors.strip_labels, ready),
                Step("others' words", actors.add_words, ready),
                Step("delete", _delete("tfclusters", CLUSTER), is_leaving),
                Step("let it go", actors.take_words_away, gone),
            ),
        ),
        Workload(
            "resolver",
            (
                Step("create two", actors.declare_two({"jobs": {"worker": job(1)}}), _two_are_ready),
                Step("deleted", _delete("configmaps", dialect.RESOLVER), both(_two_are_ready, has_the_resolver)),
                Step("forged", actors.forge_resolver, says("UpToDate", "False", "ResolverUntrusted")),
                Step(
                    "scale", _edit({"worker": {"replicas": 2}}), both(says("Ready", "False"), pods_are_only("worker-0"))
                ),
                Step(
                    "forgery deleted",
                    _delete("configmaps", dialect.RESOLVER),
                    both(_two_are_ready, has_the_resolver, pods_are_only("worker-0", "worker-1")),
                ),
                Step("one goes", _delete("tfclusters", CLUSTER), both(pods_are_only(), has_the_resolver)),
                Step(
                    "none needs it",
                    _edit_second(resolver={"delivery": "None"}, updateStrategy=RECREATE),
                    _second_is_ready,
                ),
                Step("needed again", _edit_second(resolver=None), both(_second_is_ready, has_the_resolver)),
                Step("the other goes", _delete("tfclusters", actors.SECOND), gone),
            ),
        ),
        Workload(
            "isolation",
            (
                Step(
                    "create",
                    _declare(_TRIO, isolation={"mode": "DeviceFilters"}),
                    both(ready, policies_are("c.chief", "c.ps", "c.worker")),
                ),
                Step("opened", actors.open_the_ports, both(ready, policies_are("c.chief", "c.ps", "c.worker"))),
                Step("deleted", _delete("networkpolicies", "c.ps"), policies_are("c.chief", "c.ps", "c.worker")),
                Step("scale", _edit({"worker": {"replicas": 3}}), both(ready, pods_are(*_TRIO_AND_ONE))),
                Step(
                    "a task apart",
                    _edit({"worker": {"taskDeviceFilters": {"1": ["/job:worker"]}}}),
                    both(ready, policies_are("c.chief", "c.ps", "c.worker", "c.worker.1")),
                ),
                Step("cluster", _edit(isolation={"mode": "Cluster"}), both(ready, policies_are("c"))),
                Step("none", _edit(isolation={"mode": "None"}), both(ready, policies_are())),
            ),
        ),
        Workload(
            "budgets",
            (
                Step(
                    "create",
                    _declare({"ps": job(2, **_keep("100%")), "worker": job(2, **_keep(1))}),
                    both(ready, budgets_are(ps=2, worker=1)),
                ),
                Step("edited", actors.protect_everybody, both(ready, budgets_are(ps=2, worker=1))),
                Step("deleted", _delete("poddisruptionbudgets", "c-ps"), budgets_are(ps=2, worker=1)),
                Step("taken", actors.swap_budget, both(ready, says("UpToDate", "False"))),
                Step("freed", _delete("poddisruptionbudgets", "c-worker"), both(ready, budgets_are(ps=2, worker=1))),
                Step("scale", _edit({"ps": {"replicas": 3}}), both(ready, budgets_are(ps=3, worker=1))),
                Step("one ends", _exit(0, "ps-0"), budgets_are(ps=2, worker=1)),
                Step("no more", _edit({"worker": {"disruptionBudget": None}}), budgets_are(ps=2)),
                Step(
                    "the workers end",
                    _exit(0, "worker-0", "worker-1"),
                    both(over("Succeeded", "TasksSucceeded"), budgets_are()),
                ),
            ),
        ),
        Workload(
            "gang",
            (
                Step(
                    "no room",
                    _declare({**_ELASTIC, "worker": job(3, minReplicas=2)}, scheduling={"gang": {}}),
                    both(_waits_for_room, pods_are_only("chief-0", "worker-0", "worker-1"), groups_are(round_0=3)),
                ),
                Step("edited", actors.ask_for_less, groups_are(round_0=3)),
                Step("deleted", _delete("podgroups", "c.0"), both(_waits_for_room, groups_are(round_0=3))),
                Step("room", actors.make_room, both(ready, pods_are(*_ELASTIC_TASKS), groups_are(round_0=3))),
                Step("lost", _delete("pods", "c-worker-0"), both(ready, pods_are(*_ELASTIC_TASKS))),
                Step("scale", _edit({"worker": {"replicas": 4}}), both(ready, pods_are(*_ELASTIC_TASKS, "worker-3"))),
                Step("fails", _exit(1, "chief-0"), both(restarts(1), groups_are(round_1=3))),
                Step("suspend", _edit(suspend=True), both(says("Suspended", "True"), groups_are())),
                Step("resume", _edit(suspend=False), both(ready, groups_are(round_2=3))),
                Step("alone", _edit({"worker": {"minReplicas": None}}, scheduling=None), both(ready, groups_are())),
            ),
            setup=actors.leave_no_room,
        ),
        Workload(
            "gang in time",
            (
                Step(
                    "gives up",
                    _declare(_ELASTIC, scheduling={"gang": {"timeoutSeconds": 90, "onTimeout": "Suspend"}}),
                    both(_has_given_up, pods_are_only(), groups_are()),
                ),
                Step("room", actors.make_room, both(_has_given_up, pods_are_only(), groups_are())),
                Step("edited", _edit({"worker": {"replicas": 2}}), both(ready, groups_are(round_1=3))),
                Step("fails", _edit(scheduling={"gang": {"timeoutSeconds": 90, "onTimeout": "Fail"}}), ready),
                Step("no room", actors.leave_no_room, ready),
                Step("restart", _exit(1, "chief-0"), both(over("Failed", "GangTimeout"), groups_are())),
            ),
            setup=actors.leave_no_room,
        ),
        Workload(
            "queue",
            (
                Step(
                    "waits",
                    _declare_queued(_ELASTIC),
                    both(_waits_for_quota, pods_are_only(), claims_are(c_0={"chief": 1, "worker": 3})),
                ),
                Step("deleted", _delete("workloads", "tfcluster-c.0"), both(_waits_for_quota, has_claims(1))),
                Step("granted", actors.grant(5), both(ready, pods_are(*_ELASTIC_TASKS))),
                Step(
                    "grows",
                    _edit({"worker": {"replicas": 6}}),
                    both(_waits_for_quota, pods_are_only(*_ELASTIC_TASKS), has_claims(2)),
                ),
                Step(
                    "more", actors.grant(7), both(ready, pods_are(*_ELASTIC_TASKS, "worker-3", "worker-4", "worker-5"))
                ),
                Step("shrinks", _edit({"worker": {"replicas": 2}}), both(ready, _quota_used(3))),
                Step("preempted", actors.preempt, both(_waits_for_quota, pods_are_only(), _quota_used(0))),
                Step("again", actors.grant(7), both(ready, pods_are(*_ELASTIC_TASKS[:-1]))),
                Step("suspend", _edit(suspend=True), both(says("Suspended", "True"), has_claims(0))),
                Step("resume", _edit(suspend=False), both(ready, _quota_used(3))),
                Step("ends", _exit(0, "chief-0"), both(over("Succeeded", "TasksSucceeded"), _quota_used(0))),
            ),
            setup=actors.leave_no_quota,
        ),
        Workload(
            "queue in part",
            (
                Step("create", _declare_queued({"worker": job(2, drainTimeoutSeconds=3600)}), ready),
                Step("stripped", actors.strip_notes, both(ready, _has_notes)),
                Step("grows", _edit({"worker": {"replicas": 4}}), both(_waits_for_quota, has_claims(2))),
                Step("one ends", _exit(0, "worker-0"), _has_succeeded(1)),
                Step("granted", actors.grant(4), both(ready, _is_running("worker-1", "worker-2", "worker-3"))),
                Step("some end", _exit(0, "worker-1", "worker-2"), both(ready, _has_succeeded(3))),
                Step("preempted", actors.preempt_growth, both(_waits_for_quota, _is_running())),
                Step("again", actors.grant(4), both(ready, _is_running("worker-3"), _has_succeeded(3))),
                Step("the last ends", _exit(0, "worker-3"), over("Succeeded", "TasksSucceeded")),
            ),
            setup=actors.grant(2),
        ),
        Workload(
            "swapped pod",
            (
                Step("create", _declare({"worker": job(2)}, updateStrategy=RECREATE), ready),
                Step("swap", actors.swap_pod, says("NameConflict", "True")),
                Step("free", _delete("pods", "c-worker-1"), image_is("image:2", "worker-0", "worker-1")),
            ),
        ),
        Workload(
            "dead node",
            (
                Step("create", _declare({"worker": job(2)}, forceDeleteAfterSeconds=5), ready),
                Step("node dies", actors.kill_node, _is_replaced("worker-0", counted=1)),
            ),
        ),
        Workload(
            "policy",
            (
                Step("create", _declare({"chief": job(1), "worker": job(1)}, updateStrategy=RECREATE), ready),
                Step("image", _image("image:2", "worker"), image_is("mirror/image:2", "worker-0")),
                Step("chief ends", _exit(0, "chief-0"), over("Succeeded", "TasksSucceeded")),
            ),
            setup=actors.mutate,
        ),
        Workload(
            "quota",
            (
                Step("create", _declare({"ps": job(1), "worker": job(3)}), ready),
                Step(
                    "swap",
                    _edit({"ps": {"replicas": 3}, "worker": {"replicas": 1}}),
                    both(ready, pods_are("ps-0", "ps-1", "ps-2", "worker-0")),
                ),
            ),
            setup=actors.set_quota(4),
        ),
        Workload(
            "lost under quota",
            (
                Step("create", _declare({"ps": job(1), "worker": job(1)}), ready),
                Step("grows", _edit({"ps": {"replicas": 2}}), says("Ready", "False", "Rejected")),
                Step(
                    "lost",
                    _delete("pods", "c-worker-0"),
                    both(_counts_as_lost("worker", 1), pods_are("ps-0", "worker-0")),
                ),
                Step("shrinks", _edit({"ps": {"replicas": 1}}), ready),
            ),
            setup=actors.set_quota(2),
            undisturbed=True,
        ),
        Workload(
            "lost namespace",
            (
                Step("create", _declare({"worker": job(1)}), ready),
                Step("namespace goes", actors.lose_namespace, ready),
                Step("edit", _edit({"worker": {"replicas": 2}}), both(ready, pods_are("worker-0", "worker-1"))),
            ),
            namespaces=(NAMESPACE, actors.OTHER),
            crashes=True,
        ),
        Workload(
            "late CRD",
            (
                Step("CRD comes", actors.install_crd, lambda world: world.kube.list("tfclusters") == []),
                Step("create", _declare({"worker": job(1)}), ready),
                Step("CRD goes", actors.uninstall_crd, _nothing_is_left),
                Step("CRD comes back", actors.install_crd, lambda world: world.kube.list("tfclusters") == []),
                Step("create again", _declare({"worker": job(1)}), ready),
            ),
            setup=actors.uninstall_crd,
        ),
        Workload(
            "neighbour",
            (
                Step("huge one", actors.declare_huge, actors.huge_is_made, within=600.0),
                Step("create", _declare({"worker": job(2)}), ready),
            ),
            undisturbed=True,
        ),
    )


def _workers(count: int) -> list[str]:
    return [f"worker-{index}" for index in range(count)]


def _is_replaced(pod: str, *, counted: int) -> Until:
    """Test whether a lost pod's task runs again; its loss is counted later, and not by an operator that dies."""
    job = pod.rpartition("-")[0]

    def until(world: World) -> bool:
        told = (current(world) or {}).get("jobs", {}).get(job, {})
        return (
            ready(world)
            and (world.plan.action in faults.DEADLY or told.get("disruptions", 0) >= counted)
            and any(
                one["metadata"]["name"] == f"{CLUSTER}-{pod}"
                and one["status"].get("phase") == "Running"
                and "deletionTimestamp" not in one["metadata"]
                for one in world.pods()
            )
        )

    return until


def _counts_as_lost(job: str, count: int) -> Until:
    return lambda world: (current(world) or {}).get("jobs", {}).get(job, {}).get("disruptions") == count


def _has_succeeded(workers: int) -> Until:
    return lambda world: (current(world) or {}).get("jobs", {}).get("worker", {}).get("succeeded") == workers


def _is_running(*names: str) -> Until:
    wanted = {f"{CLUSTER}-{name}" for name in names}
    return lambda world: (
        wanted == {one["metadata"]["name"] for one in world.pods() if one["status"].get("phase") == "Running"}
    )


def _waits_for_quota(world: World) -> bool:
    return says("Ready", "False", "WaitingForQuota")(world)


def _declare_queued(jobs: Mapping[str, Any], **spec: Any) -> Act:
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    return lambda world: world.declare({"jobs": dict(jobs), **spec}, labels=labels)


def _quota_used(pods: int) -> Until:
    return lambda world: sum(granted(one) for one in world.kube.list("workloads", NAMESPACE)) == pods


def has_claims(count: int) -> Until:
    return lambda world: len(world.kube.list("workloads", NAMESPACE)) == count


def _has_notes(world: World) -> bool:
    return all(one["metadata"].get("annotations") for one in world.kube.list("workloads", NAMESPACE))


def claims_are(**wanted: Mapping[str, int]) -> Until:
    """Test what the Workloads request: ``c_0`` is the first of cluster c."""
    names = {f"tfcluster-{name.replace('_', '.')}": dict(counts) for name, counts in wanted.items()}

    def until(world: World) -> bool:
        found = world.kube.list("workloads", NAMESPACE)
        asked = {one["metadata"]["name"]: one["spec"]["podSets"] for one in found}
        return {name: {of["name"]: of["count"] for of in sets} for name, sets in asked.items()} == names

    return until


def _has_given_up(world: World) -> bool:
    return says("Suspended", "True", "GangTimeout")(world)


def _waits_for_room(world: World) -> bool:
    return says("Ready", "False", "WaitingForGang")(world)


#: A job whose restart restarts all others, and workers of which some can start later.
_ELASTIC: Final = {"chief": job(1, restartScope="Cluster"), "worker": job(3)}
_ELASTIC_TASKS: Final = ("chief-0", "worker-0", "worker-1", "worker-2")


def _at_work(pod: str, kept: Iterable[str]) -> Until:
    """Test which pods run, all ready, and which failed ones are kept."""
    return both(ready, pods_are(pod, *kept))


def _delete_and_create(world: World) -> None:
    world.remove("tfclusters", CLUSTER)
    world.declare({"jobs": dict(_PAIR)})


WORKLOADS: Final[Mapping[str, Workload]] = {one.name: one for one in _workloads()}
