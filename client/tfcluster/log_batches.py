"""The logs of a TFCluster's tasks, in batches of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tfcluster.kubernetes_api import KubernetesApi
from tfcluster.log_following import LogFollowing
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import LogRequest
from tfcluster.log_turns import LogTurns


def log_batches(
    api: KubernetesApi, name: str, namespace: str | None, request: LogRequest, tell: Callable[[str], None]
) -> Iterator[list[LogLine]]:
    """Give the lines of tasks' logs; see Client.logs.

    Returns:
        Lines that came together; whoever prints them has a moment to flush between two batches.
    """
    way = LogFollowing if request.follow else LogTurns
    return way(api, name, namespace, request, tell).batches()
