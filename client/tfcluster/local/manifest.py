"""Check a manifest before a local run: find its problems, and the parts that are ignored on this machine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tfcluster.errors import ManifestError
from tfcluster.manifest.files import Manifest, Manifests, read_clusters
from tfcluster.manifest.validate import declare
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import main_container

Object = dict[str, Any]

SERVED: Final = {
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Service": ("v1", "services"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
}
_PROGRAMS: Final = (
    *("Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"),
    *("TFJob", "PyTorchJob", "MPIJob", "JobSet", "TrainJob", "RayJob", "RayCluster"),
)
NAMESPACE: Final = "default"


def load(paths: Sequence[str | Path], tell: Callable[[str], None] = lambda _: None) -> list[Object]:
    """Read manifests, and judge the TFClusters as the API server and the operator would."""
    found = playable(read_clusters(paths), tell)
    for one in found.clusters:
        declare(one, NAMESPACE)
    return [
        {**one.body, "metadata": {"namespace": NAMESPACE, **one.body["metadata"], "name": one.name}}
        for one in (*found.others, *found.clusters)
    ]


def playable(manifests: Manifests, tell: Callable[[str], None]) -> Manifests:
    if problems := [problem for one in manifests.others for problem in _misfits(one)]:
        raise ManifestError("this cannot run locally:", problems)
    skipped = [f"{one.kind} {one.name}" for one in manifests.others if one.kind not in SERVED]
    if skipped:
        tell(f"skipped (not used locally): {', '.join(skipped)}")
    return Manifests(manifests.clusters, tuple(one for one in manifests.others if one.kind in SERVED))


def _misfits(one: Manifest) -> Iterator[str]:
    served = SERVED.get(one.kind)
    if not one.kind or one.kind in _PROGRAMS or (served and one.body.get("apiVersion") != served[0]):
        kinds = ", ".join([naming.KIND, *SERVED])
        what = one.kind or "an object without a kind"
        yield f"{one.place()}: {what}: not supported locally (supported: {kinds}); remove it"
    elif not one.name:
        yield f"{one.place()}: {one.kind}: metadata.name is missing"
    else:
        for field in ("data", "binaryData", "stringData"):
            data = one.body.get(field)
            for key, value in data.items() if isinstance(data, Mapping) else ():
                if not isinstance(value, str):
                    where = f"{one.place((field, key))}: {one.kind} {one.name}: {field}.{key}"
                    yield f"{where} must be a text: put it in quotes"


def clusters_of(objects: Sequence[Object]) -> list[Object]:
    return [one for one in objects if one["kind"] == naming.KIND]


def unplayed(clusters: Sequence[Object]) -> list[str]:
    """List each field of the manifest that is ignored on this machine, once."""
    found: list[str] = []
    for body in clusters:
        mode = (body["spec"].get("isolation") or {}).get("mode", "None")
        found += ["isolation"] if mode != "None" else []
        for job in body["spec"]["jobs"].values():
            pod = (job.get("template") or {}).get("spec") or {}
            found += [field for field in _POD_FIELDS if pod.get(field)]
    for _, _, container in _containers(clusters):
        found += [field for field in _CONTAINER_FIELDS if container.get(field)]
    return list(dict.fromkeys(found))


_POD_FIELDS: Final = (
    *("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulingGates", "priorityClassName"),
    *("serviceAccountName", "securityContext", "runtimeClassName", "readinessGates", "activeDeadlineSeconds"),
    *("hostAliases", "dnsConfig", "hostNetwork"),
)
_CONTAINER_FIELDS: Final = (
    *("image", "lifecycle", "livenessProbe", "startupProbe", "securityContext", "resources", "volumeDevices"),
)


def _containers(clusters: Sequence[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Return each container, with its job and the job's name."""
    for body in clusters:
        for name, job in body["spec"]["jobs"].items():
            pod = (job.get("template") or {}).get("spec") or {}
            for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
                yield name, job, container


def check_programs(objects: Sequence[Object], entry_points: Mapping[str, Sequence[str]]) -> None:
    """Reject containers whose program is unknown here."""
    found = []
    for job, declared, container in _containers(clusters_of(objects)):
        name = container.get("name", "")
        serves = declared.get("taskServer") and name == main_container(declared.get("template") or {})
        if not (container.get("command") or serves or name in entry_points or "" in entry_points):
            found.append(f"job {job}, container {name}")
    if found:
        raise ManifestError(
            "these containers do not name a command, and an image's entry point cannot run locally:",
            found,
            hint="Write a command into the manifest, or pass --entrypoint [CONTAINER=]COMMAND.",
        )
