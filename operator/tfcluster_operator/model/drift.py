"""How an existing object differs from the wanted one: the patch that puts it right, or None.

Only what we set is compared.  What others add is left alone where it does no harm (labels, annotations), and removed
where it does: a foreign key in a Service's selector selects nothing, a foreign file in a ConfigMap would be read.
Merge patches are used because server-side apply cannot remove what another field manager added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfcluster_operator.model import naming, views
from tfcluster_operator.model.budgets import Budget
from tfcluster_operator.model.gang_schedulers import KUBERNETES
from tfcluster_operator.model.gangs import Gang
from tfcluster_operator.model.isolation import Policy
from tfcluster_operator.model.observed import (
    Meta,
    ObservedConfigMap,
    ObservedDisruptionBudget,
    ObservedNetworkPolicy,
    ObservedPod,
    ObservedPodGroup,
    ObservedService,
)
from tfcluster_operator.model.spec import TFCluster


def service_ports(cluster: TFCluster) -> list[dict[str, Any]]:
    """Give the Service's ports: each distinct port of the jobs, named after its number."""
    ports = sorted({job.port for job in cluster.jobs})
    return [{"name": f"tf-{port}", "port": port, "targetPort": port, "protocol": "TCP"} for port in ports]


def service_change(cluster: TFCluster, service: ObservedService) -> dict[str, Any] | None:
    """Give the patch that puts the headless Service right, or None where nothing differs."""
    change: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    selector = {naming.LABEL_CLUSTER: cluster.name}
    if dict(service.selector) != selector:
        spec["selector"] = {**dict.fromkeys(service.selector), **selector}
    ports = service_ports(cluster)
    if service.ports != tuple((p["name"], p["port"], p["targetPort"], p["protocol"]) for p in ports):
        spec["ports"] = ports
    if not service.publish_not_ready:
        spec["publishNotReadyAddresses"] = True
    if spec:
        change["spec"] = spec
    if metadata := _metadata_change(service.meta, labels=naming.cluster_labels(cluster.name), annotations={}):
        change["metadata"] = metadata
    return change or None


def service_is_beyond_repair(service: ObservedService) -> bool:
    """Tell whether a Service must be deleted and created again: its cluster IP cannot be edited."""
    return service.cluster_ip != "None" or service.kind != "ClusterIP"


def config_map_change(cluster: TFCluster, wanted: views.JobViews, existing: ObservedConfigMap) -> dict[str, Any] | None:
    """Give the patch that makes a ConfigMap hold the wanted views, or None where nothing differs."""
    change: dict[str, Any] = {}
    data: dict[str, str | None] = {name: None for name in existing.files if name not in wanted.files}
    for name, file in wanted.files.items():
        if name not in existing.files or existing.files[name].digest != file.digest:
            data[name] = file.text
    if data:
        change["data"] = data
    if existing.binary_files:
        # A binary file is mounted beside the views, and task-0.json among them would be read as one.
        change["binaryData"] = dict.fromkeys(existing.binary_files)
    metadata = _metadata_change(
        existing.meta,
        labels=naming.job_labels(cluster.name, wanted.job.name),
        annotations={naming.ANNOTATION_EPOCHS: views.epochs_annotation(wanted.files)},
    )
    if metadata:
        change["metadata"] = metadata
    return change or None


def network_policy_change(cluster: TFCluster, wanted: Policy, existing: ObservedNetworkPolicy) -> dict[str, Any] | None:
    """Give the patch that makes a NetworkPolicy let in whom it should, or None where nothing differs."""
    change: dict[str, Any] = {}
    if existing.digest != wanted.digest:
        selector = wanted.spec["podSelector"]
        labels = {**dict.fromkeys(existing.pod_selector.get("matchLabels") or ()), **selector["matchLabels"]}
        cleared = {**dict.fromkeys(existing.pod_selector), **selector, "matchLabels": labels}
        change["spec"] = {"ingress": None, "egress": None, **wanted.spec, "podSelector": cleared}
    if metadata := _metadata_change(existing.meta, labels=policy_labels(cluster, wanted), annotations={}):
        change["metadata"] = metadata
    return change or None


def disruption_budget_change(
    cluster: TFCluster, wanted: Budget, existing: ObservedDisruptionBudget
) -> dict[str, Any] | None:
    """Give the patch that makes a PodDisruptionBudget protect what it should, or None where nothing differs."""
    change: dict[str, Any] = {}
    if existing.digest != wanted.digest:
        ours = wanted.spec["selector"]["matchLabels"]
        labels = {**dict.fromkeys(existing.selector.get("matchLabels") or ()), **ours}
        selector = {**dict.fromkeys(existing.selector), "matchLabels": labels}
        change["spec"] = {"maxUnavailable": None, **wanted.spec, "selector": selector}
    if metadata := _metadata_change(existing.meta, labels=naming.job_labels(cluster.name, wanted.job), annotations={}):
        change["metadata"] = metadata
    return change or None


def pod_group_change(cluster: TFCluster, wanted: Gang, existing: ObservedPodGroup) -> dict[str, Any] | None:
    """Give the patch that makes a PodGroup count the pods that it should, or None where nothing differs."""
    change: dict[str, Any] = {}
    # NB: the count is of use while the scheduler looks for places; it keeps no pod from coming back that was lost.
    scheduler = KUBERNETES if cluster.gang is None else cluster.gang.scheduler
    if existing.min_count != wanted.min_count and not wanted.placed:
        change["spec"] = scheduler.counting(wanted.min_count)
    # NB: pods tell of their places as long as they live; when all are lost at once, this is what is left to tell.
    noted = {naming.ANNOTATION_PLACED: "true"} if wanted.begun and not scheduler.remembers else {}
    if metadata := _metadata_change(existing.meta, labels=gang_labels(cluster, wanted.job), annotations=noted):
        change["metadata"] = metadata
    return change or None


def has_another_priority(wanted: Gang, existing: ObservedPodGroup) -> bool:
    """Tell whether a PodGroup, whose priority cannot be edited, was made for pods of another one."""
    if existing.priority_class is None:
        return False
    if not wanted.priority_class:
        return naming.ANNOTATION_PRIORITY in existing.meta.annotations
    return existing.priority_class != wanted.priority_class


def gang_labels(cluster: TFCluster, job: str) -> dict[str, str]:
    """Give the labels of a PodGroup, of one job or of all that start at once."""
    return naming.job_labels(cluster.name, job) if job else naming.cluster_labels(cluster.name)


def policy_labels(cluster: TFCluster, policy: Policy) -> dict[str, str]:
    """Give the labels of a NetworkPolicy."""
    return naming.job_labels(cluster.name, policy.job) if policy.job else naming.cluster_labels(cluster.name)


def resolver_change(existing: ObservedConfigMap) -> dict[str, Any] | None:
    """Give the patch that puts the labels of the resolver's ConfigMap right, or None where nothing differs."""
    metadata = _metadata_change(existing.meta, labels=naming.resolver_labels(), annotations={})
    return {"metadata": metadata} if metadata else None


def pod_change(pod: ObservedPod, *, labels: Mapping[str, str], view_digest: str) -> dict[str, Any] | None:
    """Give the patch that puts a pod's labels right and tells it of its view, or None where nothing differs."""
    surplus, marked = pod.surplus_since, naming.LABEL_KEPT in pod.meta.labels
    if pod.told == view_digest and not surplus and not marked and pod.meta.labels.items() >= labels.items():
        return None
    annotations = {naming.ANNOTATION_VIEW: view_digest} if pod.listening else {}
    metadata = _metadata_change(pod.meta, labels=labels, annotations=annotations)
    if surplus:
        # It was to go and is declared again.
        metadata.setdefault("annotations", {})[naming.ANNOTATION_SURPLUS_SINCE] = None
    if marked:
        # NB: once it fails, it would be taken for one whose failure is counted already.
        metadata.setdefault("labels", {})[naming.LABEL_KEPT] = None
    return {"metadata": metadata} if metadata else None


def surplus_change(pod: ObservedPod, *, labels: Mapping[str, str], since: int) -> dict[str, Any] | None:
    """Give the patch that marks a pod as surplus and puts its labels right, or None where nothing differs."""
    marks = {naming.ANNOTATION_SURPLUS_SINCE: str(since)}
    metadata = _metadata_change(pod.meta, labels=labels, annotations=marks)
    return {"metadata": metadata} if metadata else None


def keeping(pod: ObservedPod, *, labels: Mapping[str, str]) -> dict[str, Any] | None:
    """Give the patch that marks a failed pod as kept, or None where it is."""
    metadata = _metadata_change(pod.meta, labels={**labels, naming.LABEL_KEPT: "true"}, annotations={})
    return {"metadata": metadata} if metadata else None


def _metadata_change(meta: Meta, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if wrong := {key: value for key, value in labels.items() if meta.labels.get(key) != value}:
        change["labels"] = wrong
    if wrong := {key: value for key, value in annotations.items() if meta.annotations.get(key) != value}:
        change["annotations"] = wrong
    return change
