"""A pod's volumes as folders of this machine: made before its containers, kept up to date while they run.

ConfigMaps, Secrets and the like are written as the kubelet writes them (pkg/volume/util/atomic_writer.go): a new folder
beside the old, then the swap of one symlink, so that a reader sees all of the old or all of the new.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tfcluster.local import fields

Object = Mapping[str, Any]
#: A file's content and mode.
File = tuple[bytes, int]
#: Gives an object by its plural and name; None where there is none.
Lookup = Callable[[str, str], Object | None]

_DATA: Final = "..data"
#: What a file has whose volume says nothing of it.
_MODE: Final = 0o644
#: The kinds of volumes whose content comes from objects.
_WRITTEN: Final = ("configMap", "secret", "projected", "downwardAPI")


class NotYetError(Exception):
    """Something that a volume or a variable needs does not exist; the words name it."""


class Volumes:
    """The volumes of one pod.

    Args:
        folder: where the pod's own volumes live; it goes with the pod.
        claims: where the volumes of PersistentVolumeClaims live, which outlive pods.
        lookup: finds ConfigMaps and Secrets.
        rewrite: rewrites the text of the view files.
        view_volume: the name of the volume with the view.
    """

    def __init__(
        self, folder: Path, claims: Path, lookup: Lookup, *, rewrite: Callable[[str], str], view_volume: str
    ) -> None:
        self._folder = folder
        self._claims = claims
        self._lookup = lookup
        self._rewrite = rewrite
        self._view_volume = view_volume
        self._written: dict[str, Mapping[str, File]] = {}
        self._paths: dict[str, Path] = {}

    def make(self, pod: Object) -> None:
        """Make every volume that can be made now.

        Raises:
            NotYetError: an object is missing.
        """
        for volume in pod["spec"].get("volumes") or ():
            self._make(pod, volume)

    def refresh(self, pod: Object) -> None:
        """Write again what has changed; what has vanished stays as it was."""
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] in self._written:
                with contextlib.suppress(NotYetError):
                    self._make(pod, volume)

    def path(self, mount: Object, sub_path: str) -> Path:
        """Give the folder or file that a mount shows.

        Raises:
            NotYetError: the pod has no such volume.
        """
        root = self._paths.get(mount["name"])
        if root is None:
            raise NotYetError(f"volume {mount['name']} is not declared")
        path = root / sub_path if sub_path else root
        if sub_path and not path.exists() and mount["name"] not in self._written:
            path.mkdir(parents=True, exist_ok=True)
        return path

    def remove(self) -> None:
        """Delete the pod's own volumes."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self, pod: Object, volume: Object) -> None:
        name = volume["name"]
        own = self._folder / name
        if any(kind in volume for kind in _WRITTEN):
            self._write(own, name, dict(self._files(pod, volume)))
        elif claim := volume.get("persistentVolumeClaim"):
            own = self._claims / claim["claimName"]
            own.mkdir(parents=True, exist_ok=True)
        elif host := volume.get("hostPath"):
            own = Path(host["path"])
            if host.get("type") == "DirectoryOrCreate":
                own.mkdir(parents=True, exist_ok=True)
        else:
            # emptyDir, and what lasts no longer than a pod or is not of this machine.
            own.mkdir(parents=True, exist_ok=True)
        self._paths[name] = own

    def _files(self, pod: Object, volume: Object) -> Iterator[tuple[str, File]]:
        if (projected := volume.get("projected")) is not None:
            for source in projected.get("sources") or ():
                yield from self._of_source(pod, source, volume["name"], projected.get("defaultMode"))
        else:
            yield from self._of_source(pod, volume, volume["name"])

    def _of_source(
        self, pod: Object, source: Object, volume: str, mode: int | None = None
    ) -> Iterator[tuple[str, File]]:
        if (config_map := source.get("configMap")) is not None:
            found = self._find("configmaps", config_map)
            for path, (content, bits) in _chosen(config_files(found), config_map, volume, mode):
                yield path, (self._rewritten(volume, content), bits)
        if (secret := source.get("secret")) is not None:
            named = {**secret, "name": secret.get("name") or secret.get("secretName")}
            yield from _chosen(secret_values(self._find("secrets", named)), secret, volume, mode)
        if (downward := source.get("downwardAPI")) is not None:
            for item in downward.get("items") or ():
                yield item["path"], (fields.value_of(pod, item).encode(), _mode(item, downward, mode))

    def _rewritten(self, volume: str, content: bytes) -> bytes:
        return self._rewrite(content.decode()).encode() if volume == self._view_volume else content

    def _find(self, plural: str, source: Object) -> Object:
        found = self._lookup(plural, source["name"])
        if found is None and not source.get("optional"):
            raise NotYetError(f"{fields.SINGULAR[plural]} {source['name']} does not exist")
        return found or {}

    def _write(self, folder: Path, name: str, files: Mapping[str, File]) -> None:
        if self._written.get(name) == files:
            return
        write_atomically(folder, files)
        self._written[name] = files


def write_atomically(folder: Path, files: Mapping[str, File]) -> None:
    """Write a folder's files so that a reader sees all of the old ones or all of the new."""
    folder.mkdir(parents=True, exist_ok=True)
    before = os.readlink(folder / _DATA) if (folder / _DATA).is_symlink() else ""  # noqa: PTH115 - the link's text
    number = int(before.rpartition("_")[2] or 0) + 1
    new = folder / f"..data_{number}"
    for path, (content, mode) in files.items():
        (new / path).parent.mkdir(parents=True, exist_ok=True)
        (new / path).write_bytes(content)
        (new / path).chmod(mode)
    new.mkdir(exist_ok=True)
    link = folder / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(new.name)
    link.replace(folder / _DATA)
    tops = {path.split("/")[0] for path in files}
    for top in tops:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(f"{_DATA}/{top}")
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if before:
        shutil.rmtree(folder / before, ignore_errors=True)


def config_files(config_map: Object) -> dict[str, bytes]:
    """Give what a ConfigMap holds."""
    texts = {key: text.encode() for key, text in (config_map.get("data") or {}).items()}
    return texts | {key: base64.b64decode(text) for key, text in (config_map.get("binaryData") or {}).items()}


def secret_values(secret: Object) -> dict[str, bytes]:
    """Give what a Secret holds."""
    encoded = {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}
    return encoded | {key: text.encode() for key, text in (secret.get("stringData") or {}).items()}


def _chosen(files: Mapping[str, bytes], source: Object, volume: str, mode: int | None) -> Iterator[tuple[str, File]]:
    items: Sequence[Object] | None = source.get("items")
    if not items:
        yield from ((path, (content, _mode({}, source, mode))) for path, content in files.items())
        return
    for item in items:
        if item["key"] in files:
            yield item["path"], (files[item["key"]], _mode(item, source, mode))
        elif not source.get("optional"):
            raise NotYetError(f"volume {volume} names the key {item['key']}, which is not there")


def _mode(item: Object, source: Object, of_volume: int | None) -> int:
    """Give the mode of a file: its own, or that of its volume."""
    told = (item.get("mode"), source.get("defaultMode"), of_volume)
    return next((int(mode) for mode in told if mode is not None), _MODE)
