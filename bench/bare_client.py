"""The yardstick: a bare aiohttp client that POSTs the very same objects, and does nothing else.

The bodies are those that the operator sent, recorded on the way.  Only what would make the operator or the garbage
collector meddle is changed, and keeps its size: the label prefix, and the owner, which is a ConfigMap here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import aiohttp

_OUR_PREFIX, _NO_PREFIX = b"tfcluster.dev/", b"tfbaselin.dev/"
_FOUNDATIONS = ("services", "networkpolicies", "configmaps")


def bodies_from(
    posted: Sequence[tuple[str, bytes]], *, namespace: str, owner: dict[str, Any]
) -> list[tuple[str, bytes]]:
    """Turn the operator's recorded requests into those of the bare client.

    Args:
        posted: path and body of each recorded POST.
        namespace: where the bare client makes them.
        owner: the ConfigMap that owns them.

    Returns:
        Path and body, foundations first.
    """
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    made = []
    for path, body in posted:
        plural = path.rpartition("/")[2]
        if plural in (*_FOUNDATIONS, "pods"):
            manifest = json.loads(body)
            old = path.split("/")[-2]
            manifest["metadata"]["ownerReferences"] = [reference]
            text = json.dumps(manifest, separators=(",", ":")).replace(old, namespace).encode()
            made.append((path.replace(f"/{old}/", f"/{namespace}/"), text.replace(_OUR_PREFIX, _NO_PREFIX)))
    return sorted(made, key=lambda request: request[0].rpartition("/")[2] not in _FOUNDATIONS)


async def post_all(
    http: aiohttp.ClientSession, server: str, requests: Sequence[tuple[str, bytes]], *, concurrency: int
) -> None:
    """POST all bodies, so many at a time.

    Args:
        http: the session.
        server: the API server's address.
        requests: path and body.
        concurrency: how many requests are under way at once.
    """
    todo = iter(requests)

    async def work() -> None:
        for path, body in todo:
            async with http.post(server + path, data=body, headers={"Content-Type": "application/json"}) as answer:
                await answer.read()
                assert answer.status == 201, await answer.text()

    await asyncio.gather(*(work() for _ in range(concurrency)))


async def delete_all(http: aiohttp.ClientSession, server: str, paths: Sequence[str], *, concurrency: int) -> None:
    """DELETE objects one by one, so many at a time."""
    todo = iter(paths)

    async def work() -> None:
        for path in todo:
            async with http.delete(server + path) as answer:
                await answer.read()
                assert answer.status == 200, await answer.text()

    await asyncio.gather(*(work() for _ in range(concurrency)))
