"""What all pods of one run share, and what a container's program gets of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tfcluster.local import environment
from tfcluster.local.addresses import Addresses
from tfcluster.local.container_log import ContainerLog
from tfcluster.local.containers import Container, Prepared
from tfcluster.local.devices import Devices
from tfcluster.local.paths import Mapping as PathMapping
from tfcluster.local.paths import PathMap
from tfcluster.local.probes import Actions
from tfcluster.local.processes import Command
from tfcluster.local.rewriting import Rewriting
from tfcluster.local.volumes import Volumes
from tfcluster_resolver import contract

Object = Mapping[str, Any]

_MESSAGE_PATH: Final = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What pods are played with.

    Attributes:
        folder: where volumes and logs are.
        python: the interpreter that stands for the images'.
        addresses: the ports of all tasks.
        devices: the accelerators.
        mapped: folders on this machine that stand for parts of the images.
        entry_points: what stands for the images' entry points, by container; under "" for every one.
        heard: is told of each line of a log: namespace, pod, container, line.
        notice: is told what the user should know; the same words may come often.
    """

    folder: Path
    python: Path
    addresses: Addresses
    devices: Devices
    mapped: Sequence[PathMapping] = ()
    entry_points: Mapping[str, Sequence[str]] = field(default_factory=dict)
    heard: Callable[[str, str, str, bytes], None] = lambda _namespace, _pod, _container, _line: None
    notice: Callable[[str], None] = lambda _: None

    @property
    def wrappers(self) -> Path:
        """The folder with programs that run the interpreter."""
        return self.folder / "bin"

    def write_wrappers(self) -> None:
        """Make ``python`` and ``python3``, for what looks for them on PATH."""
        self.wrappers.mkdir(parents=True, exist_ok=True)
        for name in ("python", "python3"):
            path = self.wrappers / name
            # NB: not a link, from which Python would not find its virtual environment.
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} "$@"\n', encoding="utf-8")
            path.chmod(0o755)

    def pod_folder(self, pod: Object) -> Path:
        """Give where a pod's own files are."""
        uid: str = pod["metadata"]["uid"]
        return self.folder / "pods" / uid

    def log_path(self, pod: Object, container: str) -> Path:
        """Give where a container's log is."""
        name: str = pod["metadata"]["name"]
        return self.folder / "logs" / name / f"{container}.log"

    def local_ports(self, pod: Object) -> dict[str, int]:
        """Give the ports on this machine that stand for the pod's, by its own."""
        metadata, spec = pod["metadata"], pod["spec"]
        names = spec.get("hostname") or metadata["name"], spec.get("subdomain") or metadata["name"]
        return {str(port): here for port, here in self.addresses.of_host(*names, metadata["namespace"])}

    def volumes_of(self, pod: Object, lookup: Callable[[str, str], Object | None], *, view_volume: str) -> Volumes:
        """Give a pod's volumes; none is made yet."""
        return Volumes(
            self.pod_folder(pod) / "volumes",
            self.folder / "claims" / str(pod["metadata"]["namespace"]),
            lookup,
            rewrite=self.addresses.rewrite_view,
            view_volume=view_volume,
        )

    def prepare(
        self, pod: Object, container: Container, volumes: Volumes, lookup: Callable[[str, str], Object | None]
    ) -> Prepared:
        """Work out what a container's program gets.

        Raises:
            NotYetError: an object is missing.
        """
        metadata, spec = pod["metadata"], pod["spec"]
        variables = environment.declared(pod, container.spec, lookup)
        self.addresses.local_port(variables.get(contract.ENV_ADDRESS, ""))
        message_file = self.pod_folder(pod) / f"{container.name}.message"
        message_file.parent.mkdir(parents=True, exist_ok=True)
        message_file.unlink(missing_ok=True)
        rewriting = Rewriting(
            PathMap([*self.mapped, *self._mounts(container.spec, variables, volumes, message_file)]),
            self.addresses,
            hostname=spec.get("hostname") or metadata["name"],
            service=spec.get("subdomain") or metadata["name"],
            namespace=metadata["namespace"],
        )
        env = {
            **environment.base(self.python, self.wrappers, spec.get("hostname") or metadata["name"]),
            **self.devices.variables(metadata["uid"], container.name),
            **rewriting.variables(variables),
        }
        if contract.ENV_DIRECTORY not in env:
            env[contract.ENV_DIRECTORY] = rewriting.text(contract.DEFAULT_DIRECTORY)
        cwd = self._working_directory(pod, container.spec, rewriting)
        entry_point = self.entry_points.get(container.name) or self.entry_points.get("") or ()
        known = rewriting.with_ports(variables)
        argv = environment.arguments(container.spec, known, rewriting, python=self.python, entry_point=entry_point)

        def command(words: Sequence[str]) -> Command:
            told = environment.arguments({"command": words}, {}, rewriting, python=self.python)
            return Command(told, env, cwd)

        namespace, name = metadata["namespace"], metadata["name"]
        log = ContainerLog(
            self.log_path(pod, container.name),
            heard=lambda line: self.heard(namespace, name, container.name, line),
            lost=lambda error: self.notice(f"the log file of {name} lacks lines: {error.strerror}"),
        )
        return Prepared(
            Command(argv, env, cwd),
            log,
            Actions(container.spec, rewriting.port, command),
            message_file,
        )

    def _mounts(
        self, container: Object, variables: Mapping[str, str], volumes: Volumes, message_file: Path
    ) -> list[PathMapping]:
        mounts = []
        for mount in container.get("volumeMounts") or ():
            sub_path = mount.get("subPath") or environment.expand(mount.get("subPathExpr") or "", variables)
            mounts.append(PathMapping(mount["mountPath"], volumes.path(mount, sub_path)))
        message_path = container.get("terminationMessagePath") or _MESSAGE_PATH
        return [*mounts, PathMapping(message_path, message_file)]

    def _working_directory(self, pod: Object, container: Object, rewriting: Rewriting) -> str:
        wanted = container.get("workingDir")
        if wanted:
            return rewriting.text(wanted)
        own = self.pod_folder(pod) / "work" / str(container["name"])
        own.mkdir(parents=True, exist_ok=True)
        return os.fspath(own)
