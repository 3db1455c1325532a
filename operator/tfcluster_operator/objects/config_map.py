"""The ConfigMap of a job: the views of its tasks, one file each distinct view; and what the files of one say.

What a file says is kept by digests, so that no text is kept to compare it with.
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
    """What one file of a ConfigMap says: the digest of its text, and of its membership and filters.

    ``membership`` is "" where the text is not a view; ``epoch`` is then 0.  ``told`` is what a pod is told of the file:
    the digest of the view without what it says of tasks that leave and of the tasks' pods, and that of the latter.
    ``incarnations`` is what the file tells of the tasks' pods, by job and index.
    """

    digest: str
    membership: str
    epoch: int
    told: str = ""
    incarnations: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One wanted file: its text, and what it says."""

    text: str
    says: ReadFile


class _Wire(msgspec.Struct, rename="camel"):
    metadata: Metadata
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    immutable: bool | None = None


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap of ours: what its files say, not their text.

    ``binary_files`` are none of ours in a ConfigMap of views.  ``archive`` is the SHA-256 of the resolver's archive, in
    hexadecimal digits, in a ConfigMap that is named as a copy of it and has no other file; "" in any other.
    """

    KIND: ClassVar = "ConfigMap"
    meta: Meta
    files: Mapping[str, ReadFile]
    binary_files: tuple[str, ...]
    immutable: bool
    archive: str = ""

    @property
    def is_genuine_copy(self) -> bool:
        """Whether it is a copy of the resolver: the archive that its name promises, nothing else, and forever."""
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
    """Return the digest of the resolver's archive, "" where it is not the only file: the content itself is not kept."""
    files = wire.binary_data or {}
    if wire.data or list(files) != [naming.ARCHIVE_FILE]:
        return ""
    # The API server has checked that it is base64.
    return hashlib.sha256(base64.b64decode(files[naming.ARCHIVE_FILE])).hexdigest()


KIND: Final = base.kind_of(
    ConfigMap.KIND,
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
    """Return the patch that makes a ConfigMap hold the wanted views, or None where nothing differs."""
    data: dict[str, str | None] = {name: None for name in existing.files if name not in files}
    for name, file in files.items():
        if name not in existing.files or existing.files[name].digest != file.says.digest:
            data[name] = file.text
    return base.change_of(
        existing.meta,
        labels=naming.job_labels(cluster.name, job),
        annotations=_annotations(files),
        data=data,
        # A binary file is mounted beside the views, and task-0.json among them would be read as one.
        binaryData=dict.fromkeys(existing.binary_files),
    )


def trusted_files(existing: ConfigMap | None) -> Mapping[str, ReadFile]:
    """Return the files of a ConfigMap, none where somebody edited their epochs: data and annotation must agree."""
    if existing is None or existing.meta.annotations.get(naming.ANNOTATION_EPOCHS) != _epochs(existing.files):
        return {}
    return existing.files


def _annotations(files: Mapping[str, ViewFile]) -> dict[str, str]:
    return {naming.ANNOTATION_EPOCHS: _epochs({name: file.says for name, file in files.items()})}


def _epochs(files: Mapping[str, ReadFile]) -> str:
    return json.dumps({name: files[name].epoch for name in sorted(files)}, separators=(",", ":"))


def lasting(told: str) -> str:
    """Return the part of what a pod is told that stays the same where only tasks leave, or become other pods."""
    return told.partition("-")[0]


#: What the files say that were read or built lately, by their digest: reading a large one takes milliseconds.
_known: Final[dict[str, ReadFile]] = {}
_KNOWN_AT_MOST: Final = 4_096


def build_file(view: contract.View, membership: str) -> ViewFile:
    """Spell a view as a file."""
    text = contract.dump(view)
    return ViewFile(text, _remember(_says(view, digest(text), membership)))


def read_file(text: str) -> ReadFile:
    """Return what a ConfigMap's file says, for the comparison with what it should say."""
    name = digest(text)
    if (known := _known.get(name)) is not None:
        return known
    try:
        view = contract.load(text)
    except contract.ContractError:
        return ReadFile(digest=name, membership="", epoch=0, told=name)
    return _remember(_says(view, name, membership_digest(view)))


def membership_digest(view: contract.View) -> str:
    """Shorten what an epoch counts: the tasks, their addresses and their filters."""
    return digest(contract.dump(replace(view, epoch=0, accelerators={}, isolation="", leaving={}, incarnations={})))


def _says(view: contract.View, name: str, membership: str) -> ReadFile:
    """Return what a file of this digest says.

    A pod is told of a new file, so that its kubelet looks at once, unless only the tasks that leave differ: they come
    with a new epoch, and that they are deleted at last changes nothing for those that stay.
    """
    told = name
    if view.leaving or view.incarnations:
        told = digest(contract.dump(replace(view, leaving={}, incarnations={})))
    if view.incarnations:
        told += "-" + digest(str(sorted((job, *sorted(of_job.items())) for job, of_job in view.incarnations.items())))
    return ReadFile(name, membership, view.epoch, told, view.incarnations)


def _remember(file: ReadFile) -> ReadFile:
    if file.incarnations:
        return file  # It holds a word for each task, and few are the same
    if len(_known) >= _KNOWN_AT_MOST:
        _known.clear()
    _known[file.digest] = file
    return file
