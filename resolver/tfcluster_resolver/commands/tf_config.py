"""TF_CONFIG for programs that read the cluster from that variable, and ``exec``, which runs such a program."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Final, NoReturn

from tfcluster_resolver import contract
from tfcluster_resolver.commands import command
from tfcluster_resolver.resolver import TFClusterResolver


def tf_config(resolver: TFClusterResolver | None = None) -> str:
    """Write the cluster as TF_CONFIG, for code that reads that variable.

    Set it before such code runs, as in ``os.environ["TF_CONFIG"] = tf_config()``.  It has the current tasks; a running
    program is not notified of later changes.  TensorFlow is not imported.

    Args:
        resolver: whose task it names; by default the one that this pod is.

    Returns:
        JSON without spaces: ``cluster``, the addresses of each job; ``task``, with ``type`` and ``index``;
        ``rpc_layer``; ``environment``, which is "cloud".  An evaluator is in its own cluster and in no other.

    Raises:
        TaskIdentityError: the own task is unknown: the process is not in a TFCluster's pod, and the resolver does not
            have a task; or the pod's environment names its task incompletely.
        NoSuchTaskError: the view does not show the task that the resolver speaks for.
        ViewError: the view is missing, unreadable, malformed or too new.
        ArgumentTypeError: ``resolver`` is not a TFClusterResolver.
    """
    speaker = TFClusterResolver() if resolver is None else resolver
    view, own = command.seen_by(speaker, f"{contract.ENV_TF_CONFIG} would name no task")
    return contract.tf_config(view, job=own.job, index=own.index, address=own.address)


def _exec(options: argparse.Namespace) -> NoReturn:
    program: list[str] = options.program
    environment = {
        **os.environ,
        # The program's own resolver reads there too.
        contract.ENV_DIRECTORY: os.path.abspath(options.directory),  # noqa: PTH100 - links stay: the kubelet swaps one
        contract.ENV_TF_CONFIG: tf_config(TFClusterResolver(directory=options.directory)),
    }
    sys.stdout.flush()
    # Python ignores SIGPIPE, and a program inherits what is ignored; then `yes | head` would never end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environment)  # noqa: S606 - running the user's program is what is asked
    except (OSError, ValueError) as error:  # a program without a name is a ValueError
        reason = getattr(error, "strerror", "a program needs a name")
        print(f"tfcluster_resolver: cannot run {program[0]}: {reason}", file=sys.stderr)  # noqa: T201 - a command's complaint
        # As in shells: not there, or there and not executable.
        missing = isinstance(error, FileNotFoundError | ValueError) or (
            isinstance(error, NotADirectoryError) and "/" not in program[0]
        )
        sys.exit(command.NOT_FOUND if missing else command.NOT_EXECUTABLE)


EXEC: Final = command.Command(
    brief="run a program that reads TF_CONFIG",
    description="Replace this process by PROGRAM, with TF_CONFIG set to the cluster that this task sees now. A running "
    "program is not notified of later changes.",
    codes=(*command.READING, command.NOT_EXECUTABLE, command.NOT_FOUND),
    runs_program=True,
    run=_exec,
)
