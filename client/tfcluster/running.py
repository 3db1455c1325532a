"""A handle on one TFCluster, and its status as typed values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tfcluster.events import Event
from tfcluster.kube.api import Object
from tfcluster.logs.reader import LogLine
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster_operator.report.conditions import by_type

if TYPE_CHECKING:
    from tfcluster.client import Client


def ignore(words: str) -> None:
    del words


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: its status "True", "False" or "Unknown", its reason in one word, and its message."""

    status: str
    reason: str
    message: str

    def __bool__(self) -> bool:
        """Whether its status is True."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The state of a TFCluster at the time of a request.

    Attributes:
        name: its name.
        namespace: its namespace.
        uid: its UID.
        state: in one word: "Ready", "NotReady", "Succeeded", "Failed", "Suspended", "Stalled", "Deleting", "Updating",
            "Unseen" or "Elsewhere", as ``tfcluster status`` has it.
        cause: why, with the operator's message.
        verdict: "Succeeded" or "Failed" where it has finished, else None.
        epoch: the number of its membership: it grows with each edit that changes what tasks see.
        restarts: how many failures were answered by a restart.
        tasks: its tasks; empty if this user is not permitted to list pods.
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

    @classmethod
    def of(cls, body: Object, picture: Picture) -> ClusterStatus:
        state = picture.standing.state
        found = by_type(body.get("status") or {}).items()
        return cls(
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
                kind: Condition(one["status"], one.get("reason", ""), one.get("message", "")) for kind, one in found
            },
        )

    @property
    def is_ready(self) -> bool:
        """Whether every task is ready, by the newest report."""
        return self.state == "Ready"

    def task(self, job: str, index: int = 0) -> TaskPicture:
        """Return one task; raises KeyError if it does not exist."""
        return {(one.job, one.index): one for one in self.tasks}[job, index]


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
        """Return its status; see Client.status."""
        return self.client.status(self.name, self.namespace)

    def wait(
        self, goal: str = "ready", *, timeout: float | None = None, tell: Callable[[str], None] = ignore
    ) -> Object | None:
        """Wait until it is as it should be; see Client.wait."""
        return self.client.wait(self.name, goal, namespace=self.namespace, uid=self.uid, timeout=timeout, tell=tell)

    def logs(self, *tasks: str, follow: bool = False, **options: Any) -> Iterator[LogLine]:
        """Return the lines of tasks' logs; see Client.logs."""
        return self.client.logs(self.name, tasks, self.namespace, follow=follow, **options)

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Return the events of it and of its pods; see Client.events."""
        return self.client.events(self.name, self.namespace, follow=follow)

    def scale(self, replicas: int, *, job: str = "worker", wait: bool = False, timeout: float | None = None) -> None:
        """Change how many tasks a job has; ``wait`` waits until they are ready and notified; see Client.scale."""
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
