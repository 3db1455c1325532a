"""The TFCluster as the user declared it, as values: the first argument of every decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tfcluster_operator.declaration import naming, quantities
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler, groups_of_template

#: TensorFlow's rule: an evaluator sees the cluster, and no other task sees it.
EVALUATOR: Final = "evaluator"
CHIEF: Final = "chief"
WORKER: Final = "worker"
#: The container that speaks for a task in a pod of several.
MAIN_CONTAINER: Final = "tensorflow"

#: What the end of a task's program means.
RestartPolicy = Literal["OnFailure", "Always", "Never", "ExitCode"]
#: What is restarted when a task fails.
RestartScope = Literal["Task", "Job", "Cluster"]
#: Whether all tasks of the named jobs must end well, or one of them.
SuccessTasks = Literal["All", "Any"]
#: Which pods are deleted when the cluster has finished.
CleanPodPolicy = Literal["Running", "All", "None"]
#: How the resolver gets into the pods: by a ConfigMap of the operator, or not by the operator.
ResolverDelivery = Literal["ConfigMap", "None"]
#: Whether the operator tells programs that read TF_CONFIG of the cluster, by that variable.
TFConfigDelivery = Literal["None", "Environment", "TFJob"]
#: Who reaches a task's port: everybody, the tasks of the cluster, or those that the device filters join.
IsolationMode = Literal["None", "Cluster", "DeviceFilters"]
#: Which ports of a pod the isolation closes: its task's, or all.
PortScope = Literal["Task", "All"]
#: What an edit of a template does to the pods that there are.
UpdateType = Literal["Recreate", "RollingUpdate", "OnDelete"]
#: Whether a task without a node that suits it waits, or takes another.
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]
#: What becomes of a cluster whose gang finds no places in time.
OnTimeout = Literal["Fail", "Suspend"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a queue lets some tasks of a job run: those from ``start`` up to, not including, ``stop``.

    Their pods get these besides what the template says (Kueue: the labels and tolerations of the ResourceFlavors, and
    what the admission checks ask for).
    """

    start: int
    stop: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A value that is read as it stands in the manifest."""


class Colocation(Fields, frozen=True):
    """That the tasks of ``jobs``, of all where none is named, run in one topology domain.

    ``topology_key`` is the label of nodes whose value tells their domain.
    """

    topology_key: Annotated[str, Meta(min_length=1)]
    when_unsatisfiable: WhenUnsatisfiable = "DoNotSchedule"
    jobs: tuple[str, ...] = ()


class Spread(Colocation, frozen=True):
    """That a job's tasks are spread over topology domains: one has at most ``max_skew`` more of them than another."""

    max_skew: Annotated[int, Meta(ge=1)] = 1


@dataclass(frozen=True, slots=True)
class Job:
    """One job: a named role of TensorFlow and how many tasks play it.

    ``filters`` are every task's, ``task_filters`` replace them for one index; ``port`` is TCP; ``template`` is the
    PodTemplateSpec as the user wrote it, and ``template_hash`` changes exactly when a pod must be replaced.
    ``start_after`` names the jobs whose tasks must all be ready first; ``drain_timeout_seconds`` is how long a surplus
    pod stays after the smaller view was published.  ``history_limit`` is how many failed pods of each task are kept for
    their logs.  ``task_server`` says that the main container runs TensorFlow's server.  ``min_replicas`` is how many of
    its tasks belong to a gang, None where all do.  ``min_available`` is how many tasks, a number or a share such as
    ``50%``, an eviction must leave running; None leaves evictions free.  ``placements`` are where its queue lets its
    tasks run, none without a queue.  ``colocation`` and ``spread`` say where they run relative to other tasks.
    """

    name: str
    replicas: int
    max_replicas: int
    port: int
    filters: tuple[str, ...]
    task_filters: Mapping[int, tuple[str, ...]]
    template: Mapping[str, Any]
    template_hash: str
    restart_policy: RestartPolicy = "OnFailure"
    restart_scope: RestartScope = "Task"
    start_after: tuple[str, ...] = ()
    drain_timeout_seconds: int = 0
    history_limit: int = 1
    task_server: bool = False
    min_replicas: int | None = None
    min_available: int | str | None = None
    placements: tuple[Placement, ...] = ()
    colocation: Colocation | None = None
    spread: tuple[Spread, ...] = ()

    def placement_of(self, index: int) -> Placement | None:
        """Return where a queue lets a task run; None where it says nothing."""
        return next((one for one in self.placements if one.start <= index < one.stop), None)

    def filters_of(self, index: int) -> tuple[str, ...]:
        """Return the device filters of one task; none means that it sees every task."""
        return self.task_filters.get(index, self.filters)

    def of_template(self, field: str) -> str:
        """Return the text of a field in the template's spec, "" where it is left out."""
        return str((self.template.get("spec") or {}).get(field) or "")

    def own_groups(self) -> frozenset[str]:
        """Return the names of the PodGroups, of whatever scheduler, that the template puts the pods in."""
        return frozenset(group for _, group in groups_of_template(self.template))

    def limits(self) -> dict[str, int]:
        """Count the extended resources that one pod asks for: a device plugin grants them whole or not at all."""
        total: dict[str, int] = {}
        for container in (self.template.get("spec") or {}).get("containers") or ():
            for resource, limit in ((container.get("resources") or {}).get("limits") or {}).items():
                if _is_extended(resource) and (count := quantities.whole(limit)) is not None:
                    total[resource] = total.get(resource, 0) + count
        return total


@dataclass(frozen=True, slots=True)
class Task:
    """One task: a job's name and an index in it."""

    job: Job
    index: int

    def __str__(self) -> str:
        return f"{self.job.name}-{self.index}"


class SuccessPolicy(Fields, frozen=True):
    """Which tasks must have ended with exit code 0 for the cluster to have succeeded."""

    jobs: tuple[str, ...] = ()
    tasks: SuccessTasks = "All"


@dataclass(frozen=True, slots=True)
class UpdateStrategy:
    """What an edit of a template does.

    ``max_unavailable`` tasks of a job, a number or a share such as ``25%``, can be down in a rolling update.
    """

    type: UpdateType = "OnDelete"
    max_unavailable: int | str = 1

    def within(self, replicas: int) -> int:
        """Return how many tasks of a job can be unavailable in a rolling update."""
        if isinstance(self.max_unavailable, int):
            return max(1, self.max_unavailable)
        return max(1, replicas * int(self.max_unavailable.removesuffix("%")) // 100)


class Isolation(Fields, frozen=True):
    """Who reaches the tasks; ``allow_from`` are NetworkPolicyPeers that are let in as well."""

    mode: IsolationMode = "None"
    port_scope: PortScope = "Task"
    allow_from: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Gang:
    """Which tasks have their places together or not at all: of each job the first ``min_replicas``, else all of them.

    ``timeout`` is for how many seconds they can wait for these places, None without a limit; ``on_timeout`` says what
    comes then.  ``scheduler`` is who finds the places, as the operator is set up.
    """

    timeout: int | None = None
    on_timeout: OnTimeout = "Fail"
    scheduler: GangScheduler = KUBERNETES

    def least(self, job: Job) -> int:
        """Return how many tasks of a job belong to the gang; an evaluator looks on, so that nobody waits for it."""
        usual = 0 if job.name == EVALUATOR else job.replicas
        return min(job.replicas, usual if job.min_replicas is None else job.min_replicas)


@dataclass(frozen=True, slots=True)
class TFCluster:
    """One TFCluster object: identity, declaration, and the status it had when it was read.

    Times are seconds; None means that there is no such limit, and that each pod is placed for itself without
    ``gang``.  ``inject`` is whether the pods get the resolver, ``tf_config`` how their main containers get TF_CONFIG.
    ``queue`` is the LocalQueue in which it waits for its quota, "" if none, and ``priority_class`` the
    WorkloadPriorityClass with which it does.  ``regrants`` counts how
    often a queue changed the number of its tasks, so that ``edition`` grows whenever its membership can change.
    ``gave_up`` says why it is suspended though nobody has asked for that, "" if it is not.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    rpc_layer: str
    cluster_domain: str
    suspend: bool
    jobs: tuple[Job, ...]
    status: Mapping[str, Any] = field(default_factory=dict)
    success_policy: SuccessPolicy = field(default_factory=SuccessPolicy)
    backoff_limit: int | None = None
    active_deadline: int | None = None
    clean_pod_policy: CleanPodPolicy = "Running"
    ttl_after_finished: int | None = None
    update_strategy: UpdateStrategy = field(default_factory=UpdateStrategy)
    force_delete_after: int | None = None
    inject: bool = True
    tf_config: TFConfigDelivery = "None"
    isolation: Isolation = field(default_factory=Isolation)
    gang: Gang | None = None
    queue: str = ""
    priority_class: str = ""
    regrants: int = 0
    gave_up: str = ""
    #: What it was read from.
    raw: Any = field(default=None, compare=False, repr=False)

    @property
    def edition(self) -> int:
        """The number of the membership: it grows with each edit, and with each change by the queue."""
        return self.generation + self.regrants

    @property
    def sets_tf_config(self) -> bool:
        """Whether the main containers get TF_CONFIG."""
        return self.tf_config != "None"

    def chosen_scheduler(self, job: Job) -> str:
        """Return which scheduler the operator chooses for a job's pods; "" where the template or Kubernetes does."""
        if self.gang is None or job.of_template("schedulerName"):
            return ""
        return self.gang.scheduler.name

    def job(self, name: str) -> Job | None:
        """Return the job of this name."""
        return next((job for job in self.jobs if job.name == name), None)

    def tasks(self) -> Iterator[Task]:
        """Return every declared task, in the order of the jobs and then of the indices."""
        for job in self.jobs:
            for index in range(job.replicas):
                yield Task(job, index)

    def address_of(self, task: Task) -> str:
        """Return a task's "host:port"."""
        return naming.address(
            cluster=self.name,
            namespace=self.namespace,
            job=task.job.name,
            index=task.index,
            port=task.job.port,
            cluster_domain=self.cluster_domain,
        )


def main_container(template: Mapping[str, Any]) -> str:
    """Return the name of the container whose end is the task's end: the one named tensorflow, else the first."""
    names = [str(one.get("name", "")) for one in (template.get("spec") or {}).get("containers") or ()]
    return choose_main(names)


def choose_main(names: Sequence[str]) -> str:
    """Choose the container whose end is the task's end among all of a pod's, in their order; "" of none."""
    return MAIN_CONTAINER if MAIN_CONTAINER in names else next(iter(names), "")


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
