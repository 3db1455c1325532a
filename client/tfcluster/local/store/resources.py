"""The kinds that the API server serves, and their properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The fields that the scale subresource of a kind reads and writes, as dotted paths from the object."""

    spec: str
    status: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object.

    Args:
        plural: its name in paths.
        kind: its name in manifests.
        group: its API group, "" for the core.
        version: the version that is served.
        namespaced: whether its objects live in namespaces.
        custom: whether a CRD defines it: it can be added and removed, and its updates need a resourceVersion.
        status: whether it has a status subresource.
        scale: its scale subresource.
        generation: whether its objects have a generation.
        graceful: whether a deletion gives its objects a grace period.
        returns_deleted: whether a deletion answers with the object instead of a Status.
        unconditional_update: whether a PUT can omit the resourceVersion.
        create_on_update: whether a PUT creates an object that does not exist.
        short_names: what kubectl users type.
        categories: the groups of kinds that it belongs to.
        schema: the openAPIV3Schema of a CRD, for defaults and unknown fields; None keeps objects as they come.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    scale: Scale | None = None
    generation: bool = False
    graceful: bool = False
    returns_deleted: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def api_version(self) -> str:
        """Return the apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """Return the name that the server's messages use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        """Return the name of its kind that the server's messages use."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def base(self) -> str:
        """Return the path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def subresources(self) -> tuple[str, ...]:
        """Return its subresources."""
        own = ("binding",) if self.plural == "pods" and not self.group else ()
        return (*own, *(("status",) if self.status else ()), *(("scale",) if self.scale else ()))


def resource_of_definition(definition: Mapping[str, Any]) -> Resource:
    """Return the resource of a CustomResourceDefinition, in the stored version."""
    spec = definition["spec"]
    names = spec["names"]
    version = next(one for one in spec["versions"] if one["storage"])
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    return Resource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        namespaced=spec["scope"] == "Namespaced",
        custom=True,
        status="status" in subresources,
        scale=scale
        and Scale(
            spec=scale["specReplicasPath"].lstrip("."),
            status=scale["statusReplicasPath"].lstrip("."),
            selector=scale.get("labelSelectorPath", "").lstrip("."),
        ),
        generation=True,
        unconditional_update=False,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        schema=version["schema"]["openAPIV3Schema"],
    )


#: The kinds that the operator uses, in addition to its own.
BUILT_IN: Final[tuple[Resource, ...]] = (
    Resource(
        plural="namespaces", kind="Namespace", namespaced=False, status=True, returns_deleted=True, short_names=("ns",)
    ),
    Resource(
        plural="pods",
        kind="Pod",
        status=True,
        generation=True,
        graceful=True,
        returns_deleted=True,
        short_names=("po",),
        categories=("all",),
    ),
    Resource(
        plural="services",
        kind="Service",
        status=True,
        returns_deleted=True,
        create_on_update=True,
        short_names=("svc",),
        categories=("all",),
    ),
    Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",)),
    Resource(
        plural="networkpolicies",
        kind="NetworkPolicy",
        group="networking.k8s.io",
        generation=True,
        short_names=("netpol",),
    ),
    Resource(
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        group="policy",
        status=True,
        generation=True,
        short_names=("pdb",),
    ),
    Resource(
        plural="podgroups",
        kind="PodGroup",
        group="scheduling.k8s.io",
        version="v1beta1",
        status=True,
        generation=True,
    ),
    Resource(
        plural="workloads",
        kind="Workload",
        group="kueue.x-k8s.io",
        version="v1beta2",
        status=True,
        generation=True,
        short_names=("wl",),
    ),
    Resource(
        plural="resourceflavors", kind="ResourceFlavor", group="kueue.x-k8s.io", version="v1beta2", namespaced=False
    ),
    Resource(plural="events", kind="Event", create_on_update=True, short_names=("ev",)),
    Resource(
        plural="leases",
        kind="Lease",
        group="coordination.k8s.io",
        unconditional_update=False,
        create_on_update=True,
    ),
)
