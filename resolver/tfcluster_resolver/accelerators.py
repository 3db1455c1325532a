"""How many accelerators a task may count on.

It decides what counts where the view and the pod disagree: the view, because the operator knows which devices work; and
it warns, because TensorFlow uses what it sees.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Final

from tfcluster_resolver.errors import AcceleratorMismatchWarning
from tfcluster_resolver.membership import Membership
from tfcluster_resolver.visible_devices import visible_accelerators

#: What was warned of in this process: task, device type, and both numbers.
_warned: Final[set[tuple[str, int, str, int, int]]] = set()


def count(membership: Membership, job: str | None, index: int | None) -> defaultdict[str, int]:
    """Count the healthy accelerators of a task, or of all of them.

    Args:
        membership: the cluster.
        job: the task's job; None counts every visible task.
        index: its index.

    Returns:
        Counts by TensorFlow's device type, zero for any other key.

    Raises:
        NoSuchTaskError: the view does not show that task.
    """
    every = ((job, index) for job, index, _ in membership.tasks())
    total: defaultdict[str, int] = defaultdict(int)
    for one_job, one_index in every if job is None or index is None else [(job, index)]:
        for device, number in membership.device_counts(one_job, one_index).items():
            total[device] += number
    return total


def count_visible() -> defaultdict[str, int]:
    """Count what this process sees; nothing where that cannot be told.

    Returns:
        Counts by TensorFlow's device type, zero for any other key.
    """
    return defaultdict(int, visible_accelerators() or {})


def warn_of_mismatch(membership: Membership) -> None:
    """Compare what the view grants the own task with what its pod shows; warn once for each pair of numbers.

    Args:
        membership: the cluster; without an own task nothing is compared.
    """
    own = membership.own
    visible = visible_accelerators()
    if own is None or visible is None:
        return
    granted = membership.device_counts(own.job, own.index)
    for device in sorted({*granted, *visible}):
        counts = granted.get(device, 0), visible.get(device, 0)
        key = (own.job, own.index, device, *counts)
        if counts[0] == counts[1] or key in _warned:
            continue
        _warned.add(key)
        warnings.warn(
            f"{own} has {counts[0]} healthy {device} devices by the view of {membership.view.namespace}/"
            f"{membership.view.name}, and {counts[1]} are visible in this pod. The view's number is used. Fewer in the "
            "view: a device became unhealthy, or the node shows devices that nobody asked for. Fewer in the pod: look "
            "at CUDA_VISIBLE_DEVICES, at the pod's runtime class, and at TensorFlow's build. "
            "`python -m tfcluster_resolver doctor` tells more",
            AcceleratorMismatchWarning,
            stacklevel=3,
        )
