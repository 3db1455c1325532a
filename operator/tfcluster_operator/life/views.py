"""Views: what each task sees of its cluster, and the files that contain it.

One ConfigMap a job holds the job's views: ``cluster.json`` for the tasks that share the job's device filters, and
``task-N.json`` for a task with filters of its own.  A pod mounts its job's ConfigMap for its whole life, so a change of
filters changes a file and does not replace a pod.

A view's epoch is the generation of the TFCluster that last changed its membership or filters: a crash cannot lose it,
as it could a counter, and it identifies the edit that caused it.  If a queue changes the membership, the epoch grows by
the number of such changes (:attr:`TFCluster.edition`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import CHIEF, EVALUATOR, Job, Task, TFCluster, Visible, seen_with
from tfcluster_operator.life.departures import Leaving, leaving_of
from tfcluster_operator.life.roster import Roster
from tfcluster_operator.objects.config_map import ReadFile, ViewFile, build_file, membership_digest, trusted_files
from tfcluster_resolver import contract

#: A ConfigMap holds 1 MiB; the rest is for the object's own fields.
LARGEST_CONFIG_MAP: Final = 900_000

#: 24 bits: a pod and its successor have the same with a probability of one in 16 million.
_LENGTH: Final = 6

#: The pod of each task, by job and index: its UID, or in a view what is derived from it.
_Pods = Mapping[str, Mapping[int, str]]


@dataclass(frozen=True, slots=True)
class JobViews:
    """The wanted ConfigMap of one job; without files if they are too large: their size, in bytes, is computed first."""

    job: Job
    name: str
    files: Mapping[str, ViewFile]
    size: int

    @property
    def too_large(self) -> bool:
        """Whether these views exceed a ConfigMap."""
        return self.size > LARGEST_CONFIG_MAP

    def told_for(self, index: int) -> str:
        """Return the digest of a task's file for its pod; "" without a file."""
        file = self.files.get(contract.VIEW_FILE) if len(self.files) == 1 else self._file_for(index)
        return "" if file is None else file.says.told

    def text_for(self, index: int) -> str:
        """Return the text of the file that a task reads; "" without a file."""
        file = self._file_for(index)
        return "" if file is None else file.text

    def _file_for(self, index: int) -> ViewFile | None:
        of_all = self.files.get(contract.VIEW_FILE)
        # This is called for each of thousands of tasks, and hardly any has filters of its own.
        return of_all if len(self.files) == 1 else self.files.get(contract.task_view_file(index), of_all)


@dataclass(frozen=True, slots=True)
class Views:
    """The wanted views of a cluster, and the inputs of each job's views: they are rebuilt only if these change."""

    sources: Mapping[str, object]
    of_jobs: tuple[JobViews, ...]


def views_of(roster: Roster, before: Views | None = None) -> Views:
    """Build the views of every job; unchanged ones are taken from ``before``."""
    cluster = roster.cluster
    healthy = {job.name: _differing_devices(job, roster) for job in cluster.jobs}
    leaving = leaving_of(roster)
    known = {job.name: trusted_files(roster.views(job).own) or _files_of(before, job) for job in cluster.jobs}
    pods = _pods_of(roster)
    sources: dict[str, object] = {
        name: (cluster.uid, cluster.edition, healthy, leaving, files, pods if name == CHIEF else None)
        for name, files in known.items()
    }
    if before is not None and before.sources == sources:
        return before
    builder, built = _Builder(cluster, healthy, leaving, pods), []
    for job in cluster.jobs:
        if before is not None and before.sources.get(job.name) == sources[job.name]:
            built += [of_job for of_job in before.of_jobs if of_job.job.name == job.name]
            continue
        built.append(builder.job_views(job, known[job.name]))
    return Views(sources, tuple(built))


def whole_view(cluster: TFCluster) -> contract.View:
    """Return the view without device filters, which has every task; its epoch is the cluster's edition."""
    builder = _Builder(cluster, {job.name: {} for job in cluster.jobs}, {}, None)
    return replace(builder.view(cluster.jobs[0], ()), epoch=cluster.edition)


def epoch_of(views: tuple[JobViews, ...]) -> int:
    """Return the cluster's epoch: the newest epoch of its views."""
    return max((file.says.epoch for job in views for file in job.files.values()), default=0)


def _files_of(before: Views | None, job: Job) -> Mapping[str, ReadFile]:
    """Return the files of the last reconcile: a file that was deleted or edited since keeps its epoch."""
    of_jobs = () if before is None else before.of_jobs
    return next(({name: one.says for name, one in of.files.items()} for of in of_jobs if of.job.name == job.name), {})


class _Builder:
    """Builds the views of one cluster; equal views are built once, for any number of tasks."""

    def __init__(
        self,
        cluster: TFCluster,
        healthy: Mapping[str, Mapping[int, Mapping[str, int]]],
        leaving: Leaving,
        pods: _Pods | None,
    ) -> None:
        self._cluster = cluster
        self._healthy = healthy
        self._leaving = leaving
        self._pods = pods
        self._memberships: dict[tuple[str, ...], str] = {}
        self._built: dict[tuple[tuple[str, ...], int, str], ViewFile] = {}
        #: A view has the devices of the viewer's own job even if its filters hide that job.
        self._differ_by_viewer = any(job.limits for job in cluster.jobs)

    def job_views(self, job: Job, known: Mapping[str, ReadFile]) -> JobViews:
        """Build the views of one job; ``known`` are the files in its ConfigMap."""
        if job.name == CHIEF and self._pods is not None:
            wanted = self._job_views(job, known, self._pods)
            # The list of pods can be left out, the tasks cannot.
            if not wanted.too_large:
                return wanted
        return self._job_views(job, known, None)

    def _job_views(self, job: Job, known: Mapping[str, ReadFile], pods: _Pods | None) -> JobViews:
        name = naming.view_name(self._cluster.name, job.name)
        audiences = {contract.VIEW_FILE: job.filters}
        audiences.update({contract.task_view_file(i): job.task_filters[i] for i in sorted(job.task_filters)})
        least = sum(_least_size(self._cluster, texts) for texts in audiences.values())
        if least > LARGEST_CONFIG_MAP:
            return JobViews(job, name, {}, least)
        files = {}
        for file, texts in audiences.items():
            view = self.view(job, texts) if (texts not in self._memberships) else None
            membership = self._membership(texts, view)
            before = known.get(file)
            epoch = self._cluster.edition
            if before is not None and before.membership == membership:
                epoch = min(before.epoch, epoch)
            if pods is not None:
                view = view or self.view(job, texts)
                listed = _listed(view, pods, {} if before is None else before.incarnations)
                files[file] = build_file(replace(view, epoch=epoch, incarnations=listed), membership)
                continue
            key = (texts, epoch, job.name if self._differ_by_viewer else "")
            if key not in self._built:
                self._built[key] = build_file(replace(view or self.view(job, texts), epoch=epoch), membership)
            files[file] = self._built[key]
        size = sum(len(file.text) for file in files.values())
        return JobViews(job, name, files, size)

    def _membership(self, texts: tuple[str, ...], view: contract.View | None) -> str:
        if view is not None:
            self._memberships[texts] = membership_digest(view)
        return self._memberships[texts]

    def view(self, viewer: Job, texts: tuple[str, ...]) -> contract.View:
        """Build the view of a task of this job with these filters, without an epoch."""
        jobs: dict[str, tuple[str, ...] | dict[int, str]] = {}
        device_filters: dict[str, tuple[contract.FilterRange, ...]] = {}
        accelerators: dict[str, contract.JobAccelerators] = {}
        for job in self._cluster.jobs:
            shown = seen_with(texts, job.name)
            members = shown.within(job.replicas) if job.name != EVALUATOR else ()
            if members:
                addresses = {i: self._cluster.address_of(Task(job, i)) for i in members}
                dense = len(addresses) == job.replicas
                jobs[job.name] = tuple(addresses.values()) if dense else addresses
            if (ranges := _filter_ranges(job, shown)) and job.name != EVALUATOR:
                device_filters[job.name] = ranges
            limits = job.limits
            if limits and (members or job is viewer):
                mine = self._healthy[job.name]
                accelerators[job.name] = contract.JobAccelerators(
                    limits=limits, tasks={i: mine[i] for i in mine if job is viewer or i in members}
                )
        return contract.View(
            name=self._cluster.name,
            namespace=self._cluster.namespace,
            uid=self._cluster.uid,
            epoch=0,
            rpc_layer=self._cluster.spec.rpc_layer,
            jobs=jobs,
            device_filters=device_filters,
            accelerators=accelerators,
            isolation="" if self._cluster.isolation.mode == "None" else self._cluster.isolation.mode,
            leaving=self._leaving,
        )


def _pods_of(roster: Roster) -> _Pods | None:
    """Find the pods that replace earlier ones, for the chief's view: it reconnects to their tasks; None: no list."""
    # An address outlives its pods, so the coordinator could not detect a new pod otherwise.
    if roster.cluster.suspend or roster.cluster.job(CHIEF) is None:
        return None
    return {
        job.name: {
            place.task.index: pod.meta.uid
            for place in roster.of(job)
            if (pod := place.own) is not None and pod.is_replacement
        }
        for job in roster.cluster.jobs
        if job.name not in {CHIEF, EVALUATOR}
    }


def _listed(view: contract.View, pods: _Pods, published: _Pods) -> dict[str, dict[int, str]]:
    """Return the pods of the tasks in a view; a task without a pod keeps the one that was published."""
    listed: dict[str, dict[int, str]] = {}
    for job, tasks in view.jobs.items():
        uids, known = pods.get(job, {}), published.get(job, {})
        indices = tasks if isinstance(tasks, Mapping) else range(len(tasks))
        of_job = {i: digest(uids[i])[:_LENGTH] if i in uids else known[i] for i in indices if i in uids or i in known}
        if of_job:
            listed[job] = of_job
    return listed


def _least_size(cluster: TFCluster, texts: tuple[str, ...]) -> int:
    """Return a lower bound for the size in bytes of the view with these filters: that of its addresses."""
    return sum(
        seen_with(texts, job.name).count(job.replicas) * len(cluster.address_of(Task(job, 0)))
        for job in cluster.jobs
        if job.name != EVALUATOR
    )


def _filter_ranges(job: Job, shown: Visible) -> tuple[contract.FilterRange, ...]:
    """Write the filters of the visible tasks up to maxReplicas: TensorFlow keeps a task's first list."""
    return tuple(r for r in _runs(job, shown.within(job.max_replicas)) if r.filters)


def _runs(job: Job, indices: tuple[int, ...]) -> Iterator[contract.FilterRange]:
    start: int | None = None
    for position, index in enumerate(indices):
        start = index if start is None else start
        after = indices[position + 1] if position + 1 < len(indices) else None
        if after != index + 1 or job.filters_of(after) != job.filters_of(index):
            yield contract.FilterRange(start=start, stop=index + 1, filters=job.filters_of(index))
            start = None


def _differing_devices(job: Job, roster: Roster) -> Mapping[int, Mapping[str, int]]:
    """Count healthy devices if they differ from the limit, so that a normal start does not rewrite a view."""
    limits = job.limits
    differing = {}
    for place in roster.of(job) if limits else ():
        pod = place.staying
        if pod is None or pod.devices is None:
            continue
        held = {resource: pod.devices[resource] for resource in limits if resource in pod.devices}
        if any(held[resource] != limits[resource] for resource in held):
            differing[place.task.index] = held
    return differing


def tf_config_of(cluster: TFCluster, task: Task, view: str) -> str:
    """Write what a task sees as TF_CONFIG; in TFJob's layout each task sees the evaluators, too."""
    seen, evaluator = _read(view), cluster.job(EVALUATOR) if cluster.spec.resolver.tf_config == "TFJob" else None
    if evaluator is not None and evaluator.replicas:
        addresses = tuple(cluster.address_of(Task(evaluator, index)) for index in range(evaluator.replicas))
        seen = replace(seen, jobs={**seen.jobs, EVALUATOR: addresses})
    return contract.tf_config(seen, job=task.job.name, index=task.index, address=cluster.address_of(task))


@lru_cache(maxsize=64)
def _read(view: str) -> contract.View:
    return contract.load(view)
