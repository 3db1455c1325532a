"""The headless Service: it gives every pod of the cluster a DNS name that outlives the pod."""

from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Meta, Metadata, Wanted


class Port(msgspec.Struct, rename="camel"):
    name: str = ""
    port: int = 0
    target_port: int | str | None = None
    protocol: str = "TCP"


class ServiceSpec(msgspec.Struct, rename="camel"):
    selector: dict[str, str] | None = None
    ports: list[Port] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = "ClusterIP"
    publish_not_ready_addresses: bool = False


class _Wire(msgspec.Struct):
    metadata: Metadata
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


@dataclass(frozen=True, slots=True)
class Service:
    """A Service, in the fields that we set."""

    KIND: ClassVar = "Service"
    meta: Meta
    spec: ServiceSpec

    @property
    def beyond_repair(self) -> bool:
        """Whether it must be deleted and re-created: its cluster IP cannot be edited."""
        return self.spec.cluster_ip != "None" or self.spec.type != "ClusterIP"


def _wanted(cluster: TFCluster) -> Wanted:
    return Wanted(cluster.name, partial(build, cluster), partial(change, cluster), attrgetter("beyond_repair"))


KIND: Final = base.kind_of(
    Service,
    "services",
    _Wire,
    lambda wire: Service(Meta.read(wire.metadata), wire.spec),
    lambda cluster, _: [cluster.name],
    wanted=lambda facts: [_wanted(facts.cluster)],
    gate=Service.KIND,
)


def build(cluster: TFCluster) -> dict[str, Any]:
    """Build the Service of a cluster."""
    # Addresses are published before pods are ready: tasks wait for each other's names ("DNS for Services and Pods").
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {naming.LABEL_CLUSTER: cluster.name},
        "ports": _ports(cluster),
    }
    return base.manifest(cluster, "v1", "Service", cluster.name, naming.cluster_labels(cluster.name), spec=spec)


def change(cluster: TFCluster, existing: Service) -> dict[str, Any] | None:
    """Return the patch that corrects the Service, or None if nothing differs."""
    has, spec = existing.spec, dict[str, Any]()
    selector = {naming.LABEL_CLUSTER: cluster.name}
    if has.selector != selector:
        # A foreign key in the selector would select nothing.
        spec["selector"] = {**dict.fromkeys(has.selector or ()), **selector}
    ports = _ports(cluster)
    known = [(one.name, one.port, one.target_port or one.port, one.protocol) for one in has.ports or ()]
    if known != [(one["name"], one["port"], one["targetPort"], one["protocol"]) for one in ports]:
        spec["ports"] = ports
    if not has.publish_not_ready_addresses:
        spec["publishNotReadyAddresses"] = True
    return base.change_of(existing.meta, labels=naming.cluster_labels(cluster.name), spec=spec)


def _ports(cluster: TFCluster) -> list[dict[str, Any]]:
    """Return each distinct port of the jobs, named after its number."""
    ports = sorted({job.port for job in cluster.jobs})
    return [{"name": f"tf-{port}", "port": port, "targetPort": port, "protocol": "TCP"} for port in ports]
