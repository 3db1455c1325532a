"""Views: what each task sees of its cluster, and the files that say so.

One ConfigMap a job holds the job's views: ``cluster.json`` for the tasks that share the job's device filters, and
``task-N.json`` for a task with filters of its own.  A pod mounts its job's ConfigMap for life, so a change of filters
reaches it as a changed file and never costs a pod.

A view's epoch is the generation of the TFCluster that last changed its membership or filters: it needs no counter that
a crash could lose, and it names the edit that caused it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tfcluster_operator.model import filters, naming
from tfcluster_operator.model.observed import Observed, ObservedConfigMap, ObservedFile, ObservedPod
from tfcluster_operator.model.spec import EVALUATOR, Job, Task, TFCluster
from tfcluster_resolver import contract

#: A ConfigMap takes 1 MiB; what is above this leaves no room for the object's own fields.
LARGEST_CONFIG_MAP: Final = 900_000


@dataclass(frozen=True, slots=True)
class ViewFile:
    """One wanted file: its text, its digest, its epoch."""

    text: str
    digest: str
    epoch: int


@dataclass(frozen=True, slots=True)
class JobViews:
    """The wanted ConfigMap of one job: its name and its files."""

    job: Job
    name: str
    files: Mapping[str, ViewFile]

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(len(file.text) for file in self.files.values())

    def digest_for(self, index: int) -> str:
        """Give the digest of the file that a task reads."""
        own = self.files.get(contract.task_view_file(index))
        return (own or self.files[contract.VIEW_FILE]).digest


def views_of(cluster: TFCluster, observed: Observed) -> tuple[JobViews, ...]:
    """Work out the views of every job.

    Args:
        cluster: the declaration.
        observed: what exists; an unchanged view keeps the epoch it has there, and pods tell of lost devices.

    Returns:
        The wanted ConfigMaps, in the order of the jobs.
    """
    healthy = {job.name: _differing_devices(cluster, job, observed.pods) for job in cluster.jobs}
    return tuple(_job_views(cluster, job, healthy, observed) for job in cluster.jobs)


def epoch_of(views: tuple[JobViews, ...]) -> int:
    """Give the cluster's epoch: the newest of its views'."""
    return max((file.epoch for job in views for file in job.files.values()), default=0)


def digest(text: str) -> str:
    """Shorten a file's text to what an annotation carries."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def membership_digest(view: contract.View) -> str:
    """Shorten what an epoch counts: the tasks, their addresses and their filters, but not their accelerators."""
    return digest(contract.dump(replace(view, epoch=0, accelerators={})))


def read_file(text: str) -> ObservedFile:
    """Tell what a ConfigMap's file says, for the comparison with what it should say."""
    try:
        view = contract.load(text)
    except contract.ContractError:
        return ObservedFile(digest=digest(text), membership="", epoch=0)
    return ObservedFile(digest=digest(text), membership=membership_digest(view), epoch=view.epoch)


def epochs_annotation(files: Mapping[str, ViewFile] | Mapping[str, ObservedFile]) -> str:
    """Spell the epochs of a ConfigMap's files for its annotation."""
    return json.dumps({name: files[name].epoch for name in sorted(files)}, separators=(",", ":"))


def _job_views(
    cluster: TFCluster, job: Job, healthy: Mapping[str, Mapping[int, Mapping[str, int]]], observed: Observed
) -> JobViews:
    name = naming.view_name(cluster.name, job.name)
    existing = observed.config_maps.get(name)
    known = _trusted_files(existing) if existing is not None and existing.meta.owner_uid == cluster.uid else {}
    audiences = {contract.VIEW_FILE: job.filters}
    audiences.update({contract.task_view_file(i): job.task_filters[i] for i in sorted(job.task_filters)})
    files = {}
    for file, texts in audiences.items():
        view = _view(cluster, job, texts, healthy)
        before = known.get(file)
        unchanged = before is not None and before.membership == membership_digest(view)
        known_epoch = before.epoch if before is not None and unchanged else cluster.generation
        view = replace(view, epoch=min(known_epoch, cluster.generation))
        text = contract.dump(view)
        files[file] = ViewFile(text=text, digest=digest(text), epoch=view.epoch)
    return JobViews(job=job, name=name, files=files)


def _trusted_files(existing: ObservedConfigMap) -> Mapping[str, ObservedFile]:
    """Leave out the files whose epoch somebody edited: data and annotation must agree."""
    if existing.meta.annotations.get(naming.ANNOTATION_EPOCHS) != epochs_annotation(existing.files):
        return {}
    return existing.files


def _view(
    cluster: TFCluster,
    viewer: Job,
    texts: tuple[str, ...],
    healthy: Mapping[str, Mapping[int, Mapping[str, int]]],
) -> contract.View:
    jobs: dict[str, tuple[str, ...] | dict[int, str]] = {}
    device_filters: dict[str, tuple[contract.FilterRange, ...]] = {}
    accelerators: dict[str, contract.JobAccelerators] = {}
    for job in cluster.jobs:
        shown = filters.visible(texts, job.name)
        members = shown.within(job.replicas) if job.name != EVALUATOR else ()
        if members:
            addresses = {i: cluster.address_of(Task(job, i)) for i in members}
            dense = len(addresses) == job.replicas
            jobs[job.name] = tuple(addresses.values()) if dense else addresses
        if (ranges := _filter_ranges(job, shown)) and job.name != EVALUATOR:
            device_filters[job.name] = ranges
        limits = job.limits()
        if limits and (members or job is viewer):
            mine = healthy[job.name]
            accelerators[job.name] = contract.JobAccelerators(
                limits=limits, tasks={i: mine[i] for i in mine if job is viewer or i in members}
            )
    return contract.View(
        name=cluster.name,
        namespace=cluster.namespace,
        uid=cluster.uid,
        epoch=0,
        rpc_layer=cluster.rpc_layer,
        jobs=jobs,
        device_filters=device_filters,
        accelerators=accelerators,
    )


def _filter_ranges(job: Job, shown: filters.Visible) -> tuple[contract.FilterRange, ...]:
    """Spell the filters of the visible tasks up to maxReplicas, equal neighbours as one range.

    TensorFlow keeps the first list that it is given for a task, so a task that may come later is declared now.
    """
    return tuple(r for r in _runs(job, shown.within(job.max_replicas)) if r.filters)


def _runs(job: Job, indices: tuple[int, ...]) -> Iterator[contract.FilterRange]:
    start: int | None = None
    for position, index in enumerate(indices):
        start = index if start is None else start
        after = indices[position + 1] if position + 1 < len(indices) else None
        if after != index + 1 or job.filters_of(after) != job.filters_of(index):
            yield contract.FilterRange(start=start, stop=index + 1, filters=job.filters_of(index))
            start = None


def _differing_devices(
    cluster: TFCluster, job: Job, pods: Mapping[str, ObservedPod]
) -> Mapping[int, Mapping[str, int]]:
    """Count healthy devices where they differ from the limit, so that a normal start rewrites no view."""
    limits = job.limits()
    differing = {}
    for index in range(job.replicas if limits else 0):
        pod = pods.get(naming.pod_name(cluster.name, job.name, index))
        if pod is None or pod.devices is None or pod.meta.owner_uid != cluster.uid or pod.meta.terminating:
            continue
        held = {resource: pod.devices[resource] for resource in limits if resource in pod.devices}
        if any(held[resource] != limits[resource] for resource in held):
            differing[index] = held
    return differing
