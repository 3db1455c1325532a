"""What a program of a pod is told instead of paths in its image, names of pods, and its own port."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from tfcluster.local.addresses import Addresses
from tfcluster.local.paths import PathMap

_PORT: Final = re.compile("port", re.IGNORECASE)
_OWN_HOSTS: Final = r"(?<![\w.-])(0\.0\.0\.0|\[::\]|127\.0\.0\.1|localhost)"


class Rewriting:
    """Rewrites what the manifest says to one container.

    Args:
        paths: the container's mounts.
        addresses: the ports of all tasks.
        hostname: the pod's hostname.
        service: the headless Service that it is behind.
        namespace: its namespace.
    """

    def __init__(self, paths: PathMap, addresses: Addresses, *, hostname: str, service: str, namespace: str) -> None:
        self._paths = paths
        self._addresses = addresses
        self._service = service
        self._namespace = namespace
        self._own = dict(addresses.of_host(hostname, service, namespace))

    def text(self, text: str) -> str:
        """Rewrite paths, names of pods, and the own port behind an address of this machine."""
        text = self._addresses.rewrite(self._paths.rewrite(text), self._service, self._namespace)
        for port, here in self._own.items():
            text = re.sub(rf"{_OWN_HOSTS}:{port}(?!\d)", rf"\1:{here}", text)
        return text

    def words(self, words: Sequence[str]) -> list[str]:
        """Rewrite a program's arguments; a number is the own port where its flag says that it is a port."""
        told = []
        before = ""
        for word in words:
            flag, equals, value = word.partition("=")
            if equals and flag.startswith("-") and _PORT.search(flag):
                word = f"{flag}={self._number(value)}"  # noqa: PLW2901 - the same word, as it is told
            elif before.startswith("-") and _PORT.search(before):
                word = self._number(word)  # noqa: PLW2901 - likewise
            told.append(self.text(word))
            before = word
        return told

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Rewrite the values of variables."""
        return {name: self.text(value) for name, value in self.with_ports(variables).items()}

    def with_ports(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Rewrite numbers alone: a number is the own port where the name of its variable says that it is a port."""
        return {name: self._number(value) if _PORT.search(name) else value for name, value in variables.items()}

    def port(self, port: int) -> int:
        """Give the port on this machine that stands for one of the pod's."""
        return self._own.get(port, port)

    def _number(self, text: str) -> str:
        return str(self.port(int(text))) if text.isdecimal() and len(text) < 6 else text
