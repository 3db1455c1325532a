"""Write an OCI image archive from a few files, without any image tool.

Follows the OCI image layout specification, version 1.0.0: one uncompressed layer, so that an import is one copy.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The machine's name for its processor, and Go's, which images use."""


def write_image(
    archive: Path,
    name: str,
    *,
    files: Mapping[str, Path | bytes],
    links: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
    entrypoint: Sequence[str] = (),
) -> None:
    """Write an archive that containerd and Docker import."""
    layer = _layer(files, links or {}, folders)
    platform_ = {"architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    blobs = {_digest(layer): layer}

    def blob(media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
        data = json.dumps(content, sort_keys=True).encode()
        blobs[_digest(data)] = data
        return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}

    config = blob(
        "application/vnd.oci.image.config.v1+json",
        {
            **platform_,
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        },
    )
    layer_type = "application/vnd.oci.image.layer.v1.tar"
    manifest_type = "application/vnd.oci.image.manifest.v1+json"
    layers = [{"mediaType": layer_type, "digest": _digest(layer), "size": len(layer)}]
    manifest = blob(manifest_type, {"schemaVersion": 2, "mediaType": manifest_type, "config": config, "layers": layers})
    annotations = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**manifest, "platform": platform_, "annotations": annotations}]}
    _write_layout(archive, index, blobs)


def _write_layout(archive: Path, index: Mapping[str, Any], blobs: Mapping[str, bytes]) -> None:
    with tarfile.open(archive, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for digest, data in blobs.items():
            _add(tar, f"blobs/{digest.replace(':', '/')}", data)


def _layer(files: Mapping[str, Path | bytes], links: Mapping[str, str], folders: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in folders:
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path, target in links.items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        for path, content in files.items():
            _add(tar, path, content if isinstance(content, bytes) else content.read_bytes())
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), 0o755
    tar.addfile(entry, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
