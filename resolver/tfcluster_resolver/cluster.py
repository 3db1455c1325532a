"""What a view says of the cluster: its tasks, which of them this process is, and what a new epoch changed.

It decides which tasks the ClusterSpec has, which device filters each gets, how many accelerators each holds, and what
is a new epoch.  Pure: no files, no environment of its own, no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.errors import MalformedViewError, NoSuchTaskError, TaskIdentityError

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver


EVALUATOR: Final = contract.EVALUATOR


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
    """Read which task this pod is.

    Args:
        environ: the process's environment.

    Returns:
        The task, or None outside a TFCluster's pods, where none of the three variables is set.

    Raises:
        TaskIdentityError: only some of the variables are set, the index is none, or one of them is no text.
    """
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


#: The digits of the largest index that fits TensorFlow's 32 bits, one left.
_DIGITS: Final = 9

_Tasks: TypeAlias = Sequence[str] | Mapping[int, str]

_MOST: Final = contract.MOST_RANGED
#: What a refused look-up advises.
_LOOK: Final = "`python -m tfcluster_resolver show` lists what this task sees"


@dataclass(frozen=True, slots=True)
class Membership:
    """One epoch of the cluster as the own task sees it.

    Attributes:
        view: the view that was read.
        own: the own task, or None outside the cluster's pods.
    """

    view: contract.View
    own: Task | None

    def jobs(self) -> dict[str, list[str] | dict[int, str]]:
        """List the tasks in the form of ``tf.train.ClusterSpec.as_dict``.

        The own task is always among them, because TensorFlow's servers and strategies need it, even where its own
        device filters hide it, and also where it is an evaluator, which no other task sees.

        Returns:
            Each job's addresses: a list where the indices are dense, else a map from index to address.
        """
        return contract.jobs_of(self.view, self.own)

    def tasks(self) -> Iterator[Task]:
        """Give each task, the jobs by name and the tasks by index."""
        for job, tasks in sorted(self.jobs().items()):
            for index, address in sorted(_by_index(tasks).items()):
                yield Task(job, index, address)

    def address_of(self, job: str, index: int) -> str:
        """Look up a task's "host:port".

        Args:
            job: the job's name.
            index: the task's index.

        Returns:
            The address.

        Raises:
            NoSuchTaskError: no task of that job and index is in :meth:`jobs`.
            ArgumentError: one of them is no job or no index.
        """
        job, index = _arguments.text(job, "job"), _arguments.index(index, "index")
        tasks = self.jobs().get(job, [])
        if not _has(tasks, index):
            raise NoSuchTaskError(f"no task {index!r} of job {job!r} {self._where()}")
        return tasks[index]

    def device_filters(self) -> dict[str, dict[int, tuple[str, ...]]]:
        """Spell out the view's device filters task by task.

        They reach up to maxReplicas: TensorFlow keeps the first list that it gets for a task, so the tasks that a
        later epoch may add are declared now.

        Returns:
            The filters of each job's tasks; a task without filters is left out.

        Raises:
            MalformedViewError: they are of more tasks than a view may name.
        """
        if sum(one.stop - one.start for ranges in self.view.device_filters.values() for one in ranges) > _MOST:
            raise MalformedViewError(
                f"the view {self.view.namespace}/{self.view.name} has filters of over {_MOST} tasks"
            )
        return {
            job: {index: one.filters for one in ranges for index in range(one.start, one.stop)}
            for job, ranges in sorted(self.view.device_filters.items())
        }

    def leaving(self) -> tuple[tuple[str, int], ...]:
        """List the tasks that leave: they are no longer declared, and run until they end, or for drainTimeoutSeconds.

        Returns:
            Jobs and indices; a task whose pod is gone before the last one of its job's is among them still.

        Raises:
            MalformedViewError: they are more tasks than a view may name.
        """
        ranges = [(job, start, stop) for job, of_job in sorted(self.view.leaving.items()) for start, stop in of_job]
        if sum(stop - start for _, start, stop in ranges) > _MOST:
            raise MalformedViewError(f"in the view {self.view.namespace}/{self.view.name} over {_MOST} tasks leave")
        return tuple((job, index) for job, start, stop in ranges for index in range(start, stop))

    def is_leaving(self, job: str | None, index: int | None) -> bool:
        """Tell whether a task leaves.

        Args:
            job: the job's name; None for a task that nobody knows, which does not.
            index: the task's index.
        """
        return index is not None and any(start <= index < stop for start, stop in self.view.leaving.get(job or "", ()))

    def accelerators(self, job: str, index: int) -> dict[str, int]:
        """Count the healthy devices that a task holds.

        Args:
            job: the job's name.
            index: the task's index.

        Returns:
            The count by extended resource, such as {"nvidia.com/gpu": 2}.

        Raises:
            NoSuchTaskError: the task is neither in the ClusterSpec nor the own one.
            ArgumentError: one of them is no job or no index.
        """
        job, index = _arguments.text(job, "job"), _arguments.index(index, "index")
        own = self.own is not None and (self.own.job, self.own.index) == (job, index)
        if not own and not _has(self.jobs().get(job, []), index):
            raise NoSuchTaskError(f"no task {index!r} of job {job!r} {self._where()}")
        held = self.view.accelerators.get(job, contract.JobAccelerators())
        return dict(held.limits) | dict(held.tasks.get(index, {}))

    def device_counts(self, job: str, index: int) -> dict[str, int]:
        """Count a task's accelerators by TensorFlow's device type.

        Args:
            job: the job's name.
            index: the task's index.

        Returns:
            Counts such as {"GPU": 2}; a type of which the task asks for nothing is left out.

        Raises:
            NoSuchTaskError: the task is neither in the ClusterSpec nor the own one.
            ArgumentError: one of them is no job or no index.
        """
        counts: dict[str, int] = {}
        for resource, count in self.accelerators(job, index).items():
            device = contract.device_type(resource)
            if device is not None:
                counts[device] = counts.get(device, 0) + count
        return counts

    @property
    def mark(self) -> tuple[str, int]:
        """What another epoch differs in: a cluster that was deleted and made again begins to count anew."""
        return self.view.uid, self.view.epoch

    def _where(self) -> str:
        view = self.view
        if not view.name:
            return "in the given ClusterSpec"
        return (
            f"in the view of cluster {view.namespace}/{view.name}, epoch {view.epoch}: it does not exist, or this "
            f"task's device filters hide it; {_LOOK}"
        )


def _by_index(tasks: _Tasks) -> dict[int, str]:
    return dict(tasks) if isinstance(tasks, Mapping) else dict(enumerate(tasks))


def _has(tasks: _Tasks, index: int) -> bool:
    return index in tasks if isinstance(tasks, Mapping) else 0 <= index < len(tasks)


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """What a new epoch of the cluster changed for this task.

    Attributes:
        epoch: the new epoch.
        added: the tasks that came, by job and index; one whose address changed is in ``removed`` too.
        removed: the tasks that went, the own one as well if it did: its ClusterSpec keeps it, because TensorFlow needs
            it there.
        filters_changed: whether the device filters of any task changed.
        resolver: a snapshot of the resolver at this epoch.
        leaving: the tasks that leave now, by job and index: they still run for their job's drainTimeoutSeconds.
    """

    epoch: int
    added: tuple[Task, ...]
    removed: tuple[Task, ...]
    filters_changed: bool
    resolver: TFClusterResolver
    leaving: tuple[tuple[str, int], ...] = ()


def difference(before: Membership, now: Membership) -> tuple[tuple[Task, ...], tuple[Task, ...], bool]:
    """Compare two epochs.

    Args:
        before: the cluster as it was.
        now: the cluster as it is.

    Returns:
        The tasks that came, those that went, and whether any device filter changed.
    """
    # NB: the view's own tasks; the own one is put into each ClusterSpec, also when it is declared no more.
    old, new = (set(Membership(view=one.view, own=None).tasks()) for one in (before, now))
    return tuple(sorted(new - old)), tuple(sorted(old - new)), before.device_filters() != now.device_filters()
