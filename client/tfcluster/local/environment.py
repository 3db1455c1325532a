"""A container's arguments, environment and working directory, and what all pods of a run share.

The order is the kubelet's (makeEnvironmentVariables): envFrom, then env, where ``$(NAME)`` refers to a variable above.
Before them come the variables of an image; of the user's own shell only the listed ones are passed. A process does
not have its own mounts, so paths below a mount, names of pods and the own port are rewritten in the manifest's values.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tfcluster.local.addresses import Addresses
from tfcluster.local.containers import Actions, Command, Container, Prepared
from tfcluster.local.logs import ContainerLog
from tfcluster.local.session import CLAIMS
from tfcluster.local.volumes import SINGULAR, Lookup, NotYetError, Volumes, content_of, value_of
from tfcluster_resolver import contract

#: Characters that can precede a path without being a part of it.
_BEFORE = r"(?:(?<![\w./~$)}\]-])|(?<=file://))"


@dataclass(frozen=True, slots=True)
class PathMapping:
    """A path in the container and the folder or file on this machine that stands for it."""

    there: str
    here: Path


class PathMap:
    """Rewrites paths; the longest match wins, as the innermost of nested mounts does."""

    def __init__(self, mappings: Iterable[PathMapping]) -> None:
        self._here = {there: str(one.here) for one in mappings if (there := one.there.rstrip("/"))}
        alternatives = "|".join(map(re.escape, sorted(self._here, key=len, reverse=True)))
        self._pattern = re.compile(rf"{_BEFORE}({alternatives})(?![\w.-])") if alternatives else None

    def rewrite(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(lambda match: self._here[match[1]], text)


_PORT: Final = re.compile("port", re.IGNORECASE)
_OWN_HOSTS: Final = r"(?<![\w.-])(0\.0\.0\.0|\[::\]|127\.0\.0\.1|localhost)"


class Rewriting:
    """Rewrites the manifest's values for one container."""

    def __init__(self, paths: PathMap, addresses: Addresses, *, hostname: str, service: str, namespace: str) -> None:
        self._paths = paths
        self._addresses = addresses
        self._service = service
        self._namespace = namespace
        self._own = dict(addresses.of_host(hostname, service, namespace))

    def text(self, text: str) -> str:
        """Rewrite paths, names of pods, and the own port after an address of this machine."""
        text = self._addresses.rewrite(self._paths.rewrite(text), self._service, self._namespace)
        for port, here in self._own.items():
            text = re.sub(rf"{_OWN_HOSTS}:{port}(?!\d)", rf"\1:{here}", text)
        return text

    def words(self, words: Sequence[str]) -> list[str]:
        """Rewrite a program's arguments; a number is the own port if the name of its flag says that it is a port."""
        told = []
        for before, word in zip(["", *words], words, strict=False):
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("-") and _PORT.search(flag):
                told.append(self.text(f"{flag}={self._number(value)}"))
            else:
                is_port = before.startswith("-") and _PORT.search(before)
                told.append(self.text(self._number(word) if is_port else word))
        return told

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {name: self.text(value) for name, value in self.with_ports(variables).items()}

    def with_ports(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Rewrite numbers only: a number is the own port if the name of its variable says that it is a port."""
        return {name: self._number(value) if _PORT.search(name) else value for name, value in variables.items()}

    def port(self, port: int) -> int:
        """Return the port on this machine for one of the pod's ports."""
        return self._own.get(port, port)

    def _number(self, text: str) -> str:
        return str(self.port(int(text))) if text.isdecimal() and len(text) < 6 else text


Object = Mapping[str, Any]

#: Variables of the environment of ``tfcluster local run`` that programs get: folders, devices and network access.
INHERITED: Final = (
    *("HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
    "CUDA_VISIBLE_DEVICES",
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?")
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^()]*)\))")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand ``$(NAME)``; ``$$`` is a dollar sign, and unknown names are not changed."""
    return _REFERENCE.sub(lambda one: "$" if one[0] == "$$" else variables.get(one[1], one[0]), text)


def base(python: Path, wrappers: Path, hostname: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name in INHERITED or name.startswith("LC_")}
    path = os.pathsep.join([str(wrappers), str(python.parent), os.environ.get("PATH", _DEFAULT_PATH)])
    return {**kept, "PATH": path, "HOSTNAME": hostname, "PYTHONUNBUFFERED": "1"}


def declared(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """Compute the variables that a container's manifest declares."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for plural, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            values = _values(plural, source[key], lookup) if key in source else {}
            found.update({prefix + name: text for name, text in values.items()})
    for entry in container.get("env") or ():
        if source := entry.get("valueFrom"):
            if (value := _from(pod, source, lookup)) is not None:
                found[entry["name"]] = value
        else:
            found[entry["name"]] = expand(entry.get("value") or "", found)
    return found


def _values(plural: str, reference: Object, lookup: Lookup) -> dict[str, str]:
    return {key: text.decode("utf-8", "replace") for key, text in content_of(lookup, plural, reference).items()}


def _from(pod: Object, source: Object, lookup: Lookup) -> str | None:
    for plural, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if (reference := source.get(key)) is None:
            continue
        values = _values(plural, reference, lookup)
        if reference["key"] not in values and not reference.get("optional"):
            raise NotYetError(f"{SINGULAR[plural]} {reference['name']} has no key {reference['key']}")
        return values.get(reference["key"])
    return value_of(pod, source)


def arguments(
    container: Object,
    variables: Mapping[str, str],
    rewriting: Rewriting,
    *,
    python: Path,
    entry_point: Sequence[str] = (),
) -> list[str]:
    command = [expand(one, variables) for one in container.get("command") or ()] or list(entry_point)
    if not command:
        return []
    words = rewriting.words([*command, *(expand(one, variables) for one in container.get("args") or ())])
    # The interpreter of this machine replaces that of the image.
    return [str(python), *words[1:]] if _PYTHON.fullmatch(Path(words[0]).name) else words


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The settings that all pods of a run share."""

    folder: Path
    python: Path
    addresses: Addresses
    mapped: Sequence[PathMapping] = ()
    entry_points: Mapping[str, Sequence[str]] = field(default_factory=dict)
    heard: Callable[[str, str, str, bytes], None] = lambda _namespace, _pod, _container, _line: None
    notice: Callable[[str], None] = lambda _: None

    @property
    def wrappers(self) -> Path:
        return self.folder / "bin"

    def write_wrappers(self) -> None:
        """Create ``python`` and ``python3`` for programs that look for them on PATH."""
        self.wrappers.mkdir(parents=True, exist_ok=True)
        for name in ("python", "python3"):
            path = self.wrappers / name
            # A link would not work: Python would not find its virtual environment.
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} "$@"\n', encoding="utf-8")
            path.chmod(0o755)

    def pod_folder(self, pod: Object) -> Path:
        uid: str = pod["metadata"]["uid"]
        return self.folder / "pods" / uid

    def volumes_of(self, pod: Object, lookup: Lookup) -> Volumes:
        """Return a pod's volumes; they are created later."""
        claims = self.folder / CLAIMS / str(pod["metadata"]["namespace"])
        return Volumes(self.pod_folder(pod) / "volumes", claims, lookup, rewrite=self.addresses.rewrite_view)

    def prepare(self, pod: Object, container: Container, volumes: Volumes, lookup: Lookup) -> Prepared:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        hostname, service = pod["spec"].get("hostname") or name, pod["spec"].get("subdomain") or name
        variables = declared(pod, container.spec, lookup)
        self.addresses.local_port(variables.get(contract.ENV_ADDRESS, ""))
        message_file = self.pod_folder(pod) / f"{container.name}.message"
        message_file.parent.mkdir(parents=True, exist_ok=True)
        message_file.unlink(missing_ok=True)
        paths = PathMap([*self.mapped, *self._mounts(container.spec, variables, volumes, message_file)])
        rewriting = Rewriting(paths, self.addresses, hostname=hostname, service=service, namespace=namespace)
        gpus = ((container.spec.get("resources") or {}).get("limits") or {}).get("nvidia.com/gpu")
        env = {
            **base(self.python, self.wrappers, hostname),
            # Without a GPU of its own, TensorFlow would take the memory of all of them.
            **({} if gpus else {"CUDA_VISIBLE_DEVICES": "-1"}),
            **rewriting.variables(variables),
        }
        if contract.ENV_DIRECTORY not in env:
            env[contract.ENV_DIRECTORY] = rewriting.text(contract.DEFAULT_DIRECTORY)
        cwd = self._working_directory(pod, container.spec, rewriting)
        entry_point = self.entry_points.get(container.name) or self.entry_points.get("") or ()
        known = rewriting.with_ports(variables)
        argv = arguments(container.spec, known, rewriting, python=self.python, entry_point=entry_point)

        def command(words: Sequence[str]) -> Command:
            told = arguments({"command": words}, {}, rewriting, python=self.python)
            return Command(told, env, cwd)

        file = self.folder / "logs" / name / f"{container.name}.log"
        log = ContainerLog(file, heard=lambda line: self.heard(namespace, name, container.name, line))
        return Prepared(Command(argv, env, cwd), log, Actions(container.spec, rewriting.port, command), message_file)

    def _mounts(
        self, container: Object, variables: Mapping[str, str], volumes: Volumes, message_file: Path
    ) -> list[PathMapping]:
        mounts = []
        for mount in container.get("volumeMounts") or ():
            sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
            mounts.append(PathMapping(mount["mountPath"], volumes.path(mount, sub_path)))
        message_path = container.get("terminationMessagePath") or "/dev/termination-log"
        return [*mounts, PathMapping(message_path, message_file)]

    def _working_directory(self, pod: Object, container: Object, rewriting: Rewriting) -> str:
        if wanted := container.get("workingDir"):
            return rewriting.text(wanted)
        own = self.pod_folder(pod) / "work" / str(container["name"])
        own.mkdir(parents=True, exist_ok=True)
        return os.fspath(own)
