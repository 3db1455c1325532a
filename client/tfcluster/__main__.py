"""``tfcluster``, ``kubectl tfcluster`` and ``python -m tfcluster``: the command line; nothing else."""

import gc
import os
import signal
import sys
from pathlib import Path

from tfcluster.errors import ExitCode


def _end(*_: object) -> None:
    os._exit(ExitCode.INTERRUPTED)


_HEEDS_CTRL_C = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _HEEDS_CTRL_C:
    # The imports take a while; Ctrl-C during them would end in a traceback.
    signal.signal(signal.SIGINT, _end)

# The imports and the CRD make many objects and no garbage: looking for some takes a tenth of a short command.
gc.set_threshold(100_000)

from tfcluster.commands.root import root


def main() -> None:
    """Run the command line; the process exits with one of :class:`tfcluster.errors.ExitCode`."""
    # If the shell closed a stream (`>&-`), Python sets it to None, and the next opened file would get its number.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for as long as the process
    name = Path(sys.argv[0]).name
    if _HEEDS_CTRL_C:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    root(prog_name="kubectl tfcluster" if name == "kubectl-tfcluster" else "tfcluster")


def complete() -> None:
    """Complete a command line for kubectl; the arguments are the words after ``kubectl tfcluster``."""
    words = sys.argv[1:]
    from tfcluster.commands.root import candidates  # noqa: PLC0415 - only kubectl's completion asks

    found, files = candidates(words)
    print("\n".join([*found, ":0" if files else ":4"]))  # noqa: T201 - it is what kubectl reads


if __name__ == "__main__":
    main()
