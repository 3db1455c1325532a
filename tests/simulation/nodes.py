"""The nodes of the simulated cluster: they run pods, end programs and delete pods, each node with its own clock.

They also keep the truth: a :class:`Fact` for each pod, by the one clock that is right.
"""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from decisions.reference_life import Fact
from simulation import dialect
from support.memory_kubernetes import Change, MemoryKubernetes, Refusal

#: Seconds from creation to scheduling, from scheduling to the program's start, and from SIGTERM to its end.
_TO_NODE: Final = 0.1
_TO_START: Final = 0.3
_TO_END: Final = 0.5
#: The kubelet reports the end of a container first, and the pod's phase later.
_TO_PHASE: Final = 0.2
_USER: Final = "kubelet"
#: The exit code of a program that obeys SIGTERM by ending with 143, as `serve` does.
_OBEYED: Final = 143

Name = tuple[str, str]


def spell(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Nodes:
    """Two nodes that get pods in turn; ``now`` is the clock that is right."""

    def __init__(self, kube: MemoryKubernetes, now: Callable[[], float]) -> None:
        self._kube = kube
        self._now = now
        self._turn = itertools.cycle(("node-0", "node-1"))
        #: The error of each node's clock, in seconds.
        self.offsets: dict[str, float] = {"node-0": 0.0, "node-1": 0.0}
        #: The true state of each pod that exists.
        self.facts: dict[Name, Fact] = {}
        #: The labels of each pod and the UID of its controller at creation, by the pod's UID.
        self._labels: dict[str, dict[str, str]] = {}
        self.owners: dict[str, str] = {}
        #: Nodes that no longer answer.
        self.dead: set[str] = set()
        #: The exit code after SIGTERM, by pod name.
        self.obeys_with: dict[str, int] = {}
        #: Pods whose program never becomes ready, by name.
        self.never_ready: set[str] = set()
        #: Set a pod ready in the first write after its creation: for clusters of thousands of pods.
        self.hurried = False
        #: Whether the pods of PodGroups have room; without it they wait, and all others are scheduled.
        self.room_for_gangs = True
        #: When each PodGroup that has no room was created, in seconds since the epoch, by name.
        self.waiting_groups: dict[Name, float] = {}
        #: Called after each change of a Fact.
        self.changed: Callable[[], None] = lambda: None
        kube.subscribers.append(self._learn)

    # --- changes that the API server reports

    def _learn(self, change: Change) -> None:
        if change.resource == "podgroups" and change.type != "DELETED":
            about = change.object["metadata"]
            self.waiting_groups.setdefault((about["namespace"], about["name"]), self._now())
            asyncio.get_running_loop().call_later(_TO_NODE, self.place_gang, about["namespace"], about["name"])
        if change.resource != "pods":
            return
        metadata = change.object["metadata"]
        name, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
        if change.type == "ADDED":
            self._labels[uid] = metadata.get("labels") or {}
            asyncio.get_running_loop().call_later(_TO_NODE, self._bind, name)
        elif change.type == "DELETED":
            fact = self._fact(name, uid)
            if fact is not None:
                del self.facts[name]
                self._later()
        elif "deletionTimestamp" in metadata:
            self._note_asked(name, change.object)
        elif dialect.LABEL_KEPT in (metadata.get("labels") or {}) and (fact := self._fact(name, uid)) is not None:
            fact.kept = fact.ended_at is not None

    def _later(self) -> None:
        # A change is reported while it is being written: observers must wait until that is complete.
        asyncio.get_running_loop().call_soon(self.changed)

    def _pod(self, name: Name) -> dict[str, Any] | None:
        return self._kube.get("pods", *name)

    def _bind(self, name: Name) -> None:
        pod = self._pod(name)
        if pod is None or pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            return
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        if group is None:
            self._give_a_node(name, pod)
        else:
            self.place_gang(name[0], group)

    def place_gang(self, namespace: str, group: str) -> None:
        """Find places for the number of pods that a PodGroup asks for, or for none, as the scheduler does."""
        found = self._kube.get("podgroups", namespace, group)
        if found is None:
            return
        pods = [
            pod
            for pod in self._kube.list("pods", namespace)
            if pod["spec"].get("schedulingGroup") == {"podGroupName": group}
        ]
        waiting = [
            pod for pod in pods if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
        ]
        if not waiting or len(pods) < found["spec"]["schedulingPolicy"]["gang"]["minCount"]:
            return
        told = (found.get("status") or {}).get("conditions") or [{}]
        word = "True" if self.room_for_gangs or told[0].get("status") == "True" else "False"
        if told[0].get("status") != word:
            reason, message = ("Scheduled", "") if word == "True" else ("Unschedulable", "no room")
            condition = {"type": "PodGroupInitiallyScheduled", "status": word, "reason": reason, "message": message}
            status = {"conditions": [{**condition, "lastTransitionTime": spell(self._now())}]}
            self._kube.patch("podgroups", namespace, group, {"status": status}, subresource="status", user=_USER)
        if self.room_for_gangs:
            self.waiting_groups[namespace, group] = float("inf")
            for pod in waiting:
                self._give_a_node((namespace, pod["metadata"]["name"]), pod)

    def _give_a_node(self, name: Name, pod: Mapping[str, Any]) -> None:
        fact = self._begin(name, pod)
        node = next(one for one in self._turn if one not in self.dead)
        self._kube.bind(*name, node)
        delay = 0.0 if self.hurried else _TO_START
        asyncio.get_running_loop().call_later(delay, self._run, name, fact.uid)

    def _begin(self, name: Name, pod: Mapping[str, Any]) -> Fact:
        labels = self._labels.get(pod["metadata"]["uid"], {})
        task = labels.get(dialect.LABEL_JOB, ""), int(labels.get(dialect.LABEL_INDEX, -1))
        image = next((one["image"] for one in pod["spec"]["containers"] if one["name"] == "tensorflow"), "")
        fact = Fact(pod["metadata"]["uid"], task, image)
        self.facts[name] = fact
        owners = pod["metadata"].get("ownerReferences") or ()
        self.owners[fact.uid] = next((one["uid"] for one in owners if one.get("controller")), "")
        return fact

    def _fact(self, name: Name, uid: str) -> Fact | None:
        fact = self.facts.get(name)
        return fact if fact is not None and fact.uid == uid else None

    def _run(self, name: Name, uid: str) -> None:
        pod, fact = self._pod(name), self._fact(name, uid)
        if pod is None or fact is None or pod["metadata"]["uid"] != uid or self._is_dead(pod):
            return
        if "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") != "Pending":
            return
        ready = name[1] not in self.never_ready
        fact.began_at, fact.ready = self._now(), ready
        at = self._time(pod)
        containers = [
            {"name": one["name"], "ready": ready, "state": {"running": {"startedAt": at}}}
            for one in pod["spec"]["containers"]
        ]
        conditions = _with(pod, "PodScheduled", "True", at)
        conditions = _with({"status": {"conditions": conditions}}, "Ready", str(ready), at)
        self._tell(name, phase="Running", startTime=at, containerStatuses=containers, conditions=conditions)
        self.changed()

    def _note_asked(self, name: Name, pod: Mapping[str, Any]) -> None:
        fact = self._fact(name, pod["metadata"]["uid"]) or self._begin(name, pod)
        if fact.asked_at is None:
            fact.asked_at = self._now()
            asyncio.get_running_loop().call_later(_TO_END, self._stop, name, fact.uid)
            self._later()

    def _stop(self, name: Name, uid: str) -> None:
        """End the program, report it, and delete the pod."""
        pod, fact = self._pod(name), self._fact(name, uid)
        if pod is None or fact is None or pod["metadata"]["uid"] != uid or self._is_dead(pod):
            return
        fact.confirmed = True
        if fact.ended_at is None and fact.began_at is not None:
            code = self.obeys_with.get(name[1], _OBEYED)
            fact.ended_at, fact.code, fact.at_rest, fact.ready = self._now(), code, True, False
            self._tell(name, containerStatuses=self._ended(pod, code), conditions=self._not_ready(pod))
        try:
            self._kube.delete("pods", *name, uid=uid, grace=0, user=_USER)
        except Refusal:
            return

    # --- what happens on a node

    def exit(self, name: str, code: int, namespace: str = dialect.NAMESPACE) -> None:
        key = (namespace, name)
        pod, fact = self._pod(key), self.facts.get(key)
        if pod is None or fact is None:
            return
        fact.ended_at, fact.code, fact.ready, fact.at_rest = (
            self._now(),
            code,
            False,
            len(pod["spec"]["containers"]) == 1,
        )
        self._tell(key, containerStatuses=self._ended(pod, code, only="tensorflow"), conditions=self._not_ready(pod))
        if fact.at_rest:
            asyncio.get_running_loop().call_later(_TO_PHASE, self._rest, key, fact.uid)
        self.changed()

    def _rest(self, name: Name, uid: str) -> None:
        pod, fact = self._pod(name), self._fact(name, uid)
        if pod is not None and fact is not None and pod["metadata"]["uid"] == uid:
            self._tell(name, phase="Succeeded" if fact.code == 0 else "Failed")

    def take(self, name: str, how: str = "Evicted", namespace: str = dialect.NAMESPACE) -> None:
        """Evict a pod as the kubelet does."""
        key = (namespace, name)
        pod, fact = self._pod(key), self.facts.get(key)
        if pod is None or fact is None:
            return
        fact.ended_at, fact.taken, fact.at_rest, fact.ready = self._now(), True, True, False
        at = self._time(pod)
        conditions = [
            *self._not_ready(pod),
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": at},
        ]
        self._tell(key, phase="Failed", reason=how, message="The node was low on memory.", conditions=conditions)
        self.changed()

    def kill(self, node: str) -> None:
        """Silence a node forever; the control plane updates its pods."""
        self.dead.add(node)
        for name, fact in list(self.facts.items()):
            pod = self._pod(name)
            if pod is not None and pod["spec"].get("nodeName") == node:
                fact.ready = False
                self._tell(name, conditions=_with(pod, "Ready", "False", spell(self._now())))
        self.changed()

    def _tell(self, name: Name, **status: Any) -> None:
        self._kube.patch("pods", *name, {"status": status}, subresource="status", user=_USER)

    def _is_dead(self, pod: Mapping[str, Any]) -> bool:
        return pod["spec"].get("nodeName") in self.dead

    def _time(self, pod: Mapping[str, Any]) -> str:
        return spell(self._now() + self.offsets.get(pod["spec"].get("nodeName", ""), 0.0))

    def _ended(self, pod: Mapping[str, Any], code: int, only: str | None = None) -> list[dict[str, Any]]:
        """Report the containers after one or all of them ended."""
        told = []
        main = only if any(one["name"] == only for one in pod["spec"]["containers"]) else None
        for one in pod["status"].get("containerStatuses") or ():
            if main is None or one["name"] == main:
                over = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": self._time(pod)}
                one = {"name": one["name"], "ready": False, "state": {"terminated": over}}  # noqa: PLW2901 - the ended one
            told.append(one)
        return told

    def _not_ready(self, pod: Mapping[str, Any]) -> list[dict[str, Any]]:
        return _with(pod, "Ready", "False", self._time(pod))


def _with(pod: Mapping[str, Any], kind: str, status: str, at: str) -> list[dict[str, Any]]:
    kept = [one for one in pod["status"].get("conditions") or () if one["type"] != kind]
    return [*kept, {"type": kind, "status": status, "lastTransitionTime": at}]
