"""A pod's volumes as folders of this machine, and what a pod says of itself (fieldRef, resourceFieldRef) in them.

ConfigMaps, Secrets and the like are written as the kubelet writes them (pkg/volume/util/atomic_writer.go): a new folder
beside the old, then the swap of one symlink, so that a reader sees all of the old or all of the new.
"""

import base64
import contextlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.quantities import quantity

Object = Mapping[str, Any]

SINGULAR: Final = {"configmaps": "ConfigMap", "secrets": "Secret"}
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def value_of(pod: Object, source: Object) -> str:
    if (field := source.get("fieldRef")) is not None:
        return _field(pod, field["fieldPath"])
    return _resource(pod, source["resourceFieldRef"])


def _field(pod: Object, path: str) -> str:
    if keyed := _KEYED.fullmatch(path):
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):  # labels and annotations as a whole
        return "\n".join(f"{key}={json.dumps(text, ensure_ascii=False)}" for key, text in sorted(value.items()))
    if isinstance(value, list):
        return ",".join(str(one.get("ip", "")) for one in value)
    return "" if value is None else str(value)


def _resource(pod: Object, reference: Object) -> str:
    kind, _, name = str(reference["resource"]).partition(".")
    containers = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
    wanted = reference.get("containerName") or containers[0]["name"]
    resources = next((one.get("resources") or {} for one in containers if one["name"] == wanted), {})
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    text = (limits if kind == "limits" else {**limits, **requests}).get(name)
    # Without a limit, a container has the resources of the whole machine.
    whole = {"cpu": os.cpu_count() or 1, "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    amount = quantity(text) or Decimal(0) if text is not None else Decimal(whole.get(name, 0))
    return str(math.ceil(amount / (quantity(reference.get("divisor")) or 1)))


File = tuple[bytes, int]
Lookup = Callable[[str, str], Object | None]

_DATA: Final = "..data"
_MODE: Final = 0o644
_WRITTEN: Final = ("configMap", "secret", "projected", "downwardAPI")


class NotYetError(Exception):
    """An object that a volume or a variable needs does not exist; the message names it."""


class Volumes:
    """The volumes of one pod."""

    def __init__(self, folder: Path, claims: Path, lookup: Lookup, *, rewrite: Callable[[str], str]) -> None:
        self._folder = folder
        self._claims = claims
        self._lookup = lookup
        self._rewrite = rewrite
        self._written: dict[str, Mapping[str, File]] = {}
        self._paths: dict[str, Path] = {}

    def make(self, pod: Object) -> None:
        """Create every volume whose sources exist."""
        for volume in pod["spec"].get("volumes") or ():
            self._make(pod, volume)

    def refresh(self, pod: Object) -> None:
        """Update changed files; volumes whose source was deleted are not changed."""
        for volume in pod["spec"].get("volumes") or ():
            if volume["name"] in self._written:
                with contextlib.suppress(NotYetError):
                    self._make(pod, volume)

    def path(self, mount: Object, sub_path: str) -> Path:
        root = self._paths.get(mount["name"])
        if root is None:
            raise NotYetError(f"volume {mount['name']} is not declared")
        path = root / sub_path if sub_path else root
        if sub_path and not path.exists() and mount["name"] not in self._written:
            path.mkdir(parents=True, exist_ok=True)
        return path

    def _make(self, pod: Object, volume: Object) -> None:
        name = volume["name"]
        own = self._folder / name
        if any(kind in volume for kind in _WRITTEN):
            files = dict(self._files(pod, volume))
            if self._written.get(name) != files:
                write_atomically(own, files)
                self._written[name] = files
        elif claim := volume.get("persistentVolumeClaim"):
            own = self._claims / claim["claimName"]
            own.mkdir(parents=True, exist_ok=True)
        elif host := volume.get("hostPath"):
            own = Path(host["path"])
            if host.get("type") == "DirectoryOrCreate":
                own.mkdir(parents=True, exist_ok=True)
        else:
            # emptyDir, and volumes that are ephemeral or belong to another machine.
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
            found = content_of(self._lookup, "configmaps", config_map)
            if volume == naming.VIEW_VOLUME:
                found = {key: self._rewrite(content.decode()).encode() for key, content in found.items()}
            yield from _chosen(found, config_map, volume, mode)
        if (secret := source.get("secret")) is not None:
            named = {**secret, "name": secret.get("name") or secret.get("secretName")}
            yield from _chosen(content_of(self._lookup, "secrets", named), secret, volume, mode)
        if (downward := source.get("downwardAPI")) is not None:
            for item in downward.get("items") or ():
                yield item["path"], (value_of(pod, item).encode(), _mode(item, downward, mode))


def write_atomically(folder: Path, files: Mapping[str, File]) -> None:
    """Write a folder's files so that a reader sees either all old or all new files."""
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


def content_of(lookup: Lookup, plural: str, source: Object) -> dict[str, bytes]:
    """Return the values of a ConfigMap or a Secret; empty if it is optional and does not exist."""
    found = lookup(plural, source["name"])
    if found is None and not source.get("optional"):
        raise NotYetError(f"{SINGULAR[plural]} {source['name']} does not exist")
    plain, encoded = ("data", "binaryData") if plural == "configmaps" else ("stringData", "data")
    values = {key: base64.b64decode(text) for key, text in ((found or {}).get(encoded) or {}).items()}
    return values | {key: text.encode() for key, text in ((found or {}).get(plain) or {}).items()}


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
    """Return the mode of a file: its own, or that of its volume."""
    told = (item.get("mode"), source.get("defaultMode"), of_volume)
    return next((int(mode) for mode in told if mode is not None), _MODE)
