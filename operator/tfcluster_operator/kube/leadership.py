"""Which of several operators acts: the one that holds the Lease, for as long as its own clock lets it.

A leader that could not renew in time never leads again; its process ends and is started again as a standby.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final, NoReturn, Protocol

import msgspec

from tfcluster_operator.kube import clock as clocks
from tfcluster_operator.kube import errors, lease
from tfcluster_operator.kube.lease import Record, Sight, Timing

_log = logging.getLogger(__name__)

#: How often a release is tried: a renewal that was cut off may have changed the version.
_RELEASES: Final = 3
#: Seconds; 0 would mean never.
_OVERTAKEN: Final = (errors.ConflictError, errors.AlreadyExistsError, errors.NotFoundError)
_TROUBLES: Final = (errors.KubeError, msgspec.DecodeError)


class LeaseLostError(Exception):
    """Another operator may lead from now on; this process has to end."""


class Store(Protocol):
    """Where the record is kept; each request ends within a short time, one way or another."""

    async def read(self) -> Record | None:
        """Give what it says, or None where there is none."""
        ...

    async def write(self, record: Record) -> Record:
        """Write it, if it is still in the record's version."""
        ...


class Standing(Protocol):
    """Whether this operator acts."""

    leading: asyncio.Event

    @property
    def words(self) -> str:
        """What /readyz says of it."""
        ...

    def fence(self) -> None:
        """Raise NotLeadingError where nothing may be written."""
        ...

    async def run(self) -> None:
        """Go on until leading is over."""
        ...

    def resign(self) -> None:
        """Let no write begin from now on."""
        ...

    async def release(self) -> None:
        """Let another operator lead; to be called when ``run`` has ended and no write is under way."""
        ...


class Alone:
    """The standing of an operator that has no rival."""

    def __init__(self) -> None:
        self.leading = asyncio.Event()
        self.leading.set()
        self._resigned = False

    @property
    def words(self) -> str:
        """What /readyz says of it."""
        return "leading: without an election"

    def fence(self) -> None:
        """Raise NotLeadingError where nothing may be written."""
        if self._resigned:
            raise errors.NotLeadingError("the operator is stopping")

    async def run(self) -> None:
        """Go on for ever."""
        await asyncio.Event().wait()

    def resign(self) -> None:
        """Let no write begin from now on."""
        self._resigned = True

    async def release(self) -> None:
        """There is nothing to release."""


class Election:
    """A candidate for a Lease.

    Args:
        store: the Lease.
        me: our identity, which no other candidate has and no earlier process had.
        timing: how the election goes.
        clock: the time.
    """

    def __init__(
        self,
        store: Store,
        me: str,
        *,
        timing: Timing | None = None,
        clock: clocks.Clock = clocks.SYSTEM,
    ) -> None:
        self._store = store
        self._me = me
        self._timing = timing or Timing()
        self._clock = clock
        self._act_until = lease.NEVER
        self._not_acting = "another operator leads"
        self._claimed = False
        self._holder = ""
        self._trouble = ""
        #: Set when this operator leads; never cleared, because the process ends with its leadership.
        self.leading = asyncio.Event()

    @property
    def words(self) -> str:
        """What /readyz says of it."""
        if self._acts():
            return f"leading: {self._me}"
        if self.leading.is_set():
            return f"ending: {self._not_acting}"
        leader = self._holder or "nobody"
        return f"standby: {self._trouble or f'{leader} leads'}"

    def fence(self) -> None:
        """Raise NotLeadingError where nothing may be written: not leading yet, or not any more."""
        if not self._acts():
            raise errors.NotLeadingError(self._not_acting)

    async def run(self) -> None:
        """Wait for the Lease, then renew it.

        Raises:
            LeaseLostError: the Lease was held, and no longer is.
        """
        await self._hold(await self._campaign())

    def resign(self) -> None:
        """Let no write begin from now on."""
        self._act_until = lease.NEVER
        self._not_acting = "the operator is stopping"

    async def release(self) -> None:
        """Give the Lease up, if it is ours; a standby takes it at its next look."""
        self.resign()
        if not self._claimed:
            return
        for _ in range(_RELEASES):
            try:
                record = await self._store.read()
                if record is None or record.holder != self._me:
                    return
                await self._store.write(lease.released(record, now=self._clock.wall()))
            except _OVERTAKEN:
                continue
            except _TROUBLES as error:
                _log.warning("the lease is not released, and ends by itself: %s", str(error))
                return
            _log.info("the lease is released")
            return

    def _acts(self) -> bool:
        return self._clock.elapsed() < self._act_until

    async def _campaign(self) -> Record:
        sight: Sight | None = None
        while True:
            try:
                record = await self._store.read()
                now = self._clock.elapsed()
                sight = lease.look(sight, record, me=self._me, duration=self._timing.duration, now=now)
                self._note("", "" if record is None else record.holder)
                if lease.may_take(sight, now=self._clock.elapsed()):
                    taken = await self._write(record)
                    if self._acts():
                        self.leading.set()
                        _log.info("leading as %s", self._me)
                        return taken
            except _OVERTAKEN as error:
                # Another candidate was faster, which is news that no earlier sight has; or there is no such namespace.
                sight = None
                self._note(str(error) if isinstance(error, errors.NotFoundError) else "", "")
            except _TROUBLES as error:
                if sight is not None and sight.record is None:
                    # NB: meanwhile somebody may have made the Lease that was not there, and lost it again.
                    sight = None
                self._note(f"the lease cannot be had: {error}", "")
            await asyncio.sleep(self._until_next_look(sight))

    def _until_next_look(self, sight: Sight | None) -> float:
        pause = self._timing.poll * random.uniform(0.8, 1.0)  # noqa: S311 - jitter, no secret
        claim_ends_in = lease.NEVER if sight is None else sight.claimed_until - self._clock.elapsed()
        return claim_ends_in if 0.0 < claim_ends_in < pause else pause

    async def _hold(self, record: Record) -> NoReturn:
        pause = self._timing.renew
        while True:
            await asyncio.sleep(max(0.0, min(pause, self._act_until - self._clock.elapsed())))
            if not self._acts():
                self._lose(
                    f"no renewal within {self._timing.deadline:g} s: {self._trouble or 'the process stood still'}"
                )
            pause = self._timing.retry
            try:
                record = await self._write(record)
            except _OVERTAKEN as error:
                # Somebody wrote to it, or deleted it; or an answer of ours was lost.
                if isinstance(error, errors.NotFoundError):
                    self._note(str(error), self._me)
                try:
                    found = await self._store.read()
                except _TROUBLES as worse:
                    self._note(str(worse), self._me)
                    continue
                pause = self._timing.retry / 10 if found else self._timing.retry
                if found is not None and found.holder != self._me:
                    self._lose(f"{found.holder or 'nobody'} holds it")
                record = lease.claim(found, me=self._me, duration=self._timing.duration, now=self._clock.wall())
            except _TROUBLES as error:
                self._note(str(error), self._me)
            else:
                self._note("", self._me)
                pause = self._timing.renew

    async def _write(self, record: Record | None) -> Record:
        """Claim or renew; acting is allowed by when the request was sent, since nobody can take the Lease earlier."""
        sent = self._clock.elapsed()
        self._claimed = True
        wanted = lease.claim(record, me=self._me, duration=self._timing.duration, now=self._clock.wall())
        written = await self._store.write(wanted)
        if not self.leading.is_set() or self._acts():
            # NB: a renewal that is answered too late changes nothing: another operator may have led meanwhile.
            self._act_until = sent + self._timing.deadline
        return written

    def _lose(self, why: str) -> NoReturn:
        self._act_until = lease.NEVER
        self._not_acting = f"the lease was lost: {why}"
        _log.error("%s", self._not_acting)
        raise LeaseLostError(self._not_acting)

    def _note(self, trouble: str, holder: str) -> None:
        if trouble != self._trouble:
            _log.log(logging.WARNING if trouble else logging.INFO, "election: %s", trouble or "the lease answers again")
        self._trouble = trouble
        if holder != self._holder and holder not in {"", self._me}:
            _log.info("standby: %s leads", holder)
        self._holder = holder
