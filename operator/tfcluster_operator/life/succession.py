"""The pods of one task, one after the other: which one speaks for it, and which failed before it and are kept.

A pod cannot be renamed, and a failed one that is kept holds its name.  So the next pod has another name and the same
hostname, by which its address is created.  The name follows from what is kept alone: it is the first name where nothing
is kept, and else has the next number.  Two operators, or one that crashed, therefore choose the same.

The label says what is kept.  A pod that carries it, though it has not failed, is not kept, and one that lost it is kept
all the same once a later pod is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfcluster_operator.declaration import naming
from tfcluster_operator.objects.pod import Pod


class Succession(NamedTuple):
    """The pods of one task that are the cluster's own.

    ``pod`` speaks for the task, None where none does; ``name`` is its name, or the name of the one to be created.
    ``kept`` have failed before it, the oldest first; some might be on their way out.
    """

    name: str
    pod: Pod | None = None
    kept: tuple[Pod, ...] = ()


def succession_of(first: str, own: Iterable[Pod]) -> Succession:
    """Put the pods of one task in their order."""
    pods = sorted(((naming.first_pod_name(pod.meta.name)[1], pod) for pod in own), key=lambda one: one[0])
    speaking = [(number, pod) for number, pod in pods if not is_kept(pod)]
    newest, pod = speaking[-1] if speaking else (-1, None)
    kept = tuple(one for number, one in pods if is_kept(one) or (number < newest and _can_be_kept(one)))
    return Succession(name_after(first, kept) if pod is None else pod.meta.name, pod, kept)


def is_kept(pod: Pod) -> bool:
    """Return whether a pod has failed and is marked as kept."""
    return naming.LABEL_KEPT in pod.meta.labels and _can_be_kept(pod)


def name_after(first: str, before: Iterable[Pod]) -> str:
    """Return the name of the pod that comes after these, which are kept; the first where there are none."""
    numbers = [naming.first_pod_name(pod.meta.name)[1] for pod in before]
    return naming.later_pod_name(first, 1 + max(numbers)) if numbers else first


def _can_be_kept(pod: Pod) -> bool:
    # One whose sidecar runs on holds its resources and its address.
    return pod.phase == "Failed"
