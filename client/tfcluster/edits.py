"""What applying a manifest would do to a TFCluster that runs: to fields, pods, views and other objects."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.declared import complete, read, refuse
from tfcluster.errors import RefusedError
from tfcluster.field_changes import FieldChange, changes
from tfcluster.kubernetes_api import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    TFCLUSTERS,
    WORKLOADS,
    KubernetesApi,
    Resource,
)
from tfcluster.manifest_files import Manifest
from tfcluster.merging import merge, offline
from tfcluster.observed import observe
from tfcluster.pod_changes import PodChange, pod_changes
from tfcluster.rendering import task_views
from tfcluster.validation import misfits, problems
from tfcluster.view_changes import ViewChange, view_changes
from tfcluster_operator.declaration import ledger, naming
from tfcluster_operator.declaration.parse import InvalidSpecError, is_ours, parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life.gangs import gangs_of
from tfcluster_operator.life.queueing import Turn
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.life.views import JobViews, views_of
from tfcluster_operator.objects import disruption_budget, service
from tfcluster_operator.objects.base import digest_of
from tfcluster_operator.objects.observed import Observed

Object = dict[str, Any]

#: What of the metadata a manifest says.
_DECLARED_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
#: Annotations that say how an object was applied, and not what it is.
_OF_TOOLS: Final = "kubectl.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object other than a pod or a ConfigMap of views that is created, changed or deleted."""

    what: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Edit:
    """What applying a manifest would do.

    Attributes:
        name: the TFCluster's name.
        namespace: its namespace.
        exists: whether there is one already.
        how: how it was found out, in words.
        notes: what the user should know besides.
        fields: the fields of the TFCluster that differ.
        pods: what becomes of pods.
        views: what changes in what tasks see.
        objects: what becomes of other objects.
    """

    name: str
    namespace: str
    exists: bool
    how: str
    notes: tuple[str, ...]
    fields: tuple[FieldChange, ...]
    pods: tuple[PodChange, ...]
    views: tuple[ViewChange, ...]
    objects: tuple[ObjectChange, ...]

    @property
    def differs(self) -> bool:
        """Whether applying it would change anything."""
        return not self.exists or bool(self.fields)


def edit_of(api: KubernetesApi, manifest: Manifest) -> Edit:
    """Find out what applying a manifest would do.

    Args:
        api: the connection.
        manifest: the TFCluster.

    Raises:
        ManifestError: it is not valid, or not as an edit of what there is.
        RefusedError: the API server would refuse it, or does not let this user read.
        UnreachableError: no API server answers.
    """
    namespace = manifest.namespace or api.namespace
    live = api.find(TFCLUSTERS, manifest.name, namespace) if manifest.name else None
    refuse(manifest, misfits(manifest.body))
    refuse(manifest, problems(offline(manifest.body, live, namespace), live))
    merged = merge(api, manifest.body, live, namespace)
    fields = () if live is None else tuple(_fields(live, merged.body))
    notes = [*merged.notes, *_notes(live, merged.body)]
    queued = any(
        naming.LABEL_QUEUE in (one["metadata"].get("labels") or {}) for one in (live or {}, merged.body) if one
    )
    children = Observed() if live is None else _children(api, manifest.name, namespace, notes, queued=queued)
    after_body = _with_identity(merged.body, live, namespace, edited=any(one.where[0] == "spec" for one in fields))
    known = ledger.read((live or {}).get("status") or {})
    before = None if live is None else _before(live, children, known)
    new = read(manifest, after_body)
    after = call_roll(new, children).completed_by(known)
    asleep = not is_ours(after_body) or "deletionTimestamp" in after_body["metadata"]
    wanted = views_of(after).of_jobs
    notes += [*_of_the_life(after.declared, known, live is not None), *_of_the_queue(after), *_too_large(wanted)]
    return Edit(
        name=manifest.name,
        namespace=namespace,
        exists=live is not None,
        how=merged.how,
        notes=tuple(notes),
        fields=fields,
        pods=() if asleep or (live is not None and not fields) else tuple(pod_changes(before, after, known)),
        views=() if asleep or before is None else tuple(_views(before, wanted)),
        objects=() if asleep else tuple(_objects(before, after)),
    )


def _before(live: Object, children: Observed, known: ledger.Ledger) -> Roster | None:
    try:
        return call_roll(parse(live), children).completed_by(known)
    except InvalidSpecError:
        return None  # the operator could not read it either, so that nothing comes of it


def _with_identity(body: Object, live: Object | None, namespace: str, *, edited: bool) -> Object:
    """Give the TFCluster as the API server would keep it after the edit."""
    made = complete(body, namespace, live)
    made["metadata"]["generation"] = made["metadata"]["generation"] + edited
    return made


def _fields(live: Object, after: Object) -> Iterator[FieldChange]:
    yield from changes(_declared(live), _declared(after))


def _declared(body: Mapping[str, Any]) -> Object:
    about = {key: body["metadata"][key] for key in _DECLARED_METADATA if body["metadata"].get(key)}
    kept = {key: value for key, value in about.get("annotations", {}).items() if not key.startswith(_OF_TOOLS)}
    return {"metadata": {**about, "annotations": kept}, "spec": body["spec"]}


def _children(api: KubernetesApi, name: str, namespace: str, notes: list[str], *, queued: bool) -> Observed:
    """Look at what exists; what this user may not read is noted."""
    unread: dict[str, str] = {}

    def listed(resource: Resource) -> list[Object]:
        try:
            return list(api.list(resource, namespace, labels=f"{naming.LABEL_CLUSTER}={name}"))
        except RefusedError as error:
            if error.status != 403 and (resource is not WORKLOADS or error.status != 404):
                raise
            unread[resource.plural] = str(error)
            notes.append(f"you may not list {resource.plural} here, so what becomes of them is not shown in full")
            return []

    services, maps, policies = (listed(kind) for kind in (SERVICES, CONFIG_MAPS, NETWORK_POLICIES))
    pods, workloads = listed(PODS), listed(WORKLOADS) if queued else []
    no_workloads = unread.get(WORKLOADS.plural, "")
    found = services, maps, policies, pods
    return observe(*found, time.time(), workloads=workloads, no_workloads=no_workloads)


def _notes(live: Object | None, after: Object) -> Iterator[str]:
    if live is not None and "deletionTimestamp" in live["metadata"]:
        keepers = live["metadata"].get("finalizers")
        kept = f"; its finalizers keep it: {', '.join(keepers)}" if keepers else ""
        yield f"it is being deleted{kept}: nothing comes of this edit, apply it when it is gone"
    if not is_ours(after):
        yield f"spec.managedBy leaves it to {after['spec']['managedBy']}: the operator does nothing for it"


def _of_the_life(cluster: TFCluster, known: ledger.Ledger, exists: bool) -> Iterator[str]:
    if known.verdict is not None:
        yield f"it has finished ({known.verdict.kind}): its pods are left as they are, whatever its templates say"
    elif cluster.suspend:
        yield (
            "it is suspended: there are no pods until it is resumed" if exists else "it begins suspended, without pods"
        )


def _of_the_queue(after: Roster) -> Iterator[str]:
    queue = after.declared.queue
    match after.standing.turn:
        case Turn.WAITING:
            yield f"it waits in queue {queue}: there are no pods until that has granted it quota"
        case Turn.CHANGED:
            yield f"its pods would ask for something else than queue {queue} granted: they go, and it waits again"
        case Turn.ADMITTED | Turn.UNKNOWN:
            for job in after.declared.jobs:
                more = job.replicas - next(one.replicas for one in after.cluster.jobs if one.name == job.name)
                if more > 0:
                    tasks = "1 more task" if more == 1 else f"{more} more tasks"
                    yield f"{tasks} of job {job.name} come when queue {queue} has granted them quota"
        case _:
            pass


def _too_large(wanted: tuple[JobViews, ...]) -> Iterator[str]:
    for views in wanted:
        if views.too_large:
            yield f"the views of {views.job.name} take {views.size:,} bytes, more than a ConfigMap holds"


def _views(before: Roster, wanted: tuple[JobViews, ...]) -> Iterator[ViewChange]:
    yield from view_changes(task_views(views_of(before).of_jobs), task_views(wanted))


def _objects(before: Roster | None, after: Roster) -> Iterator[ObjectChange]:
    name = naming.service_name(after.cluster.name)
    if before is None:
        yield ObjectChange("create", "Service", name)
    elif service.build(before.cluster)["spec"] != service.build(after.cluster)["spec"]:
        yield ObjectChange("change", "Service", name)
    old = {} if before is None else {policy.name: policy.digest for policy in before.policies}
    yield from _differences("NetworkPolicy", old, {policy.name: policy.digest for policy in after.policies})
    kept = {} if before is None else _budgets(before)
    yield from _differences("PodDisruptionBudget", kept, _budgets(after))
    # NB: of a gang that there is, an edit matters at its next start alone.
    grouped = {} if before is None else dict.fromkeys(_groups(before), "")
    yield from _differences("PodGroup", grouped, dict.fromkeys(_groups(after), ""))
    jobs = frozenset() if before is None else frozenset(job.name for job in before.cluster.jobs)
    for job in after.cluster.jobs:
        if job.name not in jobs:
            yield ObjectChange("create", "ConfigMap", naming.view_name(after.cluster.name, job.name))
    for name in sorted(jobs - {job.name for job in after.cluster.jobs}):
        yield ObjectChange("delete", "ConfigMap", naming.view_name(after.cluster.name, name))


def _budgets(roster: Roster) -> dict[str, str]:
    """Give the digest of each PodDisruptionBudget that a declaration asks for, by its name."""
    cluster, budgets = roster.cluster, dict[str, str]()
    for job in disruption_budget.protected_jobs(cluster):
        spec = disruption_budget.spec_of(cluster, job, left=sum(1 for _ in roster.open(job)))
        budgets[naming.budget_name(cluster.name, job.name)] = digest_of(spec)
    return budgets


def _groups(roster: Roster) -> Iterable[str]:
    """Name the PodGroup of each gang that has one, or needs one."""
    gangs = gangs_of(roster, ledger.read(roster.cluster.status)).values()
    return [gang.name for gang in gangs if gang.existing is not None or not gang.placed]


def _differences(kind: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ObjectChange]:
    for name in sorted({*old, *new}):
        if name not in new:
            yield ObjectChange("delete", kind, name)
        elif name not in old:
            yield ObjectChange("create", kind, name)
        elif old[name] != new[name]:
            yield ObjectChange("change", kind, name)
