"""The HorizontalPodAutoscalers that scale a TFCluster: they may change a number again that a user has set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster.errors import RefusedError
from tfcluster.kubernetes_api import KubernetesApi, Resource
from tfcluster_operator.model import naming

_AUTOSCALERS: Final = Resource("autoscaling/v2", "horizontalpodautoscalers")
#: The job that /scale of a TFCluster serves.
SCALED_JOB: Final = "worker"


def autoscalers_of(api: KubernetesApi, body: Mapping[str, Any]) -> Sequence[str]:
    """Name the HorizontalPodAutoscalers of a TFCluster; none where the API server does not tell.

    Args:
        api: the connection.
        body: the TFCluster.

    Raises:
        UnreachableError: the API server does not answer.
    """
    about = body["metadata"]
    try:
        found = api.list(_AUTOSCALERS, about["namespace"])
    except RefusedError:
        # NB: it is a warning only: who may scale need not have the right to read autoscalers.
        return ()
    return [one["metadata"]["name"] for one in found if _scales(one, about["name"])]


def _scales(autoscaler: Mapping[str, Any], name: str) -> bool:
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    group = str(target.get("apiVersion", "")).partition("/")[0]
    return (group, target.get("kind"), target.get("name")) == (naming.GROUP, naming.KIND, name)
