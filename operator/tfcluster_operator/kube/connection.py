"""The HTTP sessions of the process, with one set of credentials."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

_log = logging.getLogger(__name__)

#: The folder with the service account's token and certificate authorities; the kubelet rotates them.
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_READ_AGAIN_AFTER: Final = 60.0
#: Responses that might still be read.
_ANSWERS: Final[WeakSet[ClientResponse]] = WeakSet()


@dataclass(frozen=True, slots=True)
class Access:
    """The URL of the API server, and the credentials."""

    server: str
    #: The server's authorities and the client's certificate; None for plain HTTP.
    context: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The folder of a bearer token (``token``) and certificate authorities (``ca.crt``) that are replaced, or None.
    account: Path | None = None
    #: Middlewares for every request of every session.
    observers: tuple[aiohttp.ClientMiddlewareType, ...] = ()


def _probed_socket(address: tuple[Any, ...]) -> socket.socket:
    """Return a socket that detects within a minute that the other end is dead, also while nothing is sent."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    while _is_taken(made.fileno()):
        # Do not close it: ending the old connection closes this descriptor.
        _end_connection(made.detach())
        made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if (number := getattr(socket, option, None)) is not None:  # not every system has them
            made.setsockopt(socket.IPPROTO_TCP, number, value)
    return made


def _is_taken(descriptor: int) -> bool:
    """Return whether the event loop takes a new file descriptor for that of an existing connection.

    The old connection's descriptor was closed without the loop, as uvloop sometimes does when connections fail
    (https://github.com/MagicStack/uvloop/issues/653): it no longer receives data, and the loop rejects each new
    connection with its number until it ends.
    """
    try:
        asyncio.get_running_loop().remove_reader(descriptor)
    except RuntimeError:
        return True
    return False


def _end_connection(descriptor: int) -> None:
    """End the connection that has this file descriptor in the event loop, so that its reader retries."""
    _log.warning("a connection to the API server was closed unnoticed: what it was for is tried again")
    for answer in list(_ANSWERS):
        transport = None if answer.connection is None else answer.connection.transport
        if transport is not None and transport.get_extra_info("socket").fileno() == descriptor:
            transport.abort()


async def _note_answer(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    answer = await handler(request)
    _ANSWERS.add(answer)
    return answer


def open_session(
    access: Access, *middlewares: aiohttp.ClientMiddlewareType, lender: aiohttp.ClientSession | None = None
) -> aiohttp.ClientSession:
    """Open a session with its own connections, or with another session's, which stay open when it is closed."""
    fresh = () if access.account is None else (_FreshCredentials(access.account, access.context),)
    connector = None if lender is None else lender.connector
    if connector is None:
        # Each watch holds one connection forever; the client limits the number of requests.
        tls = access.context or True
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=90, socket_factory=_probed_socket)
    return aiohttp.ClientSession(
        connector=connector,
        connector_owner=lender is None,
        headers={"User-Agent": "tfcluster-operator", **access.headers},
        middlewares=(*middlewares, *access.observers, *fresh, _note_answer),
        read_bufsize=2**18,
    )


class _FreshCredentials:
    """Adds the folder's current token to every request, and trusts its current certificate authorities."""

    def __init__(self, folder: Path, context: ssl.SSLContext | None) -> None:
        self._folder = folder
        self._context = context
        self._token = ""
        self._authorities = ""
        self._read_at = float("-inf")

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        if time.monotonic() - self._read_at > _READ_AGAIN_AFTER:
            self._read()
        request.headers["Authorization"] = f"Bearer {self._token}"
        return await handler(request)

    def _read(self) -> None:
        try:
            token = (self._folder / "token").read_text(encoding="ascii").strip()
            authorities = (self._folder / "ca.crt").read_text(encoding="ascii") if self._context is not None else ""
            if self._context is not None and authorities != self._authorities:
                # The earlier ones stay trusted, too, until the process ends: both are valid during a rotation.
                self._context.load_verify_locations(cadata=authorities)
        except (OSError, ValueError) as error:
            # The kubelet might be replacing it; the earlier token might still be valid.
            if not self._token:
                raise aiohttp.ClientConnectionError(f"no credentials in {self._folder}: {error}") from error
            _log.warning("the credentials in %s cannot be read, so the last ones are used: %s", self._folder, error)
        else:
            self._token, self._authorities = token, authorities
        self._read_at = time.monotonic()
