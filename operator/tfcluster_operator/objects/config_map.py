"""The ConfigMap of a job: the views of its tasks, one file per distinct view, and the digests of its files.

Files are compared by digests, so that their text is not kept in memory.
"""

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects import base
from tfcluster_operator.objects.base import Meta, Metadata
from tfcluster_resolver import contract


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The digests of one file: of its text, and of its membership and filters ("" if it is not a view)."""

    digest: str
    membership: str
    epoch: int
    #: The annotation of pods for the file: the digest without leaving tasks and pods, and that of the pods.
    told: str = ""
    incarnations: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One wanted file: its text, and its digests."""

    text: str
    says: ReadFile


class _Wire(msgspec.Struct, rename="camel"):
    metadata: Metadata
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap of ours, without the text of its files; ``archive`` is the SHA-256 of the resolver's, or ""."""

    KIND: ClassVar = "ConfigMap"
    meta: Meta
    files: Mapping[str, ReadFile]
    binary_files: tuple[str, ...]
    immutable: bool
    archive: str = ""

    @property
    def is_genuine_copy(self) -> bool:
        """Whether it is a valid resolver ConfigMap: immutable, with exactly the archive that its name promises."""
        return self.immutable and bool(self.archive) and self.meta.name == naming.resolver_name(self.archive)


def _read(wire: _Wire) -> ConfigMap:
    return ConfigMap(
        meta=Meta.read(wire.metadata),
        files={name: read_file(text) for name, text in (wire.data or {}).items()},
        binary_files=tuple(wire.binary_data or ()),
        immutable=bool(wire.immutable),
        archive=_archive_in(wire) if naming.is_of_the_resolver(wire.metadata.name) else "",
    )


def _archive_in(wire: _Wire) -> str:
    """Return the digest of the resolver's archive, "" if it is not the only file; the content itself is not kept."""
    files = wire.binary_data or {}
    if wire.data or list(files) != [naming.ARCHIVE_FILE]:
        return ""
    # The API server has checked that it is base64.
    return hashlib.sha256(base64.b64decode(files[naming.ARCHIVE_FILE])).hexdigest()


KIND: Final = base.kind_of(
    ConfigMap,
    "configmaps",
    _Wire,
    _read,
    lambda cluster, _: [naming.view_name(cluster.name, job.name) for job in cluster.jobs],
)


def build(cluster: TFCluster, job: str, files: Mapping[str, ViewFile]) -> dict[str, Any]:
    """Build the ConfigMap with one job's views."""
    name, labels = naming.view_name(cluster.name, job), naming.job_labels(cluster.name, job)
    data = {name: file.text for name, file in files.items()}
    return base.manifest(cluster, "v1", "ConfigMap", name, labels, _annotations(files), data=data)


def change(cluster: TFCluster, job: str, files: Mapping[str, ViewFile], existing: ConfigMap) -> dict[str, Any] | None:
    """Return the patch that corrects the views in a ConfigMap, or None if nothing differs."""
    data: dict[str, str | None] = {name: None for name in existing.files if name not in files}
    for name, file in files.items():
        if name not in existing.files or existing.files[name].digest != file.says.digest:
            data[name] = file.text
    return base.change_of(
        existing.meta,
        labels=naming.job_labels(cluster.name, job),
        annotations=_annotations(files),
        data=data,
        # A binary file is mounted beside the views, and a task would read task-0.json as its view.
        binaryData=dict.fromkeys(existing.binary_files),
    )


def trusted_files(existing: ConfigMap | None) -> Mapping[str, ReadFile]:
    """Return the files of a ConfigMap; empty if their epochs were edited: data and annotation must agree."""
    if existing is None or existing.meta.annotations.get(naming.ANNOTATION_EPOCHS) != _epochs(existing.files):
        return {}
    return existing.files


def _annotations(files: Mapping[str, ViewFile]) -> dict[str, str]:
    return {naming.ANNOTATION_EPOCHS: _epochs({name: file.says for name, file in files.items()})}


def _epochs(files: Mapping[str, ReadFile]) -> str:
    return json.dumps({name: files[name].epoch for name in sorted(files)}, separators=(",", ":"))


def lasting(told: str) -> str:
    """Return the part of a pod's view annotation that does not depend on leaving tasks and the tasks' pods."""
    return told.partition("-")[0]


#: Digests of files that were read or built recently, by the digest of the text: parsing a large one takes milliseconds.
_known: Final[dict[str, ReadFile]] = {}
_KNOWN_AT_MOST: Final = 4_096


def build_file(view: contract.View, membership: str) -> ViewFile:
    """Build the file of a view."""
    text = contract.dump(view)
    return ViewFile(text, _remember(_says(view, digest(text), membership)))


def read_file(text: str) -> ReadFile:
    """Return the digests of a ConfigMap's file, for the comparison with the wanted ones."""
    name = digest(text)
    if (known := _known.get(name)) is not None:
        return known
    try:
        view = contract.load(text)
    except contract.ContractError:
        return ReadFile(digest=name, membership="", epoch=0, told=name)
    return _remember(_says(view, name, membership_digest(view)))


def membership_digest(view: contract.View) -> str:
    """Return the digest of what an epoch counts: the tasks, their addresses and their filters."""
    return digest(contract.dump(replace(view, epoch=0, accelerators={}, isolation="", leaving={}, incarnations={})))


def _says(view: contract.View, name: str, membership: str) -> ReadFile:
    """Return the digests of the file with this digest."""
    # Pods are notified of a new file unless only the leaving tasks differ: these change with a new epoch, and their
    # final deletion does not matter to the tasks that stay.
    told = name
    if view.leaving or view.incarnations:
        told = digest(contract.dump(replace(view, leaving={}, incarnations={})))
    if view.incarnations:
        told += "-" + digest(str(sorted((job, *sorted(of_job.items())) for job, of_job in view.incarnations.items())))
    return ReadFile(name, membership, view.epoch, told, view.incarnations)


def _remember(file: ReadFile) -> ReadFile:
    if file.incarnations:
        return file  # It has a string for each task, and few files are equal
    if len(_known) >= _KNOWN_AT_MOST:
        _known.clear()
    _known[file.digest] = file
    return file


# The resolver as one zip, and the ConfigMap with it, which all pods of a namespace mount.  The same sources always
# yield the same bytes, and the ConfigMap is named after them and immutable: all TFClusters of a namespace share one, an
# operator of another version creates another, and a pod keeps the one that it was started with.  Users who can create
# ConfigMaps can use the name of one, so it is validated by its content, never by its labels.

#: A limit for our own growth: a ConfigMap holds 1 MiB, and every namespace with TFClusters has one of these.
LARGEST_ARCHIVE: Final = 200_000

_PACKAGE: Final = "tfcluster_resolver"
#: The module that Python finds first in the archive: it prefers a newer copy in the image to the one below.
_CHOOSER: Final = "copies.py"
#: The folder of the archive with the package itself; :mod:`tfcluster_resolver.copies` looks there.
_BUNDLED: Final = "bundled"
#: The oldest time in a zip: a real one would make the bytes differ from build to build.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
#: The source of messages.binpb, which no program reads.
_NOT_RUN: Final = ".proto"


@dataclass(frozen=True)
class ResolverArchive:
    """The resolver, ready to be delivered: ``content`` is a zip for PYTHONPATH."""

    content: bytes

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    def delivered_to(self, cluster: TFCluster) -> str:
        """Return the name of the ConfigMap that delivers the resolver to a cluster's pods, "" if it is disabled."""
        return naming.resolver_name(self.digest) if cluster.inject else ""


def build_archive(sources: Mapping[str, bytes]) -> ResolverArchive:
    """Pack the resolver."""
    if _CHOOSER not in sources:
        raise ValueError(f"the resolver's sources lack {_CHOOSER}: {sorted(sources)}")
    run = {path: content for path, content in sources.items() if not path.endswith(_NOT_RUN)}
    files = {f"{_BUNDLED}/{_PACKAGE}/{path}": content for path, content in run.items()}
    files[f"{_PACKAGE}/__init__.py"] = run[_CHOOSER]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            # Otherwise the byte for the operating system of its creation would differ.
            entry.create_system = 3
            archive.writestr(entry, files[path])
    content = packed.getvalue()
    if len(content) > LARGEST_ARCHIVE:
        raise ValueError(f"the resolver's archive has {len(content)} bytes, more than {LARGEST_ARCHIVE}")
    return ResolverArchive(content)


def build_copy(namespace: str, archive: ResolverArchive) -> dict[str, Any]:
    """Build the ConfigMap of a namespace: immutable, so that the kubelet need not watch it; no TFCluster owns it."""
    name = naming.resolver_name(archive.digest)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": naming.resolver_labels()},
        "immutable": True,
        "binaryData": {naming.ARCHIVE_FILE: base64.b64encode(archive.content).decode("ascii")},
    }


def change_of_copy(existing: ConfigMap) -> dict[str, Any] | None:
    """Return the patch that corrects the labels of a resolver ConfigMap, or None if nothing differs."""
    return base.change_of(existing.meta, labels=naming.resolver_labels())
