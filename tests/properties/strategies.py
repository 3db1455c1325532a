"""What Hypothesis draws: TFClusters as the CRD lets them through, and ways to spoil a world."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from unit.in_memory import CLUSTER_UID, InMemoryWorld, make_body

from tfcluster_operator.model import naming
from tfcluster_operator.model.actions import Kind
from tfcluster_operator.model.spec import TFCluster, parse
from tfcluster_resolver import contract

JOBS = ("chief", "data_loader", "evaluator", "ps", "worker")
GPU = "nvidia.com/gpu"
FOREIGN_UID = "uid-of-somebody-else"


@st.composite
def device_filters(draw: st.DrawFn, sizes: dict[str, int]) -> str:
    """Draw a canonical device filter that names declared tasks only."""
    job = draw(st.sampled_from([None, *sizes]))
    most = sizes[job] if job else max(sizes.values())
    parts = [
        f"/job:{job}" if job else "",
        draw(st.sampled_from(["", "/replica:0"])),
        draw(st.sampled_from(["", *(f"/task:{i}" for i in range(most))])),
        draw(st.sampled_from(["", "/device:GPU:0", "/device:CPU:0", "/cpu:0", "/gpu:1"])),
    ]
    return "".join(parts) or "/device:CPU:0"


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod template; GPUs are asked for in some."""
    container: dict[str, Any] = {"name": "task", "image": draw(st.sampled_from(["image:1", "image:2"]))}
    if gpus := draw(st.sampled_from([0, 0, 1, 4])):
        container["resources"] = {"limits": {GPU: gpus, "memory": "1Gi"}}
    return {"spec": {"containers": [container]}}


@st.composite
def specs(draw: st.DrawFn, *, suspend: st.SearchStrategy[bool] | None = None) -> dict[str, Any]:
    """Draw a spec that the CRD lets through."""
    names = draw(st.lists(st.sampled_from(JOBS), min_size=1, max_size=3, unique=True))
    replicas = {name: draw(st.integers(0, 4)) for name in names}
    room = {name: draw(st.sampled_from([None, 0, 2])) for name in names}
    sizes = {name: max(1, replicas[name] + (room[name] or 0)) for name in names}
    lists = st.lists(device_filters(sizes), max_size=3)
    jobs: dict[str, Any] = {}
    for name in names:
        job: dict[str, Any] = {"replicas": replicas[name], "template": draw(templates())}
        if room[name] is not None or sizes[name] != replicas[name]:
            job["maxReplicas"] = sizes[name]
        if draw(st.booleans()):
            job["deviceFilters"] = draw(lists)
        if draw(st.booleans()):
            indices = st.integers(0, sizes[name] - 1).map(str)
            job["taskDeviceFilters"] = draw(st.dictionaries(indices, lists, max_size=2))
        if draw(st.booleans()):
            job["port"] = draw(st.sampled_from([2222, 3000]))
        jobs[name] = job
    spec: dict[str, Any] = {"jobs": jobs, "suspend": draw(suspend or st.sampled_from([False, False, False, True]))}
    if draw(st.booleans()):
        spec["port"] = 8000
    if draw(st.booleans()):
        spec["clusterDomain"] = "cluster.local"
    return spec


def declare(spec: dict[str, Any], *, generation: int = 1) -> TFCluster:
    """Read a drawn spec as the TFCluster "demo"."""
    body = make_body(generation=generation)
    body["spec"] = spec
    return parse(body)


clusters = specs().map(declare)


@st.composite
def edits(draw: st.DrawFn) -> tuple[TFCluster, TFCluster]:
    """Draw a TFCluster before and after an edit: often one field of one job, sometimes everything."""
    before = draw(specs())
    if draw(st.integers(0, 3)) == 0:
        after = draw(specs())
    else:
        after = copy.deepcopy(before)
        name = draw(st.sampled_from(sorted(after["jobs"])))
        job = after["jobs"][name]
        match draw(st.sampled_from(["replicas", "filters", "template", "suspend", "port", "nothing"])):
            case "replicas":
                job["replicas"] = draw(st.integers(0, 5))
                job["maxReplicas"] = max(job["replicas"], job.get("maxReplicas", 1), _named(before))
            case "filters":
                sizes = {n: declare(before).jobs[i].max_replicas or 1 for i, n in enumerate(sorted(before["jobs"]))}
                job["deviceFilters"] = draw(st.lists(device_filters(sizes), max_size=2))
            case "template":
                job["template"] = draw(templates())
            case "suspend":
                after["suspend"] = not after["suspend"]
            case "port":
                job["port"] = draw(st.sampled_from([2222, 4000]))
    return declare(before), declare(after, generation=2)


def _named(spec: dict[str, Any]) -> int:
    """How many tasks the filters of a spec may name, so that a smaller job stays valid."""
    return max(max(1, job["replicas"], job.get("maxReplicas", 1)) for job in spec["jobs"].values())


# --- spoiling a world

#: What a node or a user's program does to a pod.
POD_FATES = ("runs", "fails", "is evicted", "succeeds", "loses a GPU", "terminates")
#: What somebody with rights does behind the operator's back; all of it is put right.
TAMPERINGS = (
    "delete",
    "drop our labels",
    "alter a label",
    "alter the job label",
    "drop our annotations",
    "alter our annotations",
    "select more",
    "other ports",
    "hide unready",
    "give a cluster IP",
    "garbage in a view",
    "fake an epoch",
    "drop a file",
    "add a file",
    "add a binary file",
    "freeze",
    "edit an image",
    "add a surplus pod",
    "add a surplus ConfigMap",
)


@dataclass(frozen=True, slots=True)
class Spoiling:
    """One thing that happens to one object, chosen by ``pick`` among those it can happen to."""

    what: str
    pick: int


def spoilings(*kinds: str, most: int = 6) -> st.SearchStrategy[list[Spoiling]]:
    """Draw a few things that happen to a world."""
    one = st.builds(Spoiling, what=st.sampled_from(kinds), pick=st.integers(0, 30))
    return st.lists(one, max_size=most)


def spoil(world: InMemoryWorld, spoiling: Spoiling) -> None:
    """Let one thing happen; where no object is of the right kind, nothing does."""
    match spoiling.what:
        case "delete":
            if (key := _pick(world, spoiling)) is not None:
                world.delete(*key)
        case "runs" | "fails" | "is evicted" | "succeeds" | "loses a GPU" | "terminates" | "edit an image":
            _spoil_pod(world, spoiling)
        case "add a surplus pod":
            _add(world, "Pod", f"demo-worker-{7 + spoiling.pick}")
        case "add a surplus ConfigMap":
            _add(world, "ConfigMap", f"demo-old{spoiling.pick}")
        case "select more" | "other ports" | "hide unready" | "give a cluster IP":
            _spoil_service(world, spoiling)
        case "garbage in a view" | "fake an epoch" | "drop a file" | "add a file" | "add a binary file" | "freeze":
            _spoil_config_map(world, spoiling)
        case _:
            _spoil_metadata(world, spoiling)


def _pick(world: InMemoryWorld, spoiling: Spoiling, *kinds: Kind) -> tuple[Kind, str] | None:
    keys = sorted(key for key in world.objects if not kinds or key[0] in kinds)
    return keys[spoiling.pick % len(keys)] if keys else None


def _spoil_pod(world: InMemoryWorld, spoiling: Spoiling) -> None:
    key = _pick(world, spoiling, "Pod")
    if key is None or "deletionTimestamp" in world.objects[key]["metadata"]:
        return
    name = key[1]
    match spoiling.what:
        case "runs":
            world.pod_runs(name)
        case "fails":
            world.pod_ends(name, "Failed", lasted=10.0 * spoiling.pick)
        case "is evicted":
            world.pod_ends(name, "Failed", reason="Evicted")
        case "succeeds":
            world.pod_ends(name, "Succeeded")
        case "loses a GPU":
            world.pod_holds(name, GPU, "Healthy", "Unhealthy")
        case "terminates":
            world.pod_runs(name)
            world.delete("Pod", name)
        case "edit an image":
            edited = [{**one, "image": "image:edited"} for one in world.objects[key]["spec"]["containers"]]
            world.edit("Pod", name, {"spec": {"containers": edited}})


def _spoil_service(world: InMemoryWorld, spoiling: Spoiling) -> None:
    if (key := _pick(world, spoiling, "Service")) is None:
        return
    changes: dict[str, Any] = {
        "select more": {"selector": {"app": "other"}},
        "other ports": {"ports": [{"name": "tf-2222", "port": 2222, "targetPort": 9, "protocol": "UDP"}]},
        "hide unready": {"publishNotReadyAddresses": False},
        "give a cluster IP": {"clusterIP": "10.0.0.7"},
    }
    world.edit(*key, {"spec": changes[spoiling.what]})


def _spoil_config_map(world: InMemoryWorld, spoiling: Spoiling) -> None:
    if (key := _pick(world, spoiling, "ConfigMap")) is None:
        return
    text: str = world.objects[key].get("data", {}).get(contract.VIEW_FILE, "")
    changes: dict[str, Any] = {
        "garbage in a view": {"data": {contract.VIEW_FILE: "not a view"}},
        "fake an epoch": {"data": {contract.VIEW_FILE: text.replace('"epoch":', '"epoch":7')}},
        "drop a file": {"data": {contract.VIEW_FILE: None}},
        "add a file": {"data": {"task-9.json": text}},
        "add a binary file": {"binaryData": {"task-0.json": "e30="}},
        "freeze": {"immutable": True},
    }
    world.edit(*key, changes[spoiling.what])


def _spoil_metadata(world: InMemoryWorld, spoiling: Spoiling) -> None:
    if (key := _pick(world, spoiling)) is None:
        return
    metadata = world.objects[key]["metadata"]
    ours = [name for name in metadata.get("annotations", {}) if name.startswith(naming.GROUP)]
    placing = {naming.LABEL_JOB, naming.LABEL_TASK_INDEX} & set(metadata.get("labels") or {})
    changes: dict[str, Any] = {
        "drop our labels": {"labels": None},
        "alter a label": {"labels": {naming.LABEL_MANAGED_BY: "somebody"}},
        "alter the job label": {"labels": dict.fromkeys(placing, "77")},
        "drop our annotations": {"annotations": dict.fromkeys(ours)},
        "alter our annotations": {"annotations": dict.fromkeys(ours, "0")},
    }
    world.edit(*key, {"metadata": changes[spoiling.what]})


def _add(world: InMemoryWorld, kind: Kind, name: str, *, owner: str = CLUSTER_UID) -> None:
    if (kind, name) not in world.objects:
        world.create(kind, make_child(kind, name, owner=owner))


def make_child(kind: Kind, name: str, *, owner: str) -> dict[str, Any]:
    """Make an object under our label that a TFCluster with this UID controls; "" makes one that nobody controls."""
    reference = {"kind": naming.KIND, "name": "demo" if owner == CLUSTER_UID else "other", "uid": owner}
    return {
        "metadata": {
            "name": name,
            "labels": naming.cluster_labels("demo"),
            "ownerReferences": [{**reference, "controller": True}] if owner else [],
        },
        "spec": {"containers": [{"name": "task", "image": "image:0"}]} if kind == "Pod" else {},
    }
