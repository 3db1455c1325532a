"""The one HTTP session of the process: kopf's watch and our own requests share it and its credentials."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp

#: Where the kubelet keeps the service account's token; it is replaced before it expires.
SERVICE_ACCOUNT_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

_READ_AGAIN_AFTER: Final = 60.0
#: More connections than this make one client slower, and each costs the server a TLS handshake.
_CONNECTIONS: Final = 64


def open_session(
    context: ssl.SSLContext | None, headers: Mapping[str, str], *, token: Path | None
) -> aiohttp.ClientSession:
    """Open the session.

    Args:
        context: how the server is known and the client certified; None for plain HTTP.
        headers: what every request carries.
        token: the file of a bearer token that is replaced from time to time, or None.

    Returns:
        The session; it must be closed.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=context or True, keepalive_timeout=90),
        headers={"User-Agent": "tfcluster-operator", **headers},
        middlewares=(_FreshToken(token),) if token is not None else (),
        read_bufsize=2**18,
        trust_env=False,
    )


class _FreshToken:
    """Gives every request the token that the file holds now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._read_at = float("-inf")

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if time.monotonic() - self._read_at > _READ_AGAIN_AFTER:
            self._token = self._path.read_text(encoding="ascii").strip()
            self._read_at = time.monotonic()
        request.headers["Authorization"] = f"Bearer {self._token}"
        return await handler(request)
