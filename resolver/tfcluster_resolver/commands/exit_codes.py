"""With which code each command ends, and what that means: the numbers of sysexits.h and of shells."""

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

_MEANINGS: Final = {
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

_READING: Final = (MALFORMED, NO_VIEW, WRONG_ENVIRONMENT)
#: What each command may end with, besides success and wrong arguments.
_OF_COMMANDS: Final = {
    "show": _READING,
    "matrix": _READING,
    "doctor": (),
    "exec": (*_READING, NOT_EXECUTABLE, NOT_FOUND),
    "wait": (*_READING, NO_SUCH_TASK, NOT_IN_TIME),
    "serve": (*_READING, NO_TENSORFLOW, NO_SERVER),
}
_SUCCESS: Final = {"doctor": "no check failed; there may be warnings", "wait": "every task listens"}


def of_error(error: errors.TFClusterError) -> int:
    """Give the code with which a command ends on an error."""
    return next(code for kind, code in _OF_ERRORS if isinstance(error, kind))


def explain(command: str) -> str:
    """Spell the exit codes of a command for its ``--help``.

    Args:
        command: its name.

    Returns:
        Lines of text.
    """
    lines = [(str(USAGE), "wrong arguments")]
    if command != "exec":
        lines.insert(0, (str(DONE), _SUCCESS.get(command, "done")))
    if command == "doctor":
        lines.insert(1, (str(CHECK_FAILED), "a check failed"))
    lines += [(str(code), _MEANINGS[code]) for code in sorted(_OF_COMMANDS[command])]
    if command == "exec":
        lines.append(("any", "that of the program, which takes this one's place"))
    else:
        lines.append((f"{SIGNAL}+n", f"ended by signal n ({SIGNAL + 15} for SIGTERM)"))
    return "exit codes:\n" + "\n".join(f"  {code:<7}{meaning}" for code, meaning in lines)
