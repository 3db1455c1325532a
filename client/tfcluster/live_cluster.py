"""A TFCluster that is there: how it stands, as typed values, and a handle that acts on it and on no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tfcluster.event_log import Event
from tfcluster.kubernetes_api import Object
from tfcluster.log_lines import LogLine
from tfcluster.picture import picture_of
from tfcluster.task_names import spell
from tfcluster.task_picture import TaskPicture

if TYPE_CHECKING:
    from tfcluster.client import Client


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: its status "True", "False" or "Unknown", its reason in one word, and its message."""

    status: str
    reason: str
    message: str

    def __bool__(self) -> bool:
        """Whether it is true."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """How a TFCluster stood when it was looked at.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: its UID.
        state: in one word: "Ready", "NotReady", "Succeeded", "Failed", "Suspended", "Stalled", "Deleting", "Updating",
            "Unseen" or "Elsewhere", as ``tfcluster status`` has it.
        cause: why, in the operator's words.
        verdict: "Succeeded" or "Failed" where it has finished, else None.
        epoch: the number of its membership: it grows with each edit that changes what tasks see.
        restarts: how many failures were answered by a restart.
        tasks: its tasks; none where this user may not list pods.
        conditions: its conditions by type.
    """

    name: str
    namespace: str
    uid: str
    state: str
    cause: str
    verdict: Literal["Succeeded", "Failed"] | None
    epoch: int
    restarts: int
    tasks: tuple[TaskPicture, ...]
    conditions: Mapping[str, Condition]

    @property
    def is_ready(self) -> bool:
        """Whether every task is ready, by the newest report."""
        return self.state == "Ready"

    def task(self, job: str, index: int = 0) -> TaskPicture:
        """Give one task; raises KeyError where there is none."""
        for one in self.tasks:
            if (one.job, one.index) == (job, index):
                return one
        raise KeyError(spell(job, index))


def status_of(body: Mapping[str, Any], pods: Sequence[Mapping[str, Any]] | None, now: float) -> ClusterStatus:
    """Read how a TFCluster stands.

    Args:
        body: the object.
        pods: its pods; None where they cannot be listed.
        now: the time, in seconds since the epoch.
    """
    picture = picture_of(body, pods, now=now)
    state = picture.standing.state
    told = (body.get("status") or {}).get("conditions") or ()
    return ClusterStatus(
        name=picture.name,
        namespace=picture.namespace,
        uid=str(body["metadata"]["uid"]),
        state=state,
        cause=picture.standing.message,
        verdict="Succeeded" if state == "Succeeded" else "Failed" if state == "Failed" else None,
        epoch=picture.epoch,
        restarts=picture.restarts,
        tasks=tuple(picture.tasks()),
        conditions={
            one["type"]: Condition(one["status"], one.get("reason", ""), one.get("message", "")) for one in told
        },
    )


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """One TFCluster, by its UID: what changes it, or waits for it, never means another one of that name.

    Each method is that of Client with the name, the namespace and the UID filled in.

    Attributes:
        client: the client.
        name: its name.
        namespace: its namespace.
        uid: its UID.
    """

    client: Client
    name: str
    namespace: str
    uid: str

    def status(self) -> ClusterStatus:
        """Say how it stands; see Client.status."""
        return self.client.status(self.name, self.namespace)

    def wait(
        self, goal: str = "ready", *, timeout: float | None = None, tell: Callable[[str], None] | None = None
    ) -> Object | None:
        """Wait until it is as it should be; see Client.wait."""
        telling = {} if tell is None else {"tell": tell}
        return self.client.wait(self.name, goal, namespace=self.namespace, uid=self.uid, timeout=timeout, **telling)

    def logs(self, *tasks: str, follow: bool = False, **options: Any) -> Iterator[LogLine]:
        """Give the lines of tasks' logs; see Client.logs."""
        return self.client.logs(self.name, tasks, self.namespace, follow=follow, **options)

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Give what happened to it and its pods; see Client.events."""
        return self.client.events(self.name, self.namespace, follow=follow)

    def scale(self, replicas: int, *, job: str = "worker", wait: bool = False, timeout: float | None = None) -> None:
        """Change how many tasks a job has; see Client.scale.

        Args:
            replicas: how many.
            job: the job.
            wait: come back when every task is ready and knows the others.
            timeout: how long to wait at the most, in seconds; None waits for ever.
        """
        self.client.scale(self.name, replicas, job=job, namespace=self.namespace, uid=self.uid)
        if wait:
            self.wait("resized", timeout=timeout)

    def suspend(self) -> None:
        """Delete its pods and keep everything else; see Client.suspend."""
        self.client.suspend(self.name, self.namespace, uid=self.uid)

    def resume(self) -> None:
        """Start it again, from the beginning; see Client.resume."""
        self.client.resume(self.name, self.namespace, uid=self.uid)

    def restart(self, *tasks: str, wait: bool = False, timeout: float | None = None) -> None:
        """Start tasks again; see Client.restart."""
        self.client.restart(self.name, tasks, self.namespace, uid=self.uid, wait=wait, timeout=timeout)

    def delete(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Delete it; see Client.delete."""
        self.client.delete(self.name, self.namespace, uid=self.uid, wait=wait, timeout=timeout)
