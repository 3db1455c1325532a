"""Who answers: waiting, bounded, until tasks accept TCP connections, and naming the cause where they do not.

TensorFlow connects lazily and waits for ever for a task that is not there; this says so in time.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tfcluster_resolver.errors import AddressError

#: Seconds for one try, and between two.
_TRY: Final = 2.0
_PAUSE: Final = 0.1
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class MissingTask:
    """A task that does not answer, and why."""

    job: str
    index: int
    address: str
    cause: str

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.index} at {self.address}: {self.cause}"


def await_tasks(tasks: Iterable[tuple[str, int, str]], *, timeout: float) -> tuple[MissingTask, ...]:
    """Wait until tasks accept TCP connections.

    Args:
        tasks: job, index and "host:port" of each.
        timeout: how long to wait for all of them together, in seconds.

    Returns:
        The tasks that did not answer in time, each with its last cause; none when all did.

    Raises:
        AddressError: an address is no "host:port".
    """
    wanted = [(job, index, address, *_host_and_port(address)) for job, index, address in tasks]
    if not wanted:
        return ()
    end = time.monotonic() + timeout
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(wanted))) as threads:
        causes = threads.map(lambda task: _await_one(task[3], task[4], end), wanted)
        return tuple(
            MissingTask(job, index, address, cause)
            for (job, index, address, _, _), cause in zip(wanted, causes, strict=True)
            if cause
        )


def _await_one(host: str, port: int, end: float) -> str:
    """Give "" when the task answers, else the last cause."""
    while True:
        cause = _why_not(host, port, min(_TRY, max(0.1, end - time.monotonic())))
        if not cause or time.monotonic() >= end:
            return cause
        time.sleep(_PAUSE)


def _why_not(host: str, port: int, timeout: float) -> str:
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return ""
    except socket.gaierror as error:
        return f"its name does not resolve ({error.strerror}): is there a pod of that name?"
    except TimeoutError:
        return "no answer: its pod may not run, or a NetworkPolicy is in the way"
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            return "refused: its pod runs and nothing listens on the port yet"
        return error.strerror or str(error)


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise AddressError(f'{address!r} is not of the form "host:port"')
    return host.strip("[]"), int(port)
