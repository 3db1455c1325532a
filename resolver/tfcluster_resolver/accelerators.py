"""How many accelerators a task can use: those that the device plugin granted, and those that this process can use.

Nothing here imports TensorFlow or touches a device.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import AcceleratorMismatchWarning

#: Set by NVIDIA's device plugin and container runtime.
_PLUGIN: Final = "NVIDIA_VISIBLE_DEVICES"
#: The part of it that CUDA shows to a process.
_CUDA: Final = "CUDA_VISIBLE_DEVICES"
#: A number with more digits is not one of a device; int() rejects some 4,000.
_LONG: Final = 10
#: Values of _PLUGIN that name no device: the files tell.
_NO_LIST: Final = frozenset({"", "all", "none", "void"})
#: The warnings of this process: task, device type, and both numbers.
_warned: Final[set[tuple[str, int, str, int, int]]] = set()


def visible_accelerators(
    *, environ: Mapping[str, str] | None = None, devices: str | os.PathLike[str] = "/dev"
) -> dict[str, int] | None:
    """Count the accelerators that this process sees, by TensorFlow's device type; None if that is unknown."""
    # For GPUs the first available source counts: TensorFlow if it is imported already; the devices that NVIDIA's
    # plugin names; the files /dev/nvidia<N>; the files /dev/dri/renderD<N> of AMD's and Intel's plugins.  Devices that
    # CUDA_VISIBLE_DEVICES omits are hidden, as in CUDA.  TPUs are the files /dev/accel<N> or /dev/vfio/<N>.
    # It is unknown outside of Linux, and if one file stands for all GPUs together (WSL, Jetson).
    folder = Path(devices)
    gpus = tensorflow_api.visible_gpus()
    if gpus is None:
        if not sys.platform.startswith("linux") or _count(folder, "dxg|nvmap"):
            return None
        gpus = _gpus(os.environ if environ is None else environ, folder)
    tpus = _count(folder, "accel[0-9]+") or _count(folder / "vfio", "[0-9]+")
    return {device: count for device, count in (("GPU", gpus), ("TPU", tpus)) if count}


def _gpus(variables: Mapping[str, str], folder: Path) -> int:
    files = _count(folder, "nvidia[0-9]+")
    listed = variables.get(_PLUGIN, "")
    nvidia = files if listed in _NO_LIST else _listed(listed)
    if _CUDA in variables:
        nvidia = _shown_by_cuda(variables[_CUDA], nvidia)
    # A container of NVIDIA's can have render files too, for graphics: one device is not counted twice.
    return nvidia if files or listed not in _NO_LIST else _count(folder / "dri", "renderD[0-9]+")


def _listed(text: str) -> int:
    """Count the plugin's devices; with its strategy "volume-mounts" they are a folder with one file per device."""
    if text.startswith("/"):
        return _count(Path(text), ".+")
    return len({name for name in text.split(",") if name})


def _shown_by_cuda(text: str, there: int) -> int:
    """Count the devices that CUDA shows: the named ones, up to the first that does not exist."""
    shown: set[str] = set()
    for name in (part.strip() for part in text.split(",")):
        number = int(name) if name.isascii() and name.isdigit() and len(name) < _LONG else there
        known = number < there or name.startswith(("GPU-", "MIG-"))
        if not known or name in shown:
            break
        shown.add(name)
    return min(len(shown), there)


def _count(folder: Path, names: str) -> int:
    try:
        return sum(re.fullmatch(names, entry) is not None for entry in os.listdir(folder))  # noqa: PTH208 - names only
    except (OSError, ValueError):  # ValueError: a variable names a folder that cannot be
        return 0


def count(membership: Membership, job: str | None, index: int | None) -> defaultdict[str, int]:
    """Count the healthy accelerators of a task by TensorFlow's device type; those of all visible tasks for None."""
    tasks = [task[:2] for task in membership.tasks()] if job is None or index is None else [(job, index)]
    total: defaultdict[str, int] = defaultdict(int)
    for task in tasks:
        for device, number in membership.device_counts(*task).items():
            total[device] += number
    return total


def count_usable(membership: Membership, own: Task) -> defaultdict[str, int]:
    """Count the accelerators of this process's own task: the granted ones, as far as the process can use them."""
    # With a higher number, a strategy would put replicas on missing devices.  If the view has no count, because the
    # task has its devices by a claim, a share or a resource of another name, what the process can use counts.
    granted = membership.device_counts(own.job, own.index)
    visible = visible_accelerators()
    if visible is None:
        return defaultdict(int, granted)
    for device in sorted({*granted, *visible}):
        counts = granted.get(device, 0), visible.get(device, 0)
        key = (own.job, own.index, device, *counts)
        if counts[0] == counts[1] or key in _warned:
            continue
        _warned.add(key)
        which = (
            "The smaller number counts. Fewer in the view: a device became unhealthy, or the node shows devices that "
            "no pod asked for. Fewer in the process: look at CUDA_VISIBLE_DEVICES, at the pod's runtime class, and at "
            "TensorFlow's build. `python -m tfcluster_resolver doctor` tells more"
            if granted
            else "Those count, because the pod's limits name no device that is known here: it can have a DRA claim, a "
            "shared GPU or a resource of another name. If the devices are not this task's, set "
            "NVIDIA_VISIBLE_DEVICES=void"
        )
        warnings.warn(
            f"{own} has {counts[0]} healthy {device} devices by the view of {membership.view.namespace}/"
            f"{membership.view.name}, and {counts[1]} can be used in this process. {which}",
            AcceleratorMismatchWarning,
            stacklevel=3,
        )
    if not granted:
        return defaultdict(int, visible)
    return defaultdict(int, {device: min(number, visible.get(device, 0)) for device, number in granted.items()})
