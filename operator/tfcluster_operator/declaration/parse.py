"""Parsing of the API object to the values of a TFCluster.

The CRD's validation rejects most errors; an object that still is malformed (another CRD is installed, for example)
causes an InvalidSpecError that names every problem, and not a crash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from tfcluster_operator.declaration import filters, ledger, naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler, groups_of_template
from tfcluster_operator.declaration.manifest import TemplateFields, read, without_nulls
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import (
    CHIEF,
    EVALUATOR,
    WORKER,
    Colocation,
    Isolation,
    Job,
    ResolverDelivery,
    Spec,
    Spread,
    SuccessPolicy,
    TFCluster,
    main_container,
)
from tfcluster_resolver import contract

#: Limits of one TFCluster, as in the CRD: a reconcile of a larger one would delay the others for too long.
MOST_TASKS: Final = 10_000
MOST_TASK_FILTERS: Final = 512
#: The same with TF_CONFIG: each pod, and so etcd, then holds the addresses of all tasks that it sees.
MOST_TASKS_WITH_TF_CONFIG: Final = 1_000
_JOB_NAME: Final = re.compile("[a-z]([a-z0-9_]*[a-z0-9])?")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
#: The most characters of an invalid value that a problem shows.
_SHOWN: Final = 80


class InvalidSpecError(ValueError):
    """The spec is invalid; ``problems`` has a "path: what to do" for each reason, ``cluster`` what could be read."""

    def __init__(self, problems: tuple[str, ...], cluster: TFCluster) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.cluster = cluster


def is_ours(body: Mapping[str, Any]) -> bool:
    """Return whether spec.managedBy assigns a TFCluster to this operator."""
    spec = body.get("spec")
    manager = spec.get("managedBy") if isinstance(spec, Mapping) else None
    return manager is None or manager == naming.CONTROLLER


def has_resolver_delivered(body: Mapping[str, Any]) -> bool:
    """Return whether the resolver is delivered to a TFCluster's pods, also if its spec is invalid."""
    spec = body.get("spec")
    resolver = spec.get("resolver") if isinstance(spec, Mapping) else None
    if not isinstance(resolver, Mapping):
        return True
    return bool(resolver.get("delivery", _delivery(resolver.get("tfConfig", "None"))) != "None")


def _delivery(tf_config: str) -> ResolverDelivery:
    # Programs that read TF_CONFIG do not need the resolver, and PYTHONPATH would hide the image's own.
    return "ConfigMap" if tf_config == "None" else "None"


def parse(
    body: Mapping[str, Any], *, gang_scheduler: GangScheduler = KUBERNETES, before: TFCluster | None = None
) -> TFCluster:
    """Parse a TFCluster, or raise InvalidSpecError; an unchanged spec is taken from the result ``before``."""
    raw = body.get("spec") or {}
    if before is not None and before.raw is raw:
        return replace(before, **_identity(body, suspend=raw.get("suspend") is True))
    problems: list[str] = []
    # Jobs are parsed one by one, so that each problem has its job's name.
    whole = without_nulls({**raw, "jobs": None}) if isinstance(raw, Mapping) else raw
    spec = read(Spec, whole, "spec", problems) or Spec()
    cluster = _cluster(body, spec, _jobs(raw, spec, problems), gang_scheduler)
    if not problems:
        problems += [*_name_problems(cluster, spec), *_excesses(cluster), *_own_tf_configs(cluster)]
        problems += _gang_problems(cluster)
        by_name = {job.name: job for job in cluster.jobs}
        for job in cluster.jobs:
            problems += [*_filter_problems(job, by_name), *_place_problems(job)]
        problems += _circles(by_name)
        if not cluster.jobs:
            problems.append("spec.jobs: declare at least one job")
    if problems:
        raise InvalidSpecError(tuple(problems), cluster)
    return cluster


def with_status(cluster: TFCluster, status: Mapping[str, Any]) -> TFCluster:
    """Return a TFCluster with another status."""
    return replace(cluster, status=status, ledger=ledger.read(status))


def _cluster(body: Mapping[str, Any], spec: Spec, jobs: Sequence[Job], gang_scheduler: GangScheduler) -> TFCluster:
    gang = spec.scheduling.gang
    return TFCluster(
        **_identity(body, suspend=spec.suspend),
        raw=body.get("spec"),
        spec=spec,
        jobs=tuple(jobs),
        success_policy=SuccessPolicy(spec.success_policy.jobs or _deciding(jobs), spec.success_policy.tasks),
        inject=_injects(spec),
        isolation=_as_stored(spec.isolation),
        gang=None if gang is None else structs.replace(gang, scheduler=gang_scheduler),
    )


def _identity(body: Mapping[str, Any], *, suspend: bool) -> dict[str, Any]:
    """Read the parts that can change without the spec: metadata, status, and a suspension that the status requires."""
    metadata, status = body["metadata"], body.get("status") or {}
    known, generation = ledger.read(status), int(metadata.get("generation", 1))
    gave_up = known.gave_up.message if known.gave_up is not None and known.gave_up.generation == generation else ""
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "generation": generation,
        "deleting": "deletionTimestamp" in metadata,
        "status": status,
        "suspend": suspend or bool(gave_up),
        "queue": _label(metadata, naming.LABEL_QUEUE),
        "priority_class": _label(metadata, naming.LABEL_PRIORITY),
        "ledger": known,
        "gave_up": gave_up,
    }


def _deciding(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return the jobs that decide on the cluster's success if the user has not chosen any."""
    names = [job.name for job in jobs]
    return next(((one,) for one in (CHIEF, WORKER) if one in names), tuple(one for one in names if one != EVALUATOR))


def _injects(spec: Spec) -> bool:
    return (spec.resolver.delivery or _delivery(spec.resolver.tf_config)) == "ConfigMap"


def _label(metadata: Mapping[str, Any], name: str) -> str:
    labels = metadata.get("labels")
    value = labels.get(name) if isinstance(labels, Mapping) else None
    return value if isinstance(value, str) else ""


def _as_stored(isolation: Isolation) -> Isolation:
    """Write the peers as the API server stores them: without empty fields."""
    peers = tuple({kind: _without_empty(one) for kind, one in peer.items()} for peer in isolation.allow_from)
    return structs.replace(isolation, allow_from=peers)


def _without_empty(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _without_empty(one) for key, one in value.items() if one not in ([], {})}


def _jobs(raw: Any, spec: Spec, problems: list[str]) -> list[Job]:
    declared = (raw.get("jobs") or {}) if isinstance(raw, Mapping) else {}
    if not isinstance(declared, Mapping):
        problems.append("spec.jobs: expected an object")
        return []
    found = []
    for name, of_job in sorted(declared.items()):
        # Other names might be equal in DNS, and their pods would replace each other forever.
        if not _JOB_NAME.fullmatch(name):
            words = "use lower case letters, digits and underscores, with a letter first and no underscore last"
            problems.append(f"spec.jobs: {_shown(name)} cannot name a job: {words}")
            continue
        path = f"spec.jobs.{name}"
        fields = read(Job, without_nulls(of_job), path, problems)
        if fields is not None and read(TemplateFields, fields.template, f"{path}.template", problems) is not None:
            found.append(_job(name, fields, spec, problems))
    return found


def _job(name: str, job: Job, spec: Spec, problems: list[str]) -> Job:
    port, template, scheduling = job.port or spec.port, job.template, spec.scheduling
    near, apart = scheduling.colocate, sorted(scheduling.spread, key=lambda one: one.topology_key)
    colocation = near if near is not None and name in (near.jobs or [name]) else None
    spread = tuple(one for one in apart if name in (one.jobs or [name]))
    # Only other values than the default are added, so that an upgrade with a new field does not replace pods.
    made_from = [template, port, spec.cluster_domain, *([] if _injects(spec) else ["inject: false"])]
    # Whether TF_CONFIG is set, not its content: a resize does not replace pods.
    made_from += [f"tfConfig: {spec.resolver.tf_config}"] if spec.resolver.tf_config != "None" else []
    made_from += _made_from_places(colocation, spread)
    made_from += ["taskServer"] if job.task_server else []
    main = _main_container(template)
    if job.task_server and (main.get("command") or main.get("args")):
        told = "the main container has a command or args of its own: remove them, or taskServer"
        problems.append(f"spec.jobs.{name}.taskServer: {told}")
    return structs.replace(
        job,
        name=name,
        max_replicas=max(job.replicas, job.max_replicas),
        port=port,
        task_filters=_task_filters(name, job, problems),
        template_hash=digest(json.dumps(made_from, sort_keys=True, separators=(",", ":"))),
        history_limit=spec.failed_pods_history_limit,
        placements=(),
        colocation=colocation,
        spread=spread,
    )


def _main_container(template: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = template.get("spec", {}).get("containers", [])
    return next((one for one in containers if one.get("name", "") == main_container(template)), {})


def _task_filters(name: str, job: Job, problems: list[str]) -> dict[int, tuple[str, ...]]:
    # int() would accept "+1", "1_0" and digits of other scripts.
    for index in job.task_device_filters:
        if not _INDEX.fullmatch(index):
            told = f"{_shown(index)} is not the index of a task, such as 0"
            problems.append(f"spec.jobs.{name}.taskDeviceFilters: {told}")
    return {int(index): of_task for index, of_task in job.task_device_filters.items() if _INDEX.fullmatch(index)}


def _name_problems(cluster: TFCluster, spec: Spec) -> Iterator[str]:
    """Report each reference to a job that is not declared, and each duplicate spread of a job."""
    scheduling = spec.scheduling
    named = [("spec.successPolicy.jobs", cluster.success_policy.jobs)]
    named += [(f"spec.jobs.{job.name}.startAfter", job.start_after) for job in cluster.jobs]
    named += [("spec.scheduling.colocate.jobs", scheduling.colocate.jobs)] if scheduling.colocate else []
    named += [(f"spec.scheduling.spread[{index}].jobs", one.jobs) for index, one in enumerate(scheduling.spread)]
    for where, names in named:
        yield from (f"{where}: {_shown(name)} is not declared" for name in names if cluster.job(name) is None)
    for job in cluster.jobs:
        rules = [(one.topology_key, one.when_unsatisfiable) for one in job.spread]
        # The API server would reject pods with two such rules.
        for key, when in sorted({rule for rule in rules if rules.count(rule) > 1}):
            told = f"job {job.name} has two rules with topologyKey {key} and whenUnsatisfiable {when}"
            yield f"spec.scheduling.spread: {told}: remove one of the two"


def _shown(value: str) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _excesses(cluster: TFCluster) -> Iterator[str]:
    if (tasks := sum(job.replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: {tasks} tasks are more than the {MOST_TASKS} that a TFCluster can have"
    if (tasks := sum(job.max_replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: maxReplicas add up to {tasks}, more than the {MOST_TASKS} tasks that a TFCluster can have"
    if (entries := sum(len(job.task_filters) for job in cluster.jobs)) > MOST_TASK_FILTERS:
        yield f"spec.jobs: {entries} taskDeviceFilters are more than the {MOST_TASK_FILTERS} that a TFCluster can have"
    if cluster.sets_tf_config and (tasks := sum(one.max_replicas for one in cluster.jobs)) > MOST_TASKS_WITH_TF_CONFIG:
        most = f"TF_CONFIG is for {MOST_TASKS_WITH_TF_CONFIG} tasks at most"
        yield f"spec.resolver.tfConfig: {most}, and maxReplicas add up to {tasks}"


def _own_tf_configs(cluster: TFCluster) -> Iterator[str]:
    for job in cluster.jobs if cluster.sets_tf_config else ():
        main = _main_container(job.template)
        if contract.ENV_TF_CONFIG in {variable.get("name") for variable in main.get("env", [])}:
            where = f"spec.jobs.{job.name}.template.spec.containers[{main_container(job.template)}].env"
            yield f"{where}: the operator sets TF_CONFIG: remove it, or set spec.resolver.tfConfig to None"


def _gang_problems(cluster: TFCluster) -> Iterator[str]:
    if cluster.gang is None:
        for job in cluster.jobs:
            if job.min_replicas is not None:
                yield f"spec.jobs.{job.name}.minReplicas: it needs spec.scheduling.gang: set that, or remove it"
        return
    for job in cluster.jobs:
        for field, _ in groups_of_template(job.template) if cluster.gang.least(job) else ():
            yield (
                f"spec.jobs.{job.name}.template.{field}: spec.scheduling.gang makes the PodGroups: remove "
                "one of the two, or set minReplicas of the job to 0"
            )
    # The scheduler rejects a group whose pods have several priorities or schedulers.
    members = [job for job in cluster.jobs if cluster.gang.least(job) and not job.start_after]
    for field, default in (("priorityClassName", ""), ("schedulerName", cluster.gang.scheduler.default_name)):
        found = {job.of_template(field) or default: job.name for job in members}
        if len(found) > 1:
            told = ", ".join(f"{_shown(value)} in {job}" for value, job in sorted(found.items()))
            yield (
                "spec.scheduling.gang: its tasks get their places together, so that their templates must have the "
                f"same {field} ({told}): write one, or set minReplicas of a job to 0"
            )


def _circles(jobs: Mapping[str, Job]) -> Iterator[str]:
    """Return the names of the jobs that wait for each other in a cycle."""
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
            yield f"{where}: {_shown(text)} is not a device filter in canonical form, such as /job:ps/task:0"
        elif parsed.job is not None and parsed.job not in jobs:
            yield f"{where}: {_shown(text)} names a job that is not declared"
        elif parsed.job is not None and parsed.task is not None and parsed.task >= jobs[parsed.job].max_replicas:
            yield f"{where}: {_shown(text)} names a task at or above maxReplicas"


def _made_from_places(colocation: Colocation | None, spread: tuple[Spread, ...]) -> list[dict[str, Any]]:
    """Return the part of a job's places that its pods are created from, as JSON; an edit of it replaces the pods."""
    added: list[dict[str, Any]] = []
    if colocation is not None:
        added.append({"colocate": [colocation.topology_key, colocation.when_unsatisfiable]})
    if spread:
        added.append({"spread": [[one.topology_key, one.max_skew, one.when_unsatisfiable] for one in spread]})
    return added


def _place_problems(job: Job) -> Iterator[str]:
    """Report the rules of a job's template that conflict with its places."""
    spec: Mapping[str, Any] = job.template.get("spec") or {}
    where = f"spec.jobs.{job.name}.template.spec"
    near = (spec.get("affinity") or {}).get("podAffinity") or {}
    strict = job.colocation is not None and job.colocation.when_unsatisfiable == "DoNotSchedule"
    # The scheduler looks for a pod that matches all of these rules together.
    if strict and near.get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield (
            f"{where}.affinity.podAffinity: spec.scheduling.colocate requires to be near its tasks, and no pod would "
            "match both rules: remove one of the two, or set whenUnsatisfiable: ScheduleAnyway"
        )
    own = {
        (one.get("topologyKey"), one.get("whenUnsatisfiable")) for one in spec.get("topologySpreadConstraints") or ()
    }
    for one in job.spread:
        if (one.topology_key, one.when_unsatisfiable) in own:
            yield (
                f"{where}.topologySpreadConstraints: spec.scheduling.spread has a rule with the same topologyKey "
                f"{one.topology_key} and whenUnsatisfiable {one.when_unsatisfiable}: remove one of the two"
            )
        if job.colocation is not None and job.colocation.topology_key == one.topology_key:
            yield (
                f"spec.scheduling.spread: job {job.name} cannot be spread over {one.topology_key}, because "
                "spec.scheduling.colocate keeps it in one of them: remove one of the two"
            )
