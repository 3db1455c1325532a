"""The facts of a cluster's life that only the operator can record: counts, times and the verdict, in the status.

Everything else is computed each time from what exists.  A failure is counted here, with the UID of its pod, and the
count is written before the pod is deleted: a crash between the two neither loses it nor counts it twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

#: The object of the status that only the operator reads.
INTERNAL: Final = "internal"

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_NONE: Final[frozenset[Any]] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The final result: the condition that became true; ``generation`` is 0 until it is written to the status."""

    kind: Literal["Succeeded", "Failed"]
    reason: str
    message: str
    generation: int = field(default=0, compare=False)


class LastRestart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The newest failure that led to a restart, as in the status."""

    task: str = ""
    reason: str = ""
    exit_code: int | None = None
    message: str = ""
    finished_at: str = ""
    #: The failed pod, if its log outlives the restart.
    pod: str = ""

    @property
    def time(self) -> float:
        """When it was counted, in seconds since the epoch."""
        return seconds_of(self.finished_at)


@dataclass(frozen=True, slots=True)
class Failing:
    """How often a task failed in a row, and when it is restarted, in seconds since the epoch."""

    in_row: int
    retry_at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """A task whose pod was lost and is not replaced yet: its UID, if known, and how often in a row."""

    pod: str
    attempt: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The record of one job.

    ``restarts`` counts restarts by its failures, ``replaced`` pods that others deleted.  ``completed`` are the tasks
    that ended with exit code 0 and are not run again; ``started`` those whose pod should exist.  ``incarnation`` grows
    with each restart of the whole job: pods of an earlier one are deleted, and jobs with the same one were started
    together.  ``restart_at`` is when its pods are re-created, in seconds since the epoch; ``in_row`` how often that
    happened without a long run in between.  ``failing`` has the same for single tasks.  ``lost`` are the tasks that
    ``replaced`` counts already and that do not have a new pod yet.  ``counted`` holds the UIDs of failed pods that are
    counted and still exist.  ``begun``: a job with a startAfter has started, and does not wait again until all its pods
    are replaced together.
    """

    restarts: int = 0
    replaced: int = 0
    incarnation: int = 0
    in_row: int = 0
    restart_at: float = 0.0
    begun: bool = False
    completed: frozenset[int] = _NONE
    started: frozenset[int] = _NONE
    #: The tasks that have had a pod, so that the next one replaces it.
    had_pod: frozenset[int] = _NONE
    counted: frozenset[str] = _NONE
    failing: Mapping[int, Failing] = field(default_factory=dict)
    lost: Mapping[int, Lost] = field(default_factory=dict)

    def awaits_retry(self, index: int) -> Failing | None:
        """Return the record of a task that failed and whose pod was not re-created yet, or None."""
        return None if index in self.started else self.failing.get(index)


_NO_RECORD: Final = JobRecord()


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Why a cluster does not have pods though its spec wants some; an edit (a new generation) tries again."""

    generation: int
    message: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """The record of one cluster; times are seconds since the epoch, 0.0 for never.

    ``granted`` is the last number of admitted tasks of each job of a queued cluster, and ``regrants`` counts how often
    it changed.  ``failures`` are those recorded since the ledger was read, for the log; they are not stored.
    ``gangs`` has the time since which each gang waits for nodes, if that has a limit.
    """

    started_at: float = 0.0
    finished_at: float = 0.0
    restarts: int = 0
    verdict: Verdict | None = None
    last_restart: LastRestart | None = None
    jobs: Mapping[str, JobRecord] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)
    regrants: int = 0
    gangs: Mapping[str, float] = field(default_factory=dict)
    gave_up: GaveUp | None = None
    failures: tuple[LastRestart, ...] = field(default=(), compare=False)

    def of(self, job: str) -> JobRecord:
        """Return the record of a job, or an empty one."""
        return self.jobs.get(job, _NO_RECORD)

    def next_incarnation(self) -> int:
        """Return a number that no job has had: jobs with the same number were started together."""
        return 1 + max((record.incarnation for record in self.jobs.values()), default=0)

    def with_job(self, job: str, **changes: Any) -> "Ledger":
        """Return the ledger with some fields of one job's record changed."""
        return replace(self, jobs={**self.jobs, job: replace(self.of(job), **changes)})

    def counts_more_than(self, written: "Ledger") -> bool:
        """Return whether this ledger counts a lost pod that the written one does not."""
        return any(record.replaced > written.of(name).replaced for name, record in self.jobs.items())

    def holds_evidence(self, written: "Ledger") -> bool:
        """Return whether this ledger holds evidence that the written one lacks, and that a deletion would destroy."""
        if self.verdict != written.verdict or self.regrants > written.regrants or self.restarts > written.restarts:
            return True
        if self.gave_up not in {None, written.gave_up}:
            return True
        if written.started_at and not self.started_at:
            return True  # suspended: if the pods were deleted before this is written, a crash would keep the old counts
        return any(
            record.incarnation > (before := written.of(name)).incarnation
            or not record.completed <= before.completed
            or not record.counted <= before.counted
            # A pod that has ended and will be deleted; a missing one is replaced without a write.
            or any(lost.pod and before.lost.get(index) != lost for index, lost in record.lost.items())
            for name, record in self.jobs.items()
        )


#: The fields of ``status.internal`` for the whole cluster; those of jobs are beside them.
_OF_THE_CLUSTER: Final = ("granted", "regrants", "gangs", "gave_up")
_INDICES: Final = ("completed", "started", "had_pod")
#: Its fields of a job; users can read the others in ``status.jobs``.
_OF_A_JOB: Final = (
    "incarnation",
    "in_row",
    "restart_at",
    "begun",
    *_INDICES,
    "counted",
    "failing",
    "lost",
)
_Read = TypeVar("_Read")


def read(status: Mapping[str, Any]) -> Ledger:
    """Read the ledger from a TFCluster's status; missing or malformed parts count as never happened."""
    verdict = None
    for condition in status.get("conditions") or ():
        if condition.get("type") in (SUCCEEDED, FAILED) and condition.get("status") == "True":
            verdict = Verdict(
                condition["type"],
                str(condition.get("reason", "")),
                str(condition.get("message", "")),
                int(condition.get("observedGeneration") or 0),
            )
    last, internal = _converted(_object(status.get("lastRestart")), LastRestart()), _object(status.get(INTERNAL))
    known = _converted({key: internal[key] for key in _OF_THE_CLUSTER if key in internal}, Ledger())
    shown, notes = _object(status.get("jobs")), _object(internal.get("jobs"))
    return replace(
        known,
        started_at=seconds_of(status.get("startTime")),
        finished_at=seconds_of(status.get("completionTime")),
        restarts=int(status.get("restarts") or 0),
        verdict=verdict,
        last_restart=last if last.task else None,
        jobs={name: _job(_object(shown.get(name)), _object(notes.get(name))) for name in {**shown, **notes}},
    )


def _job(shown: Mapping[str, Any], notes: Mapping[str, Any]) -> JobRecord:
    indices = {name: read_indices(notes[name]) for name in _INDICES if name in notes}
    known = _converted({**notes, **indices}, JobRecord())
    return replace(known, restarts=int(shown.get("restarts") or 0), replaced=int(shown.get("disruptions") or 0))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _converted(fields: Mapping[str, Any], otherwise: _Read) -> _Read:
    try:
        return msgspec.convert(fields, type(otherwise), str_keys=True)
    except msgspec.ValidationError:
        return otherwise


def cluster_fields(ledger: Ledger) -> dict[str, Any]:
    """Return the cluster's records for the status."""
    fields: dict[str, Any] = {"restarts": ledger.restarts}
    if ledger.started_at:
        fields["startTime"] = timestamp(ledger.started_at)
    if ledger.finished_at:
        fields["completionTime"] = timestamp(ledger.finished_at)
    if ledger.last_restart is not None:
        fields["lastRestart"] = msgspec.to_builtins(ledger.last_restart)
    return fields


def job_fields(record: JobRecord) -> dict[str, Any]:
    """Return the part of one job's record that users can read, for the status."""
    return {"restarts": record.restarts, "disruptions": record.replaced}


def internal_fields(ledger: Ledger) -> dict[str, Any]:
    """Return the part that only the operator needs, for ``status.internal``, without empty records."""
    jobs = {name: notes for name, record in ledger.jobs.items() if (notes := _notes(record))}
    whole = {name: value for name in _OF_THE_CLUSTER if (value := getattr(ledger, name))}
    spelled: dict[str, Any] = msgspec.to_builtins({"jobs": jobs, **whole}, str_keys=True)
    return spelled


def _notes(record: JobRecord) -> dict[str, Any]:
    notes: dict[str, Any] = {name: value for name in _OF_A_JOB if (value := getattr(record, name))}
    notes.update({name: write_indices(notes[name]) for name in _INDICES if name in notes})
    return {**notes, "counted": sorted(record.counted)} if record.counted else notes


def write_indices(indices: Iterable[int]) -> str:
    """Write task indices as Kubernetes' indexed Jobs do: ``0-3,5``."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def read_indices(text: Any) -> frozenset[int]:
    """Read task indices from the format of :func:`write_indices`; invalid parts are skipped."""
    found: set[int] = set()
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(last or first) < 10_000:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def timestamp(seconds: float) -> str:
    """Write a time with milliseconds: a deadline counted from whole seconds would be up to one second off."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def seconds_of(text: Any) -> float:
    """Read a time as seconds since the epoch; 0.0 if it is missing or invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (OverflowError, TypeError, ValueError):
        return 0.0
