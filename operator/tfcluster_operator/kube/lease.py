"""A coordination.k8s.io/v1 Lease: what it says, what a candidate may do about it, and the two requests.

A holder is judged by how long our own clock has seen its record unchanged, never by the times written in it: they are
another machine's, and only for people to read.  The rules are those of client-go's leaderelection package.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client

_MERGE_PATCH: Final = "application/merge-patch+json"
_MOST_TRANSITIONS: Final = 2**31
NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Timing:
    """How the election goes, in seconds."""

    duration: int = 15
    """A record that was unchanged for so long is free to take."""

    deadline: float = 10.0
    """A holder acts for so long after it sent its last successful renewal; the rest is for requests under way."""

    renew: float = 2.0
    """The pause between two renewals."""

    retry: float = 0.5
    """The pause after a renewal that failed."""

    poll: float = 1.0
    """The pause between two looks of a standby."""

    timeout: float = 2.0
    """How long one request may take."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says."""

    holder: str
    """The identity of who holds it; empty where nobody does."""

    duration: int
    """Seconds that its holder claims after each renewal."""

    acquired: str
    """When the holder came, by its own clock."""

    renewed: str
    """When it last renewed, by its own clock."""

    transitions: int
    """How often the holder changed."""

    version: str
    """The resourceVersion; empty for a Lease that is to be created."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a candidate has seen of the Lease."""

    record: Record | None
    """The last record; None where there is no Lease."""

    claimed_until: float
    """Until when, by our own clock, another one's claim must be honoured."""


def look(before: Sight | None, record: Record | None, *, me: str, duration: int, now: float) -> Sight:
    """Take in what was read.

    Returns:
        What is seen now.  Where there is no Lease, somebody may have deleted it under a holder, who acts on and makes
        it again: it is free when nobody did for as long as a claim lasts.
    """
    if record is None:
        if before is not None and before.record is None:
            return before
        return Sight(None, now + duration)
    if before is not None and before.record is not None and replace(before.record, version=record.version) == record:
        # NB: a write to its labels is no renewal; only the version for our own write changes.
        return Sight(record, before.claimed_until)
    free = record.holder in {"", me}
    return Sight(record, NEVER if free else now + record.duration)


def may_take(sight: Sight, *, now: float) -> bool:
    """Tell whether a candidate may claim the Lease that it sees."""
    return now >= sight.claimed_until


def claim(record: Record | None, *, me: str, duration: int, now: float) -> Record:
    """Make the record by which a candidate takes the Lease."""
    stamp = _micro_time(now)
    if record is None:
        return Record(me, duration, stamp, stamp, transitions=0, version="")
    if record.holder == me:
        return replace(record, duration=duration, acquired=record.acquired or stamp, renewed=stamp)
    # NB: the field is an int32, and whoever may edit the Lease can write the largest there is.
    transitions = (record.transitions + 1) % _MOST_TRANSITIONS
    return Record(me, duration, stamp, stamp, transitions=transitions, version=record.version)


def released(record: Record, *, now: float) -> Record:
    """Make the record by which a holder gives the Lease up."""
    stamp = _micro_time(now)
    return replace(record, holder="", duration=1, acquired=stamp, renewed=stamp)


def _micro_time(seconds: float) -> str:
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Lease:
    """One Lease on the API server.

    Args:
        requests: how to ask.
        namespace: where it is.
        name: its name.
        timeout: seconds that one request may take.
    """

    def __init__(self, requests: Client, namespace: str, name: str, *, timeout: float) -> None:
        self._requests = requests
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._timeout = timeout

    async def read(self) -> Record | None:
        """Give what it says, or None where there is none.

        Raises:
            KubeError: the server refused or did not answer.
        """
        try:
            answer = await self._requests.request("GET", f"{self._all}/{self._name}", within=self._timeout)
        except errors.NotFoundError:
            return None
        return _record(msgspec.json.decode(answer, type=_Lease))

    async def write(self, record: Record) -> Record:
        """Write it, if it is still in the record's version, or (no version) if there still is none.

        Raises:
            ConflictError: somebody else was faster.
            AlreadyExistsError: somebody else was faster.
            NotFoundError: it was deleted.
            KubeError: the server refused or did not answer.
        """
        spec: dict[str, Any] = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration,
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        }
        if record.version:
            answer = await self._requests.request(
                "PATCH",
                f"{self._all}/{self._name}",
                body={"metadata": {"resourceVersion": record.version}, "spec": spec},
                content_type=_MERGE_PATCH,
                within=self._timeout,
            )
        else:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name},
                "spec": spec,
            }
            answer = await self._requests.request("POST", self._all, body=body, within=self._timeout)
        return _record(msgspec.json.decode(answer, type=_Lease))


def _record(lease: _Lease) -> Record:
    spec = lease.spec
    return Record(
        holder=spec.holder_identity or "",
        duration=spec.lease_duration_seconds or 0,
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        version=lease.metadata.resource_version,
    )
