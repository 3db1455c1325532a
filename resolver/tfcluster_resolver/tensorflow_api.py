"""The one door to TensorFlow.

Nothing here or above imports TensorFlow before a call needs it: the import takes seconds, and the package must work
where there is none.  Everything that is not in TensorFlow's public API is used in this module only.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from tfcluster_resolver.errors import TensorFlowNotFoundError


def is_installed() -> bool:
    """Tell whether this Python can import TensorFlow, without importing it."""
    spec = importlib.util.find_spec("tensorflow")
    # NB: a folder of that name on the path is found too, as a namespace package, which has no origin.
    return spec is not None and spec.origin is not None


def load(purpose: str) -> Any:
    """Import TensorFlow.

    Args:
        purpose: what needs it, for the error's text.

    Returns:
        The module ``tensorflow``.

    Raises:
        TensorFlowNotFoundError: it is not installed.
    """
    if not is_installed():
        raise TensorFlowNotFoundError(
            f"{purpose} needs TensorFlow, which {sys.executable} cannot import: "
            "use an image that has it, or `pip install tensorflow`"
        )
    return importlib.import_module("tensorflow")


def connected_to() -> tuple[Any, str, int] | None:
    """Tell what this process's runtime is connected to, by whichever call.

    TensorFlow has no public way to ask; ``experimental_connect_to_cluster`` looks at the same place to decide between
    an update, which keeps tensors and variables, and a reset, after which using an old one kills the process.

    Returns:
        TensorFlow's ClusterSpec, job name and task index, or None while it is connected to nothing.
    """
    server = importlib.import_module("tensorflow.python.eager.context").get_server_def()
    if server is None:
        return None
    spec = load("comparing clusters").train.ClusterSpec(server.cluster)
    return spec, server.job_name, server.task_index
