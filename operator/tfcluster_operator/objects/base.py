"""Common parts of all kinds of objects: metadata, the table of kinds, and how they are read, labelled and owned.

Only the necessary fields are read: an operator of 10,000 pods keeps a few hundred bytes per pod, not the 30 kB of the
whole object.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import Job, TFCluster

_OUR_OWN: Final = f"{naming.GROUP}/"
#: The most characters of another condition's message in ours.
_LONGEST_MESSAGE: Final = 200
_Wire = TypeVar("_Wire")


class Reference(msgspec.Struct):
    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """The metadata of an object, as in the API."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int = 0
    generation: int = 0
    finalizers: list[str] | None = None


class Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    observed_generation: int = 0
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


@dataclass(frozen=True, slots=True)
class Meta:
    """The identity of an object; its owner is its controller, whose name is known if it is a TFCluster."""

    name: str
    namespace: str
    uid: str
    version: int
    owner_uid: str
    owner_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    terminating: bool
    grace: float = 0.0
    #: When its deletion was requested, by the API server's clock.
    asked_to_go_at: float = 0.0
    finalizers: tuple[str, ...] = ()

    @classmethod
    def read(cls, wire: Metadata) -> "Meta":
        """Parse the metadata of an object."""
        owner = next((one for one in wire.owner_references or () if one.controller), Reference())
        # Thousands of pods have equal strings, which are stored once.
        return cls(
            name=wire.name,
            namespace=intern(wire.namespace),
            uid=wire.uid,
            version=int(wire.resource_version),
            owner_uid=intern(owner.uid),
            owner_name=intern(owner.name) if owner.kind == naming.KIND else "",
            labels={intern(k): intern(v) for k, v in (wire.labels or {}).items()},
            # Annotations of others can be long, and no decision reads them.
            annotations={intern(k): intern(v) for k, v in (wire.annotations or {}).items() if k.startswith(_OUR_OWN)},
            terminating=wire.deletion_timestamp is not None,
            grace=float(wire.deletion_grace_period_seconds),
            asked_to_go_at=0.0
            if wire.deletion_timestamp is None
            else datetime.fromisoformat(wire.deletion_timestamp).timestamp() - wire.deletion_grace_period_seconds,
            finalizers=tuple(wire.finalizers or ()),
        )


class Child(Protocol):
    """An object of any kind, as it was parsed."""

    KIND: ClassVar[str]

    @property
    def meta(self) -> Meta:
        """Its identity."""


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[_Wire]):
    metadata: ListMeta
    items: list[_Wire] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of a kind's objects: the cluster, the number of a job's tasks that have not completed, the end."""

    cluster: TFCluster
    open_tasks: Callable[[Job], int]
    finished: bool


class Wanted(NamedTuple):
    """An object that a cluster needs; ``change`` returns the patch of an existing one that is not unfit."""

    name: str
    build: Callable[[], dict[str, Any]]
    change: Callable[[Any], dict[str, Any] | None]
    unfit: Callable[[Any], bool] = lambda _: False


_Names = Callable[[TFCluster, Iterable[Child]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object: its API, how it is parsed, and the names that a TFCluster needs.

    ``names`` gets the TFCluster and known objects: those that it controls, or (not ``ours_alone``) those of its
    namespace that no TFCluster controls.  ``wanted`` are its objects that a cluster needs, None if a plan of its own
    decides on them; ``gate`` is closed while one of them does not exist ("": the object's own), ``edited`` is why
    their spec is edited.  ``ours_alone``: only our objects are watched, by their label.  ``optional``: the operator
    works without the kind if the server does not serve it, or forbids the list.  ``cluster_wide``: its objects are not
    in a namespace.  ``read_list`` yields the objects of a list one by one: a ConfigMap of views takes milliseconds.
    """

    child: type[Child]
    plural: str
    read: Callable[[bytes | msgspec.Raw], Child]
    read_list: Callable[[bytes], tuple[Iterator[Child], ListMeta]]
    names: _Names
    wanted: Callable[[Facts], Iterable[Wanted]] | None = None
    gate: str = ""
    edited: str = reasons.REPAIRED
    api: str = "/api/v1"
    ours_alone: bool = True
    optional: bool = False
    cluster_wide: bool = False

    @property
    def name(self) -> str:
        """The kind's name in the API."""
        return self.child.KIND

    def path(self, namespace: str | None, name: str = "") -> str:
        """Return the path of an object, of a namespace's list, or (namespace None) of the list over all."""
        middle = f"/namespaces/{namespace}" if namespace else ""
        return f"{self.api}{middle}/{self.plural}" + (f"/{name}" if name else "")


def kind_of(
    child: type[Child],
    plural: str,
    wire: type[_Wire],
    observe: Callable[[_Wire], Child],
    names: _Names = lambda _, __: (),
    **served: Any,
) -> Kind:
    """Build the row of a kind from the struct of its objects, and the function that converts one."""
    one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(wire)
    many: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Page[wire])  # type: ignore[valid-type]  # built per kind

    def read_list(body: bytes) -> tuple[Iterator[Child], ListMeta]:
        page = many.decode(body)
        return (observe(item) for item in page.items or ()), page.metadata

    return Kind(child, plural, lambda body: observe(one.decode(body)), read_list, names, **served)


def manifest(  # noqa: PLR0917 - what each object has
    cluster: TFCluster,
    api: str,
    kind: str,
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """Build an object that the cluster controls: the garbage collector deletes it after the cluster."""
    owner = {"apiVersion": naming.API_VERSION, "kind": naming.KIND, "name": cluster.name, "uid": cluster.uid}
    metadata = {
        "name": name,
        "namespace": cluster.namespace,
        "labels": labels,
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def labels_of(cluster: TFCluster, job: str) -> dict[str, str]:
    """Return the labels of an object of one job, or ("") of the whole cluster."""
    return naming.job_labels(cluster.name, job) if job else naming.cluster_labels(cluster.name)


def change_of(
    meta: Meta,
    *,
    labels: Mapping[str, str | None],
    annotations: Mapping[str, str | None] | None = None,
    **parts: Mapping[str, Any] | None,
) -> dict[str, Any] | None:
    """Return the merge patch that corrects an object, or None if nothing differs."""
    # Server-side apply could not remove fields of another manager.  Others' labels and annotations are left alone.
    change: dict[str, Any] = {name: part for name, part in parts.items() if part}
    metadata: dict[str, Any] = {}
    if wrong := {key: value for key, value in labels.items() if meta.labels.get(key) != value}:
        metadata["labels"] = wrong
    if wrong := {key: value for key, value in (annotations or {}).items() if meta.annotations.get(key) != value}:
        metadata["annotations"] = wrong
    if metadata:
        change["metadata"] = metadata
    return change or None


def selecting(labels: Mapping[str, str], existing: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that makes a label selector require these labels and nothing else."""
    known = existing.get("matchLabels") or ()
    return {**dict.fromkeys(existing), "matchLabels": {**dict.fromkeys(known), **labels}}


def digest_of(spec: Any) -> str:
    """Return the digest of a JSON value, independent of the order of its fields."""
    return digest(json.dumps(spec, sort_keys=True, separators=(",", ":")))


def shortened(message: str) -> str:
    """Shorten another component's message for one of our conditions."""
    return message[:_LONGEST_MESSAGE]
