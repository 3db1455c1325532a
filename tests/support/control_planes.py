"""Helpers for tests with a control plane: its client, the CRD, namespaces, the operator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from .objects import CRDS, NAMESPACES, PODS, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Object, Objects
from .operator_process import OperatorProcess
from .rbac import OPERATOR_USER, grant_operator_rights
from .waiting import eventually
from .world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

_TRACEBACK: Final = "Traceback (most recent call last)"
_DEFINITION: Final = Path(__file__).resolve().parents[2] / "crds" / "tfcluster.yaml"


def client_of(plane: ControlPlane) -> client.ApiClient:
    configuration = client.Configuration()
    config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


def install_crd(objects: Objects) -> None:
    definition = yaml.safe_load(_DEFINITION.read_text(encoding="utf-8"))
    name = definition["metadata"]["name"]
    if objects.get(CRDS, "", name) is None:
        objects.create(CRDS, "", definition)

    def conditions() -> dict[str, str]:
        found: Object = objects.get(CRDS, "", name) or {}
        return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions") or []}

    eventually(conditions, lambda c: c.get("Established") == "True", what="the CRD is established")
    await_served(objects, TFCLUSTERS)


def await_served(objects: Objects, kind: Kind) -> None:
    """Wait until the server serves a kind whose CRD it has."""
    eventually(lambda: _is_served(objects, kind), what=f"{kind} is served")


def _is_served(objects: Objects, kind: Kind) -> bool:
    try:
        objects.list(kind)
    except ApiException as error:
        if error.status not in {404, 429}:  # not served yet, or its storage is being initialized
            raise
        return False
    return True


def create_namespace(objects: Objects, name: str) -> None:
    """Create a namespace and wait until pods can be created: without the service account they are rejected."""
    objects.create(NAMESPACES, "", {"metadata": {"name": name}})
    eventually(lambda: objects.get(SERVICE_ACCOUNTS, name, "default"), what=f"namespace {name} can hold pods")


def delete_namespace(objects: Objects, name: str) -> None:
    """Delete a namespace, its TFClusters first: otherwise the operator re-creates what the controller deletes."""
    objects.request("DELETE", TFCLUSTERS.path(name))
    objects.delete(NAMESPACES, "", name)


@contextmanager
def no_traceback(process: OperatorProcess) -> Iterator[None]:
    """Fail if the operator logs a traceback in the ``with`` block."""
    position = process.log.stat().st_size
    yield
    said = process.log.read_bytes()[position:].decode(errors="replace")
    assert _TRACEBACK not in said, said[max(0, said.index(_TRACEBACK) - 500) :][:5000]


def administrator_of(plane: ControlPlane, **rights: Any) -> Objects:
    """Return administrator access to a server that one test owns, with the CRD installed."""
    objects = Objects(client_of(plane))
    install_crd(objects)
    grant_operator_rights(objects, **rights)
    return objects


@contextmanager
def operator_on(plane: ControlPlane, folder: Path, **options: Any) -> Iterator[OperatorProcess]:
    """Run the operator on a server that one test owns; a traceback in its log fails the test."""
    process = OperatorProcess(kubeconfig=Path(plane.kubeconfig_for(OPERATOR_USER)), log=folder / "operator.log")
    process.start(**options)
    with no_traceback(process):
        yield process
    process.stop()


@contextmanager
def namespace_on(objects: Objects) -> Iterator[World]:
    """Create a namespace for a ``with`` block; at the end, wait until its pods have left the nodes."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    create_namespace(objects, name)
    yield World(objects, name)
    delete_namespace(objects, name)
    # All tests share the nodes: pods that are left would take the room of the next test.
    eventually(lambda: objects.list(PODS, name), lambda left: not left, what="the nodes are free again", within=60)
