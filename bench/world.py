"""The world of a benchmark: one control plane, the operator as a real process, and a user for the baseline client."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes import client, config

from bench.bare_client import BARE_GROUP, OUR_GROUP
from bench.cpu import cpu_seconds
from local_kubernetes import processes
from local_kubernetes.control_plane import ControlPlane, start
from tests.support.audit import AuditLog
from tests.support.objects import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, NAMESPACES, SERVICE_ACCOUNTS, Objects
from tests.support.operator_process import OperatorProcess
from tests.support.rbac import OPERATOR_USER, grant_operator_rights
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parent.parent
BARE_USER = "bare-client-of-bench"
_QUIET_SECONDS = 0.7
#: A thousand TFClusters take minutes to become Ready, and each reports it.
_QUIET_WITHIN = 600.0


@dataclass(frozen=True)
class World:
    """The environment that all measurements share."""

    plane: ControlPlane
    objects: Objects
    audit: AuditLog
    operator: OperatorProcess
    bare_kubeconfig: Path

    def new_namespace(self, name: str) -> str:
        """Create a namespace that can hold pods, and return its name."""
        self.objects.create(NAMESPACES, "", {"metadata": {"name": name}})
        eventually(lambda: self.objects.get(SERVICE_ACCOUNTS, name, "default"), what=f"{name} can hold pods")
        return name

    def server_cpu_seconds(self) -> float:
        """Return the processor time that the API server and its etcd have used so far."""
        programs = processes.running(self.plane.state)
        return cpu_seconds(each.pid for each in programs if each.name in {"kube-apiserver", "etcd"})

    def fresh_operator(self) -> None:
        """Start the operator again, so that its peak memory is that of one scenario."""
        if self.operator.running:
            self.operator.stop()
        self.operator.start()

    async def quiet(self, user: str = OPERATOR_USER, *, namespace: str | None = None) -> int:
        """Return the audit log's position when a user does not write any longer, in a namespace or anywhere."""
        return await asyncio.to_thread(self.audit.await_quiet, user, namespace=namespace, within=_QUIET_WITHIN)

    def settle(self) -> None:
        """Return when all writes have stopped for a while: garbage collection of the last run is over."""
        position = self.audit.position()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_SECONDS:
            time.sleep(0.1)
            seen = self.audit.position()
            if any(r.is_write and r.resource != "leases" for r in self.audit.since(position)):
                quiet_since = time.monotonic()
            position = seen


@contextmanager
def raised(directory: Path, *, kwok_nodes: int = 0) -> Iterator[World]:
    """Raise the control plane, install the CRD and the rights; take all down at the end.

    Yields:
        The world, with the operator not yet started.
    """
    plane = start(directory / "control-plane", kwok_nodes=kwok_nodes)
    configuration = client.Configuration()
    config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
    objects = Objects(client.ApiClient(configuration))
    _install(objects)
    operator = OperatorProcess(kubeconfig=plane.kubeconfig_for(OPERATOR_USER), log=directory / "operator.log")
    try:
        yield World(
            plane=plane,
            objects=objects,
            audit=AuditLog(plane.audit_log, objects),
            operator=operator,
            bare_kubeconfig=plane.kubeconfig_for(BARE_USER),
        )
    finally:
        operator.kill()
        plane.stop()


def _install(objects: Objects) -> None:
    text = (ROOT / "crds" / "tfcluster.yaml").read_text(encoding="utf-8")
    # The baseline client's TFClusters use the same schema and the same rules, and no operator watches them.
    for definition in (yaml.safe_load(text), yaml.safe_load(text.replace(OUR_GROUP, BARE_GROUP))):
        objects.create(CRDS, "", definition)
        await_established(objects, definition["metadata"]["name"])
    grant_operator_rights(objects)
    # The baseline client uses the same authorizer with the same rules; its owner objects are ConfigMaps.
    grant_operator_rights(objects, user=BARE_USER)
    rules = [
        {"apiGroups": [""], "resources": ["configmaps/finalizers"], "verbs": ["update"]},
        {"apiGroups": [BARE_GROUP], "resources": ["tfclusters"], "verbs": ["create"]},
    ]
    about = {"metadata": {"name": f"{BARE_USER}-owners"}}
    group = "rbac.authorization.k8s.io"
    objects.create(CLUSTER_ROLES, "", {**about, "rules": rules})
    objects.create(
        CLUSTER_ROLE_BINDINGS,
        "",
        {
            **about,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"{BARE_USER}-owners"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": BARE_USER}],
        },
    )


def await_established(objects: Objects, name: str) -> None:
    """Return when the API server serves a kind."""

    def established() -> bool:
        found = objects.get(CRDS, "", name) or {}
        told = {c["type"]: c["status"] for c in found.get("status", {}).get("conditions") or []}
        return told.get("Established") == "True"

    eventually(established, what=f"{name} is established")
