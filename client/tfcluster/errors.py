"""What can go wrong, as exceptions whose words say what to do.

TFClusterError
├── NoClusterError      there is no TFCluster of that name
├── RefusedError        the API server said no
│   ├── NotFoundError   it is not there
│   └── ConflictError   somebody else changed it meanwhile
├── UnreachableError    no API server answers
├── ManifestError       a file or object is no TFCluster that could be made
├── NotRunningError     the cluster has finished, is suspended or deleted, and nothing of it runs
├── ClusterFailedError  the cluster has failed, or cannot become what is waited for
└── WaitTimeoutError    it took longer than it may
"""

from __future__ import annotations

from collections.abc import Sequence

from tfcluster import exit_codes


class TFClusterError(Exception):
    """Something went wrong; ``str(error)`` is a sentence for users, ``hint`` the next step where there is one.

    ``exit_code`` is what a command ends with that does not deal with it.
    """

    exit_code: int = exit_codes.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NoClusterError(TFClusterError):
    """There is no TFCluster of that name."""


class RefusedError(TFClusterError):
    """The API server said no.

    Attributes:
        status: the HTTP status.
        reason: the reason as the API server spells it, such as "Forbidden".
    """

    def __init__(self, message: str, *, status: int, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class NotFoundError(RefusedError):
    """It is not there."""


class ConflictError(RefusedError):
    """Somebody else changed it meanwhile."""


class UnreachableError(TFClusterError):
    """No API server answers, or none is known."""


class ManifestError(TFClusterError):
    """A file or object is no TFCluster that could be made.

    Attributes:
        problems: one "path: what to do" each.
    """

    def __init__(self, message: str, problems: Sequence[str] = (), *, hint: str = "") -> None:
        super().__init__("\n  ".join([message, *problems]), hint=hint)
        self.problems = tuple(problems)


class NotRunningError(TFClusterError):
    """The cluster has finished, is suspended or is being deleted: nothing of it runs that could be changed."""


class ClusterFailedError(TFClusterError):
    """The cluster has failed, or cannot become what is waited for; the words name the cause."""


class WaitTimeoutError(TFClusterError):
    """It took longer than it may; the words say what was missing."""

    exit_code = exit_codes.TIMED_OUT
