"""The installed operator: tests can remove it for a while, and wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

from live_world import POD_DEADLINE_SECONDS, is_pod_ready
from support.objects import PODS, Kind, Object, Objects
from support.waiting import eventually

DEPLOYMENTS = Kind("apps/v1", "deployments")
SELECTOR = "app.kubernetes.io/name=tfcluster-operator"


class OperatorRelease:
    """The only Deployment of the operator in its namespace."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self.namespace = namespace

    def deployment(self) -> Object:
        found = self._objects.list(DEPLOYMENTS, self.namespace, selector=SELECTOR)
        assert len(found) == 1, f"{len(found)} operators in namespace {self.namespace}: run `make install`"
        return found[0]

    def pods(self) -> dict[str, Object]:
        return {p["metadata"]["name"]: p for p in self._objects.list(PODS, self.namespace, selector=SELECTOR)}

    def readiness(self) -> dict[str, bool]:
        return {name: is_pod_ready(pod) for name, pod in self.pods().items()}

    def await_available(self) -> None:
        """Wait until the operator's only pods are those of the Deployment, all ready."""
        wanted = self.deployment()["spec"]["replicas"]
        eventually(
            self.readiness,
            lambda ready: list(ready.values()) == [True] * wanted,
            what="the operator is available",
            within=POD_DEADLINE_SECONDS,
        )

    @contextmanager
    def absent(self) -> Iterator[None]:
        """Remove the operator for a with block."""
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
