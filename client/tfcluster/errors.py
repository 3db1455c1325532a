"""The exceptions of the client, whose messages say what to do, and the exit codes of the commands."""

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of ``tfcluster``, for scripts."""

    #: The command succeeded.
    OK = 0
    #: A check failed, something differs, or a request was rejected: the message says what to do.
    FAILED = 1
    #: The command line is wrong; click's own code.
    USAGE = 2
    #: ``diff``: something differs, as ``kubectl diff`` has it.
    DIFFERS = 1
    #: ``diff``: the comparison failed, likewise.
    NOT_COMPARED = 2
    #: ``convert``: the result is complete except for what the report lists.
    LOSSY = 3
    #: It took longer than ``--timeout``, as ``timeout(1)`` has it.
    TIMED_OUT = 124
    #: The user pressed Ctrl-C, as shells have it.
    INTERRUPTED = 130


class TFClusterError(Exception):
    """Something went wrong; ``str(error)`` is a sentence for users, ``hint`` the next step where there is one.

    ``exit_code`` is what a command ends with that does not deal with it.
    """

    exit_code: int = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NoClusterError(TFClusterError):
    """The TFCluster does not exist."""


def no_cluster(name: str, namespace: str) -> NoClusterError:
    return NoClusterError(
        f"TFCluster {name} not found in namespace {namespace}",
        hint="List the TFClusters with `tfcluster status`, in all namespaces with -A.",
    )


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
    """The object does not exist."""


class ConflictError(RefusedError):
    """Another client changed it in the meantime."""


class UnreachableError(TFClusterError):
    """The API server does not answer, or no API server is configured."""


class ManifestError(TFClusterError):
    """A file or object is not a valid manifest.

    Attributes:
        problems: one "path: what to do" each.
    """

    def __init__(self, message: str, problems: Sequence[str] = (), *, hint: str = "") -> None:
        super().__init__("\n  ".join([message, *problems]), hint=hint)
        self.problems = tuple(problems)


class NotRunningError(TFClusterError):
    """The cluster has finished, is suspended or is being deleted, so it cannot be changed in that way."""


class ClusterFailedError(TFClusterError):
    """The cluster has failed, or cannot become what is waited for; the message names the cause."""


class WaitTimeoutError(TFClusterError):
    """It took too long; the message says what was missing."""

    exit_code = ExitCode.TIMED_OUT
