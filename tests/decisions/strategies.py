"""Hypothesis strategies: TFClusters that the CRD accepts, and changes of a world."""

import copy
from dataclasses import dataclass
from typing import Any

from decisions.in_memory import CLUSTER_UID, InMemoryWorld, make_body
from hypothesis import strategies as st

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_resolver import contract

JOBS = ("chief", "data_loader", "evaluator", "ps", "worker")
GPU = "nvidia.com/gpu"
FOREIGN_UID = "uid-of-somebody-else"
#: Additional peers: an empty selector is all pods, an empty list of labels equals none.
PEERS = [
    {"podSelector": {"matchLabels": {"app": "notebook"}}},
    {"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": []}},
]


# Only numbers and choices are drawn; plain functions build the specs from them. Strategies that are built while drawing
# cost more than the tests themselves.

#: A device filter: which job (0 is none), whether a replica is named, which task (0 is none), which device.
_FILTERS = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 9), st.sampled_from(["", "/device:GPU:0", "/cpu:0"])),
    max_size=3,
)
_TEMPLATES = st.tuples(st.sampled_from(["image:1", "image:2"]), st.sampled_from([0, 0, 1, 4]))
_JOBS = st.fixed_dictionaries(
    {
        "replicas": st.integers(0, 4),
        "room": st.sampled_from([None, 0, 2]),
        "filters": st.none() | _FILTERS,
        "task_filters": st.none() | st.dictionaries(st.integers(0, 9), _FILTERS, max_size=2),
        "template": _TEMPLATES,
        "port": st.sampled_from([None, 2222, 3000]),
    }
)
_SPECS = st.fixed_dictionaries(
    {
        "jobs": st.dictionaries(st.sampled_from(JOBS), _JOBS, min_size=1, max_size=3),
        "suspend": st.sampled_from([False, False, False, True]),
        "port": st.sampled_from([None, 8000]),
        "domain": st.sampled_from([None, "cluster.local"]),
        "isolation": st.sampled_from([None, None, "None", "Cluster", "DeviceFilters", "DeviceFilters"]),
        "isolated": st.sampled_from([{}, {"portScope": "All"}, {"portScope": "Task", "allowFrom": PEERS}]),
        "kept": st.sampled_from([None, 0, 2]),
    }
)


def _spec(drawn: dict[str, Any]) -> dict[str, Any]:
    """Build a spec that the CRD accepts: filters name declared tasks only."""
    sizes = {name: max(1, job["replicas"] + (job["room"] or 0)) for name, job in drawn["jobs"].items()}
    jobs = {name: _job(job, size=sizes[name], sizes=sizes) for name, job in drawn["jobs"].items()}
    mode = drawn["isolation"]
    isolation = {} if mode is None else {"mode": mode, **({} if mode == "None" else drawn["isolated"])}
    optional = {"port": drawn["port"], "clusterDomain": drawn["domain"], "isolation": isolation or None}
    optional["failedPodsHistoryLimit"] = drawn["kept"]
    # With OnDelete, the default, running pods can have an older template forever.
    fixed = {"suspend": drawn["suspend"], "updateStrategy": {"type": "Recreate"}}
    return {"jobs": jobs, **fixed, **{k: v for k, v in optional.items() if v is not None}}


def _job(drawn: dict[str, Any], *, size: int, sizes: dict[str, int]) -> dict[str, Any]:
    job: dict[str, Any] = {"replicas": drawn["replicas"], "template": _template(drawn["template"])}
    if drawn["room"] is not None or size != drawn["replicas"]:
        job["maxReplicas"] = size
    if drawn["filters"] is not None:
        job["deviceFilters"] = [_filter(one, sizes) for one in drawn["filters"]]
    if drawn["task_filters"] is not None:
        job["taskDeviceFilters"] = {
            str(index % size): [_filter(one, sizes) for one in of_task]
            for index, of_task in drawn["task_filters"].items()
        }
    if drawn["port"] is not None:
        job["port"] = drawn["port"]
    return job


def _filter(drawn: tuple[int, bool, int, str], sizes: dict[str, int]) -> str:
    which, replica, task, device = drawn
    names = [None, *sorted(sizes)]
    job = names[which % len(names)]
    most = sizes[job] if job else max(sizes.values())
    parts = [f"/job:{job}" if job else "", "/replica:0" if replica else "", f"/task:{task % most}" if task else ""]
    return "".join([*parts, device]) or "/device:CPU:0"


def _template(drawn: tuple[str, int]) -> dict[str, Any]:
    image, gpus = drawn
    container: dict[str, Any] = {"name": "task", "image": image}
    if gpus:
        container["resources"] = {"limits": {GPU: gpus, "memory": "1Gi"}}
    return {"spec": {"containers": [container]}}


def declare(spec: dict[str, Any], *, generation: int = 1) -> TFCluster:
    """Parse a spec as the TFCluster "demo"."""
    body = make_body(generation=generation)
    body["spec"] = spec
    return parse(body)


#: TFClusters that the CRD accepts.
clusters = _SPECS.map(_spec).map(declare)

_EDITS = st.tuples(
    _SPECS,
    st.sampled_from(
        ["replicas", "replicas", "filters", "template", "suspend", "isolation", "port", "nothing", "everything"]
    ),
    st.integers(0, 5),
    _JOBS,
    _SPECS,
)


def _edit(drawn: tuple[dict[str, Any], str, int, dict[str, Any], dict[str, Any]]) -> tuple[TFCluster, TFCluster]:
    before, field, pick, other, everything = drawn
    after = copy.deepcopy(everything if field == "everything" else before)
    job = after["jobs"][sorted(after["jobs"])[pick % len(after["jobs"])]]
    if field == "suspend":
        after["suspend"] = not after["suspend"]
    elif field == "isolation":
        after["isolation"] = everything["isolation"]
    elif field in job:
        job[field] = other[field]
    return declare(_spec(before)), declare(_spec(after), generation=2)


#: A TFCluster before and after an edit: mostly of one field of one job, sometimes of everything.
edits = _EDITS.map(_edit)


# --- changes of a world

#: Changes by a node or a user's program. A pod that succeeds completes its task, and perhaps the cluster: that is a
#: life, not a change to correct.
POD_FATES = ("runs", "fails", "failed before", "is evicted", "loses a GPU", "terminates")
#: Changes by a user with permissions; the operator corrects all of them.
TAMPERINGS = (
    "delete",
    "drop our labels",
    "alter a label",
    "alter the job label",
    "drop our annotations",
    "alter our annotations",
    "mark as kept",
    "select more",
    "other ports",
    "hide unready",
    "give a cluster IP",
    "let everybody in",
    "protect other pods",
    "close the way out",
    "garbage in a view",
    "fake an epoch",
    "drop a file",
    "add a file",
    "add a binary file",
    "freeze",
    "add a surplus pod",
    "add a surplus ConfigMap",
    "add a surplus NetworkPolicy",
)


@dataclass(frozen=True, slots=True)
class Spoiling:
    """One change of one object, which ``pick`` chooses among the possible ones."""

    what: str
    pick: int


def spoilings(*kinds: str, most: int = 6) -> st.SearchStrategy[list[Spoiling]]:
    one = st.builds(Spoiling, what=st.sampled_from(kinds), pick=st.integers(0, 30))
    return st.lists(one, max_size=most)


def spoil(world: InMemoryWorld, spoiling: Spoiling) -> None:
    """Apply one change; without a suitable object, do nothing."""
    match spoiling.what:
        case "delete":
            if (key := _pick(world, spoiling)) is not None:
                world.delete(*key)
        case "runs" | "fails" | "failed before" | "is evicted" | "succeeds" | "loses a GPU" | "terminates":
            _spoil_pod(world, spoiling)
        case "add a surplus pod":
            _add(world, "Pod", f"demo-worker-{7 + spoiling.pick}")
        case "add a surplus ConfigMap":
            _add(world, "ConfigMap", f"demo-old{spoiling.pick}")
        case "add a surplus NetworkPolicy":
            _add(world, "NetworkPolicy", f"demo-old{spoiling.pick}")
        case "let everybody in" | "protect other pods" | "close the way out":
            _spoil_network_policy(world, spoiling)
        case "select more" | "other ports" | "hide unready" | "give a cluster IP":
            _spoil_service(world, spoiling)
        case "garbage in a view" | "fake an epoch" | "drop a file" | "add a file" | "add a binary file" | "freeze":
            _spoil_config_map(world, spoiling)
        case _:
            _spoil_metadata(world, spoiling)


def _pick(world: InMemoryWorld, spoiling: Spoiling, *kinds: str) -> tuple[str, str] | None:
    keys = sorted(key for key in world.objects if not kinds or key[0] in kinds)
    return keys[spoiling.pick % len(keys)] if keys else None


def _spoil_pod(world: InMemoryWorld, spoiling: Spoiling) -> None:
    key = _pick(world, spoiling, "Pod")
    if key is None or "deletionTimestamp" in world.objects[key]["metadata"] or key[1] in world.kept():
        return  # a failed pod stays unchanged
    name = key[1]
    match spoiling.what:
        case "runs":
            world.pod_runs(name)
        case "fails":
            world.pod_ends(name, "Failed")
        case "failed before":
            world.pod_ends(name, "Failed")
            marks = {
                "labels": {naming.LABEL_KEPT: "true"},
                "annotations": {naming.ANNOTATION_INCARNATION: "99999999999"},
            }
            world.edit("Pod", name, {"metadata": marks})
        case "is evicted":
            world.pod_ends(name, "Failed", reason="Evicted")
        case "succeeds":
            world.pod_ends(name, "Succeeded")
        case "loses a GPU":
            world.pod_holds(name, GPU, "Healthy", "Unhealthy")
        case "terminates":
            world.pod_runs(name)
            world.delete("Pod", name)


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


def _spoil_network_policy(world: InMemoryWorld, spoiling: Spoiling) -> None:
    if (key := _pick(world, spoiling, "NetworkPolicy")) is None:
        return
    changes: dict[str, Any] = {
        "let everybody in": {"ingress": [{}]},
        "protect other pods": {
            "podSelector": {
                "matchLabels": {"app": "other"},
                "matchExpressions": [{"key": "app", "operator": "Exists"}],
            }
        },
        "close the way out": {"policyTypes": ["Ingress", "Egress"], "egress": [{"to": [{"podSelector": {}}]}]},
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
        "mark as kept": {"labels": {naming.LABEL_KEPT: "yes"}} if key[0] == "Pod" else {},
        "drop our annotations": {"annotations": dict.fromkeys(ours)},
        "alter our annotations": {"annotations": dict.fromkeys(ours, "0")},
    }
    world.edit(*key, {"metadata": changes[spoiling.what]})


def _add(world: InMemoryWorld, kind: str, name: str, *, owner: str = CLUSTER_UID) -> None:
    if (kind, name) not in world.objects:
        world.create(kind, make_child(kind, name, owner=owner))


def make_child(kind: str, name: str, *, owner: str) -> dict[str, Any]:
    """Build an object with our label and this TFCluster's UID as its controller; "" builds one without a controller."""
    reference = {"kind": naming.KIND, "name": "demo" if owner == CLUSTER_UID else "other", "uid": owner}
    return {
        "metadata": {
            "name": name,
            "labels": naming.cluster_labels("demo"),
            "ownerReferences": [{**reference, "controller": True}] if owner else [],
        },
        "spec": {"containers": [{"name": "task", "image": "image:0"}]} if kind == "Pod" else {},
    }
