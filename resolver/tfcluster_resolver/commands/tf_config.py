"""TF_CONFIG: the cluster in the words of programs that read it from the environment, and running such a program."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from tfcluster_resolver import contract
from tfcluster_resolver.cluster import Membership
from tfcluster_resolver.commands import exit_codes
from tfcluster_resolver.errors import TaskIdentityError


def tf_config(membership: Membership) -> str:
    """Spell a cluster as TF_CONFIG.

    Args:
        membership: the cluster.

    Returns:
        JSON, as :func:`tfcluster_resolver.contract.tf_config` gives it; the operator sets the same.

    Raises:
        TaskIdentityError: the process is not in a TFCluster's pod, so there is no task to name.
    """
    own = membership.own
    if own is None:
        raise TaskIdentityError(
            f"this process is not in a TFCluster's pod ({contract.ENV_JOB}, {contract.ENV_TASK_INDEX} and "
            f"{contract.ENV_ADDRESS} are unset), so {contract.ENV_TF_CONFIG} would name no task"
        )
    return contract.tf_config(membership.view, job=own.job, index=own.index, address=own.address)


def execute(membership: Membership, directory: str, program: Sequence[str]) -> NoReturn:
    """Replace this process by a program that finds TF_CONFIG in its environment.

    Args:
        membership: the cluster.
        directory: where the view is mounted; the program's resolver reads there too.
        program: the program and its arguments; it is looked for on PATH.

    Raises:
        TaskIdentityError: the process is not in a TFCluster's pod.
    """
    environment = {
        **os.environ,
        contract.ENV_DIRECTORY: os.path.abspath(directory),  # noqa: PTH100 - links stay: the kubelet swaps one
        contract.ENV_TF_CONFIG: tf_config(membership),
    }
    sys.stdout.flush()
    # NB: Python ignores SIGPIPE, and a program inherits what is ignored; then `yes | head` would never end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(program[0], list(program), environment)  # noqa: S606 - running the user's program is what is asked
    except OSError as error:
        print(f"tfcluster_resolver: cannot run {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a command's complaint
        # As shells have it: not there, or there and not to be run.
        missing = isinstance(error, FileNotFoundError) or (
            isinstance(error, NotADirectoryError) and "/" not in program[0]
        )
        sys.exit(exit_codes.NOT_FOUND if missing else exit_codes.NOT_EXECUTABLE)
