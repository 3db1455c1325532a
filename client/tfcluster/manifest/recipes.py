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
from tfcluster.manifest.python import Isolation, Job, TFCluster
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR, WORKER

Object = dict[str, Any]

PS: Final = "ps"
PROGRAM_FOLDER: Final = "/opt/program"
#: A ConfigMap can have 1 MiB, including its own fields.
LARGEST_PROGRAM: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Program:
    """A program that is delivered in a ConfigMap: the name of its file, and its text."""

    file: str
    text: str


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
    #: Mount paths, each with the source of its volume.
    mounts: Sequence[tuple[str, Mapping[str, Any]]] = ()
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
    isolation = None
    if recipe.isolation:
        # Equal workers all see each other, and then the filters would not separate any tasks.
        isolation = Isolation(mode="DeviceFilters" if recipe.driven else "Cluster")
        comments["isolation"] = "Only tasks that see each other reach each other, where the network enforces it."
    cluster = TFCluster(
        recipe.name,
        recipe.image,
        namespace=recipe.namespace,
        port=recipe.port,
        isolation=isolation,
        jobs=_jobs(recipe, comments),
    )
    return cluster.to_manifest(), comments


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
    paths = [path for path, _ in recipe.mounts] + ([] if recipe.program is None else [PROGRAM_FOLDER])
    found += [f"--data mounts two volumes at {path}" for path in sorted({one for one in paths if paths.count(one) > 1})]
    if found:
        raise ManifestError(f"the options of {recipe.name} are invalid:", found)


def _jobs(recipe: Recipe, comments: dict[str, str]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    policy, driven = recipe.restart_policy, recipe.driven
    # Equal tasks cannot continue without one of them, so they restart together, if they restart at all.
    runs: dict[str, Any] = {
        "restart_policy": policy,
        "restart_scope": None if driven or policy == "Never" else "Cluster",
    }
    serves = {"program": False} if driven else runs
    if recipe.has_chief:
        jobs[CHIEF] = _job(recipe, gpus=0 if driven else recipe.gpus, **runs)
        comments[CHIEF] = (
            "The chief runs the program and drives the others. The cluster succeeds when it completes."
            if driven
            else "The chief is the first of the workers. The cluster succeeds when it completes."
        )
    if recipe.workers or driven:
        filters = [f"/job:{PS}", f"/job:{CHIEF}"] if driven else None
        numbers: dict[str, Any] = {"replicas": recipe.workers, "max_replicas": recipe.max_workers}
        jobs[WORKER] = _job(recipe, gpus=recipe.gpus, device_filters=filters, **numbers, **serves)
    comments[WORKER] = (
        "Workers see the ps and the chief, and not each other. They run TensorFlow's server (taskServer)."
        if driven
        else "Every task runs the program and sees the others. If one fails, all restart together."
    )
    if recipe.ps:
        filters = [f"/job:{WORKER}", f"/job:{CHIEF}"] if driven else None
        jobs[PS] = _job(recipe, replicas=recipe.ps, device_filters=filters, **serves)
        comments[PS] = "Parameter servers hold the variables."
    if recipe.evaluator:
        jobs[EVALUATOR] = _job(recipe, restart_policy=policy)
        comments[EVALUATOR] = "The evaluator runs the same program; TFClusterResolver().task_type tells it what it is."
    if not recipe.mounts:
        comments["volumes"] = "No file survives its pod. For checkpoints, mount a volume: --data CLAIM:/checkpoints."
    return jobs


def _job(recipe: Recipe, *, program: bool = True, gpus: int = 0, **fields: Any) -> Job:
    """Declare a job whose tasks run the program, or TensorFlow's server."""
    volumes = dict(recipe.mounts)
    if program and recipe.program is not None:
        volumes[PROGRAM_FOLDER] = {"configMap": {"name": recipe.config_map}}
    fields |= {"env": recipe.env, "cpu": recipe.cpu, "memory": recipe.memory, "gpu_resource": recipe.gpu_resource}
    return Job(command=_command(recipe) if program else None, gpus=gpus, volumes=volumes, **fields)


def _command(recipe: Recipe) -> list[str]:
    if recipe.program is None:
        return [*recipe.command]
    runner = "sh" if recipe.program.file.endswith(".sh") else "python3"
    return [runner, str(PurePosixPath(PROGRAM_FOLDER, recipe.program.file)), *recipe.command]
