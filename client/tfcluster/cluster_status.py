"""The status of a TFCluster as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfcluster.kube.api import Object
from tfcluster.status.picture import Picture, TaskPicture
from tfcluster_operator.report.conditions import by_type


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
    def of(cls, body: Object, picture: Picture) -> "ClusterStatus":
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
