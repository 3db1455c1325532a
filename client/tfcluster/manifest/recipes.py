"""From a few wishes to a sound manifest: how the usual clusters of TensorFlow are wired.

With parameter servers one program, the chief's, drives the others, which run TensorFlow's server; device filters keep
workers from each other, so that one that is lost disturbs none.  Without them every task runs the program, and all
start again together, because equal workers cannot continue without one of them (tensorflow.org, "Parameter server
training" and "Multi-worker training").
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster.errors import ManifestError
from tfcluster.manifest.python import Job, TFCluster
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import CHIEF, WORKER

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

    @property
    def config_map(self) -> str:
        """The name of the ConfigMap with the program; it depends on the program's content."""
        if self.program is None:
            return ""
        told = f"{self.program.file}\0{self.program.text}".encode()
        return f"{self.name}-program-{hashlib.sha256(told).hexdigest()[:10]}"


def manifest_of(recipe: Recipe) -> Object:
    _check(recipe)
    return TFCluster(recipe.name, recipe.image, namespace=recipe.namespace, jobs=_jobs(recipe)).to_manifest()


def config_map_of(recipe: Recipe, owner: Mapping[str, Any] | None = None) -> Object | None:
    if recipe.program is None:
        return None
    about: Object = {"name": recipe.config_map, **({"namespace": recipe.namespace} if recipe.namespace else {})}
    if owner is not None:
        # Without controller, because the operator deletes objects that it controls and does not need.
        reference = {"apiVersion": naming.API_VERSION, "kind": naming.KIND}
        about["ownerReferences"] = [{**reference, "name": recipe.name, "uid": owner["metadata"]["uid"]}]
    data = {recipe.program.file: recipe.program.text}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def _check(recipe: Recipe) -> None:
    found = []
    if recipe.program is None and not recipe.command:
        found.append("say what it runs: --script FILE, or the command of the image after --")
    if recipe.program is not None and (size := len(recipe.program.text.encode())) > LARGEST_PROGRAM:
        found.append(
            f"{recipe.program.file} has {size:,} bytes, more than the {LARGEST_PROGRAM:,} that fit into a ConfigMap: "
            "put it into the image, or on a volume with --data, and give the command after --"
        )
    if not recipe.workers and not recipe.ps:
        found.append("no worker runs the program: use --workers 1 or more")
    if recipe.max_workers is not None and recipe.max_workers < recipe.workers:
        found.append(f"--max-workers {recipe.max_workers} is below --workers {recipe.workers}")
    paths = [path for path, _ in recipe.mounts] + ([] if recipe.program is None else [PROGRAM_FOLDER])
    found += [f"--data mounts two volumes at {path}" for path in sorted({one for one in paths if paths.count(one) > 1})]
    if found:
        raise ManifestError(f"the options of {recipe.name} are invalid:", found)


def _jobs(recipe: Recipe) -> dict[str, Job]:
    numbers: dict[str, Any] = {"replicas": recipe.workers, "max_replicas": recipe.max_workers}
    if not recipe.ps:
        # Equal tasks cannot continue without one of them, so they restart together.
        return {WORKER: _job(recipe, gpus=recipe.gpus, restart_scope="Cluster", **numbers)}
    of_worker, of_ps = ([f"/job:{job}", f"/job:{CHIEF}"] for job in (PS, WORKER))
    return {
        CHIEF: _job(recipe),
        WORKER: _job(recipe, program=False, gpus=recipe.gpus, device_filters=of_worker, **numbers),
        PS: _job(recipe, program=False, replicas=recipe.ps, device_filters=of_ps),
    }


def _job(recipe: Recipe, *, program: bool = True, gpus: int = 0, **fields: Any) -> Job:
    """Declare a job whose tasks run the program, or TensorFlow's server."""
    volumes, command = dict(recipe.mounts), [*recipe.command]
    if program and recipe.program is not None:
        volumes[PROGRAM_FOLDER] = {"configMap": {"name": recipe.config_map}}
        runner = "sh" if recipe.program.file.endswith(".sh") else "python3"
        command = [runner, f"{PROGRAM_FOLDER}/{recipe.program.file}", *command]
    fields |= {"env": recipe.env, "cpu": recipe.cpu, "memory": recipe.memory, "gpu_resource": recipe.gpu_resource}
    return Job(command=command if program else None, gpus=gpus, volumes=volumes, **fields)
