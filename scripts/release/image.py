"""The operator's image as one OCI archive, for one or several architectures, and its upload to a registry."""

import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from scripts import buildah, images
from scripts.release import bill, source
from scripts.release.archives import files_below, write_tar

_INDEX: Final = "application/vnd.oci.image.index.v1+json"


def archive_name(version: str) -> str:
    """Return the archive's name for a version."""
    return f"tfcluster-operator-{version}.oci.tar"


def build(folder: Path, *, image: str, version: str, epoch: int, architectures: Sequence[str]) -> None:
    """Build the image and write its archive and, for each architecture, its bill of materials."""
    with tempfile.TemporaryDirectory() as place:
        layouts = {architecture: Path(place) / architecture for architecture in architectures}
        for architecture, layout in layouts.items():
            _build_layout(layout, version=version, architecture=architecture)
            path = folder / f"tfcluster-operator-{version}-{architecture}.cdx.json"
            bill.of_image(path, layout, image=image, version=version, epoch=epoch)
        merged = Path(place) / "merged"
        write_layout(merged, layouts.values(), name=f"{image}:{version}")
        write_tar(folder / archive_name(version), files_below(merged), epoch=epoch)


def _build_layout(layout: Path, *, version: str, architecture: str) -> None:
    labels = {"org.opencontainers.image.version": version, "org.opencontainers.image.revision": source.revision()}
    arguments = ["--format", "oci", *(part for key, value in labels.items() for part in ("--label", f"{key}={value}"))]
    tag = f"{images.OPERATOR.name}-release:{version}-{architecture}"
    with images.lent_secrets() as secrets:
        images.build_by_buildah(images.OPERATOR, tag, secrets=secrets, arguments=arguments, architecture=architecture)
    _run([*buildah.command(), "push", "--quiet", tag, f"oci:{layout}:{version}"])
    _run([*buildah.command(), "rmi", tag])


def write_layout(folder: Path, layouts: Iterable[Path], *, name: str) -> None:
    """Merge images of one architecture each into one multi-architecture image.

    Args:
        folder: the output (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
        layouts: layouts with one image each.
        name: the name, with a tag, that containerd uses when it imports the archive.
    """
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifests = []
    for layout in layouts:
        for blob in (layout / "blobs" / "sha256").iterdir():
            (blobs / blob.name).write_bytes(blob.read_bytes())
        (found,) = json.loads((layout / "index.json").read_text())["manifests"]
        configuration = json.loads(
            (blobs / _read(blobs, found["digest"])["config"]["digest"].split(":")[1]).read_text()
        )
        platform = {key: configuration[key] for key in ("architecture", "os", "variant") if key in configuration}
        manifests.append({key: found[key] for key in ("mediaType", "digest", "size")} | {"platform": platform})
    index = _bytes({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests})
    digest = hashlib.sha256(index).hexdigest()
    (blobs / digest).write_bytes(index)
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    entry = {"mediaType": _INDEX, "digest": f"sha256:{digest}", "size": len(index), "annotations": names}
    (folder / "index.json").write_bytes(_bytes({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_bytes(_bytes({"imageLayoutVersion": "1.0.0"}))


def digest_of(archive: Path) -> str:
    """Return the digest of the image in a registry, such as ``sha256:12ab…``."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile("index.json")
        assert member is not None  # noqa: S101 - a file of ours
        (entry,) = json.load(member)["manifests"]
        return str(entry["digest"])


def push(archive: Path, *, image: str, version: str, options: Sequence[str] = ()) -> str:
    """Copy the image to a registry unchanged.

    Returns:
        The image name with its digest.
    """
    buildah.install("skopeo")
    copy = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", *options]
    _run([*copy, f"oci-archive:{archive}", f"docker://{image}:{version}"])
    return f"{image}@{digest_of(archive)}"


def _read(blobs: Path, digest: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((blobs / digest.split(":")[1]).read_text())
    return found


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
