"""The intended writes: what a plan is made of.

An action names what to do and why; it carries the UID of what it changes or deletes, so that an object reborn under the
same name is never hit.  Manifests are built when an action is carried out, not before: 2,000 of them need not exist at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tfcluster_operator.model.spec import Task
from tfcluster_operator.model.views import JobViews

Kind = Literal["Service", "ConfigMap", "Pod"]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the cluster's headless Service."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class CreateConfigMap:
    """Create the ConfigMap with one job's views."""

    views: JobViews
    reason: str


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one task's pod; ``replaces`` is the UID of a finished pod that is deleted first.

    ``attempt`` is how many failures in a row went before it, ``incarnation`` how many restarts of the whole job.
    """

    task: Task
    name: str
    view_digest: str
    attempt: int
    reason: str
    replaces: str = ""
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge ``change`` into the object of this name if it still has this UID; ``None`` in it removes a key."""

    kind: Kind
    name: str
    uid: str
    change: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of this name if it still has this UID; ``force`` asks no node whether its containers ended."""

    kind: Kind
    name: str
    uid: str
    reason: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class CreateResolver:
    """Create the ConfigMap that delivers the resolver into the pods."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteCluster:
    """Delete the TFCluster itself: it has finished and its time to live is over."""

    name: str
    uid: str
    reason: str


Action = CreateService | CreateConfigMap | CreateResolver | CreatePod | Patch | Delete | DeleteCluster


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that keeps the cluster from being ready and that no action cures: a reason and a message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now.

    ``stages`` are carried out one after the other, the actions of one stage side by side: each prefix of them is a
    legal stopping point.  ``wake_after`` is when to look again though nothing happens, in seconds.
    """

    stages: tuple[tuple[Action, ...], ...]
    findings: tuple[Finding, ...] = ()
    wake_after: float | None = None
    views: tuple[JobViews, ...] = field(default=())

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every action, in order."""
        return tuple(action for stage in self.stages for action in stage)
