"""``tfcluster doctor``: the checks of the installation, and of what keeps one cluster from its work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from tfcluster.doctor.checks import GRAVE, Check, Unknown, Verdict, remedy_for
from tfcluster.doctor.installation import ask, installation_of, judge_installation, judge_server, version_of
from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.kube.api import NETWORK_POLICIES, KubernetesApi, Object
from tfcluster.manifest.validate import definition
from tfcluster.status.load import look
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster.terminal import few
from tfcluster_operator.declaration import naming

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


def diagnose(api: KubernetesApi, name: str | None, *, local: bool = False) -> Iterator[Check]:
    if local:
        yield judge_server(api.server, ask(partial(version_of, api)))
    else:
        yield from judge_installation(installation_of(api), definition())
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
