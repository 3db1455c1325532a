"""A Kubernetes small enough for a property test: objects as JSON in a dict, read with the operator's own readers.

It implements the API server's part (UIDs, versions, merge patches, preconditions, graceful deletion). Plans come from
the real planner, manifests from the real builders, observations from the real stores.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.kube.store import Stores
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.life.stock import take_stock
from tfcluster_operator.life.views import JobViews, views_of
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.kinds import Observed, kinds_for
from tfcluster_operator.plan.actions import Action, Create, Delete, Patch, Plan
from tfcluster_operator.plan.plan import enter_done, plan
from tfcluster_operator.plan.story import Holds

Object = dict[str, Any]

NOW = 1_800_000_000.0
CLUSTER_UID = "uid-of-the-cluster"
#: Makes an edit of a template replace all pods of a job immediately.
RECREATE = {"updateStrategy": {"type": "Recreate"}}
TEMPLATE = {"spec": {"containers": [{"name": "task", "image": "image:1"}]}}


class RefusedError(Exception):
    """The API server would have answered 404 or 409."""


def _is_kept(pod: Object) -> bool:
    failed = pod.get("status", {}).get("phase") == "Failed"
    return failed and naming.LABEL_KEPT in (pod["metadata"].get("labels") or {})


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def make_body(jobs: Mapping[str, Any] | None = None, *, generation: int = 1, status: Any = None, **spec: Any) -> Object:
    """Build a TFCluster as the API server returns it; a number as a job is its replicas."""
    wanted = {"chief": 1, "worker": 2} if jobs is None else jobs
    declared = {
        name: {"template": TEMPLATE, **({"replicas": job} if isinstance(job, int) else job)}
        for name, job in wanted.items()
    }
    about = {"name": "demo", "namespace": "default", "uid": CLUSTER_UID}
    body = {"metadata": {**about, "generation": generation, "resourceVersion": "1"}, "spec": {"jobs": declared, **spec}}
    return body if status is None else {**body, "status": status}


def make_cluster(jobs: Mapping[str, Any] | None = None, **spec: Any) -> TFCluster:
    return parse(make_body(jobs, **spec))


def creates(action: Action, *kinds: str) -> bool:
    return isinstance(action, Create) and action.kind in kinds


class InMemoryWorld:
    """The namespace "default", with the PodGroups of one scheduler."""

    def __init__(self, scheduler: GangScheduler = KUBERNETES) -> None:
        self._kinds = kinds_for(scheduler)
        self.objects: dict[tuple[str, str], Object] = {}
        self.version = 0
        self.now = NOW
        #: The operator's record of the cluster's life.
        self.ledger = Ledger()
        #: Recent rejections.
        self.holds = Holds()
        self.stores = Stores(lambda *_: None, lambda: self.now)

    # --- the API server

    def create(self, kind: str, body: Object) -> Object:
        made = copy.deepcopy(body)
        name = made["metadata"]["name"]
        if (kind, name) in self.objects:
            raise RefusedError(f"AlreadyExists: {kind} {name}")
        if kind != "ResourceFlavor":
            made["metadata"].setdefault("namespace", "default")
        made["metadata"]["uid"] = f"uid-{self.version + 1}"
        if kind == "Pod":
            made["metadata"]["generation"] = 1
        self._store(kind, made)
        return made

    def edit(self, kind: str, name: str, change: Mapping[str, Any], *, uid: str | None = None) -> None:
        """Merge a change into an object as in RFC 7386; with ``uid`` only if it has that UID."""
        known = self._get(kind, name, uid)
        self._store(kind, merge_patch(known, change))

    def delete(self, kind: str, name: str, *, uid: str | None = None, force: bool = False) -> None:
        """Delete an object; a pod on a node terminates first."""
        known = self._get(kind, name, uid)
        phase = known.get("status", {}).get("phase", "Pending")
        if not force and kind == "Pod" and known["spec"].get("nodeName") and phase in {"Pending", "Running"}:
            generation = known["metadata"]["generation"] + ("deletionTimestamp" not in known["metadata"])
            leaving = {"deletionTimestamp": timestamp(self.now), "generation": generation}
            self._store(kind, merge_patch(known, {"metadata": leaving}))
        else:
            del self.objects[kind, name]

    def end_graceful_deletions(self) -> None:
        for key in [k for k, found in self.objects.items() if "deletionTimestamp" in found["metadata"]]:
            del self.objects[key]

    def _get(self, kind: str, name: str, uid: str | None) -> Object:
        known = self.objects.get((kind, name))
        if known is None or (uid is not None and known["metadata"]["uid"] != uid):
            raise RefusedError(f"no {kind} {name} with uid {uid}")
        return known

    def _store(self, kind: str, body: Object) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind, body["metadata"]["name"]] = body

    # --- the kubelet

    def by_task(self) -> dict[str, str]:
        """Return the pod of each task, by the task's hostname, without failed pods that are kept."""
        return {
            found["spec"].get("hostname", name): name
            for (kind, name), found in self.objects.items()
            if kind == "Pod" and not _is_kept(found)
        }

    def kept(self) -> set[str]:
        return {name for (kind, name), found in self.objects.items() if kind == "Pod" and _is_kept(found)}

    def pod_runs(self, name: str, **status: Any) -> None:
        """Set a pod running and ready; merge ``status`` into its status."""
        ready = [{"type": "Ready", "status": "True"}]
        running = {"phase": "Running", "startTime": timestamp(self.now), "conditions": ready}
        self._tell(name, {**running, **status})

    def pod_ends(self, name: str, phase: str, **status: Any) -> None:
        ended = {"exitCode": 0 if phase == "Succeeded" else 1, "reason": "Error", "finishedAt": timestamp(self.now)}
        statuses = [{"name": "task", "state": {"terminated": ended}}]
        unready = [{"type": "Ready", "status": "False"}]
        self._tell(name, {"phase": phase, "conditions": unready, "containerStatuses": statuses, **status})

    def _tell(self, name: str, status: Mapping[str, Any]) -> None:
        generation = self._get("Pod", name, None)["metadata"].get("generation", 1)
        told = {**status, "observedGeneration": generation}
        self.edit("Pod", name, {"spec": {"nodeName": "node"}, "status": told})

    def pod_holds(self, name: str, resource: str, *healths: str) -> None:
        devices = [{"resourceID": f"device-{i}", "health": health} for i, health in enumerate(healths)]
        held = [{"name": resource, "resources": devices}]
        self.pod_runs(name, containerStatuses=[{"name": "task", "allocatedResourcesStatus": held}])

    def all_pods_run(self) -> None:
        """Set every pod that does not terminate running and ready."""
        for (kind, name), found in list(self.objects.items()):
            if kind == "Pod" and found.get("status", {}).get("phase", "Pending") == "Pending":
                self.pod_runs(name)

    # --- the scheduler

    def gang_waits(self, name: str, message: str) -> None:
        self._judge_gang(name, "False", "Unschedulable", message)

    def gang_is_placed(self, name: str) -> None:
        """Schedule all pods of a gang, and set them running and ready."""
        self._judge_gang(name, "True", "Scheduled", "")
        for (kind, pod), found in list(self.objects.items()):
            if kind == "Pod" and found["spec"].get("schedulingGroup") == {"podGroupName": name}:
                self.pod_runs(pod)

    def _judge_gang(self, name: str, status: str, reason: str, message: str) -> None:
        told = {"type": "PodGroupInitiallyScheduled", "status": status, "reason": reason, "message": message}
        self.edit("PodGroup", name, {"status": {"conditions": [told]}})

    # --- Kueue

    def quota_is_granted(self, name: str, flavor: str = "", **counts: int) -> None:
        """Grant a Workload its quota, of one flavor; ``counts`` grant fewer pods of a podSet than requested."""
        given: Object = {"flavors": {"cpu": flavor}} if flavor else {}
        assigned = [
            {"name": one["name"], "count": counts.get(one["name"], one["count"]), **given}
            for one in self.objects["Workload", name]["spec"]["podSets"]
        ]
        self._judge_workload(name, {"admission": {"podSetAssignments": assigned}}, QuotaReserved=True, Admitted=True)

    def quota_is_short(self, name: str, message: str) -> None:
        self._judge_workload(name, {}, message=message, QuotaReserved=False)

    def quota_is_taken_back(self, name: str, reason: str = "Preempted") -> None:
        self._judge_workload(name, {}, reason=reason, message="for another", Evicted=True)

    def _judge_workload(
        self, name: str, status: Object, *, reason: str = "ByKueue", message: str = "", **conditions: bool
    ) -> None:
        if conditions.get("QuotaReserved"):
            conditions.setdefault("Evicted", False)
        words = {"reason": reason, "message": message, "lastTransitionTime": timestamp(self.now)}
        told = {kind: {"type": kind, "status": str(value), **words} for kind, value in conditions.items()}
        known = self.objects["Workload", name].get("status", {}).get("conditions", ())
        kept = [one for one in known if one["type"] not in told]
        self.edit("Workload", name, {"status": {**status, "conditions": [*kept, *told.values()]}})

    def says_of(self, name: str) -> dict[str, str]:
        conditions = self.objects["Workload", name].get("status", {}).get("conditions", ())
        return {one["type"]: one["status"] for one in conditions}

    # --- the operator

    def read(self, kind: str, name: str) -> Child:
        return self._kinds[kind].read(msgspec.json.encode(self.objects[kind, name]))

    def observe(self, cluster: TFCluster, *, resolver: str = "") -> Observed:
        """Observe with the operator's own readers and stores, as after a list; see Stores.observe."""
        listed: dict[str, list[Child]] = {kind: [] for kind in self.stores.of}
        for kind, name in self.objects:
            listed[kind].append(self.read(kind, name))
        for kind, children in listed.items():
            self.stores.of[kind].replace(children, version=self.version, namespace=None)
        return self.stores.observe(cluster, resolver=resolver)

    def roster(self, cluster: TFCluster) -> Roster:
        return call_roll(cluster, self.observe(cluster)).completed_by(self.ledger)

    def stock(self, cluster: TFCluster, known: Ledger | None = None) -> Ledger:
        return take_stock(call_roll(cluster, self.observe(cluster)), known or self.ledger, self.now)

    def plan(self, cluster: TFCluster) -> Plan:
        """Evaluate and plan for the current objects, as a reconcile does before it acts."""
        called = call_roll(cluster, self.observe(cluster))
        self.ledger = take_stock(called, self.ledger, self.now)
        roster = called.completed_by(self.ledger)
        return plan(roster, self.ledger, views_of(roster).of_jobs, self.now, holds=self.holds)

    def apply(self, action: Action, cluster: TFCluster) -> None:
        """Execute one action as the executor does, request by request."""
        done = [action]
        if isinstance(action, Delete) and action.kind == "Pod":
            done = [replace(action, name=task) for task, name in self.by_task().items() if name == action.name]
        match action:
            case Create(kind=kind, name=name, build=build, replaces=replaces) if build is not None:
                if replaces:
                    self.delete(kind, name, uid=replaces)
                self.create(kind, build())
            case Patch(kind=kind, name=name, uid=uid, change=change):
                self.edit(kind, name, change, uid=uid)
            case Delete(kind=kind, name=name, uid=uid, force=force) if kind in self._kinds:
                self.delete(kind, name, uid=uid, force=force)
        # Only the declared names of the roster are read here, and those do not depend on the world: they are the first
        # pods'.
        self.ledger = enter_done(call_roll(cluster, Observed()), self.ledger, done)

    def apply_all(self, actions: Iterable[Action], cluster: TFCluster) -> None:
        for action in actions:
            self.apply(action, cluster)

    def settle(self, cluster: TFCluster, *, rounds: int = 8) -> int:
        """Plan and execute until no actions are left; return the number of plans that had actions."""
        for done in range(rounds):
            self.end_graceful_deletions()
            planned = self.plan(cluster)
            if not planned.actions and planned.wake_after is None:
                return done
            self.now += planned.wake_after or 0.0
            self.apply_all(planned.actions, cluster)
        left = self.plan(cluster)
        raise AssertionError(f"after {rounds} plans there is still something to do: {left.actions} {left.findings}")

    # --- queries

    def names(self, kind: str) -> set[str]:
        return {name for of, name in self.objects if of == kind}

    def annotation(self, kind: str, name: str, key: str) -> str:
        return self.objects[kind, name]["metadata"]["annotations"][key]


def settled(cluster: TFCluster) -> InMemoryWorld:
    """Build a world with a complete cluster whose pods all run."""
    world = InMemoryWorld()
    world.settle(cluster)
    world.all_pods_run()
    return world


def running(jobs: Mapping[str, Any] | None = None, **spec: Any) -> tuple[TFCluster, InMemoryWorld]:
    cluster = make_cluster(jobs, **spec)
    return cluster, settled(cluster)


def owned_by(uid: str, name: str, kind: str = naming.KIND) -> Object:
    """Build the change that gives an object another controller."""
    return {"metadata": {"ownerReferences": [{"uid": uid, "name": name, "kind": kind, "controller": True}]}}


#: Changes that take an object from the TFCluster, by its new owner.
OTHERS = {
    "nobody's": {"metadata": {"ownerReferences": None}},
    "another controller's": owned_by("uid-rs", "demo", "ReplicaSet"),
    "another TFCluster's": owned_by("uid-other", "other"),
}
PREDECESSORS = owned_by("uid-before", "demo")
LEAVING = {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}}


def merge_patch(known: Any, change: Any) -> Any:
    """Merge as in RFC 7386, without changing the arguments."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    merged = dict(known) if isinstance(known, Mapping) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def views_for(cluster: TFCluster, observed: Observed | None = None) -> tuple[JobViews, ...]:
    """Compute the wanted views of a cluster, by default of one without objects."""
    return views_of(call_roll(cluster, observed or Observed())).of_jobs
