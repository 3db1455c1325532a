"""The contract between the operator and the pods: what ``cluster.json`` holds, and TF_CONFIG.

The reader owns the format: this module lives in the resolver, and the operator imports it to write.  It decides how a
view is spelled as JSON, what a malformed one is, and what a view says as TF_CONFIG.

A *view* is what one task sees of its cluster: the ClusterSpec entries its device filters let through, in the form of
``tf.train.ClusterSpec.as_dict()`` (a dense job is a list, a sparse one an index map), the device filters to hand to
TensorFlow, the accelerators that each visible task holds, and the tasks that leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeVar

#: Raised only for a change that an older reader would misread; new optional keys do not count.
VERSION: Final = 1

#: The operator mounts the ConfigMap of the task's job here.
DEFAULT_DIRECTORY: Final = "/etc/tfcluster"
#: The view of every task of the job without a view of its own.
VIEW_FILE: Final = "cluster.json"

#: Overrides DEFAULT_DIRECTORY.
ENV_DIRECTORY: Final = "TFCLUSTER_DIR"
#: The job that this task belongs to, as TensorFlow spells it ("worker").
ENV_JOB: Final = "TFCLUSTER_JOB"
#: The index of this task in its job, from 0.
ENV_TASK_INDEX: Final = "TFCLUSTER_TASK_INDEX"
#: This task's own "host:port": views are shared, so a task that its own filters hide is not in the file.
ENV_ADDRESS: Final = "TFCLUSTER_ADDRESS"
#: For programs that do not know views, such as ``tf.distribute.cluster_resolver.TFConfigClusterResolver``.
ENV_TF_CONFIG: Final = "TF_CONFIG"

#: TensorFlow's evaluator watches a cluster from outside: no ClusterSpec but its own has it.
EVALUATOR: Final = "evaluator"

#: How many tasks the ranges of a view can contain: readers expand them.  A TFCluster has 10,000 tasks at most.
MOST_RANGED: Final = 100_000
#: TensorFlow keeps a task's index in 32 bits (``JobDef.tasks``), and Kubernetes counts in 64.
_LARGEST_INDEX: Final = 2**31 - 1
_LARGEST_COUNT: Final = 2**63 - 1
#: Each of them counts devices.  Intel's plugin has more resources, which count shares of a device.
_GPUS: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


_T = TypeVar("_T")
_Reader = Callable[[Any, str], _T]


def task_view_file(index: int) -> str:
    """Name the file that a task with device filters of its own reads in place of VIEW_FILE."""
    return f"task-{index}.json"


def released_file(port: int) -> str:
    """Return the name of the file that the coordinator writes to release a leaving task, so that it can end."""
    # The coordinator writes it in the leaving task, through TensorFlow: that does not need a permission in Kubernetes.
    # The port of the task's TensorFlow server distinguishes the tasks of one machine.
    return f"/tmp/tfcluster-released-{port}"  # noqa: S108 - the one directory that every container can write


def device_type(resource: str) -> str | None:
    """Return TensorFlow's device type, "GPU" or "TPU", of an extended resource such as ``nvidia.com/gpu``, or None."""
    if resource in _GPUS or resource.startswith("nvidia.com/mig-"):
        return "GPU"
    return "TPU" if resource == "google.com/tpu" else None


class ContractError(ValueError):
    """The text is not a view: the message names the place in it and what was expected there."""


class UnsupportedVersionError(ContractError):
    """The view was written by an operator newer than this reader."""


class _Immutable:
    """A base for frozen dataclasses: their mappings are copied and made read-only, however deep they are nested."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]  # what derives from this is a dataclass
            object.__setattr__(self, one.name, _frozen(getattr(self, one.name)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by plain dictionaries, because read-only mappings cannot be."""
        return type(self), tuple(_plain(getattr(self, one.name)) for one in fields(self))  # type: ignore[arg-type]  # likewise


def _frozen(value: Any) -> Any:
    if not isinstance(value, Mapping) or isinstance(value, MappingProxyType):
        return value
    return MappingProxyType({key: _frozen(one) for key, one in value.items()})


def _plain(value: Any) -> Any:
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True)
class FilterRange:
    """The device filters that the tasks ``start <= index < stop`` of one job share."""

    start: int
    stop: int
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobAccelerators(_Immutable):
    """The devices that the device plugin grants to the tasks of one job.

    ``limits`` maps an extended resource ("nvidia.com/gpu") to the count that every task of the job asks for; a plugin
    grants it whole or not at all.  ``tasks`` maps an index to its counts of *healthy* devices, only if they differ.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View(_Immutable):
    """One task's view of its cluster; equal views are spelled as equal text by :func:`dump`.

    ``isolation`` says who reaches a task's port: "Cluster" (the tasks of this cluster) or "DeviceFilters" (the tasks
    that see it or that it sees); "" where nothing is closed.  ``leaving`` names the tasks of each job that are no
    longer declared and still run, as ranges [start, stop).  ``incarnations`` says by job and index which pod a task is,
    if it is not its first one; only the coordinator's view has it.
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
    """Write a view as the text of ``cluster.json``; equal views yield the same bytes."""
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
    # Empty fields are left out, so that the views of such clusters stay as an older operator wrote them.
    optional = {
        "isolation": view.isolation,
        "leaving": {job: list(map(list, ranges)) for job, ranges in view.leaving.items()},
        "incarnations": {job: _spell(tasks) for job, tasks in view.incarnations.items()},
    }
    document.update((key, value) for key, value in optional.items() if value)
    return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"


def load(text: str | bytes) -> View:
    """Read the text of ``cluster.json``; keys that are not known here are left out (a newer operator can add some).

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
    """Return the addresses of a view's tasks, as ``tf.train.ClusterSpec.as_dict`` does, with the reading task's own."""
    # TensorFlow's servers and strategies need their own task in the ClusterSpec, even where its device filters hide it,
    # and an evaluator's: MultiWorkerMirroredStrategy looks itself up there.  The address can be "".
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
    """Spell what a task sees as TF_CONFIG, as ``tf.distribute.cluster_resolver.TFConfigClusterResolver`` reads it.

    Its ``environment`` is "cloud", because the Estimators of TensorFlow 1 do not start a server without it.
    """
    jobs, task = jobs_of(view, (job, index, address)), {"type": job, "index": index}
    config = {"cluster": jobs, "task": task, "rpc_layer": view.rpc_layer, "environment": "cloud"}
    return json.dumps(config, separators=(",", ":"))


def _view(document: Any) -> View:
    root = _mapping(document, "the document")
    version = _count(root.get("version"), "version")
    if version > VERSION:
        raise UnsupportedVersionError(
            f"version {version} is newer than {VERSION}, the newest that this resolver reads: "
            "update tfcluster in the image"
        )
    cluster = _mapping(root.get("cluster"), "cluster")
    view = View(
        name=_text(cluster.get("name"), "cluster.name"),
        namespace=_text(cluster.get("namespace"), "cluster.namespace"),
        uid=_text(cluster.get("uid"), "cluster.uid"),
        epoch=_count(root.get("epoch"), "epoch"),
        rpc_layer=_text(root.get("rpcLayer"), "rpcLayer"),
        jobs=_by_name(_tasks, root.get("jobs"), "jobs"),
        device_filters=_by_name(partial(_each, _filter_range), root.get("deviceFilters", {}), "deviceFilters"),
        accelerators=_by_name(_accelerators, root.get("accelerators", {}), "accelerators"),
        isolation=_text(root.get("isolation", ""), "isolation"),
        leaving=_by_name(partial(_each, _span), root.get("leaving", {}), "leaving"),
        incarnations=_by_name(partial(_by_index, _text), root.get("incarnations", {}), "incarnations"),
    )
    _bound("deviceFilters", ((r.start, r.stop) for of_job in view.device_filters.values() for r in of_job))
    _bound("leaving", (r for of_job in view.leaving.values() for r in of_job))
    return view


def _bound(where: str, ranges: Iterable[tuple[int, int]]) -> None:
    if (tasks := sum(stop - start for start, stop in ranges)) > MOST_RANGED:
        raise ContractError(f"{where} names {tasks} tasks, more than the {MOST_RANGED} that a view may name")


def _tasks(value: Any, where: str) -> tuple[str, ...] | dict[int, str]:
    if isinstance(value, list):
        return _each(_text, value, where)
    _mapping(value, f"{where} (a list of addresses, or a map from index to address)")
    return _by_index(_text, value, where)


def _filter_range(value: Any, where: str) -> FilterRange:
    entry = _mapping(value, where)
    start, stop = _span(entry.get("tasks"), f"{where}.tasks")
    return FilterRange(start, stop, _each(_text, entry.get("filters"), f"{where}.filters"))


def _accelerators(value: Any, where: str) -> JobAccelerators:
    entry, counts = _mapping(value, where), partial(_by_name, _count)
    return JobAccelerators(
        limits=counts(entry.get("limits", {}), f"{where}.limits"),
        tasks=_by_index(counts, entry.get("tasks", {}), f"{where}.tasks"),
    )


def _spell(tasks: Mapping[int, Any]) -> dict[str, Any]:
    return {str(index): dict(of) if isinstance(of, Mapping) else of for index, of in tasks.items()}


# Readers of a value at a place: they bound numbers and texts, so that readers of a view can rely on them.


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{where} must be a string, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can spell half a character, which no file, no log line and no RPC takes.
        raise ContractError(f"{where} must be Unicode, not {value!r}") from None
    return value


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ContractError(f"{where} must be a whole number of 0 or more, not {value!r}")
    if value > _LARGEST_COUNT:
        raise ContractError(f"{where} must be {_LARGEST_COUNT} at most, not {value!r}")
    return value


def _span(value: Any, where: str) -> tuple[int, int]:
    """Read a range of task indices, [start, stop)."""
    match _each(_count, value, where):
        case (start, stop) if start <= stop <= _LARGEST_INDEX + 1:
            return start, stop
    raise ContractError(f"{where} must be [start, stop], not {value!r}")


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ContractError(f"{where} must be an object, not {type(value).__name__}")
    for key in value:
        _text(key, f"the key {key!r} of {where}")
    return value


def _each(read: _Reader[_T], value: Any, where: str) -> tuple[_T, ...]:
    if not isinstance(value, list):
        raise ContractError(f"{where} must be a list, not {type(value).__name__}")
    return tuple(read(one, f"{where}[{i}]") for i, one in enumerate(value))


def _by_name(read: _Reader[_T], value: Any, where: str) -> dict[str, _T]:
    return {name: read(one, f"{where}.{name}") for name, one in _mapping(value, where).items()}


def _by_index(read: _Reader[_T], value: Any, where: str) -> dict[int, _T]:
    return {_index(key, where): read(one, f"{where}.{key}") for key, one in _mapping(value, where).items()}


def _index(key: str, where: str) -> int:
    # One spelling for each index, so that no two keys mean one task; int() rejects more than some 4,000 digits.
    if not (key.isascii() and key.isdigit() and len(key) < 12 and key == str(int(key)) and int(key) <= _LARGEST_INDEX):
        raise ContractError(f"{where} has the key {key!r}, which is not a task index")
    return int(key)
