"""From the API object to the values of a TFCluster.

The CRD's validation has refused what it can see; what still reaches us malformed (an older CRD is installed, say) is
told as an InvalidSpecError with every problem in it, never as a crash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from tfcluster_operator.model import filters, naming
from tfcluster_operator.model.spec import (
    CHIEF,
    EVALUATOR,
    WORKER,
    CleanPodPolicy,
    Job,
    ResolverDelivery,
    RestartPolicy,
    RestartScope,
    SuccessPolicy,
    SuccessTasks,
    TFCluster,
    UpdateStrategy,
    UpdateType,
)

DEFAULT_PORT: Final = 2222
DEFAULT_RPC_LAYER: Final = "grpc"
#: Bounds of one TFCluster, as the CRD has them: a pass over one of this size must not keep the others waiting.
MOST_TASKS: Final = 10_000
MOST_TASK_FILTERS: Final = 512
_SHARE: Final = re.compile("([1-9][0-9]?|100)%")


class InvalidSpecError(ValueError):
    """The spec cannot be materialised; ``problems`` says why, one "path: what to do" each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def is_ours(body: Mapping[str, Any]) -> bool:
    """Tell whether a TFCluster is left to this operator by its spec.managedBy."""
    manager = (body.get("spec") or {}).get("managedBy")
    return manager is None or manager == naming.CONTROLLER


def parse(body: Mapping[str, Any]) -> TFCluster:
    """Read a TFCluster from its API object.

    Args:
        body: the object as the API server gave it.

    Returns:
        The cluster as values.

    Raises:
        InvalidSpecError: the spec has no jobs, or a part of the wrong type, or a filter that TensorFlow would refuse,
            or jobs that wait for each other.
    """
    metadata = body["metadata"]
    spec = body.get("spec") or {}
    problems: list[str] = []
    try:
        cluster = _cluster(metadata, spec, body.get("status") or {})
        by_name = {job.name: job for job in cluster.jobs}
        for job in cluster.jobs:
            problems.extend(_filter_problems(job, by_name))
        problems.extend(_unknown_jobs(cluster, by_name))
        problems.extend(_circles(by_name))
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidSpecError((f"spec: {error}",)) from error
    problems.extend(_excesses(cluster))
    if not cluster.jobs:
        problems.append("spec.jobs: declare at least one job")
    if problems:
        raise InvalidSpecError(tuple(problems))
    return cluster


def _cluster(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> TFCluster:
    port, domain = int(spec.get("port", DEFAULT_PORT)), str(spec.get("clusterDomain", ""))
    resolver = spec.get("resolver") or {}
    # NB: an older CRD spells it inject.
    delivery = resolver.get("delivery", "ConfigMap" if resolver.get("inject", True) else "None")
    inject = _one_of(ResolverDelivery, delivery, "resolver.delivery") == "ConfigMap"
    jobs = tuple(
        _job(name, job, port=port, domain=domain, inject=inject)
        for name, job in sorted((spec.get("jobs") or {}).items())
    )
    update = spec.get("updateStrategy") or {}
    return TFCluster(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 1)),
        deleting="deletionTimestamp" in metadata,
        rpc_layer=str(spec.get("rpcLayer", DEFAULT_RPC_LAYER)),
        cluster_domain=domain,
        suspend=bool(spec.get("suspend", False)),
        jobs=jobs,
        status=status,
        success_policy=_success_policy(spec.get("successPolicy") or {}, [job.name for job in jobs]),
        backoff_limit=_count(spec, "backoffLimit"),
        active_deadline=_count(spec, "activeDeadlineSeconds"),
        clean_pod_policy=_one_of(CleanPodPolicy, spec.get("cleanPodPolicy", "Running"), "cleanPodPolicy"),
        ttl_after_finished=_count(spec, "ttlSecondsAfterFinished"),
        update_strategy=UpdateStrategy(
            type=_one_of(UpdateType, update.get("type", "Recreate"), "updateStrategy.type"),
            max_unavailable=_number_or_share(
                (update.get("rollingUpdate") or {}).get("maxUnavailable", update.get("maxUnavailable", 1))
            ),
        ),
        terminating_grace=_count(spec, "terminatingGraceSeconds"),
        inject=inject,
    )


def _job(name: str, raw: Mapping[str, Any], *, port: int, domain: str, inject: bool) -> Job:
    replicas = int(raw.get("replicas", 1))
    own_port = int(raw.get("port", port))
    template = raw.get("template") or {}
    if not isinstance(template, Mapping):
        raise TypeError(f"jobs.{name}.template must be an object, not {type(template).__name__}")
    # NB: what is added here only where it is not the default leaves the pods of an older operator alone.
    made_from = json.dumps(
        [template, own_port, domain, *([] if inject else ["inject: false"])], sort_keys=True, separators=(",", ":")
    )
    return Job(
        name=name,
        replicas=replicas,
        max_replicas=max(replicas, int(raw.get("maxReplicas", replicas))),
        port=own_port,
        filters=tuple(raw.get("deviceFilters") or ()),
        task_filters={int(i): tuple(of_task or ()) for i, of_task in (raw.get("taskDeviceFilters") or {}).items()},
        template=template,
        template_hash=hashlib.sha256(made_from.encode()).hexdigest()[:16],
        restart_policy=_one_of(RestartPolicy, raw.get("restartPolicy", "OnFailure"), f"jobs.{name}.restartPolicy"),
        restart_scope=_one_of(RestartScope, raw.get("restartScope", "Task"), f"jobs.{name}.restartScope"),
        start_after=tuple(raw.get("startAfter") or ()),
        drain_seconds=int(raw.get("drainSeconds", 0)),
    )


def _success_policy(raw: Mapping[str, Any], declared: Sequence[str]) -> SuccessPolicy:
    default = next(([name] for name in (CHIEF, WORKER) if name in declared), [n for n in declared if n != EVALUATOR])
    return SuccessPolicy(
        jobs=tuple(raw.get("jobs") or default),
        tasks=_one_of(SuccessTasks, raw.get("tasks", "All"), "successPolicy.tasks"),
    )


def _one_of(values: Any, value: Any, where: str) -> Any:
    if value not in get_args(values):
        raise ValueError(f"{where} must be one of {', '.join(get_args(values))}, not {value!r}")
    return value


def _number_or_share(value: Any) -> int | str:
    if not isinstance(value, str):
        return max(1, int(value))
    if not _SHARE.fullmatch(value):
        raise ValueError(f"updateStrategy.rollingUpdate.maxUnavailable must be a number, or 1% to 100%, not {value!r}")
    return value


def _count(spec: Mapping[str, Any], name: str) -> int | None:
    value = spec.get(name)
    return None if value is None else max(0, int(value))


def _excesses(cluster: TFCluster) -> Iterator[str]:
    if (tasks := sum(job.replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: {tasks} tasks are more than the {MOST_TASKS} that a TFCluster may have"
    if (tasks := sum(job.max_replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: maxReplicas add up to {tasks}, more than the {MOST_TASKS} tasks that a TFCluster may have"
    if (entries := sum(len(job.task_filters) for job in cluster.jobs)) > MOST_TASK_FILTERS:
        yield f"spec.jobs: {entries} taskDeviceFilters are more than the {MOST_TASK_FILTERS} that a TFCluster may have"


def _unknown_jobs(cluster: TFCluster, jobs: Mapping[str, Job]) -> Iterator[str]:
    for name in cluster.success_policy.jobs:
        if name not in jobs:
            yield f"spec.successPolicy.jobs: {name!r} is not declared"
    for job in cluster.jobs:
        for name in job.start_after:
            if name not in jobs:
                yield f"spec.jobs.{job.name}.startAfter: {name!r} is not declared"


def _circles(jobs: Mapping[str, Job]) -> Iterator[str]:
    """Name the jobs that would wait for each other for ever."""
    startable: set[str] = set()
    while more := {
        name for name, job in jobs.items() if name not in startable and startable.issuperset(job.start_after)
    }:
        startable |= more
    known = {name for name in jobs if set(jobs[name].start_after) <= jobs.keys()}
    if stuck := sorted(known - startable):
        yield f"spec.jobs: {', '.join(stuck)} start after each other: take one startAfter out"


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
