"""Parsing of the API object to the values of a TFCluster.

The rules of a valid spec are in the CRD.  A malformed field that the operator reads itself (another CRD is installed,
for example) causes an InvalidSpecError that names every problem; so do rules that depend on the operator's options.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final, TypeVar

import msgspec
from msgspec import structs

from tfcluster_operator.declaration import ledger, naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler, groups_of_template
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
)

_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


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
    whole = _without_nulls({**raw, "jobs": None}) if isinstance(raw, Mapping) else raw
    spec = _read(Spec, whole, "spec", problems) or Spec()
    cluster = _cluster(body, spec, _jobs(raw, spec, problems), gang_scheduler)
    if not (problems or cluster.jobs):
        problems.append("spec.jobs: declare at least one job")
    if problems := problems or [*_gang_problems(cluster)]:
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
        path = f"spec.jobs.{name}"
        fields = _read(Job, _without_nulls(of_job), path, problems)
        if fields is not None:
            found.append(_job(name, fields, spec))
    return found


def _job(name: str, job: Job, spec: Spec) -> Job:
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
    return structs.replace(
        job,
        name=name,
        max_replicas=max(job.replicas, job.max_replicas),
        port=port,
        # int() would accept "+1", "1_0" and digits of other scripts.
        task_filters={int(index): of for index, of in job.task_device_filters.items() if _INDEX.fullmatch(index)},
        template_hash=digest(json.dumps(made_from, sort_keys=True, separators=(",", ":"))),
        history_limit=spec.failed_pods_history_limit,
        placements=(),
        colocation=colocation,
        spread=spread,
    )


def _gang_problems(cluster: TFCluster) -> Iterator[str]:
    if cluster.gang is None:
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
            told = ", ".join(f"{value[:80]!r} in {job}" for value, job in sorted(found.items()))
            yield (
                "spec.scheduling.gang: its tasks get their places together, so that their templates must have the "
                f"same {field} ({told}): write one, or set minReplicas of a job to 0"
            )


def _made_from_places(colocation: Colocation | None, spread: tuple[Spread, ...]) -> list[dict[str, Any]]:
    """Return the part of a job's places that its pods are created from, as JSON; an edit of it replaces the pods."""
    added: list[dict[str, Any]] = []
    if colocation is not None:
        added.append({"colocate": [colocation.topology_key, colocation.when_unsatisfiable]})
    if spread:
        added.append({"spread": [[one.topology_key, one.max_skew, one.when_unsatisfiable] for one in spread]})
    return added


#: The most characters of a path and of a message that a problem shows: a condition's message has a limit.
_SHOWN: Final = 500


_Read = TypeVar("_Read", bound=msgspec.Struct)


def _read(kind: type[_Read], raw: Any, path: str, problems: list[str]) -> _Read | None:
    """Read an object of a manifest; None if a part is invalid, which is added to ``problems`` with its path."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        words, _, where = str(error).rpartition(" - at `$") if " - at `$" in str(error) else (str(error), "", "")
        place = f"{path}{where.removesuffix('`')}"
        problems.append(f"{place[:_SHOWN]}: {words[0].lower()}{words[1:_SHOWN]}")
        return None


def _without_nulls(value: Any) -> Any:
    """Remove the fields that are null, in lists too, and convert each whole number to an int; copy only if needed."""
    if isinstance(value, Mapping):
        fields = {key: _without_nulls(one) for key, one in value.items() if one is not None}
        same = len(fields) == len(value) and all(map(is_, fields.values(), value.values()))
        return value if same else fields
    if isinstance(value, list):
        parts = [_without_nulls(one) for one in value]
        return value if all(map(is_, parts, value)) else parts
    return int(value) if isinstance(value, float) and value.is_integer() else value
