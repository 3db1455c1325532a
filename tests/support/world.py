"""The objects of one namespace from the view of a TFCluster: pods, ConfigMaps, Service, views and conditions."""

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from .manifests import tfcluster
from .objects import (
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    EVENTS,
    JSON_PATCH,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    TFCLUSTERS,
    Kind,
    Object,
    Objects,
)
from .waiting import GUARD, eventually


class World:
    def __init__(self, objects: Objects, namespace: str) -> None:
        self.objects = objects
        self.namespace = namespace

    # Actions of a user.

    def apply(self, manifest: Object) -> Object:
        return self.objects.create(TFCLUSTERS, self.namespace, manifest)

    def launch(self, name: str, jobs: dict[str, Object], **spec: Any) -> Object:
        """Create a TFCluster, by default without a history of failed pods and with templates of one container."""
        builder = tfcluster(name).spec(**{"failedPodsHistoryLimit": 0, **spec})
        for job, fields in jobs.items():
            builder.job(job, **fields)
        return self.apply(builder.build())

    def edit(self, name: str, spec: Object) -> int:
        """Merge-patch the spec of a TFCluster; return the generation after the edit."""
        edited = self.objects.patch(TFCLUSTERS, self.namespace, name, {"spec": spec})
        return edited["metadata"]["generation"]

    def scale(self, name: str, *, replicas: int, job: str = "worker") -> int:
        return self.edit(name, {"jobs": {job: {"replicas": replicas}}})

    def remove(self, name: str) -> None:
        self.objects.delete(TFCLUSTERS, self.namespace, name)

    # Objects.

    def get(self, kind: Kind, name: str) -> Object | None:
        return self.objects.get(kind, self.namespace, name)

    def demand(self, kind: Kind, name: str) -> Object:
        found = self.get(kind, name)
        assert found is not None, f"{kind.plural} {name} does not exist"
        return found

    def patch(self, kind: Kind, name: str, body: Any) -> Object:
        return self.objects.patch(kind, self.namespace, name, body)

    def json_patch(self, kind: Kind, name: str, *operations: Object) -> Object:
        return self.objects.patch(kind, self.namespace, name, list(operations), content=JSON_PATCH)

    def delete(self, kind: Kind, name: str) -> None:
        self.objects.delete(kind, self.namespace, name)

    def pods(self) -> dict[str, Object]:
        """All pods by name, including terminating ones."""
        return {pod["metadata"]["name"]: pod for pod in self.objects.list(PODS, self.namespace)}

    def pods_of(self, cluster: str) -> dict[str, Object]:
        """The pods of one cluster by name, including terminating ones."""
        found = self.objects.list(PODS, self.namespace, selector=f"tfcluster.dev/cluster={cluster}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def placed(self, cluster: str) -> set[str]:
        """Return the pods that have a node and do not terminate."""
        pods = self.pods_of(cluster).items()
        return {pod for pod, of in pods if of["spec"].get("nodeName") and "deletionTimestamp" not in of["metadata"]}

    def uid(self, pod: str) -> str | None:
        """Return the UID of a pod, or None if it does not exist."""
        found = self.get(PODS, pod)
        return None if found is None else found["metadata"]["uid"]

    def config_maps(self) -> dict[str, Object]:
        return {name: found for name, found in self._all_config_maps() if not _is_of_the_resolver(name)}

    def resolver_copies(self) -> dict[str, Object]:
        return {name: found for name, found in self._all_config_maps() if _is_of_the_resolver(name)}

    def _all_config_maps(self) -> list[tuple[str, Object]]:
        found = [(found["metadata"]["name"], found) for found in self.objects.list(CONFIG_MAPS, self.namespace)]
        return [(name, one) for name, one in found if name != "kube-root-ca.crt"]  # Kubernetes creates it

    def services(self) -> dict[str, Object]:
        return {found["metadata"]["name"]: found for found in self.objects.list(SERVICES, self.namespace)}

    def network_policies(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self.objects.list(NETWORK_POLICIES, self.namespace)}

    def disruption_budgets(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in self.objects.list(DISRUPTION_BUDGETS, self.namespace)}

    def cluster(self, name: str) -> Object:
        return self.demand(TFCLUSTERS, name)

    def status(self, name: str) -> Object:
        return self.cluster(name).get("status", {})

    def condition(self, name: str, kind: str) -> Object:
        return next((c for c in self.status(name).get("conditions", []) if c["type"] == kind), {})

    def view(self, cluster: str, job: str, file: str = "cluster.json") -> Any:
        """Return a view from its ConfigMap; None if the file or the ConfigMap is missing."""
        found = self.get(CONFIG_MAPS, f"{cluster}-{job.replace('_', '-')}")
        text = (found or {}).get("data", {}).get(file)
        return None if text is None else json.loads(text)

    def chief_knows_the_pods(self, cluster: str) -> bool:
        """Return whether the chief's view names the pods that replaced others; also if the view does not exist."""
        view = self.view(cluster, "chief")
        told = {} if view is None else view.get("incarnations", {})
        pods = {name: pod["metadata"] for name, pod in self.pods().items()}
        return view is None or all(
            told.get(job, {}).get(str(index)) == hashlib.sha256(pods[name]["uid"].encode()).hexdigest()[:6]
            for job, tasks in view["jobs"].items()
            if job not in {"chief", "evaluator"}
            for index in (map(int, tasks) if isinstance(tasks, dict) else range(len(tasks)))
            if (name := f"{cluster}-{job.replace('_', '-')}-{index}") in pods
            if "tfcluster.dev/replacement" in pods[name]["annotations"]
        )

    def events(self, name: str) -> list[Object]:
        """The Events about one TFCluster, including those of an earlier one with its name."""
        return [e for e in self.objects.list(EVENTS, self.namespace) if e["involvedObject"]["name"] == name]

    # Waiting.

    def await_pods_of(self, cluster: str, names: Iterable[str]) -> dict[str, Object]:
        """Wait until the cluster has exactly these pods and none terminates; return them."""
        wanted = sorted(names)

        def probe() -> list[str]:
            self._last = self.pods_of(cluster)
            return sorted(n + _terminating(pod) for n, pod in self._last.items())

        eventually(probe, lambda found: found == wanted, what=f"the pods of {cluster} are {_short(wanted)}")
        return self._last

    def await_replaced(self, pod: str, old: str | None, *, within: float = GUARD) -> Object:
        """Wait for a pod of this name with another UID."""
        eventually(lambda: self.uid(pod), lambda uid: uid not in {None, old}, what=f"{pod} is replaced", within=within)
        return self.demand(PODS, pod)

    def await_ended(self, name: str, kind: str, reason: str = "") -> Object:
        self.await_condition(name, kind, status="True", reason=reason)
        return self.status(name)

    def await_removed(self, name: str) -> None:
        eventually(lambda: self.get(TFCLUSTERS, name), lambda found: found is None, what=f"{name} is gone")

    def await_event(self, name: str, reason: str) -> Object:
        """Wait for an Event about a TFCluster with this reason."""
        found = eventually(
            lambda: [e for e in self.events(name) if e["reason"] == reason], what=f"an event {reason} of {name}"
        )
        return found[0]

    def await_pods(self, names: Iterable[str]) -> dict[str, Object]:
        wanted = sorted(names)

        def probe() -> list[str]:
            self._last = self.pods()
            return sorted(n + _terminating(pod) for n, pod in self._last.items())

        eventually(probe, lambda found: found == wanted, what=f"the pods are {_short(wanted)}")
        return self._last

    def await_settled(self, name: str) -> Object:
        """Wait until the status is of the current generation and all pods exist; return the TFCluster."""
        return eventually(lambda: self.cluster(name), is_settled, what=f"{name} is settled")

    def await_condition(self, name: str, kind: str, *, status: str, reason: str = "") -> Object:
        return eventually(
            lambda: self.condition(name, kind),
            lambda c: c.get("status") == status and reason in {"", c.get("reason")},
            what=f"{name} has {kind}={status} {reason}",
        )

    def await_status(self, name: str, accept: Callable[[Object], object], *, what: str) -> Object:
        """Wait for a status; it takes up to a second for a new TFCluster."""
        return eventually(lambda: self.status(name), lambda s: s.get("observedGeneration") and accept(s), what=what)


def is_settled(cluster: Object) -> bool:
    """Return whether the operator has created everything that a TFCluster needs."""
    status = cluster.get("status", {})
    jobs = cluster["spec"]["jobs"]
    return status.get("observedGeneration") == cluster["metadata"]["generation"] and all(
        status.get("jobs", {}).get(job, {}).get("created")
        == (0 if cluster["spec"].get("suspend") else spec.get("replicas", 1))
        for job, spec in jobs.items()
    )


def task_names(cluster: str, **replicas: int) -> list[str]:
    """Return the pod names of a cluster: ``task_names("c", worker=2)`` is ``["c-worker-0", "c-worker-1"]``."""
    return [f"{cluster}-{job.replace('_', '-')}-{i}" for job, count in replicas.items() for i in range(count)]


def _is_of_the_resolver(config_map: str) -> bool:
    return config_map.startswith("tfcluster-resolver-")


def _terminating(pod: Object) -> str:
    return " (terminating)" if pod["metadata"].get("deletionTimestamp") else ""


def _short(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 12 else f"{names[0]} … {names[-1]} ({len(names)})"
