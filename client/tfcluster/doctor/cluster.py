"""``tfcluster doctor``: the checks of the installation, and of what keeps one cluster from its work."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from tfcluster.doctor.installation import Check, Unknown, Verdict, ask, check_installation, check_server
from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.kube.api import NETWORK_POLICIES, KubernetesApi, Object
from tfcluster.status.load import look
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster.terminal import few
from tfcluster_operator.declaration import naming, reasons

_WAITS: Final = (
    (
        "images",
        ("ImagePullBackOff", "ErrImage", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"),
        "Correct the image's name, or add imagePullSecrets to the template.",
    ),
    (
        "scheduling",
        ("Unschedulable", "SchedulingGated"),
        "Lower the requests of the template, add nodes, or check its nodeSelector, affinity and tolerations.",
    ),
    (
        "containers",
        ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "StartError"),
        "Correct what the message names in the template; a missing command is not in the image.",
    ),
)


#: Remedies by reason, where NAME stands for the cluster: of waits that can end by themselves, and of causes that a user
#: has to fix. Reasons that only need time are not here.
_OF_WAITS: Final = {
    reasons.TASKS_NOT_READY: "Fix what `tfcluster status NAME` names beside the tasks that are not ready.",
    reasons.BACKING_OFF: "Read the log of the task that failed: `tfcluster logs NAME --previous`.",
    reasons.WAITING_FOR_GANG: "Make room: end, suspend or scale down another cluster, or this one.",
    reasons.WAITING_FOR_QUOTA: "Wait for its turn, or ask who runs the queue: `kubectl get workloads.kueue.x-k8s.io`.",
    reasons.WAITING_FOR_JOB: "Look at the job that is waited for: `tfcluster status NAME`.",
    reasons.WAITING_FOR_PREDECESSOR: "Wait; if an object of the deleted TFCluster stays, look at its finalizers.",
    reasons.DELETING: "Find out who put its finalizers there; `kubectl get tfc NAME -o yaml` shows them.",
}
GRAVE: Final = {
    reasons.GANG_UNAVAILABLE: "Have an administrator switch PodGroups on, or remove spec.scheduling.gang.",
    reasons.GANG_TIMEOUT: "Make room, then suspend and resume it; one that has failed must be created again.",
    reasons.QUEUE_UNAVAILABLE: "Have an administrator install Kueue, or remove the label kueue.x-k8s.io/queue-name.",
    reasons.STUCK_TERMINATING: "Bring the node back, delete its Node object, or set spec.forceDeleteAfterSeconds.",
    reasons.RESOLVER_UNTRUSTED: "Find out who made that ConfigMap, and delete it: the operator makes the right one.",
    reasons.NAME_TAKEN: "Delete or rename the object that has the name, or give the TFCluster another name.",
    reasons.REJECTED: "Fix what the API server's message names: a quota, Pod Security, a policy, or a field.",
    reasons.REQUEST_FAILED: "Repair what the API server's message names, such as a webhook that does not answer.",
    reasons.CONFLICTING_WRITES: "Find the program that writes to the object (its metadata.managedFields), and stop it.",
    reasons.VIEW_TOO_LARGE: "Declare deviceFilters, so that each task sees fewer others, or fewer tasks.",
    reasons.INVALID_SPEC: "Correct the spec as the message says, and update the CRD.",
    reasons.TASK_FAILED: "Read the task's log: `tfcluster logs NAME`. Delete and create the cluster to run it again.",
    reasons.PERMANENT_EXIT_CODE: "Read the task's log: `tfcluster logs NAME`. Its program says that another try fails.",
    reasons.BACKOFF_LIMIT_EXCEEDED: "Read the task's log: `tfcluster logs NAME`. Raise backoffLimit if that is normal.",
    reasons.DEADLINE_EXCEEDED: "Give it more time in spec.activeDeadlineSeconds, or find out what it waited for.",
}
REMEDIES: Final = {**_OF_WAITS, **GRAVE}


def remedy_for(reason: str, name: str) -> str:
    """Return what to do about a reason; "" if nothing has to be done."""
    return REMEDIES.get(reason, "").replace("NAME", name)


def diagnose(api: KubernetesApi, name: str | None, *, local: bool = False) -> Iterator[Check]:
    if local:
        yield check_server(api)
    else:
        yield from check_installation(api)
    if name is None:
        return
    try:
        _, picture = look(api, name)
    except NoClusterError as error:
        yield Check("cluster", "failed", str(error), error.hint)
        return
    except (RefusedError, UnreachableError) as error:
        yield Check("cluster", "unknown", str(error))
        return
    # A local run does not have isolation to check: every program of the machine can reach its tasks.
    labels = f"{naming.LABEL_CLUSTER}={name}"
    yield from judge_cluster(picture, None if local else ask(partial(api.list, NETWORK_POLICIES, labels=labels)))


def judge_cluster(picture: Picture, policies: Sequence[Object] | Unknown | None) -> Iterator[Check]:
    yield from _conditions(picture)
    yield from _tasks(picture)
    if policies is not None:
        yield _isolation(picture, policies)


def _conditions(picture: Picture) -> Iterator[Check]:
    standing = picture.standing
    told = f"{standing.reason}: {standing.message}" if standing.reason else standing.message
    message = f"{picture.name} is {standing.state}" + (f"; {told}" if told else "")
    if standing.state == "Unseen":
        remedy = f"Is an operator installed that works in namespace {picture.namespace}? The checks above say so."
        yield Check("cluster", "failed", message, remedy)
    else:
        grave = standing.state in {"Failed", "Stalled"} or standing.reason in GRAVE
        fine = standing.state in {"Ready", "Succeeded", "Suspended", "Elsewhere"}
        verdict: Verdict = "ok" if fine else "failed" if grave else "warning"
        remedy = "" if verdict == "ok" else remedy_for(standing.reason, picture.name)
        yield Check("cluster", verdict, message, remedy)
    for notice in standing.notices:
        yield Check("cluster", "warning", notice, remedy_for(notice.partition(":")[0], picture.name))
    for gap in picture.gaps:
        yield Check("cluster", "unknown", gap)


def _tasks(picture: Picture) -> Iterator[Check]:
    """Return what pods wait for, each cause once."""
    tasks = list(picture.tasks())
    for name, words, remedy in _WAITS:
        told: dict[str, list[TaskPicture]] = {}
        for task in tasks:
            if any(word in task.cause for word in words):
                told.setdefault(task.cause, []).append(task)
        for cause, of_tasks in told.items():
            yield Check(name, "failed", f"{_named(of_tasks)}: {cause}", remedy)
    if late := [task for task in tasks if task.view == "waiting"]:
        remedy = "Wait; if it lasts, read the operator's log."
        yield Check("views", "warning", f"{_named(late)}: the newest view is not delivered yet", remedy)
    if broken := [
        task for task in tasks if any((one.healthy or 0) < (one.granted or 0) for one in task.devices.values())
    ]:
        yield Check("devices", "failed", f"{_named(broken)}: a device has failed", "Drain the node, and repair it.")


def _named(tasks: Iterable[TaskPicture]) -> str:
    return few([task.name for task in tasks])


def _isolation(picture: Picture, policies: Sequence[Object] | Unknown) -> Check:
    name = "isolation"
    if picture.isolation == "None":
        return Check(name, "ok", "every pod in the Kubernetes cluster can reach the tasks: no isolation is in force")
    if isinstance(policies, Unknown):
        return Check(name, "unknown", policies.why)
    if not policies:
        message = f"isolation {picture.isolation} has no NetworkPolicy"
        return Check(name, "failed", message, "Read the operator's log: it makes the policies before the first pod.")
    there = f"the NetworkPolicies of isolation {picture.isolation} are there"
    return Check(name, "ok", f"{there}; whether the network enforces them cannot be seen from here")
