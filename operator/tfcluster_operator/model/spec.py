"""The TFCluster as the user declared it, read from the API object into values.

The CRD's validation has refused what it can see; what still reaches us malformed (an older CRD is installed, say) is
told as an InvalidSpecError with every problem in it, never as a crash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster_operator.model import filters, naming

#: TensorFlow's rule: an evaluator sees the cluster and is not in it.
EVALUATOR: Final = "evaluator"
DEFAULT_PORT: Final = 2222
DEFAULT_RPC_LAYER: Final = "grpc"


class InvalidSpecError(ValueError):
    """The spec cannot be materialised; ``problems`` says why, one "path: what to do" each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Job:
    """One job: a named role of TensorFlow and how many tasks play it.

    ``filters`` are every task's, ``task_filters`` replace them for one index; ``port`` is TCP; ``template`` is the
    PodTemplateSpec as the user wrote it, and ``template_hash`` changes exactly when a pod must be made anew.
    """

    name: str
    replicas: int
    max_replicas: int
    port: int
    filters: tuple[str, ...]
    task_filters: Mapping[int, tuple[str, ...]]
    template: Mapping[str, Any]
    template_hash: str

    def filters_of(self, index: int) -> tuple[str, ...]:
        """Give the device filters of one task; none means that it sees every task."""
        return self.task_filters.get(index, self.filters)

    def limits(self) -> dict[str, int]:
        """Count the extended resources that one pod asks for: a device plugin grants them whole or not at all."""
        total: dict[str, int] = {}
        for container in (self.template.get("spec") or {}).get("containers") or ():
            for resource, quantity in ((container.get("resources") or {}).get("limits") or {}).items():
                if _is_extended(resource) and str(quantity).isdigit():
                    total[resource] = total.get(resource, 0) + int(quantity)
        return total


@dataclass(frozen=True, slots=True)
class Task:
    """One task: a job's name and an index in it."""

    job: Job
    index: int

    def __str__(self) -> str:
        return f"{self.job.name}-{self.index}"


@dataclass(frozen=True, slots=True)
class TFCluster:
    """One TFCluster object: identity, declaration, and the status it had when it was read."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: int
    deleting: bool
    rpc_layer: str
    cluster_domain: str
    suspend: bool
    jobs: tuple[Job, ...]
    status: Mapping[str, Any] = field(default_factory=dict)

    def tasks(self) -> Iterator[Task]:
        """Give every declared task, in the order of the jobs and then of the indices."""
        for job in self.jobs:
            for index in range(job.replicas):
                yield Task(job, index)

    def address_of(self, task: Task) -> str:
        """Give a task's "host:port"."""
        return naming.address(
            cluster=self.name,
            namespace=self.namespace,
            job=task.job.name,
            index=task.index,
            port=task.job.port,
            cluster_domain=self.cluster_domain,
        )


def parse(body: Mapping[str, Any]) -> TFCluster:
    """Read a TFCluster from its API object.

    Args:
        body: the object as the API server gave it.

    Returns:
        The cluster as values.

    Raises:
        InvalidSpecError: the spec has no jobs, or a part of the wrong type, or a filter that TensorFlow would refuse.
    """
    metadata = body["metadata"]
    problems: list[str] = []
    jobs: list[Job] = []
    spec = body.get("spec") or {}
    try:
        port = int(spec.get("port", DEFAULT_PORT))
        domain = str(spec.get("clusterDomain", ""))
        jobs = [_job(name, job, port=port, domain=domain) for name, job in sorted((spec.get("jobs") or {}).items())]
        for job in jobs:
            problems.extend(_filter_problems(job, {other.name: other for other in jobs}))
    except (TypeError, ValueError, AttributeError) as error:
        problems.append(f"spec: {error}")
    if not jobs and not problems:
        problems.append("spec.jobs: declare at least one job")
    if problems:
        raise InvalidSpecError(tuple(problems))
    return TFCluster(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 1)),
        resource_version=int(metadata.get("resourceVersion", 0)),
        deleting="deletionTimestamp" in metadata,
        rpc_layer=str(spec.get("rpcLayer", DEFAULT_RPC_LAYER)),
        cluster_domain=domain,
        suspend=bool(spec.get("suspend", False)),
        jobs=tuple(jobs),
        status=body.get("status") or {},
    )


def _job(name: str, raw: Mapping[str, Any], *, port: int, domain: str) -> Job:
    replicas = int(raw.get("replicas", 1))
    own_port = int(raw.get("port", port))
    template = raw.get("template") or {}
    if not isinstance(template, Mapping):
        raise TypeError(f"jobs.{name}.template must be an object, not {type(template).__name__}")
    made_from = json.dumps([template, own_port, domain], sort_keys=True, separators=(",", ":"))
    return Job(
        name=name,
        replicas=replicas,
        max_replicas=max(replicas, int(raw.get("maxReplicas", replicas))),
        port=own_port,
        filters=tuple(raw.get("deviceFilters") or ()),
        task_filters={int(i): tuple(of_task or ()) for i, of_task in (raw.get("taskDeviceFilters") or {}).items()},
        template=template,
        template_hash=hashlib.sha256(made_from.encode()).hexdigest()[:16],
    )


def _filter_problems(job: Job, jobs: Mapping[str, Job]) -> Iterator[str]:
    declared = [(f"spec.jobs.{job.name}.deviceFilters", text) for text in job.filters]
    for index, of_task in job.task_filters.items():
        declared += [(f"spec.jobs.{job.name}.taskDeviceFilters.{index}", text) for text in of_task]
    for where, text in declared:
        parsed = filters.parse(text)
        if parsed is None:
            yield f"{where}: {text!r} is not a device filter in canonical form, such as /job:ps/task:0"
        elif parsed.job is not None and parsed.job not in jobs:
            yield f"{where}: {text!r} names a job that is not declared"
        elif parsed.job is not None and parsed.task is not None and parsed.task >= jobs[parsed.job].max_replicas:
            yield f"{where}: {text!r} names a task at or above maxReplicas"


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
