"""The successive pods of one task: the current one, and the failed ones before it that are kept.

A pod cannot be renamed, and a failed pod that is kept occupies its name.  So the next pod has another name and the same
hostname, which determines its address.  The name depends only on the kept pods: it is the first name if none is kept,
otherwise it has the next number.  So two operators, or one that restarts after a crash, choose the same name.

The label marks kept pods.  A pod with the label that has not failed is not kept; a pod that lost the label is kept all
the same once a later pod exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfcluster_operator.declaration import naming
from tfcluster_operator.objects.pod import Pod


class Succession(NamedTuple):
    """The pods of one task that are the cluster's own.

    ``pod`` is the current pod of the task, or None; ``name`` is its name, or that of the pod to create.
    ``kept`` are the failed pods before it, the oldest first; some might be terminating.
    """

    name: str
    pod: Pod | None = None
    kept: tuple[Pod, ...] = ()


def succession_of(first: str, own: Iterable[Pod]) -> Succession:
    """Order the pods of one task."""
    pods = sorted(((naming.first_pod_name(pod.meta.name)[1], pod) for pod in own), key=lambda one: one[0])
    speaking = [(number, pod) for number, pod in pods if not is_kept(pod)]
    newest, pod = speaking[-1] if speaking else (-1, None)
    kept = tuple(one for number, one in pods if is_kept(one) or (number < newest and _can_be_kept(one)))
    return Succession(name_after(first, kept) if pod is None else pod.meta.name, pod, kept)


def is_kept(pod: Pod) -> bool:
    """Return whether a pod has failed and is marked as kept."""
    return naming.LABEL_KEPT in pod.meta.labels and _can_be_kept(pod)


def name_after(first: str, before: Iterable[Pod]) -> str:
    """Return the name of the pod that follows these kept pods; without kept pods, the first name."""
    numbers = [naming.first_pod_name(pod.meta.name)[1] for pod in before]
    return naming.later_pod_name(first, 1 + max(numbers)) if numbers else first


def _can_be_kept(pod: Pod) -> bool:
    # A pod whose sidecar still runs holds its resources and its address.
    return pod.phase == "Failed"
