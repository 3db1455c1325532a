"""The one door to TensorFlow.

Nothing here or above imports TensorFlow before a call needs it: the import takes seconds, and the package must work
where there is none.  Everything that is not in TensorFlow's public API is used in this module only.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfcluster_resolver.errors import TensorFlowNotFoundError


def is_installed() -> bool:
    """Tell whether this Python can import TensorFlow, without importing it."""
    spec = importlib.util.find_spec("tensorflow")
    # NB: a folder of that name on the path is found too, as a namespace package, which has no origin.
    return spec is not None and spec.origin is not None


def load(purpose: str) -> Any:
    """Import TensorFlow.

    Returns:
        The module ``tensorflow``.

    Raises:
        TensorFlowNotFoundError: it is not installed.
    """
    if not is_installed():
        raise TensorFlowNotFoundError(
            f"{purpose} needs TensorFlow, which {sys.executable} cannot import: "
            "use an image that has it, or `pip install tensorflow`"
        )
    return importlib.import_module("tensorflow")


def device_filters(declared: Mapping[str, Mapping[int, Sequence[str]]]) -> Any:
    """Make TensorFlow's own device filters.

    Returns:
        A ``tf.config.experimental.ClusterDeviceFilters``, or None where no task has filters.

    Raises:
        TensorFlowNotFoundError: TensorFlow is not installed.
    """
    filters = load("device_filters()").config.experimental.ClusterDeviceFilters()
    for job, tasks in declared.items():
        for index, texts in tasks.items():
            filters.set_device_filters(job, index, list(texts))
    return filters if any(texts for tasks in declared.values() for texts in tasks.values()) else None


def visible_gpus() -> int | None:
    """Count the GPUs that TensorFlow can use in this process, without importing it.

    Returns:
        The count, which is 0 where its build or the program leaves it none; None where it is not imported yet.
    """
    config: Any = getattr(sys.modules.get("tensorflow"), "config", None)
    if not hasattr(config, "get_visible_devices"):  # not imported, or only half
        return None
    return len(config.get_visible_devices("GPU"))


# What this process is connected to and holds there: TensorFlow has no public way to tell.


@dataclass(frozen=True, slots=True)
class Connection:
    """What this process's runtime is connected to.

    Attributes:
        spec: TensorFlow's ClusterSpec, without the job that TensorFlow adds for a process outside of it.
        job: this process's job.
        index: its task index.
        filters: the device filters that TensorFlow was given, as its protobuf message.
    """

    spec: Any
    job: str
    index: int
    filters: Any


def connected_to(jobs: Collection[str] = ()) -> Connection | None:
    """Tell what this process's runtime is connected to, by whichever call.

    TensorFlow has no public way to ask; ``experimental_connect_to_cluster`` looks at the same place to decide between
    an update, which keeps tensors and variables, and a reset, after which using an old one kills the process.

    Args:
        jobs: the jobs of the cluster that it is compared with.  TensorFlow adds the own job to what it is given, with
            an address of its own; it is left out where these jobs do not have it.
    """
    server = importlib.import_module("tensorflow.python.eager.context").get_server_def()
    if server is None:
        return None
    jobs_there = {
        job.name: dict(job.tasks) for job in server.cluster.job if job.name in jobs or job.name != server.job_name
    }
    spec = load("comparing clusters").train.ClusterSpec(jobs_there)
    return Connection(spec, server.job_name, server.task_index, server.cluster_device_filters)


def is_running() -> bool:
    """Tell whether this process's runtime has started, so that there can be tensors."""
    return bool(importlib.import_module("tensorflow.python.eager.context").context()._initialized)  # noqa: SLF001 - no public way


def held_elsewhere(job: str, *, variables_only: bool = False) -> list[str]:
    """Name the tensors and variables of this process that live on tasks of other jobs.

    Returns:
        A text for each, such as "variable w:0 on /job:ps/replica:0/task:0/device:CPU:0".
    """
    tensorflow = load("looking for tensors")
    tensor_kind = importlib.import_module("tensorflow.python.framework.ops").EagerTensor
    gc.collect()
    found = []
    for one in gc.get_objects():
        kind = type(one)  # NB: not isinstance(), which asks lazy modules and proxies for their __class__
        is_variable = issubclass(kind, tensorflow.Variable)
        if not is_variable and not issubclass(kind, tensor_kind):
            continue
        if variables_only and not is_variable and one.dtype != tensorflow.resource:
            continue
        device = one.device
        if device and f"/job:{job}/" not in device:
            found.append(f"variable {one.name} on {device}" if is_variable else f"a tensor on {device}")
    return sorted(found, key=lambda text: (text.startswith("a tensor"), text))


def current_device() -> str:
    """Name the device of the ``tf.device`` scope that this thread is in; empty outside of any."""
    return importlib.import_module("tensorflow.python.eager.context").context().device_name or ""
