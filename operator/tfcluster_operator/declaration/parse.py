"""From the API object to the values of a TFCluster.

The CRD's validation has refused what it can see; what still reaches us malformed (another CRD is installed, say) is
told as an InvalidSpecError with every problem in it, never as a crash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.declaration import filters, ledger, naming, places
from tfcluster_operator.declaration.digests import digest
from tfcluster_operator.declaration.fields import Fields, is_whole, shown
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler, groups_of_template
from tfcluster_operator.declaration.spec import (
    CHIEF,
    EVALUATOR,
    WORKER,
    CleanPodPolicy,
    Colocation,
    Gang,
    Isolation,
    IsolationMode,
    Job,
    OnTimeout,
    PortScope,
    ResolverDelivery,
    RestartPolicy,
    RestartScope,
    Spread,
    SuccessPolicy,
    SuccessTasks,
    TFCluster,
    TFConfigDelivery,
    UpdateStrategy,
    UpdateType,
    WhenUnsatisfiable,
    main_container,
)
from tfcluster_resolver import contract

DEFAULT_PORT: Final = 2222
DEFAULT_RPC_LAYER: Final = "grpc"
#: Bounds of one TFCluster, as the CRD has them: a pass over one of this size must not keep the others waiting.
MOST_TASKS: Final = 10_000
MOST_TASK_FILTERS: Final = 512
#: The same where TF_CONFIG is set: each pod then holds the addresses of all tasks that it sees, and so does etcd.
MOST_TASKS_WITH_TF_CONFIG: Final = 1_000
#: The most failed pods of a task that are kept, as the CRD has it.
MOST_KEPT: Final = 10
#: How many are kept where nothing is said and no pod reads its own name.
DEFAULT_KEPT: Final = 1
_LAST_PORT: Final = 65_535
_SHARE: Final = re.compile("([1-9][0-9]?|100)%")
_JOB_NAME: Final = re.compile("[a-z]([a-z0-9_]*[a-z0-9])?")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


class InvalidSpecError(ValueError):
    """The spec cannot be materialised; ``problems`` says why, one "path: what to do" each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def is_ours(body: Mapping[str, Any]) -> bool:
    """Tell whether a TFCluster is left to this operator by its spec.managedBy."""
    spec = body.get("spec")
    manager = spec.get("managedBy") if isinstance(spec, Mapping) else None
    return manager is None or manager == naming.CONTROLLER


def has_resolver_delivered(body: Mapping[str, Any]) -> bool:
    """Tell whether the pods of a TFCluster have the resolver delivered, also where its spec cannot be read."""
    spec = body.get("spec")
    resolver = spec.get("resolver") if isinstance(spec, Mapping) else None
    if not isinstance(resolver, Mapping):
        return True
    return bool(resolver.get("delivery", _delivery(resolver.get("tfConfig", "None"))) != "None")


def _delivery(tf_config: str) -> ResolverDelivery:
    # Who reads TF_CONFIG needs nothing else, and PYTHONPATH would hide the image's own.
    return "ConfigMap" if tf_config == "None" else "None"


def parse(body: Mapping[str, Any], *, gang_scheduler: GangScheduler = KUBERNETES) -> TFCluster:
    """Read a TFCluster from its API object.

    Args:
        body: the object as the API server gave it.
        gang_scheduler: who finds the places of a gang.

    Raises:
        InvalidSpecError: the spec has no jobs, or a part of the wrong type, or a filter that TensorFlow would refuse,
            or jobs that wait for each other.
    """
    problems: list[str] = []
    spec, status = Fields(body.get("spec"), "spec", problems), body.get("status") or {}
    cluster = _cluster(body["metadata"], spec, status, gang_scheduler)
    if not problems:
        by_name = {job.name: job for job in cluster.jobs}
        for job in cluster.jobs:
            problems.extend(_filter_problems(job, by_name))
        problems.extend(_unknown_jobs(cluster, by_name))
        problems.extend(_circles(by_name))
        problems.extend(_excesses(cluster))
        problems.extend(_own_tf_configs(cluster))
        problems.extend(_gang_problems(cluster))
        for job in cluster.jobs:
            problems.extend(places.problems(job))
        if not cluster.jobs:
            problems.append("spec.jobs: declare at least one job")
    if problems:
        raise InvalidSpecError(tuple(problems))
    return cluster


def _cluster(
    metadata: Mapping[str, Any], spec: Fields, status: Mapping[str, Any], gang_scheduler: GangScheduler
) -> TFCluster:
    port, domain = spec.number("port", DEFAULT_PORT, least=1, most=_LAST_PORT), spec.text("clusterDomain")
    resolver, update = spec.inner("resolver"), spec.inner("updateStrategy")
    tf_config = resolver.one_of(TFConfigDelivery, "tfConfig", "None")
    inject = resolver.one_of(ResolverDelivery, "delivery", _delivery(tf_config)) == "ConfigMap"
    kept = spec.number("failedPodsHistoryLimit", DEFAULT_KEPT, most=MOST_KEPT)
    named, scheduling = sorted(_named_jobs(spec.inner("jobs")), key=lambda one: one[0]), spec.inner("scheduling")
    near, apart = _colocations(scheduling, dict(named)), _spreads(scheduling, dict(named))
    jobs = tuple(
        _job(
            name,
            job,
            port=port,
            domain=domain,
            inject=inject,
            tf_config=tf_config,
            kept=kept,
            colocation=near.get(name),
            spread=apart.get(name, ()),
        )
        for name, job in named
    )
    known, generation = ledger.read(status), int(metadata.get("generation", 1))
    gave_up = known.gave_up.message if known.gave_up is not None and known.gave_up.generation == generation else ""
    return TFCluster(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=generation,
        deleting="deletionTimestamp" in metadata,
        rpc_layer=spec.text("rpcLayer", DEFAULT_RPC_LAYER),
        cluster_domain=domain,
        suspend=spec.flag("suspend", default=False) or bool(gave_up),
        jobs=jobs,
        status=status,
        success_policy=_success_policy(spec.inner("successPolicy"), [job.name for job in jobs]),
        backoff_limit=spec.count("backoffLimit"),
        active_deadline=spec.count("activeDeadlineSeconds"),
        clean_pod_policy=spec.one_of(CleanPodPolicy, "cleanPodPolicy", "Running"),
        ttl_after_finished=spec.count("ttlSecondsAfterFinished"),
        update_strategy=UpdateStrategy(
            type=update.one_of(UpdateType, "type", "OnDelete"), max_unavailable=_max_unavailable(update)
        ),
        force_delete_after=spec.count("forceDeleteAfterSeconds"),
        inject=inject,
        tf_config=tf_config,
        isolation=_isolation(spec.inner("isolation")),
        gang=_gang(scheduling, gang_scheduler),
        queue=_label(metadata, naming.LABEL_QUEUE),
        priority_class=_label(metadata, naming.LABEL_PRIORITY),
        regrants=known.regrants,
        gave_up=gave_up,
    )


def _label(metadata: Mapping[str, Any], name: str) -> str:
    labels = metadata.get("labels")
    value = labels.get(name) if isinstance(labels, Mapping) else None
    return value if isinstance(value, str) else ""


def _gang(scheduling: Fields, scheduler: GangScheduler) -> Gang | None:
    if scheduling.raw.get("gang") is None:
        return None
    gang = scheduling.inner("gang")
    return Gang(
        timeout=gang.count("timeoutSeconds"),
        on_timeout=gang.one_of(OnTimeout, "onTimeout", "Fail"),
        scheduler=scheduler,
    )


def _colocations(scheduling: Fields, declared: Collection[str]) -> dict[str, Colocation]:
    if scheduling.raw.get("colocate") is None:
        return {}
    colocate = scheduling.inner("colocate")
    colocation = Colocation(_topology_key(colocate), _when_unsatisfiable(colocate))
    return dict.fromkeys(_named(colocate, declared), colocation)


def _spreads(scheduling: Fields, declared: Collection[str]) -> dict[str, tuple[Spread, ...]]:
    found: dict[str, list[Spread]] = {}
    for one in scheduling.elements("spread"):
        spread = Spread(_topology_key(one), one.number("maxSkew", 1, least=1), _when_unsatisfiable(one))
        for name in _named(one, declared):
            others = found.setdefault(name, [])
            # NB: the API server would refuse every pod with two such rules.
            if any(
                (other.topology_key, other.when_unsatisfiable) == (spread.topology_key, spread.when_unsatisfiable)
                for other in others
            ):
                told = f"with topologyKey {spread.topology_key} and whenUnsatisfiable {spread.when_unsatisfiable}"
                one.problem("", f"job {name} has another rule {told}: remove one of the two")
            others.append(spread)
    return {name: tuple(sorted(some, key=lambda one: one.topology_key)) for name, some in found.items()}


def _named(chosen: Fields, declared: Collection[str]) -> Sequence[str]:
    """Give the jobs that are named, all where none is."""
    for name in (names := chosen.texts("jobs")):
        if name not in declared:
            chosen.problem("jobs", f"{shown(name)} is not declared")
    return names or sorted(declared)


def _topology_key(chosen: Fields) -> str:
    key = chosen.text("topologyKey")
    if not key:
        chosen.problem("topologyKey", "name the label of nodes that tells their domain, such as kubernetes.io/hostname")
    return key


def _when_unsatisfiable(chosen: Fields) -> WhenUnsatisfiable:
    value: WhenUnsatisfiable = chosen.one_of(WhenUnsatisfiable, "whenUnsatisfiable", "DoNotSchedule")
    return value


def _isolation(isolation: Fields) -> Isolation:
    return Isolation(
        mode=isolation.one_of(IsolationMode, "mode", "None"),
        port_scope=isolation.one_of(PortScope, "portScope", "Task"),
        allow_from=tuple(
            {kind: _as_stored(value) for kind, value in peer.raw.items() if value is not None}
            for peer in isolation.elements("allowFrom")
        ),
    )


def _as_stored(value: Any) -> Any:
    """Give a part of a NetworkPolicyPeer as the API server stores it: without what is empty."""
    if not isinstance(value, Mapping):
        return value
    return {key: _as_stored(one) for key, one in value.items() if one not in (None, [], {})}


def _named_jobs(jobs: Fields) -> Iterator[tuple[str, Fields]]:
    for name, job in jobs.members():
        # NB: of other names two may be one to DNS, and their pods would take turns for ever.
        if _JOB_NAME.fullmatch(name):
            yield name, job
        else:
            words = "use lower case letters, digits and underscores, with a letter first and no underscore last"
            jobs.problem("", f"{shown(name)} cannot name a job: {words}")


def _job(
    name: str,
    job: Fields,
    *,
    port: int,
    domain: str,
    inject: bool,
    tf_config: TFConfigDelivery,
    kept: int,
    colocation: Colocation | None,
    spread: tuple[Spread, ...],
) -> Job:
    replicas = job.number("replicas", 1)
    own_port = job.number("port", port, least=1, most=_LAST_PORT)
    template = job.inner("template")
    _check_template(template)
    # What is not the default is added, so that the pods stay when an upgrade of the operator brings a new field.
    made_from = [template.raw, own_port, domain, *([] if inject else ["inject: false"])]
    # NB: that TF_CONFIG is set, never what it says: a resize replaces no pod.
    made_from += [f"tfConfig: {tf_config}"] if tf_config != "None" else []
    made_from += places.made_from(colocation, spread)
    task_server = job.flag("taskServer", default=False)
    made_from += ["taskServer"] if task_server else []
    if task_server and any(main.get("command") or main.get("args") for main in _main_containers(template.raw)):
        job.problem("taskServer", "the main container has a command or args of its own: remove them, or taskServer")
    return Job(
        name=name,
        replicas=replicas,
        max_replicas=max(replicas, job.number("maxReplicas", replicas)),
        port=own_port,
        filters=job.texts("deviceFilters"),
        task_filters=_task_filters(job.inner("taskDeviceFilters")),
        template=template.raw,
        template_hash=digest(_canonical(made_from)),
        restart_policy=job.one_of(RestartPolicy, "restartPolicy", "OnFailure"),
        restart_scope=job.one_of(RestartScope, "restartScope", "Task"),
        start_after=job.texts("startAfter"),
        drain_timeout_seconds=job.number("drainTimeoutSeconds", 0),
        history_limit=kept,
        task_server=task_server,
        min_replicas=job.count("minReplicas"),
        min_available=_tasks_or_share(job.inner("disruptionBudget"), "minAvailable"),
        colocation=colocation,
        spread=spread,
    )


def _main_containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = (template.get("spec") or {}).get("containers") or ()
    return [one for one in containers if one.get("name", "") == main_container(template)]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _task_filters(of_tasks: Fields) -> dict[int, tuple[str, ...]]:
    found = {}
    for index in of_tasks.raw:
        # NB: int() takes "+1", "1_0" and digits of other scripts.
        if _INDEX.fullmatch(index):
            found[int(index)] = of_tasks.texts(index)
        else:
            of_tasks.problem("", f"{shown(index)} is not the index of a task, such as 0")
    return found


def _check_template(template: Fields) -> None:
    """Note what is of the wrong type among the fields of a template that the operator itself reads or adds to.

    The API server judges the rest when a pod is created.
    """
    about, spec = template.inner("metadata"), template.inner("spec")
    for group in ("labels", "annotations"):
        words = about.inner(group)
        for key in words.raw:
            words.text(key)
    near = spec.inner("affinity").inner("podAffinity")
    for kind in ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"):
        near.sequence(kind)
    for rule in spec.elements("topologySpreadConstraints"):
        rule.text("topologyKey")
        rule.text("whenUnsatisfiable")
    for volume in spec.elements("volumes"):
        volume.text("name")
        volume.inner("configMap").text("name")
    for group in ("containers", "initContainers"):
        for container in spec.elements(group):
            container.text("name")
            container.text("image")
            container.text("restartPolicy")
            container.sequence("volumeMounts")
            _ = container.inner("resources").inner("limits")
            for variable in container.elements("env"):
                variable.text("name")
                variable.text("value")


def _success_policy(policy: Fields, declared: Sequence[str]) -> SuccessPolicy:
    default = next(([name] for name in (CHIEF, WORKER) if name in declared), [n for n in declared if n != EVALUATOR])
    return SuccessPolicy(jobs=policy.texts("jobs") or tuple(default), tasks=policy.one_of(SuccessTasks, "tasks", "All"))


def _max_unavailable(update: Fields) -> int | str:
    return _tasks_or_share(update.inner("rollingUpdate"), "maxUnavailable") or 1


def _tasks_or_share(holder: Fields, name: str) -> int | str | None:
    """Read a number of tasks from 1 up, or a percentage of them; None where nothing is said."""
    value = holder.raw.get(name)
    if value is None or (isinstance(value, str) and _SHARE.fullmatch(value)):
        return value
    if is_whole(value):
        return max(1, int(value))
    holder.problem(name, f"it must be a number of tasks, or 1% to 100%, and is {shown(value)}")
    return None


def _excesses(cluster: TFCluster) -> Iterator[str]:
    if (tasks := sum(job.replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: {tasks} tasks are more than the {MOST_TASKS} that a TFCluster may have"
    if (tasks := sum(job.max_replicas for job in cluster.jobs)) > MOST_TASKS:
        yield f"spec.jobs: maxReplicas add up to {tasks}, more than the {MOST_TASKS} tasks that a TFCluster may have"
    if (entries := sum(len(job.task_filters) for job in cluster.jobs)) > MOST_TASK_FILTERS:
        yield f"spec.jobs: {entries} taskDeviceFilters are more than the {MOST_TASK_FILTERS} that a TFCluster may have"

    if cluster.sets_tf_config and (tasks := sum(one.max_replicas for one in cluster.jobs)) > MOST_TASKS_WITH_TF_CONFIG:
        most = f"TF_CONFIG is for {MOST_TASKS_WITH_TF_CONFIG} tasks at most"
        yield f"spec.resolver.tfConfig: {most}, and maxReplicas add up to {tasks}"


def _own_tf_configs(cluster: TFCluster) -> Iterator[str]:
    for job in cluster.jobs if cluster.sets_tf_config else ():
        main = main_container(job.template)
        for container in (job.template.get("spec") or {}).get("containers") or ():
            names = {variable.get("name") for variable in container.get("env") or ()}
            if container.get("name", "") == main and contract.ENV_TF_CONFIG in names:
                where = f"spec.jobs.{job.name}.template.spec.containers[{main}].env"
                yield f"{where}: the operator sets TF_CONFIG: remove it, or set spec.resolver.tfConfig to None"


def _unknown_jobs(cluster: TFCluster, jobs: Mapping[str, Job]) -> Iterator[str]:
    for name in cluster.success_policy.jobs:
        if name not in jobs:
            yield f"spec.successPolicy.jobs: {shown(name)} is not declared"
    for job in cluster.jobs:
        for name in job.start_after:
            if name not in jobs:
                yield f"spec.jobs.{job.name}.startAfter: {shown(name)} is not declared"


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
    # NB: the scheduler refuses a group of pods of several priorities, or that several schedulers look after.
    members = [job for job in cluster.jobs if cluster.gang.least(job) and not job.start_after]
    for field, default in (("priorityClassName", ""), ("schedulerName", cluster.gang.scheduler.default_name)):
        found = {job.of_template(field) or default: job.name for job in members}
        if len(found) > 1:
            told = ", ".join(f"{shown(value)} in {job}" for value, job in sorted(found.items()))
            yield (
                "spec.scheduling.gang: its tasks get their places together, so that their templates must have the "
                f"same {field} ({told}): write one, or set minReplicas of a job to 0"
            )


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
            yield f"{where}: {shown(text)} is not a device filter in canonical form, such as /job:ps/task:0"
        elif parsed.job is not None and parsed.job not in jobs:
            yield f"{where}: {shown(text)} names a job that is not declared"
        elif parsed.job is not None and parsed.task is not None and parsed.task >= jobs[parsed.job].max_replicas:
            yield f"{where}: {shown(text)} names a task at or above maxReplicas"
