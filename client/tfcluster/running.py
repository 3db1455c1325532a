"""A TFCluster for as long as a block of Python runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from tfcluster.errors import ConflictError, NotFoundError
from tfcluster.kubernetes_api import TFCLUSTERS, Object
from tfcluster.live_cluster import RunningCluster

if TYPE_CHECKING:
    from tfcluster.client import Client

#: Whether the TFCluster stays at the end: never, always, or where the block ended with an exception.
Keep = Literal[False, True, "on_error"]


@contextlib.contextmanager
def running(
    client: Client,
    manifest: Mapping[str, Any],
    *,
    goal: str,
    timeout: float | None,
    keep: Keep,
    tell: Callable[[str], None],
) -> Iterator[RunningCluster]:
    """Apply a TFCluster, wait for it, and delete it at the end if this created it; see Client.running."""
    until = None if timeout is None else time.monotonic() + timeout
    about = manifest["metadata"]
    name, namespace = about["name"], about.get("namespace") or client.namespace
    _await_predecessor(client, name, namespace, until, tell)
    body, created = client.api.apply_telling(TFCLUSTERS, manifest, namespace)
    cluster = RunningCluster(client, name, namespace, body["metadata"]["uid"])
    if not created:
        tell(f"{name} exists already: it is used as it is declared here, and stays at the end")
    failed = True
    try:
        cluster.wait(goal, timeout=_left(until), tell=tell)
        yield cluster
        failed = False
    finally:
        if created and not (keep is True or (keep == "on_error" and failed)):
            _delete(cluster)
        elif created:
            tell(f"{name} stays; delete it with: tfcluster delete {name} -n {namespace}")


def _await_predecessor(
    client: Client, name: str, namespace: str, until: float | None, tell: Callable[[str], None]
) -> None:
    """Wait for a TFCluster of that name that is being deleted."""
    before: Object | None = client.api.find(TFCLUSTERS, name, namespace)
    if before is not None and "deletionTimestamp" in before["metadata"]:
        uid = before["metadata"]["uid"]
        client.wait(name, "deleted", namespace=namespace, uid=uid, timeout=_left(until), tell=tell)


def _delete(cluster: RunningCluster) -> None:
    # NB: gone already, or another one by now: there is nothing of ours to delete.
    with contextlib.suppress(NotFoundError, ConflictError):
        cluster.client.api.delete(TFCLUSTERS, cluster.name, cluster.namespace, uid=cluster.uid)


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())
