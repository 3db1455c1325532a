"""The HorizontalPodAutoscalers that scale a TFCluster: they may change a number again that a user has set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster.errors import RefusedError
from tfcluster.kubernetes_api import TFCLUSTERS, KubernetesApi, Resource
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import WORKER

_AUTOSCALERS: Final = Resource("autoscaling/v2", "horizontalpodautoscalers")
_FORBIDDEN: Final = 403


def autoscalers_of(api: KubernetesApi, body: Mapping[str, Any], job: str) -> Sequence[str]:
    """Name the HorizontalPodAutoscalers that scale a job of a TFCluster; none where the API server does not tell.

    Raises:
        UnreachableError: the API server does not answer.
    """
    about = body["metadata"]
    try:
        found = api.list(_AUTOSCALERS, about["namespace"])
    except RefusedError:
        # NB: it is a warning only: who may scale need not have the right to read autoscalers.
        return ()
    names = [one["metadata"]["name"] for one in found if _scales(one, about["name"])]
    return names if names and _is_scaled(api, body, job) else ()


def _is_scaled(api: KubernetesApi, body: Mapping[str, Any], job: str) -> bool:
    """Tell whether /scale serves this job: which one it serves is a matter of the installation."""
    about = body["metadata"]
    try:
        scale = api.get(TFCLUSTERS, about["name"], about["namespace"], subresource="scale")
    except RefusedError as error:
        # A TFCluster without the job that /scale serves gets 500: no autoscaler scales any of its jobs.
        return error.status == _FORBIDDEN and job == WORKER
    selector = (scale.get("status") or {}).get("selector")
    # The operator has not reported on it yet where there is no selector.
    return bool(selector == naming.job_selector(about["name"], job)) if selector else job == WORKER


def _scales(autoscaler: Mapping[str, Any], name: str) -> bool:
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    group = str(target.get("apiVersion", "")).partition("/")[0]
    return (group, target.get("kind"), target.get("name")) == (naming.GROUP, naming.KIND, name)
