"""One request, one answer: nothing is tried again, and nothing waits its turn behind the engine's requests.

For what has its own idea of time: the lease, and the wait for the kind TFCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec

from tfcluster_operator.kube import errors

JSON: Final = "application/json"


class OneShot:
    """Requests to one API server, each made once.

    Args:
        session: a session that knows the credentials; the caller closes it.
        server: the server's URL, without a path.
    """

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server.rstrip("/")

    async def request(
        self,
        method: str,
        path: str,
        *,
        within: float,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Make one request.

        Args:
            method: the HTTP method.
            path: the path on the server.
            within: seconds until the answer must be in.
            params: the query.
            body: what to send, as JSON; None sends nothing.
            content_type: the kind of the body.
            accept: the kinds of answer that are understood.

        Returns:
            The response's body.

        Raises:
            ApiError: the server refused, for a reason of its own (5xx) or of the request's.
            UnreachableError: no answer in time.
        """
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": content_type})
        try:
            async with self._session.request(
                method,
                self._server + path,
                params=params,
                data=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=within),
            ) as response:
                answer = await response.read()
        except TimeoutError as error:
            raise errors.UnreachableError(f"no answer within {within:g} s") from error
        except aiohttp.ClientError as error:
            raise errors.UnreachableError(f"{type(error).__name__}: {error}") from error
        if response.status >= 400:
            raise errors.from_response(response.status, answer)
        errors.check_answer(response.status, answer)
        return answer
