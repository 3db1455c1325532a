"""The content of a view: tasks, this process's own task, device filters and accelerators.

Pure: no files, no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.errors import NoSuchTaskError, TaskIdentityError

#: The digits of the largest index that fits TensorFlow's 32 bits, one left.
_DIGITS: Final = 9


class Task(NamedTuple):
    """A task of the cluster, as text by the name that TensorFlow has for it.

    Attributes:
        job: its job.
        index: its index there.
        address: its "host:port".
    """

    job: str
    index: int  # type: ignore[assignment]  # no task needs tuple.index()
    address: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index}"


def own_task(environ: Mapping[str, str]) -> Task | None:
    """Read which task this pod is; None outside a TFCluster's pods, where none of the three variables is set."""
    names = (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS)
    unset = [name for name in names if not environ.get(name)]
    if len(unset) == len(names):
        return None
    if unset:
        raise TaskIdentityError(
            f"the environment has {' and '.join(name for name in names if name not in unset)}, but not "
            f"{' and '.join(unset)}: the operator sets all three in every container, so look for what unsets them in "
            "the pod"
        )
    job, index, address = (environ[name] for name in names)
    if not (index.isascii() and index.isdigit() and len(index) <= _DIGITS):
        raise TaskIdentityError(f"{contract.ENV_TASK_INDEX}={index[:100]!r} is not a task index (0, 1, 2, ...)")
    for name, value in ((contract.ENV_JOB, job), (contract.ENV_ADDRESS, address)):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise TaskIdentityError(f"{name}={value[:100]!r} is not UTF-8") from None
    return Task(job, int(index), address)


@dataclass(frozen=True, slots=True)
class Membership:
    """One epoch of the cluster as this process's own task sees it.

    Attributes:
        view: the view that was read.
        own: the own task, or None outside the cluster's pods.
    """

    view: contract.View
    own: Task | None

    def jobs(self) -> dict[str, list[str] | dict[int, str]]:
        """Return the tasks in the form of ``tf.train.ClusterSpec.as_dict``.

        The own task is always among them, because TensorFlow's servers and strategies need it, even where its own
        device filters hide it, and also where it is an evaluator, which no other task sees.

        Returns:
            Each job's addresses: a list where the indices are dense, else a map from index to address.
        """
        return contract.jobs_of(self.view, self.own)

    def tasks(self) -> Iterator[Task]:
        """Yield each task, the jobs by name and the tasks by index."""
        for job, tasks in sorted(self.jobs().items()):
            listed = tasks.items() if isinstance(tasks, dict) else enumerate(tasks)
            yield from (Task(job, index, address) for index, address in sorted(listed))

    def address_of(self, job: str, index: int) -> str:
        """Look up a task's "host:port".

        Raises:
            NoSuchTaskError: no task of that job and index is in :meth:`jobs`.
            ArgumentError: ``job`` is not a text, or ``index`` not a whole number.
        """
        job, index = _arguments.text(job, "job"), _arguments.index(index, "index")
        tasks = self.jobs().get(job, [])
        if not _has(tasks, index):
            raise self._no_such_task(job, index)
        return tasks[index]

    def device_filters(self) -> dict[str, dict[int, tuple[str, ...]]]:
        """Return the device filters of each job's tasks; a task without filters is left out.

        They reach up to maxReplicas: TensorFlow keeps the first list that it gets for a task, so the tasks that a
        later epoch may add are declared now.
        """
        return {
            job: {index: one.filters for one in of_job for index in range(one.start, one.stop)}
            for job, of_job in sorted(self.view.device_filters.items())
        }

    def leaving(self) -> tuple[tuple[str, int], ...]:
        """List the tasks that leave, by job and index: no longer declared, they run for drainTimeoutSeconds at most.

        A task whose pod was deleted before the last one of its job's is still among them.
        """
        return tuple(
            (job, index)
            for job, of_job in sorted(self.view.leaving.items())
            for start, stop in of_job
            for index in range(start, stop)
        )

    def is_leaving(self, job: str | None, index: int | None) -> bool:
        """Return whether a task leaves; the unknown task, None, does not."""
        return index is not None and any(start <= index < stop for start, stop in self.view.leaving.get(job or "", ()))

    def accelerators(self, job: str, index: int) -> dict[str, int]:
        """Count the healthy devices that a task holds, by extended resource, such as {"nvidia.com/gpu": 2}.

        Raises:
            NoSuchTaskError: the task is neither in the ClusterSpec nor the own one.
            ArgumentError: ``job`` is not a text, or ``index`` not a whole number.
        """
        job, index = _arguments.text(job, "job"), _arguments.index(index, "index")
        own = self.own is not None and self.own[:2] == (job, index)
        if not own and not _has(self.jobs().get(job, []), index):
            raise self._no_such_task(job, index)
        held = self.view.accelerators.get(job, contract.JobAccelerators())
        return dict(held.limits) | dict(held.tasks.get(index, {}))

    def device_counts(self, job: str, index: int) -> dict[str, int]:
        """Count a task's accelerators by TensorFlow's device type, such as {"GPU": 2}; see :meth:`accelerators`."""
        return device_counts(self.accelerators(job, index))

    @property
    def mark(self) -> tuple[str, int]:
        """The difference of another epoch: a cluster that was deleted and created again counts from 1 again."""
        return self.view.uid, self.view.epoch

    def _no_such_task(self, job: str, index: int) -> NoSuchTaskError:
        view = self.view
        where = (
            f"the view of cluster {view.namespace}/{view.name}, epoch {view.epoch}: it does not exist, or this task's "
            "device filters hide it; `python -m tfcluster_resolver show` lists what this task sees"
        )
        return NoSuchTaskError(f"no task {index!r} of job {job!r} in {where if view.name else 'the given ClusterSpec'}")


def device_counts(resources: Mapping[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for resource, count in resources.items():
        device = contract.device_type(resource)
        if device is not None:
            counts[device] = counts.get(device, 0) + count
    return counts


def _has(tasks: Sequence[str] | Mapping[int, str], index: int) -> bool:
    return index in tasks if isinstance(tasks, Mapping) else 0 <= index < len(tasks)
