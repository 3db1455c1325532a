"""The metadata that every object of ours carries: name, labels, owner reference."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.model import naming
from tfcluster_operator.model.spec import TFCluster


def owned(
    cluster: TFCluster, name: str, *, labels: dict[str, str], annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """Build an object's metadata.

    Args:
        cluster: the TFCluster that controls the object; the garbage collector deletes the object after it.
        name: the object's name.
        labels: its labels.
        annotations: its annotations, if any.
    """
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": labels,
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [
            {
                "apiVersion": naming.API_VERSION,
                "kind": naming.KIND,
                "name": cluster.name,
                "uid": cluster.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
