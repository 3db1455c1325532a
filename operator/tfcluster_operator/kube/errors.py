"""The errors of requests to the API server: by the kind of its answer, or without a useful answer."""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: Quoted text in a server's message, which can contain submitted values.
_QUOTED: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|(?<!\w)'[^']*'(?!\w)|`[^`]*`")
_LONGEST: Final = 300


class KubeError(Exception):
    """A request to the API server failed."""


class UnreachableError(KubeError):
    """The API server gave no useful answer for as long as the request was tried."""


class HistoryLostError(KubeError):
    """etcd was restored, and what was read before is no longer valid: the process should end and start again."""


class NotLeadingError(KubeError):
    """A write was not sent, because another operator might lead by now."""


class ApiError(KubeError):
    """The API server rejected a request: ``status`` is HTTP's, ``reason`` and ``message`` are the server's message."""

    def __init__(self, *, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(ApiError):
    """404: the object does not exist."""


class AlreadyExistsError(ApiError):
    """409: an object of this name exists."""


class ConflictError(ApiError):
    """409: the object is not the one (UID), or not in the version, that the request was created for."""


class GoneError(ApiError):
    """410: the version to watch from is no longer kept; list again."""


class ServerError(ApiError):
    """5xx or 429 for as long as a request is tried: a webhook is down, or the server is overloaded."""


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


def check_answer(status: int, answer: bytes) -> None:
    """Check that a successful answer is from the API server, and not from a proxy in between."""
    if status < 400 and not answer.startswith(b"{"):
        raise UnreachableError(f"the answer is not JSON: {answer[:100].decode(errors='replace')}")


def from_response(status: int, body: bytes) -> ApiError:
    """Build the error of a rejection."""
    try:
        told = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        told = _Status(message=body[:200].decode(errors="replace"))
    conflict = AlreadyExistsError if told.reason == "AlreadyExists" else ConflictError
    kinds: dict[int, type[ApiError]] = {404: NotFoundError, 409: conflict, 410: GoneError, 429: ServerError}
    kind = kinds.get(status, ServerError if status >= 500 else ApiError)
    return kind(status=status, reason=told.reason, message=told.message)


def masked(words: str) -> str:
    """Shorten a server's message for the log and mask quoted text: it might be a value of a template."""
    line = " ".join(_QUOTED.sub('"…"', words).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
