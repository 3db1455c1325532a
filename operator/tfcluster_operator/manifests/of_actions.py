"""From an action to the object that it creates: what the operator writes, and what the client shows beforehand."""

from __future__ import annotations

from typing import Any, assert_never

from tfcluster_operator.manifests.configmap import build_config_map
from tfcluster_operator.manifests.disruption_budget import build_disruption_budget
from tfcluster_operator.manifests.network_policy import build_network_policy
from tfcluster_operator.manifests.pod import build_pod
from tfcluster_operator.manifests.pod_group import build_pod_group
from tfcluster_operator.manifests.resolver_archive import ResolverArchive, build_resolver_config_map
from tfcluster_operator.manifests.service import build_service
from tfcluster_operator.manifests.workload import build_workload
from tfcluster_operator.model import naming
from tfcluster_operator.model.actions import (
    CreateConfigMap,
    CreateDisruptionBudget,
    CreateNetworkPolicy,
    CreatePod,
    CreatePodGroup,
    CreateResolver,
    CreateService,
    CreateWorkload,
    TryPod,
)
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.tf_config import tf_config_of

#: The actions that make an object, or ask the API server whether it would.
Creation = (
    CreateService
    | CreateNetworkPolicy
    | CreateDisruptionBudget
    | CreatePodGroup
    | CreateWorkload
    | CreateConfigMap
    | CreateResolver
    | CreatePod
    | TryPod
)


def delivered_resolver(cluster: TFCluster, archive: ResolverArchive) -> str:
    """Name the ConfigMap that delivers the resolver to a cluster's pods, "" where the user wants none."""
    return naming.resolver_name(archive.digest) if cluster.inject else ""


def build(  # noqa: PLR0911 - one for each kind
    action: Creation, cluster: TFCluster, archive: ResolverArchive
) -> dict[str, Any]:
    """Build the object that an action creates."""
    match action:
        case CreateService():
            return build_service(cluster)
        case CreateNetworkPolicy(policy=policy):
            return build_network_policy(cluster, policy)
        case CreateDisruptionBudget(budget=budget):
            return build_disruption_budget(cluster, budget)
        case CreatePodGroup():
            return build_pod_group(cluster, action)
        case CreateWorkload(claim=claim):
            return build_workload(cluster, claim)
        case CreateConfigMap(views=views):
            return build_config_map(cluster, views)
        case CreateResolver():
            return build_resolver_config_map(cluster.namespace, archive)
        case CreatePod() | TryPod():
            return _build_pod(action, cluster, archive)
        case _:
            assert_never(action)


def _build_pod(action: CreatePod | TryPod, cluster: TFCluster, archive: ResolverArchive) -> dict[str, Any]:
    told = action if isinstance(action, CreatePod) else None
    return build_pod(
        cluster,
        action.task,
        view_digest="" if told is None else told.view_digest,
        attempt=0 if told is None else told.attempt,
        incarnation=0 if told is None else told.incarnation,
        replacement=0 if told is None else told.replacement,
        resolver=delivered_resolver(cluster, archive) or None,
        tf_config=tf_config_of(cluster, action.task, action.view) if action.view else None,
        name=action.name,
        group="" if told is None else told.group,
    )
