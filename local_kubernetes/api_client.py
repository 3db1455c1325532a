"""The few calls to the API server that this tool makes itself, with the standard library alone."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from local_kubernetes.certificates import Certificate
from local_kubernetes.progress import LocalKubernetesError

POLL_SECONDS = 0.05


class ApiClient:
    """One client of one API server.

    Args:
        host: The server's address.
        port: The server's port.
        authority: The certificate that signed the server's.
        client: Who we are.
    """

    def __init__(self, host: str, port: int, *, authority: Path, client: Certificate) -> None:
        self._address = (host, port)
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(client.certificate, client.key)

    @property
    def server(self) -> str:
        """The server's URL."""
        return "https://{}:{}".format(*self._address)

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send one request.

        Returns:
            The HTTP status and the answer: an object if it is JSON, else text.

        Raises:
            OSError: The server cannot be reached.
        """
        connection = http.client.HTTPSConnection(*self._address, timeout=30, context=self._context)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, body=data, headers={"Content-Type": content_type})
            answer = connection.getresponse()
            text = answer.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"the API server broke off: {error!r}") from error
        finally:
            connection.close()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object.

        Raises:
            LocalKubernetesError: The server rejected it.
        """
        status, answer = self.request("POST", path, body)
        if status not in (200, 201, 409):
            raise LocalKubernetesError(f"the API server refused {path}: {answer}")

    def wait_for(
        self,
        path: str,
        accept: Callable[[Any], bool] = lambda _: True,
        *,
        what: str,
        alive: Callable[[], None],
        seconds: float = 120,
    ) -> None:
        """Ask again and again until the server gives the wanted answer.

        Raises:
            LocalKubernetesError: It took longer.
        """
        deadline = time.monotonic() + seconds
        last: object = "no answer"
        while time.monotonic() < deadline:
            try:
                status, answer = self.request("GET", path)
                if status == 200 and accept(answer):
                    return
                last = answer
            except OSError as error:
                last = error
            alive()
            time.sleep(POLL_SECONDS)
        raise LocalKubernetesError(f"waited {seconds:.0f} s for {what}; the last answer was: {str(last)[:1000]}")
