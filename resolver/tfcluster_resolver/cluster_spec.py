"""``tf.train.ClusterSpec`` without TensorFlow.

It decides what a ClusterSpec holds and when two are equal, as TensorFlow 2.21 does.  It knows no protobuf, so it
neither takes nor makes a ClusterDef; and where TensorFlow's behaviour is an accident, it refuses with a clear error.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

#: What a protobuf's int32 key can hold.
_INDEX_LIMIT: Final = 2**31


class ClusterSpec:
    """The tasks of a cluster and their addresses, by job; behaves as ``tf.train.ClusterSpec``.

    It equals a TensorFlow ClusterSpec with the same tasks.  Unlike TensorFlow's, it refuses negative indices, which
    TensorFlow takes and then loses or misplaces.

    Args:
        cluster: job names mapped to lists of addresses ("host:port") or to maps from index to address; or a
            ClusterSpec.

    Raises:
        TypeError: ``cluster`` is neither, a job's tasks are no list, tuple or dict, or a name or an address is no text.
        ValueError: an index is no whole number, is negative, or exceeds 2**31 - 1; or bytes are not UTF-8.
    """

    __hash__ = None  # type: ignore[assignment]  # equal to dictionaries, as TensorFlow's is, so it cannot be hashed

    def __init__(self, cluster: dict[Any, Any] | ClusterSpec) -> None:
        if isinstance(cluster, ClusterSpec):
            # A copy goes through the protobuf in TensorFlow: text instead of bytes, jobs in order.
            self._jobs: dict[Any, dict[int, Any]] = {
                _text(job): {index: _text(address) for index, address in sorted(tasks.items())}
                for job, tasks in sorted(cluster._jobs.items())  # noqa: SLF001 - of the same class
            }
        elif isinstance(cluster, dict):
            self._jobs = {job: _tasks_of(job, tasks) for job, tasks in cluster.items()}
            _check(self._jobs)
        else:
            raise TypeError(
                "a ClusterSpec is made from a dict of job names to tasks, or from a ClusterSpec, "
                f"not from {type(cluster).__name__}"
            )

    @property
    def jobs(self) -> list[Any]:
        """The names of the jobs, in the order in which they were given."""
        return list(self._jobs)

    def as_dict(self) -> dict[Any, list[Any] | dict[int, Any]]:
        """Give the tasks as dictionaries.

        Returns:
            Each job's addresses: a list where its indices run from 0 without a gap, else a map from index to address
            (empty for a job without tasks).
        """
        return {
            job: self.job_tasks(job) if _dense(tasks) else dict(sorted(tasks.items()))
            for job, tasks in self._jobs.items()
        }

    def num_tasks(self, job_name: Any) -> int:
        """Count the tasks of a job.

        Args:
            job_name: the job.

        Returns:
            The number of its tasks.

        Raises:
            ValueError: there is no such job.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: Any) -> list[int]:
        """List the indices of a job's tasks.

        Args:
            job_name: the job.

        Returns:
            The indices, ascending.

        Raises:
            ValueError: there is no such job.
        """
        return sorted(self._job(job_name))

    def task_address(self, job_name: Any, task_index: Any) -> Any:
        """Look up where a task listens.

        Args:
            job_name: the job.
            task_index: the task's index in it.

        Returns:
            Its address, as it was given.

        Raises:
            ValueError: there is no such job, or no such task in it.
        """
        tasks = self._job(job_name)
        if task_index not in tasks:
            raise ValueError(f"job {job_name!r} has no task with index {task_index!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: Any) -> list[Any]:
        """List the addresses of a job's tasks by index.

        Args:
            job_name: the job.

        Returns:
            One entry for each index from 0 to the highest; None where a sparse job has no task.

        Raises:
            ValueError: there is no such job, or it has no tasks.
        """
        tasks = self._job(job_name)
        if not tasks:
            raise ValueError(f"job {job_name!r} has no tasks to list")
        return [tasks.get(index) for index in range(max(tasks) + 1)]

    def _job(self, name: Any) -> dict[int, Any]:
        if name not in self._jobs:
            raise ValueError(f"no job {name!r} in the cluster, only {self.jobs}")
        return self._jobs[name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        tasks = self.as_dict()
        return "ClusterSpec({" + ", ".join(f"{job!r}: {tasks[job]!r}" for job in sorted(tasks)) + "})"


def _tasks_of(job: Any, tasks: Any) -> dict[int, Any]:
    if isinstance(tasks, (list, tuple)):
        return dict(enumerate(tasks))
    if not isinstance(tasks, dict):
        raise TypeError(
            f"the tasks of job {job!r} must be a list or tuple of addresses, or a dict from index to address, "
            f"not {type(tasks).__name__}"
        )
    return {int(index): address for index, address in tasks.items()}


def _check(jobs: dict[Any, dict[int, Any]]) -> None:
    """Refuse what a ClusterDef could not hold; sorting refuses names that mix text and bytes, as TensorFlow does."""
    for job, tasks in sorted(jobs.items(), key=itemgetter(0)):
        if not isinstance(job, (str, bytes)):
            raise TypeError(f"the job name {job!r} must be text, not {type(job).__name__}")
        _check_encoding(job)
        for index, address in sorted(tasks.items()):
            if not isinstance(address, (str, bytes, bytearray)):
                raise TypeError(
                    f"the address {address!r} of task {index} of job {job!r} must be text, not {type(address).__name__}"
                )
            if not 0 <= index < _INDEX_LIMIT:
                raise ValueError(f"task index {index} of job {job!r} is not between 0 and {_INDEX_LIMIT - 1}")
            _check_encoding(address)


def _check_encoding(text: str | bytes | bytearray) -> None:
    if isinstance(text, str):
        text.encode()
    else:
        text.decode()


def _text(text: str | bytes | bytearray) -> str:
    return text if isinstance(text, str) else text.decode()


def _dense(tasks: dict[int, Any]) -> bool:
    return bool(tasks) and max(tasks) + 1 == len(tasks)
