"""Which task of the cluster this process is.

The operator says so by three environment variables, because views are shared between tasks.  No files are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tfcluster_resolver import contract
from tfcluster_resolver.errors import TaskIdentityError

EVALUATOR: Final = contract.EVALUATOR


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """A task of the cluster: its job, its index there, and its "host:port"."""

    job: str
    index: int
    address: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}"


@dataclass(frozen=True, slots=True)
class OwnTask:
    """The task that this pod is: its job, its index there, and its "host:port"."""

    job: str
    index: int
    address: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index}"


def own_task(environ: Mapping[str, str]) -> OwnTask | None:
    """Read which task this pod is.

    Args:
        environ: the process's environment.

    Returns:
        The task, or None outside a TFCluster's pods, where none of the three variables is set.

    Raises:
        TaskIdentityError: only some of the variables are set, or the index is no number.
    """
    names = (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS)
    unset = [name for name in names if not environ.get(name)]
    if len(unset) == len(names):
        return None
    if unset:
        raise TaskIdentityError(
            f"{', '.join(unset)} not set, although {', '.join(name for name in names if name not in unset)} is: "
            "the operator sets all three in every container, so look for what unsets them in the pod"
        )
    job, index, address = (environ[name] for name in names)
    if not (index.isascii() and index.isdigit()):
        raise TaskIdentityError(f"{contract.ENV_TASK_INDEX}={index!r} is not a task index (0, 1, 2, ...)")
    return OwnTask(job=job, index=int(index), address=address)
