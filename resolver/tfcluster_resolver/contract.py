"""The contract between the operator and the pods: what ``cluster.json`` holds, and TF_CONFIG.

The reader owns the format: this module lives in the resolver, and the operator imports it to write.  It decides how a
view is spelled as JSON, what a malformed one is, and what a view says as TF_CONFIG; it must not read files, and it
imports nothing but the standard library, because it runs inside the user's image.

A *view* is what one task sees of its cluster: the ClusterSpec entries its device filters let through, in the form of
``tf.train.ClusterSpec.as_dict()`` (a dense job is a list, a sparse one an index map), the device filters to hand to
TensorFlow, the accelerators that each visible task holds, and the tasks that leave.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tfcluster_resolver import _fields, _immutable

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

#: TensorFlow's evaluator watches a cluster from outside: no ClusterSpec but its own has it.
EVALUATOR: Final = "evaluator"

#: How many tasks the ranges of a view may name: readers spell them out.  A TFCluster has 10,000 tasks at most.
MOST_RANGED: Final = 100_000
#: Each of them counts devices.  NB: Intel's plugin knows more resources, which count shares of one and no devices.
_GPUS: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


def task_view_file(index: int) -> str:
    """Name the file that holds the view of one task that has device filters of its own.

    Args:
        index: the task's index in its job, from 0.

    Returns:
        The file's name beside VIEW_FILE; where it exists it is read instead of VIEW_FILE.
    """
    return f"task-{index}.json"


def released_file(port: int) -> str:
    """Name the file that tells a leaving task that the coordinator has let go of it.

    The coordinator writes it in the leaving task, through TensorFlow: nobody needs any right in Kubernetes for that.

    Args:
        port: the port of the task's TensorFlow server, which tells apart the tasks of one machine.

    Returns:
        The file's path; a task that leaves may end as soon as it exists.
    """
    return f"/tmp/tfcluster-released-{port}"  # noqa: S108 - the one directory that every container can write


def device_type(resource: str) -> str | None:
    """Tell which TensorFlow device type an extended resource gives its container.

    Args:
        resource: the resource's name in a container's limits, such as ``nvidia.com/gpu``.

    Returns:
        "GPU" or "TPU" as TensorFlow spells its device types, or None for a resource that is no accelerator of
        TensorFlow's (a network card, say).
    """
    if resource in _GPUS or resource.startswith("nvidia.com/mig-"):
        return "GPU"
    return "TPU" if resource == "google.com/tpu" else None


#: The text is not a view: the message names the place in it and what was expected there.
ContractError = _fields.ContractError


class UnsupportedVersionError(ContractError):
    """The view was written by an operator newer than this reader."""


@dataclass(frozen=True, slots=True)
class FilterRange:
    """The device filters that the tasks ``start <= index < stop`` of one job share."""

    start: int
    stop: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobAccelerators(_immutable.Immutable):
    """What the device plugin grants the tasks of one job.

    ``limits`` maps an extended resource ("nvidia.com/gpu") to the count that every task of the job asks for; a plugin
    grants it whole or not at all.  ``tasks`` maps an index to its counts of *healthy* devices, only where they differ.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View(_immutable.Immutable):
    """One task's view of its cluster; equal views are spelled as equal text by :func:`dump`.

    ``isolation`` says who reaches a task's port: "Cluster" (the tasks of this cluster) or "DeviceFilters" (the tasks
    that see it or that it sees); "" where nothing is closed.  ``leaving`` names the tasks of each job that are declared
    no more and still run, as ranges [start, stop).  ``incarnations`` tells by job and index which pod a task is: it
    changes with the pod; only the coordinator's view has it.
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
    leaving: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    incarnations: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def dump(view: View) -> str:
    """Spell a view as the text of ``cluster.json``.

    Args:
        view: the view to write.

    Returns:
        JSON with sorted keys and no spaces: the same view always gives the same bytes.
    """
    document: dict[str, Any] = {
        "version": VERSION,
        "cluster": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
        "epoch": view.epoch,
        "rpcLayer": view.rpc_layer,
        "jobs": {job: _spell(tasks) if isinstance(tasks, Mapping) else list(tasks) for job, tasks in view.jobs.items()},
        "deviceFilters": {
            job: [{"tasks": [r.start, r.stop], "filters": list(r.filters)} for r in ranges]
            for job, ranges in view.device_filters.items()
        },
        "accelerators": {
            job: {"limits": dict(held.limits), **({"tasks": _spell(held.tasks)} if held.tasks else {})}
            for job, held in view.accelerators.items()
        },
    }
    # NB: left out where they say nothing, so that the views of such clusters stay as an older operator wrote them.
    optional = {
        "isolation": view.isolation,
        "leaving": {job: list(map(list, ranges)) for job, ranges in view.leaving.items()},
        "incarnations": {job: _spell(tasks) for job, tasks in view.incarnations.items()},
    }
    document.update((key, value) for key, value in optional.items() if value)
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def load(text: str | bytes) -> View:
    """Read the text of ``cluster.json``.

    Args:
        text: the file's content.

    Returns:
        The view, with every key it does not know left out (a newer operator may add optional ones).

    Raises:
        UnsupportedVersionError: the view's version is above VERSION.
        ContractError: the text is not JSON, or a part of it is missing, has the wrong type or is out of range.
    """
    try:
        return _view(json.loads(text))
    except ContractError:
        raise
    except (ValueError, RecursionError) as error:
        raise ContractError(f"not JSON: {error}") from error


def jobs_of(view: View, own: tuple[str, int, str] | None = None) -> dict[str, list[str] | dict[int, str]]:
    """List the tasks of a view, the own one among them.

    TensorFlow's servers and strategies need the own task in the ClusterSpec, even where its device filters hide it,
    and an evaluator's: MultiWorkerMirroredStrategy looks itself up there.

    Args:
        view: what the task sees.
        own: its job, its index and its address ("" where it has none); None where nobody in particular reads the view.

    Returns:
        Each job's addresses, in the form of ``tf.train.ClusterSpec.as_dict``: a list where the indices are dense, else
        a map from index to address.
    """
    jobs: dict[str, list[str] | dict[int, str]] = {
        job: dict(tasks) if isinstance(tasks, Mapping) else list(tasks) for job, tasks in view.jobs.items()
    }
    if own is None or not own[2]:
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
        JSON without spaces: ``cluster``, the jobs of :func:`jobs_of`; ``task``; ``rpc_layer``; and ``environment``,
        which is "cloud", because the Estimators of TensorFlow 1 start no server without it.
    """
    jobs, task = jobs_of(view, (job, index, address)), {"type": job, "index": index}
    told = {"cluster": jobs, "task": task, "rpc_layer": view.rpc_layer, "environment": "cloud"}
    return json.dumps(told, separators=(",", ":"))


def _view(document: Any) -> View:
    root = _fields.mapping(document, "the document")
    version = _fields.count(root.get("version"), "version")
    if version > VERSION:
        raise UnsupportedVersionError(
            f"version {version} is newer than {VERSION}, the newest that this resolver reads: "
            "update tfcluster in the image"
        )
    cluster = _fields.mapping(root.get("cluster"), "cluster")
    view = View(
        name=_fields.text(cluster.get("name"), "cluster.name"),
        namespace=_fields.text(cluster.get("namespace"), "cluster.namespace"),
        uid=_fields.text(cluster.get("uid"), "cluster.uid"),
        epoch=_fields.count(root.get("epoch"), "epoch"),
        rpc_layer=_fields.text(root.get("rpcLayer"), "rpcLayer"),
        jobs=_fields.by_name(_tasks)(root.get("jobs"), "jobs"),
        device_filters=_fields.by_name(_fields.each(_filter_range))(root.get("deviceFilters", {}), "deviceFilters"),
        accelerators=_fields.by_name(_accelerators)(root.get("accelerators", {}), "accelerators"),
        isolation=_fields.text(root.get("isolation", ""), "isolation"),
        leaving=_fields.by_name(_fields.each(_fields.span))(root.get("leaving", {}), "leaving"),
        incarnations=_fields.by_name(_fields.by_index(_fields.text))(root.get("incarnations", {}), "incarnations"),
    )
    _bound("deviceFilters", ((r.start, r.stop) for of_job in view.device_filters.values() for r in of_job))
    _bound("leaving", (r for of_job in view.leaving.values() for r in of_job))
    return view


def _bound(where: str, ranges: Iterable[tuple[int, int]]) -> None:
    if (tasks := sum(stop - start for start, stop in ranges)) > MOST_RANGED:
        raise ContractError(f"{where} names {tasks} tasks, more than the {MOST_RANGED} that a view may name")


def _tasks(value: Any, where: str) -> tuple[str, ...] | dict[int, str]:
    if isinstance(value, list):
        return _fields.each(_fields.text)(value, where)
    _fields.mapping(value, f"{where} (a list of addresses, or a map from index to address)")
    return _fields.by_index(_fields.text)(value, where)


def _filter_range(value: Any, where: str) -> FilterRange:
    entry = _fields.mapping(value, where)
    start, stop = _fields.span(entry.get("tasks"), f"{where}.tasks")
    return FilterRange(start, stop, _fields.each(_fields.text)(entry.get("filters"), f"{where}.filters"))


def _accelerators(value: Any, where: str) -> JobAccelerators:
    entry, counts = _fields.mapping(value, where), _fields.by_name(_fields.count)
    return JobAccelerators(
        limits=counts(entry.get("limits", {}), f"{where}.limits"),
        tasks=_fields.by_index(counts)(entry.get("tasks", {}), f"{where}.tasks"),
    )


def _spell(tasks: Mapping[int, Any]) -> dict[str, Any]:
    return {str(index): dict(of) if isinstance(of, Mapping) else of for index, of in tasks.items()}
