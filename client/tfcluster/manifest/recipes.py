"""From a few wishes to a sound manifest: how the usual clusters of TensorFlow are wired.

With parameter servers one program, the chief's, drives the others, which run TensorFlow's server; device filters keep
workers from each other, so that one that is lost disturbs none.  Without them every task runs the program, and all
start again together, because equal workers cannot continue without one of them (tensorflow.org, "Parameter server
training" and "Multi-worker training").
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

from tfcluster.errors import ManifestError
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR, MAIN_CONTAINER, WORKER

Object = dict[str, Any]

PS: Final = "ps"
PROGRAM_FOLDER: Final = "/opt/program"
_PROGRAM_VOLUME: Final = "program"
#: A ConfigMap can have 1 MiB, including its own fields.
LARGEST_PROGRAM: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is delivered in a ConfigMap: the name of its file, and its text."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A PersistentVolumeClaim and its mount path."""

    claim: str
    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The options of a cluster to create."""

    name: str
    image: str
    namespace: str | None = None
    workers: int = 1
    ps: int = 0
    chief: bool | None = None
    evaluator: bool = False
    max_workers: int | None = None
    program: Program | None = None
    command: Sequence[str] = ()
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str = "500m"
    memory: str = "2Gi"
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    isolation: bool = False
    port: int | None = None
    restart_policy: str | None = None

    @property
    def has_chief(self) -> bool:
        return self.ps > 0 if self.chief is None else self.chief

    @property
    def driven(self) -> bool:
        """Whether a chief drives workers and parameter servers, so that these only run TensorFlow's server."""
        return self.has_chief and self.ps > 0

    @property
    def config_map(self) -> str:
        """The name of the ConfigMap with the program; it depends on the program's content."""
        if self.program is None:
            return ""
        told = f"{self.program.file}\0{self.program.text}".encode()
        return f"{self.name}-program-{hashlib.sha256(told).hexdigest()[:10]}"


#: The comments of a manifest, by the field or the job.
Comments = Mapping[str, str]


def manifest_of(recipe: Recipe) -> tuple[Object, Comments]:
    _check(recipe)
    comments: dict[str, str] = {}
    spec: Object = {}
    if recipe.isolation:
        # Equal workers all see each other, and then the filters would not separate any tasks.
        spec["isolation"] = {"mode": "DeviceFilters" if recipe.driven else "Cluster"}
        comments["isolation"] = "Only tasks that see each other reach each other, where the network enforces it."
    if recipe.port is not None:
        spec["port"] = recipe.port
    jobs = dict(_jobs(recipe, comments))
    about = {"name": recipe.name, **({"namespace": recipe.namespace} if recipe.namespace else {})}
    manifest = {
        "apiVersion": naming.API_VERSION,
        "kind": naming.KIND,
        "metadata": about,
        "spec": {**spec, "jobs": jobs},
    }
    return manifest, comments


def config_map_of(recipe: Recipe, owner: Mapping[str, Any] | None = None) -> Object | None:
    if recipe.program is None:
        return None
    about: Object = {"name": recipe.config_map, **({"namespace": recipe.namespace} if recipe.namespace else {})}
    if owner is not None:
        # Without controller, because the operator deletes objects that it controls and does not need.
        reference = {"apiVersion": naming.API_VERSION, "kind": naming.KIND}
        about["ownerReferences"] = [{**reference, "name": recipe.name, "uid": owner["metadata"]["uid"]}]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": about,
        "data": {recipe.program.file: recipe.program.text},
    }


def _check(recipe: Recipe) -> None:
    found = []
    if not recipe.image.strip():
        found.append("say which image it runs: --image")
    if recipe.program is None and not recipe.command:
        found.append("say what it runs: --script FILE, or the command of the image after --")
    size = 0 if recipe.program is None else len(recipe.program.text.encode())
    if recipe.program is not None and size > LARGEST_PROGRAM:
        found.append(
            f"{recipe.program.file} has {size:,} bytes, more than the {LARGEST_PROGRAM:,} that fit into a ConfigMap: "
            "put it into the image, or on a volume with --data, and give the command after --"
        )
    if not recipe.workers and not recipe.has_chief:
        found.append("no worker or chief runs the program: use --workers 1 or more")
    if recipe.max_workers is not None and recipe.max_workers < recipe.workers:
        found.append(f"--max-workers {recipe.max_workers} is below --workers {recipe.workers}")
    paths = [mount.path for mount in recipe.mounts]
    found += [f"--data mounts two volumes at {path}" for path in sorted({one for one in paths if paths.count(one) > 1})]
    if found:
        raise ManifestError(f"the options of {recipe.name} are invalid:", found)


def _jobs(recipe: Recipe, comments: dict[str, str]) -> Sequence[tuple[str, Object]]:
    jobs: list[tuple[str, Object]] = []
    policy = {"restartPolicy": recipe.restart_policy} if recipe.restart_policy else {}
    # Equal tasks cannot continue without one of them, so they restart together, if they restart at all.
    together = {} if recipe.driven or recipe.restart_policy == "Never" else {"restartScope": "Cluster"}
    runs = _template(recipe, program=True, gpus=0 if recipe.driven else recipe.gpus)
    serves = _template(recipe, program=not recipe.driven, gpus=recipe.gpus)
    if recipe.has_chief:
        jobs.append((CHIEF, {**policy, **together, "template": runs}))
        comments[CHIEF] = (
            "The chief runs the program and drives the others. The cluster succeeds when it completes."
            if recipe.driven
            else "The chief is the first of the workers. The cluster succeeds when it completes."
        )
    server = {"taskServer": True} if recipe.driven else {}
    worker: Object = {"replicas": recipe.workers}
    if recipe.max_workers is not None:
        worker["maxReplicas"] = recipe.max_workers
    filters = {"deviceFilters": [f"/job:{PS}", f"/job:{CHIEF}"]} if recipe.driven else {}
    own_policy = {} if recipe.driven else policy
    if recipe.workers or recipe.driven:
        jobs.append((WORKER, {**worker, **server, **filters, **own_policy, **together, "template": serves}))
    comments[WORKER] = (
        "Workers see the ps and the chief, and not each other. They run TensorFlow's server (taskServer)."
        if recipe.driven
        else "Every task runs the program and sees the others. If one fails, all restart together."
    )
    if recipe.ps:
        filters = {"deviceFilters": [f"/job:{WORKER}", f"/job:{CHIEF}"]} if recipe.driven else {}
        template = _template(recipe, program=not recipe.driven, gpus=0)
        jobs.append((PS, {"replicas": recipe.ps, **server, **filters, **own_policy, **together, "template": template}))
        comments[PS] = "Parameter servers hold the variables."
    if recipe.evaluator:
        template = _template(recipe, program=True, gpus=0)
        jobs.append((EVALUATOR, {**policy, "template": template}))
        comments[EVALUATOR] = "The evaluator runs the same program; TFClusterResolver().task_type tells it what it is."
    if not recipe.mounts:
        comments["volumes"] = "No file survives its pod. For checkpoints, mount a volume: --data CLAIM:/checkpoints."
    return jobs


def _template(recipe: Recipe, *, program: bool, gpus: int) -> Object:
    container: Object = {"name": MAIN_CONTAINER, "image": recipe.image}
    if program:
        container["command"] = _command(recipe)
    if recipe.env:
        container["env"] = [{"name": name, "value": value} for name, value in recipe.env.items()]
    limits: Object = {"memory": recipe.memory, **({recipe.gpu_resource: gpus} if gpus else {})}
    container["resources"] = {"requests": {"cpu": recipe.cpu, "memory": recipe.memory}, "limits": limits}
    mounts = [
        {"name": f"data-{number}", "mountPath": mount.path, **({"readOnly": True} if mount.read_only else {})}
        for number, mount in enumerate(recipe.mounts)
    ]
    volumes: list[Object] = [
        {"name": f"data-{number}", "persistentVolumeClaim": {"claimName": mount.claim}}
        for number, mount in enumerate(recipe.mounts)
    ]
    if program and recipe.program is not None:
        mounts.append({"name": _PROGRAM_VOLUME, "mountPath": PROGRAM_FOLDER, "readOnly": True})
        volumes.append({"name": _PROGRAM_VOLUME, "configMap": {"name": recipe.config_map}})
    if mounts:
        container["volumeMounts"] = mounts
    return {"spec": {"containers": [container], **({"volumes": volumes} if volumes else {})}}


def _command(recipe: Recipe) -> list[str]:
    if recipe.program is None:
        return [*recipe.command]
    runner = "sh" if recipe.program.file.endswith(".sh") else "python3"
    return [runner, str(PurePosixPath(PROGRAM_FOLDER, recipe.program.file)), *recipe.command]
