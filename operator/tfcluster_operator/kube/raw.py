"""Whole objects, for the rare question that the narrow structs cannot answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tfcluster_operator.kube import wire
from tfcluster_operator.kube.client import Client


class _Items(msgspec.Struct):
    items: list[dict[str, Any]]


async def read_pod(client: Client, namespace: str, name: str) -> Mapping[str, Any] | None:
    """Read a whole pod; the right to list is enough.

    Args:
        client: the requests.
        namespace: its namespace.
        name: its name.

    Returns:
        The pod, or None where there is none.

    Raises:
        KubeError: the server refused or did not answer.
    """
    params = {"fieldSelector": f"metadata.name={name}"}
    answer = await client.request("GET", wire.PODS.path(namespace), params=params, urgent=False)
    return next(iter(msgspec.json.decode(answer, type=_Items).items), None)
