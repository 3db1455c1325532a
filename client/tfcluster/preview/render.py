"""Compute the objects that the operator would create for a TFCluster, with its own planner and builders."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import JobRecord, Ledger
from tfcluster_operator.declaration.parse import with_status
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.life.views import JobViews, views_of
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.workload import build as build_workload
from tfcluster_operator.plan.actions import Create
from tfcluster_operator.plan.claims import wanted_claim
from tfcluster_operator.plan.plan import plan
from tfcluster_operator.resolver_sources import read_archive
from tfcluster_resolver import contract

Object = dict[str, Any]

_KINDS: Final = ("Service", "NetworkPolicy", "PodDisruptionBudget", "PodGroup", "Workload", "ConfigMap", "Pod")
_WHENEVER: Final = 0.0


@dataclass(frozen=True, slots=True)
class TaskView:
    """The view of some tasks of one job, and the name of its file."""

    job: str
    tasks: tuple[int, ...]
    file: str
    view: contract.View


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects that the operator would create for a TFCluster."""

    objects: tuple[Object, ...]
    views: tuple[TaskView, ...]
    notes: tuple[str, ...]


def render(cluster: TFCluster, *, managed_by: str | None = None) -> Rendered:
    """Compute the objects that the operator would create for a new TFCluster."""
    # The objects are the same if the pods have to wait for something, so waits are ignored.
    at_once = with_status(replace(cluster, suspend=False, deleting=False, queue=""), {})
    roster = call_roll(at_once, Observed(), resolver=read_archive().delivered_to(cluster))
    wanted = views_of(roster).of_jobs
    # An action without an object creates the copy of the resolver, which all clusters of a namespace share.
    objects = [one.build() for one in _creations(roster, wanted) if one.build is not None]
    if cluster.queue:
        counts = {job.name: job.replicas for job in cluster.jobs}
        objects.append(build_workload(cluster, wanted_claim(cluster, 0, counts)))
    objects.sort(key=lambda one: _KINDS.index(one["kind"]))
    return Rendered(tuple(objects), tuple(task_views(wanted)), tuple(_notes(cluster, managed_by, wanted)))


def _creations(roster: Roster, wanted: tuple[JobViews, ...]) -> Iterator[Create]:
    """Plan until everything is created: a plan has the steps of one reconcile, and a gang comes first."""
    # A job counts as started, so that it does not wait for others.
    started = {job.name: JobRecord(started=frozenset({0})) for job in roster.cluster.jobs}
    seen: set[tuple[str, str]] = set()
    while True:
        new = [
            action
            for action in plan(roster, Ledger(jobs=started), wanted, _WHENEVER).actions
            if isinstance(action, Create) and (action.kind, action.name) not in seen
        ]
        yield from new
        if not any(action.task for action in new):
            return
        seen |= {(action.kind, action.name) for action in new}
        places = {
            job: tuple(place for place in of_job if ("Pod", place.name) not in seen)
            for job, of_job in roster.places.items()
        }
        roster = replace(roster, places=places)


def task_views(wanted: tuple[JobViews, ...]) -> Iterator[TaskView]:
    """Return every distinct view with the tasks that read it."""
    for of_job in wanted:
        own = {index: contract.task_view_file(index) for index in of_job.job.task_filters}
        shared = tuple(index for index in range(of_job.job.replicas) if index not in own)
        readers = {contract.VIEW_FILE: shared, **{file: (index,) for index, file in own.items()}}
        for file, text in of_job.files.items():
            tasks = tuple(index for index in readers.get(file, ()) if index < of_job.job.replicas)
            if tasks:
                yield TaskView(of_job.job.name, tasks, file, contract.load(text.text))


def _notes(cluster: TFCluster, managed_by: str | None, wanted: tuple[JobViews, ...]) -> Iterator[str]:
    if managed_by not in (None, naming.CONTROLLER):
        yield f"spec.managedBy leaves it to {managed_by}: the operator creates nothing for it"
    if cluster.suspend:
        yield "spec.suspend: its pods are created when it is resumed"
    if cluster.queue:
        yield f"the label {naming.LABEL_QUEUE}: its pods come when queue {cluster.queue} has granted it quota"
    for job in cluster.jobs:
        if job.start_after:
            yield f"spec.jobs.{job.name}.startAfter: its pods come when {', '.join(job.start_after)} is ready"
    for views in wanted:
        if views.too_large:
            yield (
                f"spec.jobs.{views.job.name}: its views take {views.size:,} bytes, more than a ConfigMap can store; "
                "its pods are not created: declare device filters, or fewer tasks"
            )
