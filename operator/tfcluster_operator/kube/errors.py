"""The errors of requests to the API server.

KubeError
├── ApiError            the API server answered, and rejected
│   ├── NotFoundError       404: the object does not exist
│   ├── AlreadyExistsError  409: an object of this name exists
│   ├── ConflictError       409: the object is another one, or another version, than the request says
│   ├── GoneError           410: the version to watch from is no longer kept
│   └── ServerError         5xx, or 429 for as long as a request is tried: a webhook is down, the server overloaded
├── UnreachableError    no answer for as long as a request is tried
├── StaleError          the answer is older than an earlier one
├── HistoryLostError    this persists: etcd was restored, and what was read before is no longer valid
└── NotLeadingError     a write was not sent, because another replica of the operator might be the leader by now
"""

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


class StaleError(KubeError):
    """An answer of the API server is older than one that it gave before."""


class HistoryLostError(KubeError):
    """The API server's history continues from an earlier moment: the process should end and start again."""


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
    """The object does not exist."""


class AlreadyExistsError(ApiError):
    """An object of this name exists."""


class ConflictError(ApiError):
    """The object is not the one (UID), or not in the version, that the request was created for."""


class GoneError(ApiError):
    """The version to watch from is no longer kept: list again."""


class ServerError(ApiError):
    """The server failed at a request, or was overloaded; the message might be another program's."""


def check_answer(status: int, answer: bytes) -> None:
    """Check that a successful answer is from the API server, and not from a proxy in between."""
    if status < 400 and not answer.startswith(b"{"):
        raise UnreachableError(f"the answer is not JSON: {answer[:100].decode(errors='replace')}")


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


def from_response(status: int, body: bytes) -> ApiError:
    """Build the error of a rejection."""
    try:
        told = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        told = _Status(message=body[:200].decode(errors="replace"))
    kind: type[ApiError] = ApiError
    if status == 404:
        kind = NotFoundError
    elif status == 410:
        kind = GoneError
    elif status == 409:
        kind = AlreadyExistsError if told.reason == "AlreadyExists" else ConflictError
    elif status == 429 or status >= 500:
        kind = ServerError
    return kind(status=status, reason=told.reason, message=told.message)


def masked(words: str) -> str:
    """Shorten a server's message for the log and mask quoted text: it might be a value of a template."""
    line = " ".join(_QUOTED.sub('"…"', words).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
