"""What a command speaks of: the cluster as a task sees it, and which task that is.

It decides what is meant where nobody says so: the mounted view, and the task that this pod is.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import EVALUATOR, Membership, Task, own_task
from tfcluster_resolver.errors import ArgumentTypeError, TaskIdentityError
from tfcluster_resolver.views.file import ViewFile

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver


def view_directory() -> str:
    """Tell where the view is mounted, as far as nobody says otherwise."""
    return os.environ.get(contract.ENV_DIRECTORY) or contract.DEFAULT_DIRECTORY


def read(directory: str) -> tuple[Membership, Path]:
    """Read the cluster as this pod's task sees it.

    Raises:
        ViewError: the view is missing, unreadable, malformed or too new.
        TaskIdentityError: the environment names the pod's task incompletely.
    """
    own = own_task(os.environ)
    found = ViewFile(directory, own.index if own is not None else None).read()
    return Membership(view=found.view, own=own), found.path


def seen_by(resolver: TFClusterResolver | None) -> Membership:
    """Give the cluster with the task that a resolver speaks for as the own one.

    Raises:
        NoSuchTaskError: the view does not show the task.
        ViewError: the view is missing, unreadable, malformed or too new.
        TaskIdentityError: the environment names the pod's task incompletely.
        ArgumentTypeError: it is no TFClusterResolver.
    """
    if resolver is None:
        return read(view_directory())[0]
    from tfcluster_resolver.resolver import TFClusterResolver  # noqa: PLC0415 - commands start without it

    if not isinstance(resolver, TFClusterResolver):
        raise ArgumentTypeError(f"resolver must be a TFClusterResolver, not {type(resolver).__name__}")
    membership = resolver.membership()
    job, index, own = resolver.task_type, resolver.task_id, membership.own
    view = replace(membership.view, rpc_layer=resolver.rpc_layer)
    if job is None or index is None:
        return Membership(view=view, own=None)
    if own is not None and (own.job, own.index) == (job, index):
        return Membership(view=view, own=own)
    # An evaluator is in no ClusterSpec but its own, and nobody connects to it.
    outside = job == EVALUATOR and EVALUATOR not in view.jobs
    return Membership(view=view, own=Task(job, index, "" if outside else membership.address_of(job, index)))


def task_of(membership: Membership, purpose: str) -> Task:
    """Give the own task, for what makes no sense without one.

    Raises:
        TaskIdentityError: there is none.
    """
    if membership.own is None:
        raise TaskIdentityError(
            f"this process is not in a TFCluster's pod ({contract.ENV_JOB}, {contract.ENV_TASK_INDEX} and "
            f"{contract.ENV_ADDRESS} are unset) and no resolver names a task, so {purpose}"
        )
    return membership.own
