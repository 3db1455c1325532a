"""The checks of ``doctor`` that ask no network, one function each: a look at one thing, a verdict, and what to do.

A check never raises for what it looks for.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from tfcluster_resolver import __version__, contract, copies
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.accelerators import visible_accelerators
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.resolver import TFClusterResolver


class Verdict(Enum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its verdict, what was seen, and what to do (empty where nothing is wrong)."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


#: Bytes that importing TensorFlow takes, with a reserve: without them the import could cost the task its life.
_TENSORFLOW_TAKES: Final = 800 * 2**20
#: A list of tasks in a message stops after this many.
_NAMED_TASKS: Final = 3
#: The symlink that the kubelet swaps.
_DATA: Final = "..data"


def package(search_path: Sequence[str]) -> Check:
    """Compare the copy of this package that runs with the others on the search path."""
    here = str(Path(__file__).parent.parent)
    found = copies.copies(search_path)
    others = [f"{one.version} in {Path(one.file).parent}" for one in found if str(Path(one.file).parent) != here]
    message = f"tfcluster_resolver {__version__} in {here}"
    best, mine = copies.newest(found), copies.order_of(__version__)
    if best is not None and mine is not None and best.order > mine:
        return Check(
            "package",
            Verdict.WARNING,
            f"{message} hides the newer {best.version} in {Path(best.file).parent}",
            "Take the older one off PYTHONPATH, or out of the image",
        )
    return Check("package", Verdict.OK, message + (f"; not taken: {', '.join(others)}" if others else ""))


def task(own: Task | None) -> Check:
    """Tell which task this is."""
    if own is None:
        return Check(
            "task",
            Verdict.WARNING,
            "this process is no task of a TFCluster",
            "Run this in one of the TFCluster's pods to check that pod",
        )
    return Check("task", Verdict.OK, f"{own} at {own.address}")


def view(membership: Membership, path: Path, directory: str) -> Check:
    """Tell whether the view is this task's, and whether it will change when the cluster does."""
    told, own = membership.view, membership.own
    age = max(0, int(time.time() - path.stat().st_mtime))
    message = f"{told.namespace}/{told.name}, epoch {told.epoch}, in {path}, written {age} s ago"
    if own is not None:
        known = told.jobs.get(own.job, ())
        listed = dict(enumerate(known)) if isinstance(known, Sequence) else dict(known)
        address = listed.get(own.index, own.address)
        if address != own.address:
            return Check(
                "view",
                Verdict.FAILED,
                f"{message}: it has {own} at {address}, and this pod was made for {own.address}",
                "The view or the environment is another cluster's: delete the pod, and the operator creates it again",
            )
        if isinstance(known, Sequence) and known and own.index >= len(known):
            return Check(
                "view",
                Verdict.WARNING,
                f"{message}: it ends at /job:{own.job}/task:{len(known) - 1}, before this task",
                "The job was scaled down and this pod is about to go; otherwise look at the operator's log",
            )
    if not os.path.islink(os.path.join(directory, _DATA)):  # noqa: PTH114, PTH118 - a path as it was given
        return Check(
            "view",
            Verdict.WARNING,
            f"{message}: it is no mounted ConfigMap, so it never changes",
            f"Mount the whole ConfigMap at {directory}, never with subPath",
        )
    return Check("view", Verdict.OK, message)


def tf_config(membership: Membership, environ: Mapping[str, str]) -> Check | None:
    """Compare the TF_CONFIG of the environment with the view; None where there is none."""
    told, own, name = environ.get(contract.ENV_TF_CONFIG), membership.own, contract.ENV_TF_CONFIG
    if told is None or own is None:
        return None
    now = json.loads(contract.tf_config(membership.view, job=own.job, index=own.index, address=own.address))
    try:
        then = json.loads(told)
    except ValueError as error:
        return Check(name, Verdict.WARNING, f"it is not JSON: {error}", "Look at the env of this container in the pod")
    task = then.get("task") if isinstance(then, dict) else None
    lacks, more = _tasks_of(now) - _tasks_of(then), _tasks_of(then) - _tasks_of(now)
    wrong = [
        *([f"it is for {json.dumps(task)}, and this is {own}"] if task != now["task"] else ()),
        *([f"it lacks {_few(lacks)}"] if lacks else ()),
        *([f"it has {_few(more)}, which the view has not"] if more else ()),
    ]
    if wrong:
        return Check(
            name,
            Verdict.WARNING,
            "; ".join(wrong),
            "It was set when the pod was created: to follow a resize, restart the tasks or read the cluster through "
            "the resolver",
        )
    return Check(name, Verdict.OK, "it says what the view says")


def accelerators(membership: Membership) -> Check:
    """Compare what the device plugin granted with what this container shows."""
    own, visible = membership.own, visible_accelerators()
    if own is None:
        return Check("accelerators", Verdict.SKIPPED, "this process is no task of the cluster")
    if visible is None:
        return Check("accelerators", Verdict.SKIPPED, "it cannot be told what this container shows")
    limits = membership.view.accelerators.get(own.job)
    requested = _devices(dict(limits.limits) if limits is not None else {})
    healthy = membership.device_counts(own.job, own.index)
    message = f"requested {_spell(requested)}, healthy {_spell(healthy)}, visible {_spell(visible)}"
    if any(healthy.get(device, 0) < count for device, count in requested.items()):
        return Check(
            "accelerators",
            Verdict.WARNING,
            message,
            "A granted device is unhealthy: look at the node's device plugin; deleting the pod gets another device",
        )
    if any(visible.get(device, 0) < count for device, count in healthy.items()):
        return Check(
            "accelerators",
            Verdict.WARNING,
            message,
            "Something hides granted devices: look at CUDA_VISIBLE_DEVICES, and whether this container has the limit",
        )
    if any(healthy.get(device, 0) < count for device, count in visible.items()):
        return Check(
            "accelerators",
            Verdict.WARNING,
            message,
            "The container shows devices that it was not granted: ask for them in its limits, or set "
            "NVIDIA_VISIBLE_DEVICES=void"
            + ("" if requested else ". Until then they count, as a DRA claim's or a shared GPU's would"),
        )
    return Check("accelerators", Verdict.OK, message)


def tensorflow(directory: str) -> Check:
    """Tell whether TensorFlow takes the resolver as one of its own."""
    if not tensorflow_api.is_installed():
        return Check("tensorflow", Verdict.SKIPPED, "TensorFlow is not installed here")
    free = free_memory()
    if free is not None and free < _TENSORFLOW_TAKES:
        return Check(
            "tensorflow",
            Verdict.SKIPPED,
            f"the container has {free // 2**20} MiB of memory left, and importing TensorFlow takes "
            f"{_TENSORFLOW_TAKES // 2**20}",
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        loaded = tensorflow_api.load("the check")
        wrong = _disagreement(loaded, TFClusterResolver(directory=directory))
    except Exception as error:  # noqa: BLE001 - a broken TensorFlow may raise anything
        return Check(
            "tensorflow",
            Verdict.FAILED,
            f"TensorFlow cannot be used: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            "Install it again, or take another image",
        )
    if wrong:
        return Check(
            "tensorflow", Verdict.FAILED, f"TensorFlow {loaded.__version__} {wrong}", "Use TensorFlow 2.6 or newer"
        )
    return Check("tensorflow", Verdict.OK, f"TensorFlow {loaded.__version__} takes the resolver as one of its own")


def _disagreement(loaded: Any, resolver: TFClusterResolver) -> str:
    base = loaded.distribute.cluster_resolver.ClusterResolver
    if not isinstance(resolver, base):
        return "does not take the resolver as a ClusterResolver"
    if type(resolver.cluster_spec()) is not loaded.train.ClusterSpec:
        return "does not take the resolver's ClusterSpec"
    return ""


def _tasks_of(config: Any) -> set[str]:
    cluster = config.get("cluster") if isinstance(config, dict) else None
    found = set()
    for job, tasks in cluster.items() if isinstance(cluster, dict) else ():
        listed = enumerate(tasks) if isinstance(tasks, list) else tasks.items() if isinstance(tasks, dict) else ()
        found |= {f"/job:{job}/task:{index} at {address}" for index, address in listed}
    return found


def _few(tasks: set[str]) -> str:
    more = len(tasks) - _NAMED_TASKS
    return ", ".join(sorted(tasks)[:_NAMED_TASKS]) + (f" and {more} more" if more > 0 else "")


def _devices(resources: dict[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for resource, count in resources.items():
        if (device := contract.device_type(resource)) is not None:
            counts[device] = counts.get(device, 0) + count
    return counts


def _spell(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {device}" for device, count in sorted(counts.items())) or "none"


_UNLIMITED = "max"


def free_memory(cgroup: str | os.PathLike[str] = "/sys/fs/cgroup") -> int | None:
    """Tell how many bytes may still be used under the container's memory limit.

    Returns:
        The bytes left, the file cache counted as free; None where there is no limit to be seen.
    """
    folder = Path(cgroup)
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        if limit == _UNLIMITED:
            return None
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        words = (folder / "memory.stat").read_text(encoding="ascii").split()
        statistics = dict(zip(words[::2], words[1::2], strict=False))
        return max(0, int(limit) - used + int(statistics.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
