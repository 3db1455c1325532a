"""``tf.train.ClusterSpec`` without TensorFlow, as TensorFlow 2.21 has it.

If TensorFlow's behaviour is an accident, it raises a clear error.  It needs protobuf only to make a ClusterDef.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from tfcluster_resolver import _protobuf
from tfcluster_resolver.errors import ArgumentTypeError, ArgumentValueError

#: A protobuf's int32 key is smaller.
_INDEX_LIMIT: Final = 2**31


class ClusterSpec:
    """The tasks of a cluster and their addresses, by job; behaves as ``tf.train.ClusterSpec``.

    It equals a TensorFlow ClusterSpec with the same tasks.  Unlike TensorFlow's, it rejects negative indices, which
    TensorFlow takes and then loses or misplaces, and it shares no message with its maker or its readers.

    Args:
        cluster: job names mapped to lists of addresses ("host:port") or to maps from index to address; or a ClusterDef
            message, or a ClusterSpec, both of TensorFlow's classes or ours.

    Raises:
        ArgumentTypeError: ``cluster`` has another type, a job's tasks are not a list, tuple or dict, or a name or an
            address is not a text.
        ArgumentValueError: an index is not a whole number, is negative, or exceeds 2**31 - 1; a text is not UTF-8; or a
            ClusterDef names a job twice.
    """

    __hash__ = None  # type: ignore[assignment]  # equal to dictionaries, as TensorFlow's is, so it cannot be hashed

    def __init__(self, cluster: dict[Any, Any] | ClusterSpec | Any) -> None:
        #: Whether a ClusterDef has the jobs in the given order.
        self._keeps_order = not isinstance(cluster, dict)
        self._jobs: dict[Any, dict[int, Any]]
        if isinstance(cluster, dict):
            self._jobs = {job: _tasks_of(job, tasks) for job, tasks in cluster.items()}
            _check(self._jobs)
        elif isinstance(cluster, ClusterSpec):
            # TensorFlow copies by way of the message: bytes become text, and the jobs get the message's order.
            self._jobs = {
                _text(job): {index: _text(address) for index, address in tasks.items()}
                for job, tasks in cluster._in_message_order()  # noqa: SLF001 - of the same class
            }
        else:
            self._jobs = _jobs_of_message(cluster)
        for job, tasks in self._jobs.items():
            if tasks and min(tasks) < 0:
                raise ArgumentValueError(
                    f"task index {min(tasks)} of job {job!r} is below 0: TensorFlow would count it from the end of the "
                    "job, or lose it"
                )

    @property
    def jobs(self) -> list[Any]:
        """The names of the jobs, in the given order."""
        return list(self._jobs)

    def as_dict(self) -> dict[Any, list[Any] | dict[int, Any]]:
        """Return each job's addresses: a list where its indices run from 0 without a gap, else an index map.

        A job without tasks has an empty map.
        """
        return {
            job: self.job_tasks(job) if tasks and max(tasks) + 1 == len(tasks) else dict(sorted(tasks.items()))
            for job, tasks in self._jobs.items()
        }

    def num_tasks(self, job_name: Any) -> int:
        """Count the tasks of a job.

        Raises:
            ArgumentValueError: the job does not exist.
            ArgumentTypeError: ``job_name`` cannot name a job, such as a list.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: Any) -> list[int]:
        """List the indices of a job's tasks, ascending; it raises as :meth:`num_tasks`."""
        return sorted(self._job(job_name))

    def task_address(self, job_name: Any, task_index: Any) -> Any:
        """Look up a task's address, as it was given.

        Raises:
            ArgumentValueError: the job or the task does not exist.
        """
        tasks = self._job(job_name)
        if not _is_key(task_index, tasks):
            raise ArgumentValueError(f"job {job_name!r} has no task with index {task_index!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: Any) -> list[Any]:
        """List the addresses of a job's tasks, for each index from 0 to the highest; None for a missing task.

        Raises:
            ArgumentValueError: the job does not exist or is empty.
        """
        tasks = self._job(job_name)
        if not tasks:
            raise ArgumentValueError(f"job {job_name!r} has no tasks to list")
        addresses = [None] * (max(tasks) + 1)
        for index, address in tasks.items():
            addresses[index] = address
        return addresses

    def as_cluster_def(self) -> Any:
        """Return the tasks as a new ``ClusterDef``, the protobuf message that TensorFlow's servers take.

        It is of TensorFlow's class where it is installed, else of ours with the same fields.  Its jobs are sorted by
        name, or in the order of the ClusterDef that this ClusterSpec was created from.

        Raises:
            ProtobufNotFoundError: protobuf is not installed.
        """
        message = _protobuf.messages("as_cluster_def()").ClusterDef()
        for job, tasks in self._in_message_order():
            message.job.add(name=_text(job)).tasks.update({index: _text(address) for index, address in tasks.items()})
        return message

    def _in_message_order(self) -> list[tuple[Any, dict[int, Any]]]:
        jobs = list(self._jobs.items())
        return jobs if self._keeps_order else sorted(jobs, key=itemgetter(0))

    def _job(self, name: Any) -> dict[int, Any]:
        if not _is_key(name, self._jobs):
            raise ArgumentValueError(f"no job {name!r} in the cluster, only {self.jobs}")
        return self._jobs[name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    #: Python 2's name for it, which TensorFlow's pages list.
    __nonzero__ = __bool__

    def __eq__(self, other: object) -> Any:
        # This leaves the answer to others, such as TensorFlow's ClusterSpec, as TensorFlow does.
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    def __repr__(self) -> str:
        tasks = self.as_dict()
        return "ClusterSpec({" + ", ".join(f"{job!r}: {tasks[job]!r}" for job in sorted(tasks)) + "})"


def _tasks_of(job: Any, tasks: Any) -> dict[int, Any]:
    if isinstance(tasks, (list, tuple)):
        return dict(enumerate(tasks))
    if not isinstance(tasks, dict):
        raise ArgumentTypeError(
            f"the tasks of job {job!r} must be a list or tuple of addresses, or a dict from index to address, "
            f"not {type(tasks).__name__}"
        )
    return {_index(job, index): address for index, address in tasks.items()}


def _index(job: Any, index: Any) -> int:
    try:
        return int(index)
    except TypeError:
        raise ArgumentTypeError(f"the task index {index!r} of job {job!r} must be a whole number") from None
    except (ValueError, OverflowError):
        raise ArgumentValueError(f"the task index {index!r} of job {job!r} is not a whole number") from None


def _jobs_of_message(cluster: Any) -> dict[str, dict[int, str]]:
    """Read a ClusterDef, or that of TensorFlow's ClusterSpec, which TensorFlow copies by way of it too."""
    message = cluster.as_cluster_def() if hasattr(type(cluster), "as_cluster_def") else cluster
    if not _protobuf.is_cluster_def(message):
        raise ArgumentTypeError(
            "a ClusterSpec is made from a dict of job names to tasks, a ClusterDef message or a ClusterSpec, "
            f"not from {type(cluster).__name__}"
        )
    jobs: dict[str, dict[int, str]] = {}
    for job in message.job:
        if job.name in jobs:
            raise ArgumentValueError(f"the ClusterDef names the job {job.name!r} twice: only one of both could be seen")
        jobs[job.name] = dict(job.tasks)
    return jobs


def _check(jobs: dict[Any, dict[int, Any]]) -> None:
    """Reject what a ClusterDef could not hold, in TensorFlow's order."""
    try:
        by_name = sorted(jobs.items(), key=itemgetter(0))
    except TypeError:
        raise ArgumentTypeError(f"the job names {list(jobs)!r} must all be text, or all bytes") from None
    for job, tasks in by_name:
        if not isinstance(job, (str, bytes)):
            raise ArgumentTypeError(f"the job name {job!r} must be text, not {type(job).__name__}")
        if wrong := _not_utf8(job):
            raise ArgumentValueError(f"the job name {job!r} is not UTF-8: {wrong}")
        for index, address in sorted(tasks.items(), key=itemgetter(0)):
            if not isinstance(address, (str, bytes, bytearray)):
                raise ArgumentTypeError(
                    f"the address {address!r} of task {index} of job {job!r} must be text, not {type(address).__name__}"
                )
            if not -_INDEX_LIMIT <= index < _INDEX_LIMIT:
                raise ArgumentValueError(f"task index {index} of job {job!r} is not between 0 and {_INDEX_LIMIT - 1}")
            if wrong := _not_utf8(address):
                raise ArgumentValueError(
                    f"the address {address!r} of task {index} of job {job!r} is not UTF-8: {wrong}"
                )


def _not_utf8(text: str | bytes | bytearray) -> UnicodeError | None:
    try:
        _text(text).encode()
    except UnicodeError as error:
        return error
    return None


def _text(text: str | bytes | bytearray) -> str:
    return text if isinstance(text, str) else text.decode()


def _is_key(value: Any, there: dict[Any, Any]) -> bool:
    try:
        return value in there
    except TypeError:
        raise ArgumentTypeError(f"{value!r} cannot name a job or a task: it is a {type(value).__name__}") from None
