"""What a container's program gets: its arguments, its environment, its working directory, by Kubernetes' rules.

The order is the kubelet's (makeEnvironmentVariables): envFrom, then env, where ``$(NAME)`` stands for a variable above.
Beneath them lies what an image would bring; of the user's own shell only what is listed here gets through.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tfcluster.local import fields
from tfcluster.local.rewriting import Rewriting
from tfcluster.local.volumes import Lookup, NotYetError, config_files, secret_values

Object = Mapping[str, Any]

#: What programs get from the environment of ``tfcluster local run``: where things are, and how to reach the network.
INHERITED: Final = (
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
)
_INHERITED_PREFIX: Final = "LC_"
_PYTHON: Final = re.compile(r"python(?:3(?:\.\d+)?)?")
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^()]*)\))")
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand ``$(NAME)``; ``$$`` is a dollar sign, and what is not known stays as it is.

    Returns:
        The text after it (third_party/forked/golang/expansion).
    """

    def one(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def base(python: Path, wrappers: Path, hostname: str, user: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give what an image would bring."""
    kept = {name: text for name, text in user.items() if name in INHERITED or name.startswith(_INHERITED_PREFIX)}
    path = os.pathsep.join([str(wrappers), str(python.parent), user.get("PATH", _DEFAULT_PATH)])
    return {**kept, "PATH": path, "HOSTNAME": hostname, "PYTHONUNBUFFERED": "1"}


def declared(pod: Object, container: Object, lookup: Lookup) -> dict[str, str]:
    """Work out the variables that a container's manifest declares.

    Raises:
        NotYetError: something that is referred to does not exist.
    """
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix") or ""
        for plural, reference in _references(source):
            values = _values(plural, reference, lookup)
            found.update({prefix + key: text for key, text in values.items()})
    for entry in container.get("env") or ():
        if source := entry.get("valueFrom"):
            value = _from(pod, source, lookup)
            if value is not None:
                found[entry["name"]] = value
        else:
            found[entry["name"]] = expand(entry.get("value") or "", found)
    return found


def _references(source: Object) -> Iterable[tuple[str, Object]]:
    for plural, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
        if key in source:
            yield plural, source[key]


def _values(plural: str, reference: Object, lookup: Lookup) -> dict[str, str]:
    found = lookup(plural, reference["name"])
    if found is None:
        if reference.get("optional"):
            return {}
        raise NotYetError(f"{fields.SINGULAR[plural]} {reference['name']} does not exist")
    content = config_files(found) if plural == "configmaps" else secret_values(found)
    return {key: text.decode("utf-8", "replace") for key, text in content.items()}


def _from(pod: Object, source: Object, lookup: Lookup) -> str | None:
    for plural, key in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if (reference := source.get(key)) is None:
            continue
        values = _values(plural, reference, lookup)
        if reference["key"] not in values and not reference.get("optional"):
            raise NotYetError(f"{fields.SINGULAR[plural]} {reference['name']} has no key {reference['key']}")
        return values.get(reference["key"])
    return fields.value_of(pod, source)


def arguments(
    container: Object,
    variables: Mapping[str, str],
    rewriting: Rewriting,
    *,
    python: Path,
    entry_point: Sequence[str] = (),
) -> list[str]:
    """Work out a program and its arguments.

    Returns:
        The arguments, the program first; none where nobody can tell which program it is.
    """
    command = [expand(one, variables) for one in container.get("command") or ()] or list(entry_point)
    if not command:
        return []
    words = rewriting.words([*command, *(expand(one, variables) for one in container.get("args") or ())])
    if is_python(words[0]):
        words[0] = str(python)
    return words


def is_python(program: str) -> bool:
    """Tell whether a program is a Python interpreter, for which that of this machine stands."""
    return _PYTHON.fullmatch(Path(program).name) is not None
