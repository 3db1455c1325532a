"""Compare a manifest with a running TFCluster: its effect on fields and pods."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tfcluster.errors import ConflictError, RefusedError
from tfcluster.kube.api import PODS, TFCLUSTERS, WORKLOADS, KubernetesApi, Object, Resource
from tfcluster.kube.observed import observe_pods, read_objects
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.validate import complete, misfits, problems, read, refuse
from tfcluster.tasks import task_of_labels
from tfcluster_operator.declaration import ledger, naming, reasons
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.declaration.parse import InvalidSpecError, is_ours, parse
from tfcluster_operator.declaration.spec import Job, TFCluster
from tfcluster_operator.life.departures import rollout_of
from tfcluster_operator.life.queueing import Turn
from tfcluster_operator.life.roster import Roster, Stage, call_roll
from tfcluster_operator.life.views import views_of
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.pod import Pod


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs, such as ``spec.jobs.worker.template.spec.containers[tensorflow].image``."""

    path: str
    before: Any
    after: Any


def changes(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Return the innermost fields that differ; list entries are matched by name if they have one."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            inner = f"{path}.{key}" if path else str(key)
            yield from changes(before.get(key), after.get(key), inner)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _in_lists(before, after, path)
    elif before != after:
        yield FieldChange(path, before, after)


def _in_lists(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[FieldChange]:
    if all(isinstance(one, Mapping) and "name" in one for one in (*before, *after)):
        old, new = ({one["name"]: one for one in of} for of in (before, after))
        for name in dict.fromkeys([*old, *new]):
            yield from changes(old.get(name), new.get(name), f"{path}[{name}]")
    elif len(before) != len(after):
        yield FieldChange(path, before, after)
    else:
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from changes(one, other, f"{path}[{index}]")


@dataclass(frozen=True, slots=True)
class PodChange:
    """The effect on the pods of some tasks of one job, in the operator's order; ``reason`` is that of its events."""

    what: Literal["create", "replace", "delete", "keep"]
    job: str
    tasks: tuple[int, ...]
    reason: str
    words: str


def pod_changes(before: Roster | None, after: Roster, known: Ledger) -> list[PodChange]:
    if known.verdict is not None:
        return []
    if after.cluster.suspend:
        return [*_suspended(before, after)]
    found = [*_deleted(after)]
    resumed = before is not None and before.cluster.suspend
    for job in after.cluster.jobs:
        found += _replaced(after, job)
    for job in after.cluster.jobs:
        was = None if before is None or resumed else before.cluster.job(job.name)
        declared = 0 if was is None else was.replicas
        missing = [place.task.index for place in after.of(job) if place.stage is Stage.MISSING]
        if new := [index for index in missing if index >= declared]:
            words = f"when {', '.join(job.start_after)} is ready (startAfter)" if job.start_after else ""
            found.append(PodChange("create", job.name, tuple(new), reasons.CREATED, words))
    return found


def _suspended(before: Roster | None, after: Roster) -> Iterator[PodChange]:
    if before is None or before.cluster.suspend:
        return
    why = (reasons.SUSPENDED, "spec.suspend")
    if not after.declared.suspend:
        why = (reasons.QUOTA_WITHDRAWN, f"it waits in queue {after.declared.queue}")
    for job, indices in _by_job(before.staying()):
        yield PodChange("delete", job, indices, *why)


def _deleted(after: Roster) -> Iterator[PodChange]:
    for name, indices in _by_job(after.surplus):
        job = after.cluster.job(name)
        reason, words = reasons.SCALED_DOWN, "immediately: drainTimeoutSeconds is 0 or not set"
        if job is None:
            reason, words = reasons.JOB_REMOVED, "immediately: the job is removed from the spec"
        elif job.drain_timeout_seconds:
            words = f"{job.drain_timeout_seconds} s after the smaller view is published (drainTimeoutSeconds)"
        yield PodChange("delete", name, indices, reason, words)


def _by_job(pods: Iterator[Pod] | Sequence[Pod]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Return the tasks of pods by job, the highest index first, as the operator deletes them."""
    tasks = {task for pod in pods if (task := task_of_labels(pod.meta.labels)) is not None}
    for job in sorted({task.job for task in tasks}):
        yield job, tuple(sorted((task.index for task in tasks if task.job == job), reverse=True))


def _replaced(after: Roster, job: Job) -> Iterator[PodChange]:
    old = rollout_of(after, job).old
    if not old:
        return
    indices = [place.task.index for place in old]
    strategy = after.cluster.spec.update_strategy
    what: Literal["replace", "keep"] = "replace"
    words = "all together (updateStrategy Recreate)"
    if strategy.type == "OnDelete":
        what, words = "keep", "each keeps its template until it is restarted (updateStrategy OnDelete)"
    elif strategy.type == "RollingUpdate":
        most = strategy.within(job.replicas)
        words = f"{most} at a time, the highest index first (updateStrategy RollingUpdate)"
        indices = [*reversed(indices)]
    yield PodChange(what, job.name, tuple(indices), reasons.TEMPLATE_CHANGED, words)


def _merged(api: KubernetesApi, wanted: Mapping[str, Any], namespace: str, notes: list[str]) -> Object:
    """Return what the API server would make of a TFCluster, with a dry run."""
    try:
        body, _ = api.apply(TFCLUSTERS, wanted, namespace, dry_run=True)
    except ConflictError as error:
        body, _ = api.apply(TFCLUSTERS, wanted, namespace, dry_run=True, force=True)
        notes.append(f"it needs --force-conflicts: {' '.join(str(error).split())}")
    return body


_DECLARED_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")
#: Annotations of the tool that applied an object, which are not part of its content.
_OF_TOOLS: Final = "kubectl.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Edit:
    """The effect of applying a manifest."""

    name: str
    namespace: str
    exists: bool
    notes: tuple[str, ...]
    fields: tuple[FieldChange, ...]
    pods: tuple[PodChange, ...]

    @property
    def differs(self) -> bool:
        return not self.exists or bool(self.fields)


def edit_of(api: KubernetesApi, manifest: Manifest) -> Edit:
    namespace = manifest.namespace or api.namespace
    live = api.find(TFCLUSTERS, manifest.name, namespace) if manifest.name else None
    # The API server has the fields that an edit omits; the control plane of a local run does not evaluate rules.
    refuse(manifest, problems(manifest.body) if live is None else misfits(manifest.body))
    notes: list[str] = []
    merged = _merged(api, manifest.body, namespace, notes)
    refuse(manifest, problems(merged, live))
    fields = () if live is None else tuple(changes(_declared(live), _declared(merged)))
    notes += _notes(live, merged)
    children = Observed() if live is None else _children(api, live, merged, notes)
    after_body = complete(merged, namespace, live)
    after_body["metadata"]["generation"] += any(one.path.startswith("spec") for one in fields)
    known = ledger.read((live or {}).get("status") or {})
    before: Roster | None = None
    with contextlib.suppress(InvalidSpecError):  # the operator could not read it either
        if live is not None:
            before = call_roll(parse(live), children).completed_by(known)
    after = call_roll(read(manifest, after_body), children).completed_by(known)
    asleep = not is_ours(after_body) or "deletionTimestamp" in after_body["metadata"]
    notes += [*_of_the_life(after.declared, known, live is not None), *_of_the_queue(after)]
    notes += [
        f"the views of {views.job.name} take {views.size:,} bytes, more than a ConfigMap holds"
        for views in views_of(after).of_jobs
        if views.too_large
    ]
    return Edit(
        name=manifest.name,
        namespace=namespace,
        exists=live is not None,
        notes=tuple(notes),
        fields=fields,
        pods=() if asleep or (live is not None and not fields) else tuple(pod_changes(before, after, known)),
    )


def _declared(body: Mapping[str, Any]) -> Object:
    about = {key: body["metadata"][key] for key in _DECLARED_METADATA if body["metadata"].get(key)}
    kept = {key: value for key, value in about.get("annotations", {}).items() if not key.startswith(_OF_TOOLS)}
    return {"metadata": {**about, "annotations": kept}, "spec": body["spec"]}


def _children(api: KubernetesApi, live: Object, merged: Object, notes: list[str]) -> Observed:
    """Read the existing objects; missing permissions are noted."""
    lacking: dict[str, str] = {}

    def listed(resource: Resource, kind: str) -> list[Object]:
        about = live["metadata"]
        try:
            return list(api.list(resource, about["namespace"], labels=f"{naming.LABEL_CLUSTER}={about['name']}"))
        except RefusedError as error:
            if error.status != 403 and (resource is not WORKLOADS or error.status != 404):
                raise
            lacking[kind] = str(error)
            words = f"you are not allowed to list {resource.plural} here"
            notes.append(f"{words}, so what becomes of them is not shown in full")
            return []

    queued = any(naming.LABEL_QUEUE in (one["metadata"].get("labels") or {}) for one in (live, merged))
    workloads = read_objects("Workload", listed(WORKLOADS, "Workload")) if queued else {}
    pods = observe_pods(listed(PODS, "Pod"), time.time())
    return Observed(objects={"Workload": workloads}, pods=pods, lacking=lacking)


def _notes(live: Object | None, after: Object) -> Iterator[str]:
    if live is not None and "deletionTimestamp" in live["metadata"]:
        keepers = live["metadata"].get("finalizers")
        kept = f"; its finalizers keep it: {', '.join(keepers)}" if keepers else ""
        yield f"it is being deleted{kept}; the edit would be lost: apply it after the deletion"
    if not is_ours(after):
        yield f"spec.managedBy leaves it to {after['spec']['managedBy']}: the operator does nothing for it"


def _of_the_life(cluster: TFCluster, known: ledger.Ledger, exists: bool) -> Iterator[str]:
    if known.verdict is not None:
        yield f"it has finished ({known.verdict.kind}): its pods are left as they are, whatever its templates say"
    elif cluster.suspend:
        words = "it is suspended: its pods are created when it is resumed"
        yield words if exists else "it begins suspended, without pods"


def _of_the_queue(after: Roster) -> Iterator[str]:
    queue = after.declared.queue
    match after.standing.turn:
        case Turn.WAITING:
            yield f"it waits in queue {queue}: its pods are created when the queue has granted it quota"
        case Turn.CHANGED:
            change = "the resources of its pods or the queue would change"
            yield f"{change}: the pods are deleted, and it waits in queue {queue} again"
        case Turn.ADMITTED | Turn.UNKNOWN:
            for job in after.declared.jobs:
                more = job.replicas - next(one.replicas for one in after.cluster.jobs if one.name == job.name)
                if more > 0:
                    tasks = "1 more task" if more == 1 else f"{more} more tasks"
                    yield f"{tasks} of job {job.name} come when queue {queue} has granted them quota"
        case _:
            pass
