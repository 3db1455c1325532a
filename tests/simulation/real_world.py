"""The same world on a real API server, so that both can run the same steps: see test_simulation_is_honest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kubernetes.client.exceptions import ApiException
from simulation import dialect
from simulation.dialect import CLUSTER
from simulation.workloads import Workload
from support.objects import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    POD_GROUPS,
    PODS,
    SERVICES,
    TFCLUSTERS,
    WORKLOADS,
    Objects,
)
from support.pods import StandInKubelet

_KINDS: Final = {
    "pods": PODS,
    "services": SERVICES,
    "networkpolicies": NETWORK_POLICIES,
    "poddisruptionbudgets": DISRUPTION_BUDGETS,
    "podgroups": POD_GROUPS,
    "workloads": WORKLOADS,
    "configmaps": CONFIG_MAPS,
    "tfclusters": TFCLUSTERS,
}
#: Optional resources of a server.
_OPTIONAL: Final = frozenset({"podgroups", "workloads"})
#: As in the simulation: seconds without a change until a step is complete.
_QUIET: Final = 2.5
_LOOK_EVERY: Final = 0.1


class _Kube:
    """The part of the in-memory API server that steps read, on a real one."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace

    def list(self, kind: str, namespace: str | None = None) -> list[dict[str, Any]]:
        assert namespace in {None, dialect.NAMESPACE}
        try:
            found = self._objects.list(_KINDS[kind], self._namespace)
        except ApiException as error:
            # Not every server has PodGroups; without them the list is empty.
            if error.status != 404 or kind not in _OPTIONAL:
                raise
            return []
        # Kubernetes creates this one in every namespace.
        return [one for one in found if one["metadata"]["name"] != "kube-root-ca.crt"]

    def get(self, kind: str, _: str, name: str) -> dict[str, Any] | None:
        return self._objects.get(_KINDS[kind], self._namespace, name)


class _Nodes:
    """The nodes that steps act on, implemented with a simulated kubelet."""

    def __init__(self, kubelet: StandInKubelet) -> None:
        self._kubelet = kubelet

    def exit(self, name: str, code: int) -> None:
        if code:
            self._kubelet.fail(name, exit_code=code)
        else:
            self._kubelet.succeed(name)


class RealWorld:
    """A namespace of a real API server.

    Args:
        objects: access to it.
        namespace: its name.
        kubelet: the simulated kubelet of its node.
    """

    def __init__(self, objects: Objects, namespace: str, kubelet: StandInKubelet) -> None:
        self._objects = objects
        self._namespace = namespace
        self._kubelet = kubelet
        self.kube = _Kube(objects, namespace)
        self.nodes = _Nodes(kubelet)

    def declare(self, spec: Mapping[str, Any], name: str = CLUSTER) -> None:
        body = {
            "apiVersion": "tfcluster.dev/v1alpha1",
            "kind": "TFCluster",
            "metadata": {"name": name},
            # The simulated operator closes only what says so.
            "spec": {"isolation": {"mode": "None"}, **spec},
        }
        self._objects.create(TFCLUSTERS, self._namespace, body)

    def edit(self, spec: Mapping[str, Any], name: str = CLUSTER) -> None:
        self._objects.patch(TFCLUSTERS, self._namespace, name, {"spec": spec})

    def remove(self, resource: str, name: str) -> None:
        self._objects.delete(_KINDS[resource], self._namespace, name)

    def cluster(self, name: str = CLUSTER, _: str = "") -> dict[str, Any] | None:
        return self.kube.get("tfclusters", "", name)

    def pods(self, _: str = "") -> list[dict[str, Any]]:
        return self.kube.list("pods")

    def walk(self, workload: Workload) -> None:
        """Run each step after the previous one is complete.

        Raises:
            AssertionError: a step did not complete.
        """
        for step in workload.steps:
            step.act(self)  # type: ignore[arg-type]  # it has what the steps of an ordinary workload use
            assert self._is_quiet(step.until, step.within), f"step {step.name!r} does not come to its end"

    def _is_quiet(self, until: Callable[..., bool], within: float) -> bool:
        deadline, since, mark = time.monotonic() + within, time.monotonic(), ""
        while time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
            self._play()
            now = self._versions()
            if now != mark:
                mark, since = now, time.monotonic()
            if time.monotonic() - since >= _QUIET and until(self):
                return True
        return False

    def _play(self) -> None:
        """Act as the node: run new pods, delete terminating ones."""
        for pod in self.pods():
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self._kubelet.stop(name)
            elif pod["status"].get("phase") == "Pending":
                self._kubelet.run(name)

    def _versions(self) -> str:
        found = [one for kind in _KINDS for one in self.kube.list(kind)]
        return str(sorted((one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in found))
