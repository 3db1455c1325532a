"""Leader election: the operator that holds the Lease acts, for as long as its own clock allows.

A holder is judged by how long our own clock has seen its record unchanged, never by the times written in it: they are
from another machine's clock, and only for people to read.  The rules are those of client-go's leaderelection package.
A leader that could not renew in time never leads again; its process ends and is restarted as a standby.
"""

import asyncio
import datetime as dt
import logging
import random
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from tfcluster_operator.kube.client import (
    SYSTEM_CLOCK,
    AlreadyExistsError,
    Client,
    Clock,
    ConflictError,
    KubeError,
    NotFoundError,
    NotLeadingError,
)
from tfcluster_operator.objects.base import Metadata

_log = logging.getLogger(__name__)

#: A record that was unchanged for this many seconds can be taken over.
DURATION: Final = 15
#: A holder acts for this long after it sent its last successful renewal; the rest is for requests in flight.
DEADLINE: Final = 10.0
#: The seconds between two renewals, after a failed renewal, and between two reads of a standby.
RENEW: Final = 2.0
_RETRY: Final = 0.5
_POLL: Final = 1.0
#: The seconds that one request can take.
TIMEOUT: Final = 2.0
#: How often a release is tried: an interrupted renewal might have changed the version.
_RELEASES: Final = 3
_OVERTAKEN: Final = (ConflictError, AlreadyExistsError, NotFoundError)
_TROUBLES: Final = (KubeError, msgspec.DecodeError)
_NEVER: Final = float("-inf")


class Record(msgspec.Struct, frozen=True):
    """The content of a Lease; the holder claims it for the duration after each renewal, and sets times by its clock."""

    holder: str = msgspec.field(default="", name="holderIdentity")
    duration: int = msgspec.field(default=0, name="leaseDurationSeconds")
    acquired: str = msgspec.field(default="", name="acquireTime")
    renewed: str = msgspec.field(default="", name="renewTime")
    transitions: int = msgspec.field(default=0, name="leaseTransitions")
    #: The resourceVersion, "" of a Lease to be created.
    version: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """The state that a candidate has seen: the last record, and until when by our clock another's claim is valid."""

    record: Record | None
    claimed_until: float


def look(before: Sight | None, record: Record | None, *, me: str, now: float) -> Sight:
    """Process a record that was read."""
    # The holder of a missing Lease might still act and create it again: it is free after the duration of a claim.
    if record is None:
        return before if before is not None and before.record is None else Sight(None, now + DURATION)
    if before is not None and before.record is not None and replace(before.record, version=record.version) == record:
        # A change of its labels is not a renewal; only the version for our own write changes.
        return Sight(record, before.claimed_until)
    free = record.holder in {"", me}
    return Sight(record, _NEVER if free else now + record.duration)


def claim(record: Record | None, *, me: str, now: float) -> Record:
    """Build the record that claims the Lease for a candidate."""
    stamp = _micro_time(now)
    if record is None:
        return Record(me, DURATION, stamp, stamp)
    if record.holder == me:
        return replace(record, duration=DURATION, renewed=stamp)
    return Record(me, DURATION, stamp, stamp, transitions=record.transitions + 1, version=record.version)


def _micro_time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class _Lease(msgspec.Struct):
    metadata: Metadata
    spec: Record = Record()

    @classmethod
    def read(cls, answer: bytes) -> Record:
        lease = msgspec.json.decode(answer, type=cls)
        return replace(lease.spec, version=lease.metadata.resource_version)


class Lease:
    """One Lease on the API server."""

    def __init__(self, requests: Client, namespace: str, name: str) -> None:
        self._requests = requests
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name

    async def read(self) -> Record | None:
        """Return its record, or None if it does not exist."""
        try:
            answer = await self._requests.request("GET", f"{self._all}/{self._name}", within=TIMEOUT)
        except NotFoundError:
            return None
        return _Lease.read(answer)

    async def write(self, record: Record) -> Record:
        """Write it if it has the record's version, or create it without one; else raise one of _OVERTAKEN."""
        spec = msgspec.to_builtins(record)
        if version := spec.pop("version"):
            body = {"metadata": {"resourceVersion": version}, "spec": spec}
            answer = await self._requests.request("PATCH", f"{self._all}/{self._name}", body=body, within=TIMEOUT)
        else:
            about = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
            answer = await self._requests.request("POST", self._all, body={**about, "spec": spec}, within=TIMEOUT)
        return _Lease.read(answer)


class LeaseLostError(Exception):
    """Another operator might lead from now on; this process must end."""


class Election:
    """A candidate for a Lease; without one (None), an operator without rivals, which acts until it resigns."""

    def __init__(self, lease: Lease | None, me: str = "without an election", *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._lease = lease
        self._me = me
        self._clock = clock
        self._act_until = _NEVER if lease is not None else float("inf")
        self._not_acting = "another operator leads"
        self._trouble = ""
        self._holder = ""
        #: The last known state of the Lease; None if it might have changed: the Lease is read again then.
        self._sight: Sight | None = None
        #: Set when this operator leads; never cleared, because the process ends with its leadership.
        self.leading = asyncio.Event()
        if lease is None:
            self.leading.set()

    @property
    def acts(self) -> bool:
        """Whether writes are allowed to begin."""
        return self._clock.elapsed() < self._act_until

    @property
    def words(self) -> str:
        """The message for /readyz."""
        if self.acts:
            return f"leading: {self._me}"
        if self.leading.is_set():
            return f"ending: {self._not_acting}"
        return f"standby: {self._trouble or (self._holder or 'nobody') + ' leads'}"

    def fence(self) -> None:
        """Raise NotLeadingError if writes are not allowed: not leading yet, or no longer leading."""
        if not self.acts:
            raise NotLeadingError(self._not_acting)

    async def run(self) -> None:
        """Wait for the Lease, then renew it until it is lost (LeaseLostError)."""
        if self._lease is None:
            await asyncio.Event().wait()
            return
        while True:
            pause = await self._try(self._lease)
            if self.leading.is_set():
                await asyncio.sleep(max(0.0, min(pause, self._act_until - self._clock.elapsed())))
                if not self.acts:
                    self._lose(f"no renewal within {DEADLINE:g} s: {self._trouble or 'the process was paused'}")
            else:
                pause = _POLL * random.uniform(0.8, 1.0)  # noqa: S311 - jitter, no secret
                free_in = _NEVER if self._sight is None else self._sight.claimed_until - self._clock.elapsed()
                await asyncio.sleep(free_in if 0.0 < free_in < pause else pause)

    def resign(self) -> None:
        """Do not allow further writes to begin."""
        self._act_until = _NEVER
        self._not_acting = "the operator is stopping"

    async def release(self) -> None:
        """Release the Lease, if it is ours; a standby takes it at its next read."""
        self.resign()
        if self._lease is None:
            return
        for _ in range(_RELEASES):
            try:
                record = await self._lease.read()
                if record is None or record.holder != self._me:
                    return
                stamp = _micro_time(self._clock.wall())
                await self._lease.write(replace(record, holder="", duration=1, acquired=stamp, renewed=stamp))
            except _OVERTAKEN:
                continue
            except _TROUBLES as error:
                _log.warning("the lease is not released, and ends by itself: %s", str(error))
                return
            _log.info("the lease is released")
            return

    async def _try(self, lease: Lease) -> float:
        """Claim or renew the Lease unless another's claim is valid; return the seconds until a leader's next try."""
        leads = self.leading.is_set()
        try:
            if self._sight is None or not leads:
                record = await lease.read()
                self._sight = look(self._sight, record, me=self._me, now=self._clock.elapsed())
                self._note_holder("" if record is None else record.holder)
                if leads and record is not None and record.holder != self._me:
                    self._lose(f"{record.holder or 'nobody'} holds it")
            if leads or self._clock.elapsed() >= self._sight.claimed_until:
                await self._write(lease, self._sight.record)
            self._note_trouble("")
        except _OVERTAKEN as error:
            # Another was faster, it was deleted, or the answer to our own write was lost; or the namespace is missing.
            self._sight = None
            missing = isinstance(error, NotFoundError)
            self._note_trouble(str(error) if missing else "")
            return _RETRY if missing else _RETRY / 10
        except _TROUBLES as error:
            if self._sight is not None and self._sight.record is None:
                # In the meantime the missing Lease might have been created and deleted again.
                self._sight = None
            self._note_trouble(str(error))
            return _RETRY
        return RENEW

    async def _write(self, lease: Lease, record: Record | None) -> None:
        """Claim or renew; acting is allowed from when the request was sent: the Lease cannot be taken over earlier."""
        sent = self._clock.elapsed()
        written = await lease.write(claim(record, me=self._me, now=self._clock.wall()))
        self._sight = Sight(written, _NEVER)
        if not self.leading.is_set() or self.acts:
            # A renewal that is answered too late is ignored: another operator might have led in the meantime.
            self._act_until = sent + DEADLINE
        if self.acts and not self.leading.is_set():
            self.leading.set()
            _log.info("leading as %s", self._me)

    def _lose(self, why: str) -> NoReturn:
        self._act_until = _NEVER
        self._not_acting = f"the lease was lost: {why}"
        _log.error("%s", self._not_acting)
        raise LeaseLostError(self._not_acting)

    def _note_trouble(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.log(logging.WARNING if trouble else logging.INFO, "election: %s", trouble or "the lease answers again")
        self._trouble = trouble

    def _note_holder(self, holder: str) -> None:
        if holder != self._holder and holder not in {"", self._me}:
            _log.info("standby: %s leads", holder)
        self._holder = holder
