"""What keeps one cluster from its work?  Judgements of its picture and of its NetworkPolicies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tfcluster.doctor.checks import GRAVE, Check, Unknown, Verdict, remedy_for
from tfcluster.kube.api import Object
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster.terminal import few

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
_STANDING: Final[Mapping[str, Verdict]] = {
    "Ready": "ok",
    "Succeeded": "ok",
    "Suspended": "ok",
    "Elsewhere": "ok",
    "Failed": "failed",
    "Stalled": "failed",
}


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
        verdict = _STANDING.get(standing.state, "failed" if standing.reason in GRAVE else "warning")
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
    late = [task for task in tasks if task.view == "waiting"]
    if late:
        remedy = "Wait; if it lasts, read the operator's log."
        yield Check("views", "warning", f"{_named(late)}: the newest view is not delivered yet", remedy)
    broken = [
        task
        for task in tasks
        if any(one.granted is not None and (one.healthy or 0) < one.granted for one in task.devices.values())
    ]
    if broken:
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
