"""The reference model of a life, driven by the true events of the simulated world."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decisions.reference_life import Life
from simulation import dialect
from simulation.nodes import Nodes
from support.memory_kubernetes import MemoryKubernetes, Refusal


@dataclass(slots=True)
class Known:
    key: tuple[str, str]
    life: Life


class Truth:
    """The expected state of each TFCluster, by docs/explanation/lifecycle.md; ``now`` is the clock that is right."""

    def __init__(self, kube: MemoryKubernetes, nodes: Nodes, now: Callable[[], float]) -> None:
        self._kube = kube
        self._nodes = nodes
        self._now = now
        #: Lives by the UID of the TFCluster.
        self.lives: dict[str, Known] = {}
        nodes.changed = self.look

    def look(self) -> None:
        """Update the model from the current state."""
        for cluster in self._clusters():
            metadata = cluster["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            known = self.lives.setdefault(metadata["uid"], Known((metadata["namespace"], metadata["name"]), Life()))
            self._see(cluster, known)

    def _clusters(self) -> list[dict[str, Any]]:
        try:
            return self._kube.list("tfclusters")
        except Refusal:  # the CRD is not installed
            return []

    def _see(self, cluster: dict[str, Any], known: Known) -> None:
        jobs = {name: {"replicas": 1, **job} for name, job in cluster["spec"]["jobs"].items()}
        life = known.life
        life.done = {task for task in life.done if task[0] in jobs}
        for one in [one for one in life.in_row if (one if isinstance(one, str) else one[0]) not in jobs]:
            del life.in_row[one]
        facts = [
            fact
            for fact in self._nodes.facts.values()
            if fact.task[0] in jobs and self._nodes.owners[fact.uid] == cluster["metadata"]["uid"]
        ]
        status = cluster.get("status") or {}
        given_up = dialect.reason(status, "Suspended") == "GangTimeout"
        failed = dialect.verdict(status) == ("Failed", "GangTimeout")
        # Only the operator has the exact start of its time limit.
        if life.end is None and failed and self._has_run_out(cluster, by="Fail"):
            life.end, life.ended_at = ("Failed", "GangTimeout"), self._now()
        rests = given_up and self._has_run_out(cluster, by="Suspend")
        life.look({**cluster["spec"], "jobs": jobs, **({"suspend": True} if rests else {})}, facts, self._now())

    def _has_run_out(self, cluster: dict[str, Any], *, by: str) -> bool:
        """Return whether a PodGroup of a cluster has waited for room longer than its timeout."""
        gang = (cluster["spec"].get("scheduling") or {}).get("gang") or {}
        about, limit = cluster["metadata"], gang.get("timeoutSeconds")
        if limit is None or gang.get("onTimeout", "Fail") != by:
            return False
        waiting = (
            since
            for (namespace, name), since in self._nodes.waiting_groups.items()
            if namespace == about["namespace"] and name.startswith(f"{about['name']}.")
        )
        return any(self._now() - since >= limit for since in waiting)

    def differences(self) -> list[str]:
        """Return the differences between the ledgers of existing TFClusters and the truth."""
        self.look()
        found = []
        for cluster in self._clusters():
            if (known := self.lives.get(cluster["metadata"]["uid"])) is not None:
                found += list(_differences(cluster, known.life))
        return found


def _differences(cluster: dict[str, Any], life: Life) -> list[str]:
    status = cluster.get("status") or {}
    found = []

    def compare(what: str, told: Any, true: Any) -> None:
        if told != true:
            found.append(f"{cluster['metadata']['name']}: {what} is {told} where the model says {true}")

    compare("verdict", dialect.verdict(status), life.end)
    compare("restarts", status.get("restarts", 0), life.total)
    for job in cluster["spec"]["jobs"]:
        record = dialect.record_of(status, job)
        compare(f"restarts of {job}", record.get("restarts", 0), life.restarts.get(job, 0))
        done = {index for name, index in life.done if name == job}
        told = dialect.completed(record)
        compare(f"completed tasks of {job}", told, done)
    return found
