"""What delivers the resolver into a pod: a volume, a mount, an entry of PYTHONPATH, and a command where there is none.

It decides what is added to the user's template and nothing else; the archive itself is
:mod:`tfcluster_operator.manifests.resolver_archive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.manifests.resolver_archive import ARCHIVE_FILE
from tfcluster_operator.model import naming

#: Where the archive is mounted.  NB: a mount hides what the image has there, so the name is nobody else's.
RESOLVER_DIRECTORY: Final = "/opt/tfcluster-resolver"
ARCHIVE_PATH: Final = f"{RESOLVER_DIRECTORY}/{ARCHIVE_FILE}"
#: Carries the user's own value where it has no text yet that ours could be appended to.
USER_PYTHONPATH: Final = "TFCLUSTER_USER_PYTHONPATH"

_PYTHONPATH: Final = "PYTHONPATH"


def resolver_volume(name: str) -> dict[str, Any]:
    """Build the volume."""
    return {"name": naming.RESOLVER_VOLUME, "configMap": {"name": name}}


def mount_resolver(container: Mapping[str, Any]) -> dict[str, Any]:
    """Mount the archive into a container and put it on the module search path.

    Returns:
        The container, with the archive after whatever the user put on PYTHONPATH.
    """
    mounts = [
        *(container.get("volumeMounts") or ()),
        {"name": naming.RESOLVER_VOLUME, "mountPath": RESOLVER_DIRECTORY, "readOnly": True},
    ]
    return {**container, "env": _search_path(container), "volumeMounts": mounts}


def serve_by_default(container: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Let a container that names no program of its own run the task server, and say when it listens.

    Returns:
        The container; unchanged where it has a command or arguments, because then what it does is its own affair.
    """
    if container.get("command") or container.get("args"):
        return {**container}
    # A program without a probe counts as ready before TensorFlow is imported.  The kernel accepts connections however
    # busy the server is, so three refusals in a row mean that nothing listens any more.
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 2, "failureThreshold": 3}
    return {"readinessProbe": probe, **container, "command": ["python3", "-m", "tfcluster_resolver", "serve"]}


def _search_path(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the container's environment with the archive at the end of PYTHONPATH."""
    env: Sequence[Mapping[str, Any]] = container.get("env") or ()
    at = max((index for index, entry in enumerate(env) if entry.get("name") == _PYTHONPATH), default=None)
    if at is None:
        # NB: envFrom may bring one, and a variable of that name in env hides it; $(NAME) still expands to it, and to
        # itself, a folder that nobody has, where envFrom brings none (kubelet, makeEnvironmentVariables).
        return [*env, _variable(f"$({_PYTHONPATH})" if container.get("envFrom") else "")]
    entry = env[at]
    if not entry.get("valueFrom"):
        return [*env[:at], _variable(entry.get("value") or ""), *env[at + 1 :]]
    own = {**entry, "name": USER_PYTHONPATH}
    return [*env[:at], own, _variable(f"$({USER_PYTHONPATH})"), *env[at + 1 :]]


def _variable(before: str) -> dict[str, Any]:
    # NB: an empty part of PYTHONPATH would be the working directory.
    return {"name": _PYTHONPATH, "value": f"{before}:{ARCHIVE_PATH}" if before else ARCHIVE_PATH}
