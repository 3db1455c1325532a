"""The exit codes of the commands: the numbers of sysexits.h and of shells.

It decides what each code means, and with which one an error ends a command.
"""

from __future__ import annotations

from typing import Final

from tfcluster_resolver import errors

DONE: Final = 0
CHECK_FAILED: Final = 1
USAGE: Final = 2
MALFORMED: Final = 65
NO_VIEW: Final = 66
NO_SUCH_TASK: Final = 68
NO_TENSORFLOW: Final = 69
NO_SERVER: Final = 71
NOT_IN_TIME: Final = 75
WRONG_ENVIRONMENT: Final = 78
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
#: The number of the signal is added.
SIGNAL: Final = 128

#: What every command that reads the view may end with.
READING: Final = (MALFORMED, NO_VIEW, WRONG_ENVIRONMENT)

#: The first that fits counts.
_OF_ERRORS: Final[tuple[tuple[type[errors.TFClusterError], int], ...]] = (
    (errors.ViewNotFoundError, NO_VIEW),
    (errors.ViewUnreadableError, NO_VIEW),
    (errors.ViewError, MALFORMED),
    # A device filter of the view that TensorFlow could not read.
    (errors.DeviceNameError, MALFORMED),
    (errors.NoSuchTaskError, NO_SUCH_TASK),
    (errors.TensorFlowNotFoundError, NO_TENSORFLOW),
    (errors.TasksUnreachableError, NOT_IN_TIME),
    (errors.ServeError, NO_SERVER),
    (errors.TFClusterError, WRONG_ENVIRONMENT),
)

#: What a command's help says of a code that it lists.
MEANINGS: Final = {
    CHECK_FAILED: "a check failed",
    MALFORMED: "the view is malformed, or newer than this package",
    NO_VIEW: "the view is missing or unreadable",
    NO_SUCH_TASK: "the view does not show such a job",
    NO_TENSORFLOW: "TensorFlow is not installed",
    NO_SERVER: "the server cannot start, such as when its port is taken",
    NOT_IN_TIME: "not every task listens after the time-out",
    WRONG_ENVIRONMENT: "the environment does not say which task this is, or an address is wrong",
    NOT_EXECUTABLE: "the program cannot be executed",
    NOT_FOUND: "there is no such program",
}


def of_error(error: errors.TFClusterError) -> int:
    """Give the code with which a command ends on an error."""
    return next(code for kind, code in _OF_ERRORS if isinstance(error, kind))
