"""A queue in the simulated world: it grants quota to Workloads in order, and evicts them, as Kueue does."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from simulation.dialect import NAMESPACE
from simulation.nodes import spell
from support.memory_kubernetes import Change, MemoryKubernetes

#: Seconds until it decides.
_THINKS: Final = 0.05
_USER: Final = "kueue"


class Queue:
    """The queue of the namespace; ``now`` is the clock that is right."""

    def __init__(self, kube: MemoryKubernetes, now: Callable[[], float]) -> None:
        self._kube = kube
        self._now = now
        #: The quota, in pods.
        self.quota = 100
        kube.subscribers.append(self._learn)

    def _learn(self, change: Change) -> None:
        if change.resource == "workloads":
            asyncio.get_running_loop().call_later(_THINKS, self.look)

    def set_quota(self, pods: int) -> None:
        """Change the quota, in pods; admitted Workloads keep theirs."""
        self.quota = pods
        self.look()

    def take_back(self, *, growth_only: bool = False) -> None:
        """Evict every admitted Workload, or only those of added tasks."""
        for one in self._kube.list("workloads", NAMESPACE):
            if has_quota(one) and not (growth_only and one["metadata"]["name"].endswith(".0")):
                said = {"Evicted": ("True", "Preempted", "for another")}
                self._tell(one, said, {})

    def look(self) -> None:
        """Admit the Workloads that fit, in order."""
        workloads = sorted(self._kube.list("workloads", NAMESPACE), key=lambda one: str(one["metadata"]["uid"]))
        used = sum(granted(one) for one in workloads)
        for one in workloads:
            if has_quota(one) or _says(one, "Finished") == "True" or "deletionTimestamp" in one["metadata"]:
                continue
            sets = one["spec"]["podSets"]
            asked, left = sum(of["count"] for of in sets), self.quota - used
            least = sum(of.get("minCount", of["count"]) for of in sets)
            if least > left:
                self._tell(one, {"QuotaReserved": ("False", "Pending", "insufficient unused quota")}, {})
                continue
            fewer = max(0, asked - left)
            assigned = [{"name": of["name"], "count": of["count"] - (fewer if "minCount" in of else 0)} for of in sets]
            said = dict.fromkeys(("QuotaReserved", "Admitted"), ("True", "Granted", ""))
            said["Evicted"] = ("False", "QuotaReserved", "")
            self._tell(one, said, {"admission": {"clusterQueue": "q", "podSetAssignments": assigned}})
            used += asked - fewer

    def _tell(
        self, workload: Mapping[str, Any], said: Mapping[str, tuple[str, str, str]], more: dict[str, Any]
    ) -> None:
        known = workload.get("status", {}).get("conditions", ())
        told = {one["type"]: (one["status"], one["reason"], one["message"]) for one in known}
        if all(told.get(kind) == of for kind, of in said.items()) and not more:
            return
        conditions = [one for one in known if one["type"] not in said]
        for kind, (status, reason, message) in said.items():
            words = {"type": kind, "status": status, "reason": reason, "message": message}
            conditions.append({**words, "lastTransitionTime": spell(self._now())})
        change = {"status": {**more, "conditions": conditions}}
        name = workload["metadata"]["name"]
        self._kube.patch("workloads", NAMESPACE, name, change, subresource="status", user=_USER)


def has_quota(workload: Mapping[str, Any]) -> bool:
    return workload.get("status", {}).get("admission") is not None


def granted(workload: Mapping[str, Any]) -> int:
    """Return for how many pods a Workload has quota now."""
    status = workload.get("status", {})
    if not has_quota(workload) or _says(workload, "Finished") == "True":
        return 0
    # A reclaimed pod counts from the requested number, not from the granted one.
    left = {one["name"]: int(one["count"]) for one in workload["spec"]["podSets"]}
    for one in status.get("reclaimablePods") or ():
        left[one["name"]] -= int(one["count"])
    return sum(min(int(one["count"]), left[one["name"]]) for one in status["admission"]["podSetAssignments"])


def _says(workload: Mapping[str, Any], kind: str) -> str:
    conditions = workload.get("status", {}).get("conditions", ())
    return next((str(one["status"]) for one in conditions if one["type"] == kind), "")
