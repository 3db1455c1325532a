"""A TFCluster built from Python, without YAML.

Each field of a TFCluster's spec has an attribute of the same name in Python's spelling: ``spec.backoffLimit`` is
``TFCluster.backoff_limit``, ``spec.jobs.J.maxReplicas`` is ``Job.max_replicas``.  None leaves a field out, so that the
API server's default counts. docs/reference/api.md explains each field.
"""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, Self, TypedDict

import msgspec

from tfcluster.errors import ManifestError
from tfcluster.manifest.yaml import write
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR, MAIN_CONTAINER, WORKER

Object = dict[str, Any]

#: The key in the metadata of a dataclass's field: the path of its value in the API's object.
PATH: Final = "path"
_NOWHERE: Final = {PATH: ()}


def paths_of(kind: type[Any]) -> Mapping[str, tuple[str, ...]]:
    """Return the path of each field of a dataclass in the API's object; () if it does not have one."""
    camel = {one.name: re.sub("_(.)", lambda match: match[1].upper(), one.name) for one in dataclasses.fields(kind)}
    return {one.name: tuple(one.metadata.get(PATH, (camel[one.name],))) for one in dataclasses.fields(kind)}


def to_api(value: Any) -> dict[str, Any]:
    """Return the API's object of a dataclass, without unset fields."""
    found: dict[str, Any] = {}
    for name, path in paths_of(type(value)).items():
        inner = getattr(value, name)
        if inner is None or not path:
            continue
        place = found
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = spelt(inner)
    return found


def spelt(value: Any) -> Any:
    """Return a value as JSON types: dataclasses and mappings become dicts, sequences lists; all are copies."""
    if dataclasses.is_dataclass(value):
        return to_api(value)
    if isinstance(value, Mapping):
        return {str(key): spelt(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [spelt(inner) for inner in value]
    return value


def check(value: Any, kind: Any, what: str) -> Any:
    """Return a value of dicts and lists as a type; raises ManifestError with the first that has another type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{what}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContainer:
    """The container of each task.

    Attributes:
        image: the image; None is the cluster's.
        command: the command line; a text is split as a shell does. None is the image's own.
        args: arguments of the image's own command.
        env: variables; a text or number is the value, a mapping is a ``valueFrom``.
        cpu: the CPU request, such as 2 or "500m".
        memory: the memory, request and limit, such as "4Gi".
        gpus: how many GPUs.
        gpu_resource: what a GPU is called.
        resources: further requests and limits, as a container has them.
        volumes: volumes by the path where they are mounted; a text is the name of a PersistentVolumeClaim, a mapping
            is the source of a volume, such as ``{"configMap": {"name": "script"}}``.
        template: a pod template with everything else; what is said above is put into its main container.
    """

    image: str | None = field(default=None, metadata=_NOWHERE)
    command: str | Sequence[str | int | float] | None = field(default=None, metadata=_NOWHERE)
    args: str | Sequence[str | int | float] | None = field(default=None, metadata=_NOWHERE)
    env: Mapping[str, str | int | float | Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    cpu: str | int | float | None = field(default=None, metadata=_NOWHERE)
    memory: str | int | None = field(default=None, metadata=_NOWHERE)
    gpus: int | None = field(default=None, metadata=_NOWHERE)
    gpu_resource: str = field(default="nvidia.com/gpu", metadata=_NOWHERE)
    resources: Mapping[str, Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    volumes: Mapping[str, str | Mapping[str, Any]] | None = field(default=None, metadata=_NOWHERE)
    template: Mapping[str, Any] | None = None


# The fields of a template that a job extends.


class _Container(TypedDict, total=False):
    env: Sequence[Mapping[str, Any]] | None
    volumeMounts: Sequence[Mapping[str, Any]] | None
    resources: Mapping[str, Any] | None


class _Pod(TypedDict, total=False):
    containers: Sequence[_Container] | None
    volumes: Sequence[Mapping[str, Any]] | None


class _Template(TypedDict, total=False):
    spec: _Pod | None


def template_of(job: TaskContainer, image: str | None, where: str) -> Object:
    """Build a job's pod template.

    Raises:
        ManifestError: the image is missing, or the template is not a valid pod template.
    """
    template: Object = spelt(job.template or {})
    check(template, _Template, f"{where}: this is not a pod template")
    spec = template["spec"] = template.get("spec") or {}
    containers = spec["containers"] = spec.get("containers") or [{"name": MAIN_CONTAINER}]
    main = next((one for one in containers if one.get("name") == MAIN_CONTAINER), containers[0])
    if found := job.image or main.get("image") or image:
        main["image"] = found
    else:
        raise ManifestError(f"{where} has no image", hint="Give image= to the job or to the TFCluster.")
    for key, words in (("command", job.command), ("args", job.args)):
        try:
            if words is not None:
                # A string is a sequence, too, of its letters.
                main[key] = shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
        except ValueError as error:
            raise ManifestError(f"{where}: {key} cannot be split as a shell does: {error}: {words}") from error
    main["env"] = [one for one in main.get("env") or () if one.get("name") not in (job.env or {})]
    for name, value in (job.env or {}).items():
        told = {"valueFrom": spelt(value)} if isinstance(value, Mapping) else {"value": str(value)}
        main["env"].append({"name": name, **told})
    if not main["env"]:
        del main["env"]
    if resources := _resources(job, main.get("resources") or {}):
        main["resources"] = resources
    _mount(job.volumes or {}, spec, main)
    return template


def _resources(job: TaskContainer, declared: Mapping[str, Any]) -> Object:
    requests: Object = {} if job.cpu is None else {"cpu": str(job.cpu)}
    limits: Object = {}
    if job.memory is not None:
        requests["memory"] = limits["memory"] = job.memory
    if job.gpus:
        limits[job.gpu_resource] = job.gpus
    own = {"requests": requests, "limits": limits}
    more = job.resources or {}
    keys = dict.fromkeys([*declared, *more, *(key for key, values in own.items() if values)])
    return {key: _joined(declared.get(key), more.get(key), own.get(key)) for key in keys}


def _joined(*values: Any) -> Any:
    """Merge mappings, later ones override earlier ones; of other values return the last that is set."""
    there = [value for value in values if value]
    if all(isinstance(value, Mapping) for value in there):
        return {key: inner for value in there for key, inner in value.items()}
    return spelt(there[-1])


def _mount(volumes: Mapping[str, str | Mapping[str, Any]], spec: Object, main: Object) -> None:
    taken = {one.get("name") for one in spec.get("volumes") or ()}
    free = (name for number in itertools.count() if (name := f"volume-{number}") not in taken)
    for (path, source), name in zip(volumes.items(), free, strict=False):
        what = {"persistentVolumeClaim": {"claimName": source}} if isinstance(source, str) else spelt(source)
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": name, **what}]
        main["volumeMounts"] = [*(main.get("volumeMounts") or ()), {"name": name, "mountPath": path}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(TaskContainer):
    """One job: equal tasks. It is a TaskContainer, too: the container of each task.

    Attributes:
        replicas: how many tasks.
        max_replicas: the largest number of tasks; device filters are declared up to it.
        min_replicas: how many of them belong to the gang of the cluster.
        task_server: whether they run TensorFlow's server; None means yes if neither command, args nor template is
            given.
        port: the tasks' TCP port, if not the cluster's.
        restart_policy: how a failure is handled.
        restart_scope: which tasks are restarted together.
        start_after: the jobs that must be ready first.
        drain_timeout_seconds: how long, in seconds, a task can continue after a scale-down.
        device_filters: the devices that its tasks see, such as "/job:ps"; None means all.
        task_device_filters: the same for single tasks, by index.
        min_available: how many tasks, or a share such as "50%", must keep running during the drain of a node.
    """

    replicas: int | None = None
    max_replicas: int | None = None
    min_replicas: int | None = None
    task_server: bool | None = None
    port: int | None = None
    restart_policy: Literal["OnFailure", "Always", "Never", "ExitCode"] | None = None
    restart_scope: Literal["Task", "Job", "Cluster"] | None = None
    start_after: Sequence[str] | None = None
    drain_timeout_seconds: int | None = None
    device_filters: Sequence[str] | None = None
    task_device_filters: Mapping[int, Sequence[str]] | None = None
    min_available: int | str | None = field(default=None, metadata={PATH: ("disruptionBudget", "minAvailable")})


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessPolicy:
    """When the cluster has succeeded: when all or any (``tasks``) tasks of ``jobs`` have completed."""

    jobs: Sequence[str] | None = None
    tasks: Literal["All", "Any"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStrategy:
    """How a changed template reaches pods; ``max_unavailable``, tasks or such as "25%", is for RollingUpdate."""

    type: Literal["Recreate", "RollingUpdate", "OnDelete"] | None = None
    max_unavailable: int | str | None = field(default=None, metadata={PATH: ("rollingUpdate", "maxUnavailable")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """How programs get their view: whether the resolver is delivered into pods, and whether TF_CONFIG is set."""

    delivery: Literal["ConfigMap", "None"] | None = None
    tf_config: Literal["None", "Environment", "TFJob"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Which clients can reach the tasks; ``allow_from`` are peers as in a NetworkPolicy."""

    mode: Literal["None", "Cluster", "DeviceFilters"] | None = None
    port_scope: Literal["Task", "All"] | None = None
    allow_from: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """That tasks get their places together: of each job the first ``Job.min_replicas``, else all of them.

    ``timeout_seconds`` is how long they can wait for that, and ``on_timeout`` what becomes of the cluster then.
    """

    timeout_seconds: int | None = None
    on_timeout: Literal["Fail", "Suspend"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Colocate:
    """The tasks of ``jobs`` run in one topology domain; None means all jobs.

    ``topology_key`` is the node label whose value is the domain, and ``when_unsatisfiable`` says whether a task that
    does not fit there waits.
    """

    topology_key: str
    jobs: Sequence[str] | None = None
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The tasks of each of ``jobs`` are spread over topology domains; None means each job.

    A domain has at most ``max_skew`` more tasks of a job than another; ``topology_key`` and ``when_unsatisfiable`` are
    as in Colocate.
    """

    topology_key: str
    jobs: Sequence[str] | None = None
    max_skew: int | None = None
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = None


@dataclass(frozen=True, slots=True)
class TFCluster:
    """A TFCluster in Python.

    ``TFCluster("digits", image="example.com/train:1", chief=Job(command=["python3", "train.py"]), workers=4, ps=2)``

    Attributes:
        name: its name.
        image: the default image of the jobs.
        chief: the job "chief"; a number means tasks with the cluster's image, which run TensorFlow's server.
        workers: the job "worker".
        ps: the job "ps".
        evaluator: the job "evaluator".
        jobs: all other jobs, by name.
        namespace: its namespace; None is the client's.
        labels: its labels.
        annotations: its annotations.
        suspend: whether its pods are deleted until it is resumed.
        rpc_layer: TensorFlow's rpc layer.
        port: the tasks' TCP port.
        cluster_domain: the DNS domain of the Kubernetes cluster.
        success_policy: when it has succeeded.
        backoff_limit: the largest number of restarts.
        active_deadline_seconds: the longest time it can run, in seconds.
        clean_pod_policy: which pods are deleted at its end.
        failed_pods_history_limit: how many failed pods of a task are kept.
        ttl_seconds_after_finished: when it is deleted after its end, in seconds.
        update_strategy: how a changed template reaches pods.
        force_delete_after_seconds: when a pod on a dead node is deleted by force, in seconds.
        managed_by: the controller that is responsible for it.
        resolver: how programs get their view.
        isolation: which clients can reach the tasks.
        gang: which tasks are scheduled together; None means that each is scheduled independently.
        colocate: which tasks run in one topology domain.
        spread: which tasks are spread over topology domains.
    """

    name: str = field(metadata=_NOWHERE)
    image: str | None = field(default=None, metadata=_NOWHERE)
    _: KW_ONLY
    chief: Job | int | None = field(default=None, metadata=_NOWHERE)
    workers: Job | int | None = field(default=None, metadata=_NOWHERE)
    ps: Job | int | None = field(default=None, metadata=_NOWHERE)
    evaluator: Job | int | None = field(default=None, metadata=_NOWHERE)
    jobs: Mapping[str, Job | int] | None = field(default=None, metadata=_NOWHERE)
    namespace: str | None = field(default=None, metadata=_NOWHERE)
    labels: Mapping[str, str] | None = field(default=None, metadata=_NOWHERE)
    annotations: Mapping[str, str] | None = field(default=None, metadata=_NOWHERE)
    suspend: bool | None = None
    rpc_layer: str | None = None
    port: int | None = None
    cluster_domain: str | None = None
    success_policy: SuccessPolicy | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    clean_pod_policy: Literal["Running", "All", "None"] | None = None
    failed_pods_history_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    update_strategy: UpdateStrategy | None = None
    force_delete_after_seconds: int | None = None
    managed_by: str | None = None
    resolver: Resolver | None = None
    isolation: Isolation | None = None
    gang: Gang | None = field(default=None, metadata={PATH: ("scheduling", "gang")})
    colocate: Colocate | None = field(default=None, metadata={PATH: ("scheduling", "colocate")})
    spread: Sequence[Spread] | None = field(default=None, metadata={PATH: ("scheduling", "spread")})

    def to_manifest(self) -> Object:
        """Return the manifest, as the API server accepts it.

        Raises:
            ManifestError: a value has another type than declared, or a job is declared twice or lacks an image.
        """
        own: Self = check(dataclasses.asdict(self), type(self), f"{naming.KIND} {self.name} cannot be declared so")
        about = {"namespace": own.namespace, "labels": own.labels, "annotations": own.annotations}
        found = {key: value for key, value in about.items() if value is not None}
        return {
            "apiVersion": naming.API_VERSION,
            "kind": naming.KIND,
            "metadata": {"name": own.name, **found},
            "spec": {**to_api(own), "jobs": {name: own._job(name, job) for name, job in own._all_jobs().items()}},
        }

    def to_yaml(self) -> str:
        """Return it as YAML, for ``tfcluster apply -f`` or a repository."""
        return write(self.to_manifest())

    def _all_jobs(self) -> dict[str, Job]:
        given = {CHIEF: self.chief, WORKER: self.workers, "ps": self.ps, EVALUATOR: self.evaluator}
        named: dict[str, Job | int] = {name: job for name, job in given.items() if job is not None}
        if twice := sorted({*named} & {*(self.jobs or {})}):
            raise ManifestError(f"{self.name}: {', '.join(twice)} is given twice: by its own argument, and in jobs")
        every = {**named, **(self.jobs or {})}
        return {name: Job(replicas=job) if isinstance(job, int) else job for name, job in every.items()}

    def _job(self, name: str, job: Job) -> Object:
        if job.task_server is None and job.command is None and job.args is None and job.template is None:
            job = dataclasses.replace(job, task_server=True)
        return {**to_api(job), "template": template_of(job, self.image, f"{self.name}: job {name}")}

    def with_changes(self, **changes: Any) -> Self:
        """Return a copy with other values, such as ``cluster.with_changes(workers=8)``."""
        return dataclasses.replace(self, **changes)
