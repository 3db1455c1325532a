"""``tf.config.experimental.ClusterDeviceFilters`` without TensorFlow, and without its silent acceptances.

It raises immediately what TensorFlow would raise when it connects, or never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_resolver import _arguments, _protobuf, device_names
from tfcluster_resolver._tensorflow import tensorflow_api
from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError, DeviceFilterError, DeviceNameError

#: A protobuf's int32 key is smaller.
_INDEX_LIMIT: Final = 2**31


class ClusterDeviceFilters:
    """Which devices each task of a cluster sees; takes the place of ``tf.config.experimental.ClusterDeviceFilters``.

    A task without filters sees every device.  Filters are wiring, not security: TensorFlow sends a task the devices
    that its filters show, and any process that reaches the task's server can send it others.
    """

    __hash__ = None  # type: ignore[assignment]  # it can be changed, so it cannot be hashed

    def __init__(self) -> None:
        self._filters: dict[str, dict[int, tuple[str, ...]]] = {}

    def set_device_filters(self, job_name: str | bytes, task_index: int, device_filters: Sequence[str]) -> None:
        """Set the filters of a task in place of those that it had.

        Args:
            job_name: the task's job, in TensorFlow's form: a letter, then letters, digits and "_".
            task_index: its index, from 0 to 2**31 - 1.
            device_filters: what the task sees, with itself, such as ["/job:ps", "/job:chief"]; empty for everything.

        Raises:
            DeviceFilterError: TensorFlow could not read a filter, or would change a number in it; with the position.
            DeviceNameError: TensorFlow could not read the job's name; with the position.
            ArgumentTypeError: the filters are not a list or another sequence of texts (TensorFlow splits a text into
                characters, and "/" shows everything; it takes an iterator as "no filters"); or the job is not a
                text or the index not a whole number.
            ArgumentValueError: the index is out of range.
        """
        job, index = _job(job_name), _index(task_index)
        filters = _texts(device_filters, f"/job:{job}/task:{index}")
        for text in filters:
            device_names.parse_exact_filter(text)
        self._filters.setdefault(job, {})[index] = filters

    def as_dict(self) -> dict[str, dict[int, list[str]]]:
        """Return each job's tasks with their filters, sorted; a new object at each call."""
        return {
            job: {index: list(texts) for index, texts in sorted(tasks.items())}
            for job, tasks in sorted(self._filters.items())
        }

    def as_cluster_device_filters(self) -> Any:
        """Return the filters as a new ``tensorflow.ClusterDeviceFilters``, TensorFlow's protobuf message.

        It is of TensorFlow's class where it is installed, else of ours.

        Raises:
            ProtobufNotFoundError: protobuf is not installed.
        """
        message = _protobuf.messages("as_cluster_device_filters()").ClusterDeviceFilters()
        for job, tasks in self.as_dict().items():
            declared = message.jobs.add(name=job)
            for index, texts in tasks.items():
                if texts:  # as in TensorFlow: a task without filters is left out
                    declared.tasks[index].device_filters.extend(texts)
        return message

    def as_tensorflow(self) -> Any:
        """Return the filters as a new ``tf.config.experimental.ClusterDeviceFilters``.

        Raises:
            TensorFlowNotFoundError: TensorFlow is not installed.
        """
        return tensorflow_api.device_filters(self._filters, "as_tensorflow()")

    def _as_cluster_device_filters(self) -> Any:
        """Answer by the name that TensorFlow's class has for it, to code that takes either."""
        return self.as_cluster_device_filters()

    def __copy__(self) -> ClusterDeviceFilters:
        return read_filters(self._filters)

    def __eq__(self, other: object) -> bool:
        return self._filters == other._filters if isinstance(other, ClusterDeviceFilters) else NotImplemented

    def __repr__(self) -> str:
        return f"ClusterDeviceFilters({self.as_dict()!r})"


def device_filter_matches(filter: str, device: str) -> bool:  # noqa: A002 - TensorFlow's word for it
    """Return whether a device filter shows a device, as TensorFlow's runtime decides it.

    A task with several filters sees what any of them shows; without filters it sees everything; and it always sees its
    own devices.  A part that either text leaves out fits anything, so ``/job:ps/task:0`` as a device asks whether some
    device of that task can be shown.

    Args:
        filter: the device filter, such as ``/job:ps``.
        device: the device's full name, such as ``/job:ps/replica:0/task:1/device:CPU:0``.

    Raises:
        DeviceFilterError: the filter is one that TensorFlow cannot read; with the position.
        DeviceNameError: the device's name is one that TensorFlow cannot read; with the position.
        ArgumentTypeError: one of them is not a text.
    """
    return device_names.parse(filter, DeviceFilterError).is_compatible_with(device_names.parse(device))


def read_filters(declared: Any) -> ClusterDeviceFilters:
    """Read filters of any form: TensorFlow's or our class, the protobuf message, or job to index to a list."""
    if isinstance(declared, ClusterDeviceFilters):
        return declared
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


def filters_by_task(declared: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Return the filters of each job's tasks from any form of them, or None."""
    read = {} if declared is None else read_filters(declared).as_dict()
    return {job: {index: tuple(texts) for index, texts in tasks.items()} for job, tasks in read.items()}


def filters_in_message(message: Any) -> dict[str, dict[int, tuple[str, ...]]]:
    """Read TensorFlow's protobuf message of device filters, as it is."""
    return {job.name: {index: tuple(one.device_filters) for index, one in job.tasks.items()} for job in message.jobs}


def _job(name: str | bytes) -> str:
    if not isinstance(name, (str, bytes)):
        raise ArgumentTypeError(f"the job's name {name!r} must be text, not {type(name).__name__}")
    try:
        text = name if isinstance(name, str) else name.decode()
    except UnicodeDecodeError as error:
        raise DeviceNameError(f"the job's name {name!r} is not UTF-8", position=error.start) from None
    position = 0
    try:
        # TensorFlow reads this back when it looks the task up.
        if device_names.parse(f"/job:{text}").job == text:
            return text
    except DeviceNameError as error:
        position = error.position - len("/job:")
    raise DeviceNameError(
        f"the job's name {text!r} is wrong at position {position}: it is a letter, then letters, digits and _",
        position=position,
    )


def _index(index: Any) -> int:
    number = _arguments.index(index, "the task index")
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
