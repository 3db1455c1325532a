"""The effect of a change to a TFCluster, decided from what was read of it; see docs/explanation/lifecycle.md."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tfcluster.errors import ManifestError, NotRunningError, TFClusterError
from tfcluster.status.picture import picture_of
from tfcluster.tasks import TaskName, choose, declared, spell, verdict
from tfcluster.terminal import count, few
from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.ledger import timestamp
from tfcluster_operator.declaration.parse import InvalidSpecError, is_ours, parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.report import conditions


@dataclass(frozen=True, slots=True)
class Change:
    """A merge patch, empty if nothing has to change; what will happen, one sentence each; and a patch before it."""

    patch: Mapping[str, Any]
    words: tuple[str, ...]
    first: Mapping[str, Any] = field(default_factory=dict)


def scaling(body: Mapping[str, Any], job: str, replicas: int) -> Change:
    name, spec = body["metadata"]["name"], body["spec"]
    jobs: Mapping[str, Any] = spec["jobs"]
    if job not in jobs:
        raise ManifestError(f"{name} has no job {job}", hint=f"Its jobs are {', '.join(sorted(jobs))}: --job NAME.")
    if replicas < 0:
        raise ManifestError(f"{job}: {replicas} is not a number of tasks: use 0 or more")
    check_alive(body, "no task starts again, whatever the number")
    now, most = int(jobs[job].get("replicas", 1)), jobs[job].get("maxReplicas")
    if most is not None and replicas > most:
        raise ManifestError(
            f"{job}: {replicas} tasks are more than spec.jobs.{job}.maxReplicas allows, which is {most}",
            hint=f"Scale to {most} at the most, or raise maxReplicas in the manifest. Raised maxReplicas reach the "
            "device filters of a program that runs when it is started again.",
        )
    words = list(about_manager(body))
    if replicas == now:
        return Change({}, (f"{job} has {count(now, 'task')} already.", *words))
    first = f"{job}: from {now} to {count(replicas, 'task')}."
    if spec.get("suspend"):
        moves = "It is suspended: the number counts when it is resumed."
    elif replicas > now:
        moves = f"New: {few([spell(job, index) for index in range(now, replicas)])}; no pod that runs is replaced."
    else:
        drain = int(jobs[job].get("drainTimeoutSeconds", 0))
        after = f", {drain} s (drainTimeoutSeconds) after the others have the smaller view" if drain else ""
        moves = f"To be deleted: {few([spell(job, index) for index in reversed(range(replicas, now))])}{after}."
    return Change({"spec": {"jobs": {job: {"replicas": replicas}}}}, (first, moves, *words))


def suspension(body: Mapping[str, Any]) -> Change:
    check_alive(body, "it cannot be suspended")
    if body["spec"].get("suspend"):
        return Change({}, (f"{body['metadata']['name']} is suspended already.", *about_manager(body)))
    pods = sum(int(job.get("created") or 0) for job in ((body.get("status") or {}).get("jobs") or {}).values())
    words = (
        f"To be deleted: {count(pods, 'pod')}; programs get SIGTERM." if pods else "Its pods are not created.",
        "To be kept: the TFCluster, its Service and views, volumes, and failed pods that are kept for their logs.",
        "A resumed cluster starts from the beginning: a program continues where it was only from its own checkpoints.",
    )
    return Change({"spec": {"suspend": True}}, (*words, *about_manager(body)))


def resumption(body: Mapping[str, Any]) -> Change:
    check_alive(body, "no task starts again")
    first: Mapping[str, Any] = {}
    if not body["spec"].get("suspend"):
        if conditions.by_type(body.get("status") or {}).get("Suspended", {}).get("reason") != reasons.GANG_TIMEOUT:
            return Change({}, (f"{body['metadata']['name']} is not suspended.", *about_manager(body)))
        # The operator stopped trying, and only an edit of the spec starts it again.
        first = {"spec": {"suspend": True}}
    total = sum(declared(body).values())
    started = f"To start from the beginning: {count(total, 'task')}, complete ones too."
    words = (started, "Restarts and the deadline count from zero.")
    return Change({"spec": {"suspend": False}}, (*words, *about_manager(body)), first)


def deletion(body: Mapping[str, Any]) -> str:
    """Say which objects are deleted with a TFCluster."""
    tasks = count(sum(declared(body).values()), "task")
    gone = f"TFCluster {body['metadata']['name']}, the pods of its {tasks} with their logs, its Service and its views"
    return f"To be deleted: {gone}. Volumes, ConfigMaps and Secrets that you created are kept."


def check_alive(body: Mapping[str, Any], so: str) -> None:
    name = body["metadata"]["name"]
    if "deletionTimestamp" in body["metadata"]:
        hint = f"Wait for it: tfcluster wait {name} --for deleted."
        raise NotRunningError(f"{name} is being deleted: {so}", hint=hint)
    if how := verdict(body).partition(":")[0]:
        hint = f"To run it again: tfcluster delete {name}, then tfcluster apply -f FILE."
        raise NotRunningError(f"{name} has {how}: {so}", hint=hint)


def about_manager(body: Mapping[str, Any]) -> Iterator[str]:
    """Say which controller manages the TFCluster, if it is not this operator."""
    if not is_ours(body):
        yield f"spec.managedBy leaves it to {body['spec']['managedBy']}: what follows is up to that controller."


#: The annotation that a restart sets in a job's template, the same as of ``kubectl rollout restart``.
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"

_REPLACEABLE: Final = ("Ready", "NotReady", "Pending")
#: The states of a task that the operator restarts without a command.
_ON_THE_WAY: Final = {
    "Terminating": "its pod is terminating, and is replaced then",
    "StuckTerminating": "its pod is terminating, and is replaced when its node reports the end",
    "Disrupted": "its pod was taken away, and is replaced already",
    "BackingOff": "it has failed, and is started again by itself",
    "Failed": "it has failed, and is started again by itself",
    "Missing": "its pod is about to be created",
}


class Replacement(NamedTuple):
    """The pod of a task that is to be deleted, "" for none, and what will happen."""

    pod: str
    uid: str
    words: tuple[str, ...]


def restart_of_jobs(body: Mapping[str, Any], jobs: Sequence[str], at: float) -> Change:
    """Decide a restart of jobs: with an annotation in their templates; with OnDelete the client deletes the pods."""
    _check(body)
    try:
        cluster = parse(body)
    except InvalidSpecError as error:
        raise TFClusterError(f"the spec cannot be used: {'; '.join(error.problems)}") from error
    told = (body.get("status") or {}).get("jobs") or {}
    words = list(about_manager(body))
    for job in jobs:
        words.append(f"{job}: {_how(cluster, job)}")
        if complete := int((told.get(job) or {}).get("succeeded") or 0):
            words.append(f"{job}: {count(complete, 'task')} that ended with exit code 0 do not run again.")
    mark = {"metadata": {"annotations": {RESTARTED_AT: timestamp(at)}}}
    patch = {"spec": {"jobs": {job: {"template": mark} for job in jobs}}}
    return Change({} if cluster.spec.update_strategy.type == "OnDelete" else patch, tuple(words))


def _how(cluster: TFCluster, job: str) -> str:
    replicas = next(one.replicas for one in cluster.jobs if one.name == job)
    strategy = cluster.spec.update_strategy
    tasks = f"its {count(replicas, 'task')}"
    if strategy.type == "RollingUpdate":
        some = count(strategy.within(replicas), "task")
        return f"{tasks} are replaced from the highest index down, {some} at a time (updateStrategy)."
    how = "is replaced" if replicas == 1 else "are replaced together"
    return f"{tasks} {how}. This does not count as a failure."


def restart(
    body: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], words: Sequence[str], now: float
) -> tuple[Change, dict[TaskName, Replacement]]:
    """Decide a restart of tasks and jobs: the change of the templates, and the pods that are replaced one by one."""
    chosen = choose(words, declared(body), (), body["metadata"]["name"])
    jobs = sorted(declared(body)) if chosen.everything else sorted(chosen.jobs)
    single = sorted(task for task in chosen.tasks if task.job not in chosen.jobs)
    change = restart_of_jobs(body, jobs, now) if jobs else Change({}, ())
    alone = {task: restart_of_task(body, pods, task, now) for task in single}
    if jobs and not change.patch:
        # The operator does not replace these pods: each running pod is to be deleted.
        uids = {one["metadata"]["name"]: str(one["metadata"]["uid"]) for one in pods}
        for one in picture_of(body, pods, now=now).tasks():
            if one.job in jobs and one.state in _REPLACEABLE:
                alone[TaskName(one.job, one.index)] = Replacement(one.pod, uids[one.pod], ())
    return change, alone


def restart_of_task(
    body: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], task: TaskName, now: float
) -> Replacement:
    _check(body)
    name, pictures = body["metadata"]["name"], picture_of(body, pods, now=now).tasks()
    found = next((one for one in pictures if (one.job, one.index) == (task.job, task.index)), None)
    if found is None:
        hint = f"See why with `tfcluster status {name}`."
        raise TFClusterError(f"the operator cannot use this TFCluster, so {task} has no pod", hint=hint)
    if found.state == "Completed":
        hint = f"To run every task again, from the beginning: tfcluster suspend {name} --wait, tfcluster resume {name}."
        raise NotRunningError(f"{task} is complete: it ended with exit code 0, and is not run again", hint=hint)
    if found.state in _ON_THE_WAY:
        cause = f" ({found.cause})" if found.cause and found.state != "Missing" else ""
        return Replacement("", "", (f"{task}: {_ON_THE_WAY[found.state]}{cause}.",))
    if found.state not in _REPLACEABLE:
        cause = found.cause or found.state
        raise NotRunningError(f"{task} has no pod: {cause}", hint=f"See it with `tfcluster status {name}`.")
    uid = next(str(pod["metadata"]["uid"]) for pod in pods if pod["metadata"]["name"] == found.pod)
    words = f"pod {found.pod} is deleted, and replaced at the same address. It counts as replaced, not as failed."
    return Replacement(found.pod, uid, (f"{task}: {words}", *about_manager(body)))


def _check(body: Mapping[str, Any]) -> None:
    check_alive(body, "no task starts again")
    if body["spec"].get("suspend"):
        name = body["metadata"]["name"]
        hint = f"Start it with `tfcluster resume {name}`."
        raise NotRunningError(f"{name} is suspended: nothing runs that could be started again", hint=hint)
