"""One TCP connection into a pod, over a websocket of the API server's ``portforward``.

The protocol is v4.channel.k8s.io: each message begins with the number of its channel, 0 for data and 1 for errors, and
the first message of either holds the port.  Each connection has a websocket of its own, so that one that fails takes no
other with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import aiohttp

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
#: How much is read at once, in bytes.
_CHUNK: Final = 64 * 1024
#: Seconds for which the pod may still answer after this side has said all, if it has not answered yet, and if it has:
#: the protocol cannot pass on that end.
_LINGER, _LINGER_AFTER_ANSWER = 15.0, 1.0
#: How much of what was said is kept until the pod answers, in bytes, to say it again to a program that comes up late.
_KEPT: Final = 64 * 1024


class TunnelError(Exception):
    """The pod could not be reached at this port; the words say why."""


class LocalEnd:
    """The connection on this machine.

    Args:
        reader: reads from it.
        writer: writes to it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._said: list[bytes] = []
        #: Whether all that was said can be said again to another pod, or to the same one.
        self.can_repeat = True
        #: Whether the pod has said anything.
        self.answered = False

    async def send(self, tunnel: aiohttp.ClientWebSocketResponse) -> None:
        """Say to the pod what was said so far, and what is said from now on."""
        for chunk in list(self._said):
            await tunnel.send_bytes(bytes([_DATA]) + chunk)
        while chunk := await self._reader.read(_CHUNK):
            if self.can_repeat:
                self._said.append(chunk)
                if sum(map(len, self._said)) > _KEPT:
                    self.forget()
            await tunnel.send_bytes(bytes([_DATA]) + chunk)

    async def receive(self, content: bytes) -> None:
        """Hear what the pod says."""
        self.forget()
        self.answered = True
        self._writer.write(content)
        await self._writer.drain()

    def forget(self) -> None:
        """Keep nothing any more."""
        self.can_repeat, self._said = False, []


async def carry(local: LocalEnd, tunnel: aiohttp.ClientWebSocketResponse) -> None:
    """Carry bytes both ways until one side has ended.

    Raises:
        TunnelError: the kubelet could not connect to the port, or the connection broke.
        ConnectionError: the connection on this machine broke.
    """
    sending = asyncio.create_task(local.send(tunnel))
    try:
        begun: set[int] = set()
        while (message := await _next(tunnel, sending, local)) is not None:
            if message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}:
                return
            if message.type is aiohttp.WSMsgType.ERROR:
                raise TunnelError("the connection to the API server broke")
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, content = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
            elif channel == _ERROR and content:
                raise TunnelError(_brief(content.decode("utf-8", "replace")))
            elif channel == _DATA:
                await local.receive(content)
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await sending


async def _next(
    tunnel: aiohttp.ClientWebSocketResponse, sending: asyncio.Task[None], local: LocalEnd
) -> aiohttp.WSMessage | None:
    """Give the next message; None when nothing has come for a while after this side has ended."""
    receiving = asyncio.ensure_future(tunnel.receive())
    try:
        if not sending.done():
            await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            error = sending.exception()
            # NB: the tunnel closes after it has said why; that is still to be read.
            if error is not None and not isinstance(error, aiohttp.ClientError):
                raise error
            await asyncio.wait({receiving}, timeout=_LINGER_AFTER_ANSWER if local.answered else _LINGER)
        return await receiving if receiving.done() else None
    finally:
        if not receiving.done():
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await receiving


def _brief(words: str) -> str:
    """Say what the kubelet says, without the names of its own functions."""
    return "nothing listens there" if "connection refused" in words else " ".join(words.split())
