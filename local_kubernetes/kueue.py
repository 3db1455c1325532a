"""Kueue beside a control plane: the real one, with its own definitions and webhooks, as a program of this machine."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from local_kubernetes import binaries, processes
from local_kubernetes.ports import free_ports
from local_kubernetes.progress import LocalKubernetesError

if TYPE_CHECKING:
    from pathlib import Path

    from local_kubernetes.control_plane import ControlPlane

GROUP = "kueue.x-k8s.io"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
_STARTS_WITHIN = 120.0
#: Kueue reads the certificate of its metrics there and nowhere else, so it gets an /etc of its own.
_START = """set -e
mount -t tmpfs tmpfs /etc
mkdir -p /etc/kueue/metrics/certs
cp "$1"/tls.crt "$1"/tls.key /etc/kueue/metrics/certs/
shift
exec "$@"
"""


def start(plane: ControlPlane, *, owner: str = "", enter: Sequence[str] = (), **configuration: Any) -> None:
    """Install Kueue's definitions, start it beside the API server, register its webhooks; returns when they answer."""
    folder, api = binaries.kueue(), plane.api
    for path in sorted((folder / "crds").glob("*.yaml")):
        api.create(_DEFINITIONS, yaml.safe_load(path.read_text()))

    def established(found: dict[str, Any]) -> bool:
        ours = [one for one in found["items"] if one["spec"]["group"] == GROUP]
        conditions = [one["status"].get("conditions") or [] for one in ours]
        return bool(ours) and all(
            any(c["type"] == "Established" and c["status"] == "True" for c in of) for of in conditions
        )

    api.wait_for(_DEFINITIONS, established, what="Kueue's definitions", alive=plane.check_alive)
    api.create("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    health, webhook = free_ports(2)
    home = plane.state / "kueue"
    home.mkdir()
    names = ("DNS:localhost", "IP:127.0.0.1")
    served = plane.authority.issue("kueue-webhook", "kueue-webhook", alternative_names=names)
    for source, target in ((served.certificate, "tls.crt"), (served.key, "tls.key")):
        (home / target).write_bytes(source.read_bytes())
    settings = {
        "apiVersion": f"config.{GROUP}/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"{plane.addresses.bind}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(home)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"], "externalFrameworks": ["TFCluster.v1alpha1.tfcluster.dev"]},
        **configuration,
    }
    (home / "configuration.yaml").write_text(json.dumps(settings))
    kubeconfig = plane.write_component_kubeconfig("kueue", "kueue", groups=("system:masters",))
    program = (folder / "kueue", f"--config={home / 'configuration.yaml'}", f"--kubeconfig={kubeconfig}")
    processes.launch(
        [
            *("unshare", "--mount", "sh", "-c", _START, "kueue", home),
            *(*program, "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=1"),
        ],
        name="kueue",
        state=plane.state,
        enter=enter,
        owner=owner,
    )
    _await_answer(f"http://{plane.addresses.host}:{health}/readyz", plane)
    authority = base64.b64encode(plane.authority.certificate.read_bytes()).decode()
    for registration in _registrations(folder, f"https://127.0.0.1:{webhook}", authority):
        plural = registration["kind"].lower() + "s"
        api.create(f"{_WEBHOOKS}/{plural}", registration)


def _await_answer(url: str, plane: ControlPlane) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        plane.check_alive()
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - an address of this machine
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LocalKubernetesError(f"Kueue does not answer at {url}: {error}") from error
        time.sleep(0.1)


def _registrations(folder: Path, url: str, authority: str) -> Iterator[dict[str, Any]]:
    """Return its webhooks for its own kinds, at the address where it listens here."""
    for registration in yaml.safe_load_all((folder / "webhooks.yaml").read_text()):
        ours = [
            {**one, "clientConfig": {"url": url + one["clientConfig"]["service"]["path"], "caBundle": authority}}
            for one in registration["webhooks"]
            if all(rule["apiGroups"] == [GROUP] for rule in one["rules"])
        ]
        yield {**registration, "webhooks": ours}
