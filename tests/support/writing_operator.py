"""The operator's process with a writer instead of the engine: it writes as fast as it is let.

``python -m support.writing_operator`` takes the operator's arguments; its election is slow, for busy machines.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tfcluster_operator import __main__, process
from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.election import Timing

TIMING = Timing(duration=30, deadline=20.0, renew=4.0, retry=1.0, poll=2.0, timeout=4.0)
WRITERS = 8


class Writer:
    """Stands where the engine stands: every write says which process it is of."""

    informers = ()

    def __init__(self, client: Client, namespaces: Sequence[str], archive: object, **more: object) -> None:  # noqa: ARG002 - as an engine
        self._client = client

    async def run(self, lead: asyncio.Event) -> None:
        """Write, from when this process leads."""
        await lead.wait()
        await asyncio.gather(*[self._write() for _ in range(WRITERS)])

    async def _write(self) -> None:
        while True:
            try:
                await self._client.request("POST", "/api/v1/namespaces/a/events", body={"of": os.getpid()})
            except errors.NotLeadingError:
                await asyncio.sleep(0.01)

    def cluster_event(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Nobody asks."""

    def clusters_listed(self, namespace: str | None, counted: Any) -> None:
        """Nobody asks."""


async def _run(settings: Any) -> None:
    await _original(dataclasses.replace(settings, health_port=0, metrics_port=0), timing=TIMING)


if __name__ == "__main__":
    _original = process.run_parts
    process.run_parts = _run  # type: ignore[assignment]  # the settings alone are given
    process.Engine = Writer  # type: ignore[assignment,misc]  # the same shape
    __main__.main()
