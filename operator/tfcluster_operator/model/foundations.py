"""The objects that must be there before a pod: the Service, the ConfigMaps with views, the resolver's ConfigMap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfcluster_operator.model import drift, naming, reasons, views
from tfcluster_operator.model.actions import (
    CreateConfigMap,
    CreateResolver,
    CreateService,
    Delete,
    Finding,
    Patch,
)
from tfcluster_operator.model.observed import Child, Observed
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.story import Story

#: What stands between the name of a cluster and the digest in the name of a copy of the resolver.
_OF_THE_RESOLVER: Final = ".resolver-"


def oversized(wanted: tuple[views.JobViews, ...]) -> Iterator[Finding]:
    """Find the views that no ConfigMap holds."""
    for job_views in wanted:
        if job_views.size > views.LARGEST_CONFIG_MAP:
            yield Finding(
                reasons.VIEW_TOO_LARGE,
                f"the views of job {job_views.job.name} take {job_views.size} bytes, more than the "
                f"{views.LARGEST_CONFIG_MAP} that a ConfigMap holds: declare device filters, or fewer tasks",
            )


def plan_service(cluster: TFCluster, observed: Observed, story: Story) -> None:
    """Create the headless Service, or put it right."""
    name = naming.service_name(cluster.name)
    service = observed.services.get(name)
    if service is None:
        story.actions.append(CreateService(name, reasons.CREATED))
    elif obstacle := obstacle_of(cluster, "Service", service):
        story.wait(obstacle)
    elif drift.service_is_beyond_repair(service):
        story.actions.append(Delete("Service", name, service.meta.uid, reasons.MADE_ANEW))
        story.blocked = True
    elif change := drift.service_change(cluster, service):
        story.actions.append(Patch("Service", name, service.meta.uid, change, reasons.REPAIRED))


def plan_config_map(cluster: TFCluster, wanted: views.JobViews, observed: Observed, story: Story) -> None:
    """Create the ConfigMap of one job's views, or publish what changed in them."""
    existing = observed.config_maps.get(wanted.name)
    if existing is None:
        story.actions.append(CreateConfigMap(wanted, reasons.CREATED))
    elif obstacle := obstacle_of(cluster, "ConfigMap", existing):
        story.wait(obstacle)
    elif change := drift.config_map_change(cluster, wanted, existing):
        if existing.immutable:
            story.actions.append(Delete("ConfigMap", wanted.name, existing.meta.uid, reasons.MADE_ANEW))
            story.blocked = True
        else:
            reason = reasons.VIEW_CHANGED if "data" in change else reasons.REPAIRED
            story.actions.append(Patch("ConfigMap", wanted.name, existing.meta.uid, change, reason))


def plan_resolver(cluster: TFCluster, resolver: str, observed: Observed, story: Story) -> None:
    """Create the ConfigMap that delivers the resolver; it is immutable, so that only its labels can be wrong."""
    existing = observed.config_maps.get(resolver)
    if existing is None:
        if not cluster.suspend:
            story.actions.append(CreateResolver(resolver, reasons.CREATED))
    elif obstacle := obstacle_of(cluster, "ConfigMap", existing):
        story.wait(obstacle)
    elif not existing.immutable:
        # Somebody made one of this name in our stead: what it holds nobody vouches for.
        story.actions.append(Delete("ConfigMap", resolver, existing.meta.uid, reasons.MADE_ANEW))
        story.blocked = True
    elif change := drift.resolver_change(cluster, existing):
        story.actions.append(Patch("ConfigMap", resolver, existing.meta.uid, change, reasons.REPAIRED))


def surplus_foundations(
    cluster: TFCluster, wanted: tuple[views.JobViews, ...], resolver: str, observed: Observed
) -> Iterator[Delete]:
    """Delete what is no longer needed; a copy of the resolver stays while a pod mounts it."""
    needed = {job_views.name for job_views in wanted} | {resolver}
    mounted = {pod.resolver for pod in observed.pods.values() if pod.meta.owner_uid == cluster.uid}
    for name, config_map in observed.config_maps.items():
        if name in needed or config_map.meta.owner_uid != cluster.uid or config_map.meta.terminating:
            continue
        if not name.startswith(cluster.name + _OF_THE_RESOLVER):
            yield Delete("ConfigMap", name, config_map.meta.uid, reasons.JOB_REMOVED)
        elif name not in mounted:
            yield Delete("ConfigMap", name, config_map.meta.uid, reasons.UNUSED)
    for name, service in observed.services.items():
        if name == naming.service_name(cluster.name) or service.meta.owner_uid != cluster.uid:
            continue
        if not service.meta.terminating:
            yield Delete("Service", name, service.meta.uid, reasons.JOB_REMOVED)


def obstacle_of(cluster: TFCluster, kind: str, existing: Child) -> Finding | None:
    """Say why an existing object of a name we need is not ours to touch, or None where it is."""
    meta = existing.meta
    if meta.owner_uid == cluster.uid:
        if meta.terminating:
            return Finding(reasons.TASKS_NOT_READY, f"{kind} {meta.name} is being deleted and will be made anew")
        return None
    if meta.owner_uid and meta.owner_name == cluster.name:
        return Finding(
            reasons.WAITING_FOR_PREDECESSOR,
            f"{kind} {meta.name} belongs to a deleted TFCluster of the same name and is not gone yet",
        )
    return Finding(
        reasons.NAME_TAKEN,
        f"{kind} {meta.name} exists and is not controlled by this TFCluster: "
        "delete or rename it, or give the TFCluster another name",
    )
