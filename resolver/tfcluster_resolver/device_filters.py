"""``tf.config.experimental.ClusterDeviceFilters`` without TensorFlow, and without its silent acceptances.

It decides which filters a task may be given and which devices a filter shows, and says at once what TensorFlow would
say when it connects, or never.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_resolver import _protobuf, device_names
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError, DeviceNameError

#: What a protobuf's int32 key can hold.
_INDEX_LIMIT: Final = 2**31


class ClusterDeviceFilters:
    """Which devices each task of a cluster sees; takes the place of ``tf.config.experimental.ClusterDeviceFilters``.

    A task without filters sees every device.  Filters are wiring, not security: TensorFlow sends a task the devices
    that its filters show, and whoever can reach the task's server can send it others.
    """

    __hash__ = None  # type: ignore[assignment]  # it can be changed, so it cannot be hashed

    def __init__(self) -> None:
        self._filters: dict[str, dict[int, tuple[str, ...]]] = {}

    def set_device_filters(self, job_name: str | bytes, task_index: int, device_filters: Sequence[str]) -> None:
        """Set the filters of a task in place of those that it had.

        Args:
            job_name: the task's job, in TensorFlow's form: a letter, then letters, digits and "_".
            task_index: its index, from 0 to 2**31 - 1.
            device_filters: what the task sees besides itself, such as ["/job:ps", "/job:chief"]; empty for everything.

        Raises:
            DeviceFilterError: TensorFlow could not read a filter, or would change a number in it; with the position.
            DeviceNameError: TensorFlow could not read the job's name; with the position.
            ArgumentTypeError: the filters are no list or other sequence of texts (TensorFlow takes a text apart into
                characters, of which "/" shows everything, and an iterator as "no filters"); or the job is no text or
                the index no whole number.
            ArgumentValueError: the index is out of range.
        """
        job, index = _job(job_name), _index(task_index)
        filters = _texts(device_filters, f"/job:{job}/task:{index}")
        for text in filters:
            device_names.parse_exact_filter(text)
        self._filters.setdefault(job, {})[index] = filters

    def as_dict(self) -> dict[str, dict[int, list[str]]]:
        """Give the filters as dictionaries.

        Returns:
            Each job's tasks with their filters, sorted; a new object at each call.
        """
        return {
            job: {index: list(texts) for index, texts in sorted(tasks.items())}
            for job, tasks in sorted(self._filters.items())
        }

    def as_cluster_device_filters(self) -> Any:
        """Give the filters as TensorFlow's protobuf message.

        Returns:
            A new ``tensorflow.ClusterDeviceFilters``, of TensorFlow's class where it is installed, else of ours.

        Raises:
            ProtobufNotFoundError: protobuf is not installed.
        """
        message = _protobuf.messages("as_cluster_device_filters()").ClusterDeviceFilters()
        for job, tasks in self.as_dict().items():
            declared = message.jobs.add(name=job)
            for index, texts in tasks.items():
                if texts:  # as TensorFlow has it: no filters are no task
                    declared.tasks[index].device_filters.extend(texts)
        return message

    def as_tensorflow(self) -> Any:
        """Give the filters as TensorFlow's own class, for ``tf.config.experimental_connect_to_cluster``.

        Returns:
            A new ``tf.config.experimental.ClusterDeviceFilters``.

        Raises:
            TensorFlowNotFoundError: TensorFlow is not installed.
        """
        theirs = tensorflow_api.load("as_tensorflow()").config.experimental.ClusterDeviceFilters()
        for job, tasks in self.as_dict().items():
            for index, texts in tasks.items():
                theirs.set_device_filters(job, index, texts)
        return theirs

    def _as_cluster_device_filters(self) -> Any:
        """Answer by the name that TensorFlow's class has for it, to code that takes either."""
        return self.as_cluster_device_filters()

    def __copy__(self) -> ClusterDeviceFilters:
        other = type(self)()
        for job, tasks in self._filters.items():
            for index, texts in tasks.items():
                other.set_device_filters(job, index, texts)
        return other

    def __eq__(self, other: object) -> bool:
        return self._filters == other._filters if isinstance(other, ClusterDeviceFilters) else NotImplemented

    def __repr__(self) -> str:
        return f"ClusterDeviceFilters({self.as_dict()!r})"


def device_filter_matches(filter: str, device: str) -> bool:  # noqa: A002 - TensorFlow's word for it
    """Tell whether a device filter shows a device, as TensorFlow's runtime decides it.

    A task with several filters sees what any of them shows; without filters it sees everything; and it always sees its
    own devices.  A part that either text leaves out fits anything, so ``/job:ps/task:0`` as a device asks whether some
    device of that task can be shown.

    Args:
        filter: the device filter, such as ``/job:ps``.
        device: the device's full name, such as ``/job:ps/replica:0/task:1/device:CPU:0``.

    Returns:
        Whether the filter shows the device.

    Raises:
        DeviceFilterError: the filter is one that TensorFlow cannot read; with the position.
        DeviceNameError: the device's name is one that TensorFlow cannot read; with the position.
        ArgumentTypeError: one of them is no text.
    """
    return device_names.parse_filter(filter).is_compatible_with(device_names.parse(device))


def _job(name: str | bytes) -> str:
    if not isinstance(name, (str, bytes)):
        raise ArgumentTypeError(f"the job's name {name!r} must be text, not {type(name).__name__}")
    try:
        text = name if isinstance(name, str) else name.decode()
    except UnicodeDecodeError as error:
        raise DeviceNameError(f"the job's name {name!r} is not UTF-8", position=error.start) from None
    # What TensorFlow reads back when it looks the task up.
    try:
        parsed = device_names.parse(f"/job:{text}")
    except DeviceNameError as error:
        place = error.position - len("/job:")
        raise DeviceNameError(
            f"the job's name {text!r} is wrong at position {place}: it is a letter, then letters, digits and _",
            position=place,
        ) from None
    if parsed.job != text:
        raise DeviceNameError(f"the job's name {text!r} is none: it is a letter, then letters, digits and _")
    return text


def _index(index: Any) -> int:
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise ArgumentTypeError(f"the task index {index!r} must be a whole number, not {type(index).__name__}")
    number = operator.index(index)
    if not 0 <= number < _INDEX_LIMIT:
        raise ArgumentValueError(f"the task index {number} is not between 0 and {_INDEX_LIMIT - 1}")
    return number


def _texts(filters: Any, task: str) -> tuple[str, ...]:
    if isinstance(filters, (str, bytes, bytearray, memoryview)) or not isinstance(filters, Sequence):
        raise ArgumentTypeError(
            f"the device filters of {task} are a list of texts, not {type(filters).__name__}: {filters!r}"
        )
    for text in filters:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"a device filter of {task} must be text, not {type(text).__name__}: {text!r}")
    return tuple(filters)


def filters_by_task(declared: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Read device filters, in whatever form, and refuse what TensorFlow could not use.

    Args:
        declared: ClusterDeviceFilters of ours or TensorFlow's, their protobuf message, a mapping from job to a mapping
            from index to a list of filters, or None.

    Returns:
        The filters of each job's tasks.

    Raises:
        ArgumentTypeError: it is none of these, or a filter is no text.
        ArgumentValueError: an index is below 0, or TensorFlow could not read a filter.
    """
    if declared is None:
        return {}
    if not isinstance(declared, ClusterDeviceFilters):
        declared = _read(declared)
    return {job: {index: tuple(texts) for index, texts in tasks.items()} for job, tasks in declared.as_dict().items()}


def filters_in_message(message: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Read TensorFlow's protobuf message of device filters, as it is."""
    return {job.name: {index: tuple(one.device_filters) for index, one in job.tasks.items()} for job in message.jobs}


def _read(declared: Any) -> ClusterDeviceFilters:
    if hasattr(declared, "_as_cluster_device_filters"):
        declared = declared._as_cluster_device_filters()  # noqa: SLF001 - TensorFlow has no public way to read them
    if hasattr(declared, "SerializeToString"):
        declared = filters_in_message(declared)
    if not isinstance(declared, Mapping):
        raise ArgumentTypeError(
            "device filters are a ClusterDeviceFilters, or a mapping from job to a mapping from index to a list of "
            f"filters, not {type(declared).__name__}"
        )
    filters = ClusterDeviceFilters()
    for job, tasks in declared.items():
        if not isinstance(tasks, Mapping):
            raise ArgumentTypeError(
                f"the device filters of job {job!r} map task indices to lists, not {type(tasks).__name__}"
            )
        for index, texts in tasks.items():
            filters.set_device_filters(job, index, texts)
    return filters
