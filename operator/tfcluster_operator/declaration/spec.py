"""The declared TFCluster as values: the first argument of every decision."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tfcluster_operator.declaration import naming, quantities
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler, groups_of_template
from tfcluster_operator.declaration.ledger import Ledger

#: TensorFlow's rule: an evaluator sees the cluster, and no other task sees it.
EVALUATOR: Final = "evaluator"
CHIEF: Final = "chief"
WORKER: Final = "worker"
#: The main container of a pod with several containers, which represents the task.
MAIN_CONTAINER: Final = "tensorflow"

#: How the end of a task's program is handled.
RestartPolicy = Literal["OnFailure", "Always", "Never", "ExitCode"]
#: The scope of a restart when a task fails.
RestartScope = Literal["Task", "Job", "Cluster"]
#: Whether all tasks of the named jobs must succeed, or one of them.
SuccessTasks = Literal["All", "Any"]
#: Which pods are deleted when the cluster has finished.
CleanPodPolicy = Literal["Running", "All", "None"]
#: How the resolver gets into the pods: in a ConfigMap of the operator, or not with the operator.
ResolverDelivery = Literal["ConfigMap", "None"]
#: Whether the operator sets TF_CONFIG, for programs that read it.
TFConfigDelivery = Literal["None", "Environment", "TFJob"]
#: Which clients can reach a task's port: all, the tasks of the cluster, or those that the device filters join.
IsolationMode = Literal["None", "Cluster", "DeviceFilters"]
#: Which ports of a pod the isolation closes: its task's, or all.
PortScope = Literal["Task", "All"]
#: How existing pods are replaced after an edit of a template.
UpdateType = Literal["Recreate", "RollingUpdate", "OnDelete"]
#: Whether a task without a suitable node waits, or takes another.
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]
#: What happens to a cluster whose gang was not scheduled in time.
OnTimeout = Literal["Fail", "Suspend"]

DEFAULT_PORT: Final = 2222
#: The most failed pods of a task that are kept, as the CRD has it.
MOST_KEPT: Final = 10
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
#: A number of tasks, or a percentage of them.
Share = Count | Annotated[str, Meta(pattern=r"\A([1-9][0-9]?|100)%\Z")]


@dataclass(frozen=True, slots=True)
class Placement:
    """The additions of a queue to the pods of the tasks from ``start`` up to, not including, ``stop``."""

    start: int
    stop: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] = ()


class Fields(msgspec.Struct, frozen=True, rename="camel"):
    """A value with the same fields as in the manifest."""


class Colocation(Fields, frozen=True):
    """The tasks of ``jobs``, or of all jobs if it is empty, run on nodes with the same value of the label."""

    topology_key: Annotated[str, Meta(min_length=1)]
    when_unsatisfiable: WhenUnsatisfiable = "DoNotSchedule"
    jobs: tuple[str, ...] = ()

    @property
    def may_be_elsewhere(self) -> bool:
        """Whether the scheduler only prefers it."""
        return self.when_unsatisfiable == "ScheduleAnyway"


class Spread(Colocation, frozen=True):
    """A job's tasks are spread over topology domains: their numbers in two domains differ by at most ``max_skew``."""

    max_skew: Annotated[int, Meta(ge=1)] = 1


class DisruptionBudget(Fields, frozen=True):
    """How many tasks, a number or a share, an eviction must leave running; None does not limit evictions."""

    min_available: Share | None = None


class Job(Fields, frozen=True, dict=True):
    """One job: a named role of TensorFlow and its number of tasks; from ``name`` on, the fields are computed."""

    replicas: Count = 1
    max_replicas: Count = 0
    min_replicas: Count | None = None
    port: Port = 0
    filters: tuple[str, ...] = msgspec.field(default=(), name="deviceFilters")
    task_device_filters: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    task_server: bool = False
    restart_policy: RestartPolicy = "OnFailure"
    restart_scope: RestartScope = "Task"
    start_after: tuple[str, ...] = ()
    drain_timeout_seconds: Count = 0
    disruption_budget: DisruptionBudget = DisruptionBudget()
    name: str = ""
    #: It changes exactly when a pod must be replaced.
    template_hash: str = ""
    task_filters: dict[int, tuple[str, ...]] = msgspec.field(default_factory=dict)
    history_limit: int = 1
    #: The additions of its queue; empty without a queue.
    placements: tuple[Placement, ...] = ()
    colocation: Colocation | None = None
    spread: tuple[Spread, ...] = ()

    @property
    def min_available(self) -> int | str | None:
        """How many tasks, a number or a share such as ``50%``, an eviction must leave running; 1 at least."""
        return 1 if self.disruption_budget.min_available == 0 else self.disruption_budget.min_available

    def placement_of(self, index: int) -> Placement | None:
        """Return the nodes that a queue allows for a task; None if it does not restrict them."""
        return next((one for one in self.placements if one.start <= index < one.stop), None)

    def filters_of(self, index: int) -> tuple[str, ...]:
        """Return the device filters of one task; without filters it sees every task."""
        return self.task_filters.get(index, self.filters)

    def of_template(self, field: str) -> str:
        """Return the text of a field in the template's spec, "" if it is missing."""
        return str((self.template.get("spec") or {}).get(field) or "")

    def own_groups(self) -> frozenset[str]:
        """Return the names of the PodGroups, of any scheduler, that the template puts the pods in."""
        return frozenset(group for _, group in groups_of_template(self.template))

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """Count the extended resources that one pod requests: a device plugin grants them whole or not at all."""
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
    """The tasks that must end with exit code 0 for the cluster to succeed."""

    jobs: tuple[str, ...] = ()
    tasks: SuccessTasks = "All"


class RollingUpdate(Fields, frozen=True):
    """How many tasks of a job, a number or a share such as ``25%``, can be down in a rolling update."""

    max_unavailable: Share = 1


class UpdateStrategy(Fields, frozen=True):
    """How an edit of a template replaces pods."""

    type: UpdateType = "OnDelete"
    rolling_update: RollingUpdate = RollingUpdate()

    def within(self, replicas: int) -> int:
        """Return how many tasks of a job can be unavailable in a rolling update."""
        most = self.rolling_update.max_unavailable
        return max(1, most if isinstance(most, int) else replicas * int(most.removesuffix("%")) // 100)


class Isolation(Fields, frozen=True):
    """Which clients can reach the tasks; ``allow_from`` are additional NetworkPolicyPeers."""

    mode: IsolationMode = "None"
    port_scope: PortScope = "Task"
    allow_from: tuple[dict[str, Any], ...] = ()


class Gang(Fields, frozen=True):
    """The tasks that are scheduled together or not at all: of each job the first ``min_replicas``, else all of them."""

    timeout_seconds: Count | None = None
    on_timeout: OnTimeout = "Fail"
    scheduler: GangScheduler = KUBERNETES

    def least(self, job: Job) -> int:
        """Return how many tasks of a job belong to the gang; evaluators do not: no task waits for them."""
        usual = 0 if job.name == EVALUATOR else job.replicas
        return min(job.replicas, usual if job.min_replicas is None else job.min_replicas)


class Resolver(Fields, frozen=True):
    """How the resolver and TF_CONFIG get into the pods."""

    delivery: ResolverDelivery | None = None
    tf_config: TFConfigDelivery = "None"


class Scheduling(Fields, frozen=True):
    """How tasks are placed together."""

    gang: Gang | None = None
    colocate: Colocation | None = None
    spread: tuple[Spread, ...] = ()


class Spec(Fields, frozen=True):
    """``spec`` as the user wrote it, without its jobs; times are seconds, and None means no limit."""

    jobs: dict[str, Any] = msgspec.field(default_factory=dict)
    port: Port = DEFAULT_PORT
    rpc_layer: str = "grpc"
    cluster_domain: str = ""
    suspend: bool = False
    backoff_limit: Count | None = None
    active_deadline_seconds: Count | None = None
    clean_pod_policy: CleanPodPolicy = "Running"
    ttl_seconds_after_finished: Count | None = None
    force_delete_after_seconds: Count | None = None
    failed_pods_history_limit: Annotated[int, Meta(ge=0, le=MOST_KEPT)] = 1
    success_policy: SuccessPolicy = SuccessPolicy()
    update_strategy: UpdateStrategy = UpdateStrategy()
    resolver: Resolver = Resolver()
    isolation: Isolation = Isolation()
    scheduling: Scheduling = Scheduling()


@dataclass(frozen=True, slots=True)
class TFCluster:
    """One TFCluster: identity, declaration with what the operator adds, and the status that it had when it was read."""

    name: str
    namespace: str
    uid: str
    generation: int
    deleting: bool
    suspend: bool
    jobs: tuple[Job, ...]
    spec: Spec = field(default_factory=Spec)
    status: Mapping[str, Any] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    success_policy: SuccessPolicy = field(default_factory=SuccessPolicy)
    #: Whether the pods get the resolver.
    inject: bool = True
    isolation: Isolation = field(default_factory=Isolation)
    gang: Gang | None = None
    queue: str = ""
    priority_class: str = ""
    #: Why the operator has suspended it though the user has not, or "".
    gave_up: str = ""
    #: The spec that it was parsed from.
    raw: Any = field(default=None, compare=False, repr=False)

    @property
    def edition(self) -> int:
        """The number of the membership: it grows with each edit, and with each change by the queue."""
        return self.generation + self.ledger.regrants

    @property
    def sets_tf_config(self) -> bool:
        """Whether the main containers get TF_CONFIG."""
        return self.spec.resolver.tf_config != "None"

    def chosen_scheduler(self, job: Job) -> str:
        """Return the scheduler that the operator chooses for a job's pods; "" if the template or Kubernetes does."""
        if self.gang is None or job.of_template("schedulerName"):
            return ""
        return self.gang.scheduler.name

    def job(self, name: str) -> Job | None:
        """Return the job of this name."""
        for job in self.jobs:
            if job.name == name:
                return job
        return None

    def colocated(self, job: Job) -> dict[str, str]:
        """Return the label that the pods of a job share with those of colocated jobs; empty without a colocation."""
        # Pods that were placed before an edit, or for an earlier cluster of the name, do not attract later ones.
        if job.colocation is None:
            return {}
        made_of = [self.uid, job.colocation.topology_key, job.colocation.when_unsatisfiable]
        return {naming.LABEL_COLOCATED: naming.digest(json.dumps(made_of))}

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
            cluster_domain=self.spec.cluster_domain,
        )


# Device filters.  The grammar is the canonical form of TensorFlow's (DeviceNameUtils::ParseFullName), with each part at
# most once and in this order: ``/job:J/replica:0/task:N/device:T:N``.  TensorFlow matches field by field; a task is
# visible when one of its devices can match, so the device part never hides a task from a view.
_CANONICAL: Final = re.compile(
    r"(?=/)(?:/job:(?P<job>[a-z][a-z0-9_]*))?(?:/replica:0)?(?:/task:(?P<task>0|[1-9][0-9]*))?"
    r"(?:/device:[A-Za-z][A-Za-z0-9_]*(?::(?:0|[1-9][0-9]*))?|/(?:cpu|gpu|CPU|GPU):(?:0|[1-9][0-9]*))?"
)


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """The parts of a filter that decide which tasks it shows; None matches every job or every index."""

    job: str | None
    task: int | None


@lru_cache(maxsize=1024)
def parse_filter(text: str) -> DeviceFilter | None:
    """Parse one device filter."""
    match = _CANONICAL.fullmatch(text)
    if match is None:
        return None
    return DeviceFilter(job=match["job"], task=None if match["task"] is None else int(match["task"]))


@dataclass(frozen=True, slots=True)
class Visible:
    """The tasks of one job that some filters show: all of them, or these indices."""

    everything: bool
    indices: frozenset[int]

    def within(self, count: int) -> tuple[int, ...]:
        """Return the visible indices below ``count``, ascending."""
        return tuple(range(count)) if self.everything else tuple(sorted(i for i in self.indices if i < count))

    def count(self, below: int) -> int:
        """Return how many indices below this one are visible."""
        return below if self.everything else sum(index < below for index in self.indices)


@lru_cache(maxsize=1024)
def seen_with(texts: tuple[str, ...], job: str) -> Visible:
    """Return which other tasks of a job a task with these device filters sees."""
    if not texts:
        return Visible(everything=True, indices=frozenset())
    matching = [f for f in map(parse_filter, texts) if f is not None and f.job in (None, job)]
    return Visible(
        everything=any(f.task is None for f in matching),
        indices=frozenset(f.task for f in matching if f.task is not None),
    )


def main_container(template: Mapping[str, Any]) -> str:
    """Return the name of the container whose end is the task's end: the one named tensorflow, else the first."""
    names = [str(one.get("name", "")) for one in (template.get("spec") or {}).get("containers") or ()]
    return choose_main(names)


def choose_main(names: Sequence[str]) -> str:
    """Choose the container whose end is the task's end among a pod's container names, in order; "" if empty."""
    return MAIN_CONTAINER if MAIN_CONTAINER in names else next(iter(names), "")


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
