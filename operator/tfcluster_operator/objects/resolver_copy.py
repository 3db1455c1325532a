"""The resolver as one zip, and the ConfigMap with a copy of it, which all pods of a namespace mount.

The same sources always give the same bytes, and the ConfigMap is named after them and immutable: all TFClusters of a
namespace share one, an operator of another version makes another, and a pod keeps the one that it was started with.
Whoever can create a ConfigMap can take the name of one, so a copy is judged by its bytes, never by its labels.
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

#: A bound for our own growth: a ConfigMap takes 1 MiB, and every namespace with TFClusters has one of these.
LARGEST_ARCHIVE: Final = 200_000

_PACKAGE: Final = "tfcluster_resolver"
#: What Python finds first in the archive: it looks for a newer copy in the image, and else takes the one below.
_CHOOSER: Final = "copies.py"
#: The folder of the archive with the package itself; :mod:`tfcluster_resolver.copies` looks there.
_BUNDLED: Final = "bundled"
#: The oldest time that a zip can tell: a real one would make the bytes differ from build to build.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
#: What messages.binpb is created from: no program reads it.
_NOT_RUN: Final = ".proto"


@dataclass(frozen=True)
class ResolverArchive:
    """The resolver, ready to be delivered: ``content`` is a zip that can stand on PYTHONPATH."""

    content: bytes

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()

    def delivered_to(self, cluster: TFCluster) -> str:
        """Name the ConfigMap that delivers the resolver to a cluster's pods, "" where the user wants none."""
        return naming.resolver_name(self.digest) if cluster.inject else ""


def build_archive(sources: Mapping[str, bytes]) -> ResolverArchive:
    """Pack the resolver.

    Returns:
        The archive.

    Raises:
        ValueError: the chooser is not among the sources, or the archive is larger than LARGEST_ARCHIVE.
    """
    if _CHOOSER not in sources:
        raise ValueError(f"the resolver's sources have no {_CHOOSER}: {sorted(sources)}")
    run = {path: content for path, content in sources.items() if not path.endswith(_NOT_RUN)}
    files = {f"{_BUNDLED}/{_PACKAGE}/{path}": content for path, content in run.items()}
    files[f"{_PACKAGE}/__init__.py"] = run[_CHOOSER]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            # Else the byte that tells the system which it was created on would differ.
            entry.create_system = 3
            archive.writestr(entry, files[path])
    content = packed.getvalue()
    if len(content) > LARGEST_ARCHIVE:
        raise ValueError(f"the resolver's archive has {len(content)} bytes, more than {LARGEST_ARCHIVE}")
    return ResolverArchive(content)


def build(namespace: str, archive: ResolverArchive) -> dict[str, Any]:
    """Build the copy of a namespace.

    It is immutable, so that the kubelet need not watch it (Kubernetes, "Immutable ConfigMaps").  No TFCluster owns it:
    the operator deletes it when nobody needs it.
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
    """Return the patch that puts the labels of a copy right, or None where nothing differs."""
    return change_of(existing.meta, labels=naming.resolver_labels())


def unneeded(copies: Iterable[ConfigMap], *, mounted: Collection[str], current: str, needed: bool) -> list[ConfigMap]:
    """Return the copies in one namespace that are to go; one that is not genuine is somebody else's work and stays."""
    kept = {*mounted, current} if needed else {*mounted}
    return [one for one in copies if one.meta.name not in kept and one.is_genuine_copy and not one.meta.terminating]
