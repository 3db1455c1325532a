"""The resolver as one zip, and the ConfigMap that holds it.

The same sources always give the same bytes, and the ConfigMap is named after them and immutable: all TFClusters of a
namespace share one, an operator of another version makes another, and a pod keeps the one that it was started with.
Where the sources come from is not decided here.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tfcluster_operator.model import naming

ARCHIVE_FILE: Final = "tfcluster_resolver.zip"
#: A bound for our own growth: a ConfigMap takes 1 MiB, and every namespace with TFClusters has one of these.
LARGEST_ARCHIVE: Final = 200_000

_PACKAGE: Final = "tfcluster_resolver"
#: What Python finds first in the archive: it looks for a newer copy in the image, and else takes the one below.
_CHOOSER: Final = "copies.py"
#: The folder of the archive with the package itself; :mod:`tfcluster_resolver.copies` looks there.
_BUNDLED: Final = "bundled"
#: The oldest time that a zip can tell: a real one would make the bytes differ from build to build.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
#: What messages.binpb is made from: no program reads it.
_NOT_RUN: Final = ".proto"


@dataclass(frozen=True)
class ResolverArchive:
    """The resolver, ready to be delivered: ``content`` is a zip that can stand on PYTHONPATH."""

    content: bytes

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal digits."""
        return digest_of(self.content)


def digest_of(content: bytes) -> str:
    """Give what names an archive: the SHA-256 of its bytes, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


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
            # NB: else the byte that tells the system which it was made on would differ.
            entry.create_system = 3
            archive.writestr(entry, files[path])
    content = packed.getvalue()
    if len(content) > LARGEST_ARCHIVE:
        raise ValueError(f"the resolver's archive has {len(content)} bytes, more than {LARGEST_ARCHIVE}")
    return ResolverArchive(content)


def build_resolver_config_map(namespace: str, archive: ResolverArchive) -> dict[str, Any]:
    """Build the ConfigMap that delivers the resolver to the pods of all TFClusters in a namespace.

    Returns:
        An immutable ConfigMap, which the kubelet need not watch (Kubernetes, "Immutable ConfigMaps").  No TFCluster
        owns it: the operator deletes it when nobody needs it.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": naming.resolver_name(archive.digest),
            "namespace": namespace,
            "labels": naming.resolver_labels(),
        },
        "immutable": True,
        "binaryData": {ARCHIVE_FILE: base64.b64encode(archive.content).decode("ascii")},
    }
