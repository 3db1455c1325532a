"""The installed operator, as the tests may treat it: take it away for a while, await it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from live_world import POD_DEADLINE_SECONDS, is_pod_ready
from support.objects import LEASES, PODS, Kind, Object, Objects
from support.waiting import eventually

DEPLOYMENTS = Kind("apps/v1", "deployments")
SELECTOR = "app.kubernetes.io/name=tfcluster-operator"


class OperatorRelease:
    """The one Deployment of the operator in its namespace.

    Args:
        objects: the administrator's access.
        namespace: where it is installed.
    """

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self.namespace = namespace

    def deployment(self) -> Object:
        """Read the Deployment."""
        found = self._objects.list(DEPLOYMENTS, self.namespace, selector=SELECTOR)
        assert len(found) == 1, f"{len(found)} operators in namespace {self.namespace}: run `make install`"
        return found[0]

    def pods(self) -> dict[str, Object]:
        """Read the operator's pods by name."""
        return {p["metadata"]["name"]: p for p in self._objects.list(PODS, self.namespace, selector=SELECTOR)}

    def readiness(self) -> dict[str, bool]:
        """Say of each of the operator's pods whether it is ready."""
        return {name: is_pod_ready(pod) for name, pod in self.pods().items()}

    def await_available(self) -> None:
        """Return when the operator's only pods are those that the Deployment wants, all ready."""
        wanted = self.deployment()["spec"]["replicas"]
        eventually(
            self.readiness,
            lambda ready: list(ready.values()) == [True] * wanted,
            what="the operator is available",
            within=POD_DEADLINE_SECONDS,
        )

    def leader(self) -> str:
        """Return the identity that holds the release's Lease: the pod's name, and which process it is."""
        lease = self._objects.get(LEASES, self.namespace, self.deployment()["metadata"]["name"]) or {}
        return lease.get("spec", {}).get("holderIdentity") or ""

    @contextmanager
    def absent(self) -> Iterator[None]:
        """Take the operator away for the time of a with block."""
        name, wanted = self.deployment()["metadata"]["name"], self.deployment()["spec"]["replicas"]
        self._scale(name, 0)
        try:
            eventually(self.readiness, lambda pods: not pods, what="the operator is gone", within=POD_DEADLINE_SECONDS)
            yield
        finally:
            self._scale(name, wanted)
            self.await_available()

    def _scale(self, name: str, replicas: int) -> None:
        self._objects.patch(DEPLOYMENTS, self.namespace, name, {"spec": {"replicas": replicas}})
