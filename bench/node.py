"""Measures delivery on a real node: from the edit's write until 30 running pods can read their new view.

Each pod watches its mounted directory and prints the epoch and the time when it could read it; pods and benchmark
share one clock, because they run on one machine. The yardstick is the same change by hand (one patch of the
ConfigMap, then one of each pod).
"""

import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client, config

from bench.book import Result
from tests.support.manifests import tfcluster
from tests.support.objects import CONFIG_MAPS, NAMESPACES, PODS, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Objects
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
KUBECONFIG = ROOT / ".local" / "kubeconfig"
PODS_MEASURED = 30
_DEPLOYMENTS = Kind("apps/v1", "deployments")
_OPERATOR_NAMESPACE = "tfcluster-system"

#: The kubelet renames the link ..data (IN_MOVED_TO) when it has written a new version: 60 programs that wait for that
#: cost the machine nothing, 60 programs that poll every few milliseconds cost half a core.
_READER = """
import ctypes, json, os, time
libc = ctypes.CDLL(None)
news, seen = libc.inotify_init(), None
libc.inotify_add_watch(news, b"/etc/tfcluster", 0x80)
while True:
    link = os.readlink("/etc/tfcluster/..data")
    if link != seen:
        with open("/etc/tfcluster/cluster.json") as file:
            epoch = json.load(file)["epoch"]
        print(epoch, time.time(), flush=True)
        seen = link
    os.read(news, 4096)
"""


class NodeCluster:
    """The cluster of ``make cluster`` with the operator of ``make install``.

    Raises:
        FileNotFoundError: the cluster does not exist.
        LookupError: the operator is not installed there.
    """

    def __init__(self) -> None:
        if not KUBECONFIG.exists():
            raise FileNotFoundError(f"{KUBECONFIG.relative_to(ROOT)} does not exist: run `make cluster install` first")
        configuration = client.Configuration()
        config.load_kube_config(str(KUBECONFIG), client_configuration=configuration)
        self.objects = Objects(client.ApiClient(configuration))
        installed = self.objects.list(_DEPLOYMENTS, _OPERATOR_NAMESPACE)
        if not installed:
            raise LookupError(f"no operator in namespace {_OPERATOR_NAMESPACE}: run `make install` first")
        #: The operator's image has Python, and is already on the node.
        self.image = installed[0]["spec"]["template"]["spec"]["containers"][0]["image"]

    def patch(self, path: str, change: dict[str, Any]) -> None:
        """Apply a merge patch to an object."""
        self.objects.request("PATCH", path, change, content="application/merge-patch+json")

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """Create a namespace for the length of a ``with`` block."""
        eventually(lambda: self.objects.get(NAMESPACES, "", name) is None, what=f"{name} of an earlier run is gone")
        self.objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        eventually(lambda: self.objects.get(SERVICE_ACCOUNTS, name, "default"), what=f"{name} can hold pods")
        try:
            yield name
        finally:
            self.objects.delete(NAMESPACES, "", name)

    def await_running(self, namespace: str, *, selector: str, count: int) -> list[str]:
        """Return the names of the pods once all run."""

        def running() -> list[str]:
            pods = self.objects.list(PODS, namespace, selector=selector)
            return sorted(p["metadata"]["name"] for p in pods if p.get("status", {}).get("phase") == "Running")

        return eventually(running, lambda names: len(names) == count, what=f"{count} pods run", within=300)

    def readings(self, namespace: str, pods: list[str], epoch: int) -> list[float]:
        """Return the times when the pods could read an epoch, once all of them have."""
        seen: dict[str, float] = {}

        def missing() -> list[str]:
            for pod in pods:
                if pod not in seen and (moment := self._reading(namespace, pod, epoch)) is not None:
                    seen[pod] = moment
            return [pod for pod in pods if pod not in seen]

        eventually(missing, lambda left: not left, what=f"all pods have read epoch {epoch}", within=150)
        return list(seen.values())

    def _reading(self, namespace: str, pod: str, epoch: int) -> float | None:
        said = self.objects.text(PODS.path(namespace, pod, "log"))
        return next((float(t) for e, t in (line.split() for line in said.splitlines()) if int(e) == epoch), None)


def delivery(_stage: object, name: str, runs: int) -> Result:
    """Measure delivery by the operator and by hand, in turns.

    Returns:
        The series ``median_s`` and ``max_s`` (of the pods of a run), and the same by hand.
    """
    result = Result(name, facts={"pods": PODS_MEASURED})
    node = NodeCluster()
    with node.namespace("bench-delivery") as ours, node.namespace("bench-by-hand") as hand:
        pods = _launch_cluster(node, ours)
        mounted = _launch_by_hand(node, hand)
        for run in range(runs):
            told = _scale(node, ours, pods, replicas=2 + run % 2)
            patched = _patch_by_hand(node, hand, mounted, epoch=2 + run)
            result.add(
                median_s=statistics.median(told),
                max_s=max(told),
                by_hand_median_s=statistics.median(patched),
                by_hand_max_s=max(patched),
            )
    return result


def _launch_cluster(node: NodeCluster, namespace: str) -> list[str]:
    """Create 30 parameter servers, which read, and a worker, whose number changes."""
    reader = {"spec": {"terminationGracePeriodSeconds": 0, "containers": [_reader(node.image)]}}
    cluster = tfcluster("bench").job("ps", replicas=PODS_MEASURED, template=reader)
    cluster.job("worker", replicas=1, maxReplicas=4, template=reader)
    node.objects.create(TFCLUSTERS, namespace, cluster.build())
    pods = node.await_running(namespace, selector="tfcluster.dev/job=ps", count=PODS_MEASURED)
    node.readings(namespace, pods, 1)
    return pods


def _scale(node: NodeCluster, namespace: str, pods: list[str], *, replicas: int) -> list[float]:
    epoch = (node.objects.get(TFCLUSTERS, namespace, "bench") or {})["metadata"]["generation"] + 1
    scale = {"spec": {"jobs": {"worker": {"replicas": replicas}}}}
    begin = time.time()
    node.patch(TFCLUSTERS.path(namespace, "bench"), scale)
    took = [moment - begin for moment in node.readings(namespace, pods, epoch)]
    node.await_running(namespace, selector="tfcluster.dev/job=worker", count=replicas)
    return took


def _launch_by_hand(node: NodeCluster, namespace: str) -> list[str]:
    labels = {"bench": "by-hand"}
    node.objects.create(CONFIG_MAPS, namespace, {"metadata": {"name": "view"}, "data": {"cluster.json": '{"epoch":1}'}})
    reader = _reader(node.image) | {"volumeMounts": [{"name": "view", "mountPath": "/etc/tfcluster"}]}
    for i in range(PODS_MEASURED):
        spec = {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [reader],
            "volumes": [{"name": "view", "configMap": {"name": "view"}}],
        }
        node.objects.create(PODS, namespace, {"metadata": {"name": f"reader-{i}", "labels": labels}, "spec": spec})
    pods = node.await_running(namespace, selector="bench=by-hand", count=PODS_MEASURED)
    node.readings(namespace, pods, 1)
    return pods


def _patch_by_hand(node: NodeCluster, namespace: str, pods: list[str], *, epoch: int) -> list[float]:
    begin = time.time()
    node.patch(CONFIG_MAPS.path(namespace, "view"), {"data": {"cluster.json": json.dumps({"epoch": epoch})}})
    for pod in pods:
        node.patch(PODS.path(namespace, pod), {"metadata": {"annotations": {"epoch": str(epoch)}}})
    return [moment - begin for moment in node.readings(namespace, pods, epoch)]


def _reader(image: str) -> dict[str, Any]:
    return {
        "name": "reader",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-u", "-c", _READER],
    }
