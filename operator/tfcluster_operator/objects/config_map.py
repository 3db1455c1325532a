"""The ConfigMap of a job: the views of its tasks, one file per distinct view, and the digests of its files.

Files are compared by digests, so that their text is not kept in memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    """The digests of one file of a ConfigMap: of its text, and of its membership and filters.

    ``membership`` is "" if the text is not a view; ``epoch`` is then 0.  ``told`` is the annotation of pods for the
    file: the digest of the view without leaving tasks and the tasks' pods, and that of the latter.  ``incarnations``
    are the tasks' pods in the file, by job and index.
    """

    digest: str
    membership: str
    epoch: int
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
    """A ConfigMap of ours: the digests of its files, not their text.

    ``binary_files`` do not belong in a ConfigMap of views.  ``archive`` is the SHA-256 of the resolver's archive, in
    hexadecimal digits, in a ConfigMap with the name of a resolver ConfigMap and without other files; else "".
    """

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
    labels, annotations = naming.job_labels(cluster.name, job), _annotations(files)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": base.owned(cluster, naming.view_name(cluster.name, job), labels=labels, annotations=annotations),
        "data": {name: file.text for name, file in files.items()},
    }


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
    """Return the digests of the file with this digest.

    Pods are notified of a new file, so that the kubelet refreshes it immediately, unless only the leaving tasks differ:
    these change with a new epoch, and their final deletion does not matter to the tasks that stay.
    """
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
