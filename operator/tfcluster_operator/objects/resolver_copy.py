"""The resolver as one zip, and the ConfigMap with it, which all pods of a namespace mount.

The same sources always yield the same bytes, and the ConfigMap is named after them and immutable: all TFClusters of a
namespace share one, an operator of another version creates another, and a pod keeps the one that it was started with.
Users who can create ConfigMaps can use the name of one, so it is validated by its content, never by its labels.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects.base import change_of
from tfcluster_operator.objects.config_map import ConfigMap

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


def build(namespace: str, archive: ResolverArchive) -> dict[str, Any]:
    """Build the ConfigMap of a namespace.

    It is immutable, so that the kubelet need not watch it (Kubernetes, "Immutable ConfigMaps").  No TFCluster owns it:
    the operator deletes it when it is no longer needed.
    """
    name = naming.resolver_name(archive.digest)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": naming.resolver_labels()},
        "immutable": True,
        "binaryData": {naming.ARCHIVE_FILE: base64.b64encode(archive.content).decode("ascii")},
    }


def change(existing: ConfigMap) -> dict[str, Any] | None:
    """Return the patch that corrects the labels of a resolver ConfigMap, or None if nothing differs."""
    return change_of(existing.meta, labels=naming.resolver_labels())


def unneeded(copies: Iterable[ConfigMap], *, mounted: Collection[str], current: str, needed: bool) -> list[ConfigMap]:
    """Return the ConfigMaps of one namespace to delete; an invalid one belongs to another owner and stays."""
    kept = {*mounted, current} if needed else {*mounted}
    return [one for one in copies if one.meta.name not in kept and one.is_genuine_copy and not one.meta.terminating]
