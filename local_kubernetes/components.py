"""Command lines of the control plane's programs. Pure: it returns flags and does not start programs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ADMISSION_PLUGINS = ("NodeRestriction", "OwnerReferencesPermissionEnforcement")
"""Beside the ones that are on by default; both are what careful clusters run, and hide nothing from our RBAC tests."""

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {"level": "Metadata", "verbs": ["get", "list", "watch"], "omitStages": ["RequestReceived"]},
        {"level": "Metadata"},
    ],
}
"""Writes are logged when received and when answered: a change is seen before its answer is logged."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of one control plane."""

    host: str
    """The address by which clients outside reach the API server."""
    bind: str
    """The address the API server listens on."""
    advertise: str
    """The address of the API server for pods: the endpoint of Service kubernetes.default."""
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    service_range: str
    """CIDR of the cluster IPs."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names and addresses for the API server's certificate."""
        services = [f"kubernetes{end}" for end in ("", ".default", ".default.svc", ".default.svc.cluster.local")]
        first_service = self.service_range.rpartition(".")[0] + ".1"
        addresses = dict.fromkeys(("127.0.0.1", self.host, self.advertise, first_service))
        return ("DNS:localhost", *(f"DNS:{name}" for name in services), *(f"IP:{address}" for address in addresses))


#: The feature gates for PodGroups in kube-apiserver, kube-controller-manager and kube-scheduler.
_GANGS: Final = "--feature-gates=GenericWorkload=true"
_TOPOLOGY: Final = ",TopologyAwareWorkloadScheduling=true"
#: Whether PodGroups are handled, and whether their topologies are, too.
Gangs = bool | Literal["topology"]


def etcd_command(binary: Path, state: Path, addresses: Addresses) -> list[str | Path]:
    """Return etcd's command line: one member, on loopback only."""
    return [
        binary,
        "etcd",
        f"--data-dir={state / 'etcd'}",
        f"--client-url=http://127.0.0.1:{addresses.etcd_port}",
        f"--peer-url=http://127.0.0.1:{addresses.etcd_peer_port}",
    ]


def apiserver_command(binary: Path, state: Path, addresses: Addresses, *, gangs: Gangs = False) -> list[str | Path]:
    """Return kube-apiserver's command line."""
    pki = state / "pki"
    loopback = addresses.advertise == "127.0.0.1"
    return [
        binary,
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{addresses.etcd_port}",
        f"--bind-address={addresses.bind}",
        f"--advertise-address={addresses.advertise}",
        f"--secure-port={addresses.api_port}",
        # Endpoints on loopback are invalid: without nodes the Service kubernetes.default does not get endpoints.
        *(["--endpoint-reconciler-type=none"] if loopback else []),
        f"--service-cluster-ip-range={addresses.service_range}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--authorization-mode=Node,RBAC",
        f"--enable-admission-plugins={','.join(ADMISSION_PLUGINS)}",
        "--allow-privileged=true",
        f"--audit-policy-file={state / 'audit-policy.json'}",
        f"--audit-log-path={state / 'audit.log'}",
        "--audit-log-maxsize=100000",  # megabytes; a log that rotates away loses what a test wants to count
        f"--cert-dir={state / 'apiserver'}",
        *_gates(gangs),
        *(["--runtime-config=scheduling.k8s.io/v1beta1=true"] if gangs else []),
    ]


def controller_manager_command(
    binary: Path, state: Path, *, node_grace: int = 50, qps: int = 500, gangs: Gangs = False
) -> list[str | Path]:
    """Return kube-controller-manager's command line.

    Args:
        binary: hyperkube, or the programs of an older Kubernetes.
        state: The cluster's state folder.
        node_grace: Seconds without a heartbeat until a node and its pods are no longer Ready.
        qps: The limit of requests per second; the default of 20 would be the slowest part of any test of scale.
        gangs: Whether it handles PodGroups.
    """
    pki = state / "pki"
    return [
        binary,
        "kube-controller-manager",
        f"--kubeconfig={state / 'kubeconfigs' / 'kube-controller-manager'}",
        "--secure-port=0",
        "--leader-elect=false",
        f"--node-monitor-grace-period={node_grace}s",
        f"--kube-api-qps={qps}",
        f"--kube-api-burst={2 * qps}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        *_gates(gangs),
    ]


def scheduler_command(binary: Path, state: Path, *, qps: int = 1000, gangs: Gangs = False) -> list[str | Path]:
    """Return kube-scheduler's command line."""
    return [
        binary,
        "kube-scheduler",
        f"--kubeconfig={state / 'kubeconfigs' / 'kube-scheduler'}",
        "--secure-port=0",
        "--leader-elect=false",
        f"--kube-api-qps={qps}",
        f"--kube-api-burst={2 * qps}",
        *_gates(gangs),
    ]


def _gates(gangs: Gangs) -> list[str]:
    return [_GANGS + (_TOPOLOGY if gangs == "topology" else "")] if gangs else []
