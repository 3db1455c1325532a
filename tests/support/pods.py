"""A simulated kubelet and scheduler for a control plane without nodes.

A deleted pod without a node disappears immediately; a bound one terminates until its kubelet has stopped it, so bind a
pod first if its termination must be visible. It writes only what a kubelet writes (bindings and ``status``).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from . import clock
from .objects import NAMESPACES, NODES, PODS, STRATEGIC, TFCLUSTERS, Object, Objects

#: The report of the device plugin about each device: its ID and "Healthy", "Unhealthy" or "Unknown".
Devices = Mapping[str, Sequence[tuple[str, str]]]


class StandInKubelet:
    """The kubelet of one node, for the pods of one namespace."""

    def __init__(self, objects: Objects, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace
        self._node = f"node-{namespace}"
        # Without the node, the pod garbage collector removes its pods; the taint keeps other pods away.
        objects.create(NODES, "", {"metadata": {"name": self._node}, "spec": {"unschedulable": True}})

    def close(self) -> None:
        """Delete the namespace, its pods and the node, in this order, so that no controller replaces the pods."""
        self._objects.request("DELETE", TFCLUSTERS.path(self._namespace))
        self._objects.delete(NAMESPACES, "", self._namespace)
        for pod in self._objects.list(PODS, self._namespace):
            self.stop(pod["metadata"]["name"])
        self._objects.delete(NODES, "", self._node)

    def bind(self, *names: str) -> None:
        """Assign pods to the node, as the scheduler does."""
        for name in names:
            pod = self._objects.get(PODS, self._namespace, name)
            assert pod is not None, f"there is no pod {name} to bind"
            if not pod["spec"].get("nodeName"):
                body = {
                    "metadata": {"name": name, "uid": pod["metadata"]["uid"]},
                    "target": {"kind": "Node", "name": self._node},
                }
                self._objects.request("POST", PODS.path(self._namespace, name, "binding"), body)

    def run(self, *names: str, devices: Devices | None = None) -> None:
        self.bind(*names)
        for name in names:
            self._report(name, phase="Running", state={"running": {"startedAt": _now()}}, ready=True, devices=devices)

    def unready(self, name: str) -> None:
        self._report(name, phase="Running", state={"running": {"startedAt": _now()}}, ready=False)

    def wait(self, name: str, *, reason: str, message: str = "") -> None:
        """Set the containers of a pod waiting, for an image for example."""
        self.bind(name)
        state = {"waiting": {"reason": reason, "message": message}}
        self._report(name, phase="Pending", state=state, ready=False)

    def fail(self, *names: str, exit_code: int = 1, reason: str = "Error", message: str = "") -> None:
        for name in names:
            self.bind(name)
            self._report(name, phase="Failed", state=_ended(exit_code, reason, message), ready=False)

    def succeed(self, *names: str) -> None:
        for name in names:
            self.bind(name)
            self._report(name, phase="Succeeded", state=_ended(0), ready=False)

    def end_container(self, name: str, *, exit_code: int, container: str = "tensorflow") -> None:
        pod = self._objects.get(PODS, self._namespace, name)
        assert pod is not None, f"there is no pod {name}"
        statuses = [
            {**one, **({"ready": False, "state": _ended(exit_code)} if one["name"] == container else {})}
            for one in pod["status"]["containerStatuses"]
        ]
        body = {"status": {"containerStatuses": statuses}}
        self._objects.patch(PODS, self._namespace, name, body, subresource="status", content=STRATEGIC)

    def evict(self, name: str) -> None:
        """Evict a pod for node pressure: it fails with the reason Evicted, and its object stays."""
        self.bind(name)
        body = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}
        self._objects.patch(PODS, self._namespace, name, body, subresource="status")

    def disrupt(self, name: str, *, exit_code: int = 143) -> None:
        """Fail a pod with the condition DisruptionTarget, as preemption and the taint manager do."""
        self.bind(name)
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        body = {"status": {"conditions": [{**target, "lastTransitionTime": _now()}]}}
        self._objects.patch(PODS, self._namespace, name, body, subresource="status", content=STRATEGIC)
        self._report(name, phase="Failed", state=_ended(exit_code), ready=False)

    def stop(self, *names: str) -> None:
        """Finish the termination of deleted pods."""
        for name in names:
            self._objects.delete(PODS, self._namespace, name, grace_seconds=0)

    def confirm_end(self, pod: Object) -> None:
        """Finish the termination of one pod; skip a newer one with its name."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self._objects.delete(PODS, self._namespace, name, grace_seconds=0, uid=uid)

    def _report(
        self, name: str, *, phase: str, state: dict[str, Any], ready: bool, devices: Devices | None = None
    ) -> None:
        pod = self._objects.get(PODS, self._namespace, name)
        assert pod is not None, f"there is no pod {name} to run"
        status = {
            "phase": phase,
            "startTime": _now(),
            "conditions": [
                {"type": kind, "status": str(ready), "lastTransitionTime": _now()}
                for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                _container_status(container, state=state, ready=ready, devices=devices)
                for container in pod["spec"]["containers"]
            ],
        }
        self._objects.patch(PODS, self._namespace, name, {"status": status}, subresource="status", content=STRATEGIC)


def _container_status(container: Object, *, state: dict[str, Any], ready: bool, devices: Devices | None) -> Object:
    status = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
    if devices is not None:
        status["allocatedResourcesStatus"] = [
            {"name": resource, "resources": [{"resourceID": held, "health": health} for held, health in ids]}
            for resource, ids in devices.items()
        ]
    return status


def _ended(exit_code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    ended = {"exitCode": exit_code, "reason": reason if exit_code else "Completed", "message": message}
    return {"terminated": {**ended, "startedAt": _now(), "finishedAt": _now()}}


def _now() -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
