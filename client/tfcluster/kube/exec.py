"""Running a program in a container, over the official client's websockets."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kubernetes import client, stream
from kubernetes.client.exceptions import ApiException

from tfcluster.errors import ExitCode, UnreachableError
from tfcluster.kube.api import KubernetesApi, error_of_response

_WAIT: Final = 1.0
#: How the library of websockets tells a refusal: the status, the headers, and the body.
_HANDSHAKE: Final = re.compile(r"Handshake status (\d{3}) .*?-\+-\+- (?:b')?(\{\"kind\".*\})'?$", re.DOTALL)
_NOT_STARTED: Final = 126


@dataclass(frozen=True, slots=True)
class Executed:
    """How a program that was run in a container ended."""

    code: int
    stdout: str
    stderr: str


def execute(api: KubernetesApi, pod: str, command: Sequence[str], *, container: str, seconds: float) -> Executed:
    """Run a program in a container, within the API's namespace; raises RefusedError and UnreachableError."""
    # NB: stream() replaces the request function of the ApiClient that it is given while it works.
    core = client.CoreV1Api(client.ApiClient(api.configuration))
    try:
        session = stream.stream(
            core.connect_get_namespaced_pod_exec,
            pod,
            api.namespace,
            command=list(command),
            stdout=True,
            stderr=True,
            stdin=False,
            tty=False,
            _preload_content=False,
            **({"container": container} if container else {}),
        )
    except ApiException as error:
        if error.status:
            raise error_of_response(int(error.status), str(error.body or error.reason).encode()) from error
        if (shaken := _HANDSHAKE.match(str(error.reason))) is not None:
            raise error_of_response(int(shaken[1]), shaken[2].encode()) from error
        raise UnreachableError(f"no program can be run in {pod}: {error.reason}") from error
    said: list[str] = []
    complained: list[str] = []
    end = time.monotonic() + seconds
    try:
        while session.is_open() and time.monotonic() < end:
            session.update(timeout=_WAIT)
            said.append(session.read_stdout() if session.peek_stdout() else "")
            complained.append(session.read_stderr() if session.peek_stderr() else "")
        late = session.is_open()
        code = ExitCode.TIMED_OUT if late else _code_of(session)
    finally:
        session.close()
    return Executed(1 if code is None else int(code), "".join(said), "".join(complained))


def _code_of(session: stream.ws_client.WSClient) -> int | None:
    """Give the exit code; a program that could not be started has none, and shells say 126 then."""
    try:
        code: int | None = session.returncode
    except (KeyError, IndexError, TypeError, ValueError):
        return _NOT_STARTED
    return code
