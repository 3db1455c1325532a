"""The contract between the operator and the pods: what ``cluster.json`` holds, and TF_CONFIG.

The reader owns the format: this module lives in the resolver, and the operator imports it to write.  It decides how a
view is spelled as JSON, what a malformed one is, and what a view says as TF_CONFIG; it must not read files, and it
imports nothing but the standard library, because it runs inside the user's image.

A *view* is what one task sees of its cluster: the ClusterSpec entries its device filters let through, in the form of
``tf.train.ClusterSpec.as_dict()`` (a dense job is a list, a sparse one an index map), the device filters to hand to
TensorFlow, and the accelerators that each visible task holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: Raised only for a change that an older reader would misread; new optional keys do not count.
VERSION: Final = 1

#: Where the operator mounts the ConfigMap of the task's job.
DEFAULT_DIRECTORY: Final = "/etc/tfcluster"
#: The view of every task of the job that has no view of its own.
VIEW_FILE: Final = "cluster.json"

#: Overrides DEFAULT_DIRECTORY.
ENV_DIRECTORY: Final = "TFCLUSTER_DIR"
#: The job that this task belongs to, as TensorFlow spells it ("worker").
ENV_JOB: Final = "TFCLUSTER_JOB"
#: The index of this task in its job, from 0.
ENV_TASK_INDEX: Final = "TFCLUSTER_TASK_INDEX"
#: This task's own "host:port": views are shared, so a task that its own filters hide is not in the file.
ENV_ADDRESS: Final = "TFCLUSTER_ADDRESS"
#: What programs read that know nothing of views, as ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` does.
ENV_TF_CONFIG: Final = "TF_CONFIG"

#: TensorFlow's evaluator watches a cluster from outside: it is a task of no ClusterSpec.
EVALUATOR: Final = "evaluator"


def task_view_file(index: int) -> str:
    """Name the file that holds the view of one task that has device filters of its own.

    Args:
        index: the task's index in its job, from 0.

    Returns:
        The file's name beside VIEW_FILE; where it exists it is read instead of VIEW_FILE.
    """
    return f"task-{index}.json"


def device_type(resource: str) -> str | None:
    """Tell which TensorFlow device type an extended resource gives its container.

    Args:
        resource: the resource's name in a container's limits, such as ``nvidia.com/gpu``.

    Returns:
        "GPU" or "TPU" as TensorFlow spells its device types, or None for a resource that is no accelerator of
        TensorFlow's (a network card, say).
    """
    domain, _, name = resource.partition("/")
    if resource in ("nvidia.com/gpu", "amd.com/gpu") or domain == "gpu.intel.com":
        return "GPU"
    if domain == "nvidia.com" and (name.startswith("mig-") or name == "gpu.shared"):
        return "GPU"
    return "TPU" if resource == "google.com/tpu" else None


class ContractError(ValueError):
    """The text is not a view: the message names the place in it and what was expected there."""


class UnsupportedVersionError(ContractError):
    """The view was written by an operator newer than this reader."""


@dataclass(frozen=True, slots=True)
class FilterRange:
    """The device filters that the tasks ``start <= index < stop`` of one job share."""

    start: int
    stop: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobAccelerators:
    """What the device plugin grants the tasks of one job.

    ``limits`` maps an extended resource ("nvidia.com/gpu") to the count that every task of the job asks for; a plugin
    grants it whole or not at all.  ``tasks`` maps an index to its counts of *healthy* devices, only where they differ.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """One task's view of its cluster; equal views are spelled as equal text by :func:`dump`.

    ``isolation`` says who reaches a task's port: "Cluster" (the tasks of this cluster) or "DeviceFilters" (the tasks
    that see it or that it sees); "" where nothing is closed.
    """

    name: str
    namespace: str
    uid: str
    epoch: int
    rpc_layer: str
    jobs: Mapping[str, Sequence[str] | Mapping[int, str]]
    device_filters: Mapping[str, Sequence[FilterRange]] = field(default_factory=dict)
    accelerators: Mapping[str, JobAccelerators] = field(default_factory=dict)
    isolation: str = ""


def dump(view: View) -> str:
    """Spell a view as the text of ``cluster.json``.

    Args:
        view: the view to write.

    Returns:
        JSON with sorted keys and no spaces: the same view always gives the same bytes.
    """
    document = {
        "version": VERSION,
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "rpcLayer": view.rpc_layer,
        "jobs": {
            job: {str(index): tasks[index] for index in sorted(tasks)} if isinstance(tasks, Mapping) else list(tasks)
            for job, tasks in view.jobs.items()
        },
        "deviceFilters": {
            job: [{"tasks": [r.start, r.stop], "filters": list(r.filters)} for r in ranges]
            for job, ranges in view.device_filters.items()
        },
        "accelerators": {
            job: {
                "limits": dict(held.limits),
                **({"tasks": {str(i): dict(held.tasks[i]) for i in sorted(held.tasks)}} if held.tasks else {}),
            }
            for job, held in view.accelerators.items()
        },
        # NB: left out where it says nothing, so that the views of such clusters stay as an older operator wrote them.
        **({"isolation": view.isolation} if view.isolation else {}),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def load(text: str | bytes) -> View:
    """Read the text of ``cluster.json``.

    Args:
        text: the file's content.

    Returns:
        The view, with every key it does not know left out (a newer operator may add optional ones).

    Raises:
        UnsupportedVersionError: the view's version is above VERSION.
        ContractError: the text is not JSON, or a part of it is missing or has the wrong type.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from error
    root = _mapping(document, "the document")
    version = _integer(root.get("version"), "version")
    if version > VERSION:
        raise UnsupportedVersionError(
            f"version {version} is newer than {VERSION}, the newest that this resolver reads: "
            "update tfcluster in the image"
        )
    cluster = _mapping(root.get("cluster"), "cluster")
    return View(
        name=_text(cluster.get("name"), "cluster.name"),
        namespace=_text(cluster.get("namespace"), "cluster.namespace"),
        uid=_text(cluster.get("uid"), "cluster.uid"),
        epoch=_integer(root.get("epoch"), "epoch"),
        rpc_layer=_text(root.get("rpcLayer"), "rpcLayer"),
        jobs={job: _tasks(tasks, f"jobs.{job}") for job, tasks in _mapping(root.get("jobs"), "jobs").items()},
        device_filters={
            job: tuple(
                _filter_range(r, f"deviceFilters.{job}[{i}]")
                for i, r in enumerate(_list(ranges, f"deviceFilters.{job}"))
            )
            for job, ranges in _mapping(root.get("deviceFilters", {}), "deviceFilters").items()
        },
        accelerators={
            job: _accelerators(held, f"accelerators.{job}")
            for job, held in _mapping(root.get("accelerators", {}), "accelerators").items()
        },
        isolation=_text(root.get("isolation", ""), "isolation"),
    )


def jobs_of(view: View, own: tuple[str, int, str] | None = None) -> dict[str, list[str] | dict[int, str]]:
    """List the tasks of a view, the own one among them.

    TensorFlow's servers and strategies need the own task in the ClusterSpec, even where its device filters hide it;
    only an evaluator never is.

    Args:
        view: what the task sees.
        own: its job, its index and its address; None where nobody in particular reads the view.

    Returns:
        Each job's addresses, in the form of ``tf.train.ClusterSpec.as_dict``: a list where the indices are dense, else
        a map from index to address.
    """
    jobs: dict[str, list[str] | dict[int, str]] = {
        job: dict(tasks) if isinstance(tasks, Mapping) else list(tasks) for job, tasks in view.jobs.items()
    }
    if own is None or own[0] == EVALUATOR:
        return jobs
    job, index, address = own
    listed = jobs.get(job, [])
    if index in listed if isinstance(listed, dict) else index < len(listed):
        return jobs
    tasks = (listed if isinstance(listed, dict) else dict(enumerate(listed))) | {index: address}
    dense = max(tasks) + 1 == len(tasks)
    jobs[job] = [tasks[one] for one in range(len(tasks))] if dense else dict(sorted(tasks.items()))
    return jobs


def tf_config(view: View, *, job: str, index: int, address: str) -> str:
    """Spell what a task sees as TF_CONFIG.

    It follows what ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` reads.

    Args:
        view: what the task sees.
        job: its job.
        index: its index there.
        address: its "host:port".

    Returns:
        JSON without spaces: ``cluster``, the jobs of :func:`jobs_of`; ``task``; ``rpc_layer``.  An evaluator is the
        task and in no job, which is how TensorFlow wants it.
    """
    document = {
        "cluster": jobs_of(view, (job, index, address)),
        "task": {"type": job, "index": index},
        "rpc_layer": view.rpc_layer,
    }
    return json.dumps(document, separators=(",", ":"))


def _tasks(value: Any, where: str) -> tuple[str, ...] | dict[int, str]:
    if isinstance(value, list):
        return tuple(_text(address, f"{where}[{i}]") for i, address in enumerate(value))
    return {
        _index(key, where): _text(address, f"{where}.{key}")
        for key, address in _mapping(value, f"{where} (a list of addresses, or a map from index to address)").items()
    }


def _filter_range(value: Any, where: str) -> FilterRange:
    entry = _mapping(value, where)
    tasks = _list(entry.get("tasks"), f"{where}.tasks")
    if len(tasks) != 2:
        raise ContractError(f"{where}.tasks must be [start, stop], not {tasks!r}")
    filters = _list(entry.get("filters"), f"{where}.filters")
    return FilterRange(
        start=_integer(tasks[0], f"{where}.tasks[0]"),
        stop=_integer(tasks[1], f"{where}.tasks[1]"),
        filters=tuple(_text(one, f"{where}.filters[{i}]") for i, one in enumerate(filters)),
    )


def _accelerators(value: Any, where: str) -> JobAccelerators:
    entry = _mapping(value, where)
    return JobAccelerators(
        limits=_counts(entry.get("limits", {}), f"{where}.limits"),
        tasks={
            _index(key, f"{where}.tasks"): _counts(counts, f"{where}.tasks.{key}")
            for key, counts in _mapping(entry.get("tasks", {}), f"{where}.tasks").items()
        },
    )


def _counts(value: Any, where: str) -> dict[str, int]:
    return {key: _integer(count, f"{where}.{key}") for key, count in _mapping(value, where).items()}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ContractError(f"{where} must be an object, not {type(value).__name__}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ContractError(f"{where} must be a list, not {type(value).__name__}")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{where} must be a string, not {type(value).__name__}")
    return value


def _integer(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ContractError(f"{where} must be a whole number of 0 or more, not {value!r}")
    return value


def _index(key: str, where: str) -> int:
    # NB: one spelling for each index, so that no two keys mean one task; int() refuses more than some 4,000 digits.
    if not (key.isascii() and key.isdigit() and len(key) < 12 and key == str(int(key))):
        raise ContractError(f"{where} has the key {key!r}, which is not a task index")
    return int(key)
