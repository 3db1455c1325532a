"""Where a ``tfcluster local run`` keeps what the other commands need to find it."""

from __future__ import annotations

import os
from pathlib import Path

from tfcluster.errors import UnreachableError


def states() -> Path:
    """Give the folder that has one folder for each run."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "tfcluster" / "local"


def kubeconfig_of(name: str | None) -> Path:
    """Give the kubeconfig of a run.

    Args:
        name: the run's name; None means the only one.

    Raises:
        UnreachableError: nothing of that name runs, or several do and none is named.
    """
    hint = "Start one with `tfcluster local run -f FILE`."
    found = sorted(states().glob(f"{name or '*'}/kubeconfig"))
    if not found:
        raise UnreachableError(f"no `tfcluster local run`{f' named {name}' if name else ''} runs here", hint=hint)
    if len(found) > 1:
        names = ", ".join(one.parent.name for one in found)
        raise UnreachableError(f"several run here: {names}", hint="Choose one with --session NAME.")
    return found[0]
