"""TF_CONFIG: the cluster in the words of programs that read it from the environment, and running such a program.

It decides which cluster and which task TF_CONFIG names; how they are spelled is in the contract, because the operator
spells them too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.commands.command import Command
from tfcluster_resolver.commands.reading import read, seen_by, task_of

if TYPE_CHECKING:
    from tfcluster_resolver.resolver import TFClusterResolver


def tf_config(resolver: TFClusterResolver | None = None) -> str:
    """Spell the cluster as TF_CONFIG, for code that reads that variable.

    Set it before such code runs, as in ``os.environ["TF_CONFIG"] = tf_config()``.  It says what is true now; a running
    program does not hear of later changes.  TensorFlow is not imported for the pod's own task.

    Returns:
        JSON without spaces: ``cluster``, the addresses of each job; ``task``, with ``type`` and ``index``;
        ``rpc_layer``; ``environment``, which is "cloud".  An evaluator is in its own cluster and in nobody else's.

    Raises:
        TaskIdentityError: there is no task to name: the process is not in a TFCluster's pod, and no resolver speaks for
            a task; or the pod's environment names its task incompletely.
        NoSuchTaskError: the view does not show the task that the resolver speaks for.
        ViewError: the view is missing, unreadable, malformed or too new.
        ArgumentTypeError: it is no TFClusterResolver.
    """
    return _spell(seen_by(resolver))


def _spell(membership: Membership) -> str:
    own = task_of(membership, f"{contract.ENV_TF_CONFIG} would name no task")
    return contract.tf_config(membership.view, job=own.job, index=own.index, address=own.address)


def _exec(options: argparse.Namespace) -> NoReturn:
    """Replace this process by a program that finds TF_CONFIG in its environment."""
    program: list[str] = options.program
    environment = {
        **os.environ,
        # The program's own resolver reads there too.
        contract.ENV_DIRECTORY: os.path.abspath(options.directory),  # noqa: PTH100 - links stay: the kubelet swaps one
        contract.ENV_TF_CONFIG: _spell(read(options.directory)[0]),
    }
    sys.stdout.flush()
    # NB: Python ignores SIGPIPE, and a program inherits what is ignored; then `yes | head` would never end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(program[0], program, environment)  # noqa: S606 - running the user's program is what is asked
    except OSError as error:
        print(f"tfcluster_resolver: cannot run {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a command's complaint
        # As shells have it: not there, or there and not to be run.
        missing = isinstance(error, FileNotFoundError) or (
            isinstance(error, NotADirectoryError) and "/" not in program[0]
        )
        sys.exit(exit_codes.NOT_FOUND if missing else exit_codes.NOT_EXECUTABLE)


EXEC: Final = Command(
    brief="run a program that reads TF_CONFIG",
    description="Replace this process by PROGRAM, with TF_CONFIG set to the cluster that this task sees now. A running "
    "program does not hear of later changes.",
    codes=(*exit_codes.READING, exit_codes.NOT_EXECUTABLE, exit_codes.NOT_FOUND),
    runs_program=True,
    run=_exec,
)
