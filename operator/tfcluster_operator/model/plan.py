"""The planner: from what is declared and what exists to what to do.

It reads as a story.  First the Service and the ConfigMaps, so that a pod starts with a name and a view.  Then the pods:
each task's pod is judged by a chain of small policies, the first that has something to say decides.  Survivors are told
of a changed view before any pod goes.  Last, what is no longer declared is deleted, highest index first.

Nothing is remembered between two plans: carried out in part, in another order or twice, the next plan does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tfcluster_operator.model import drift, naming, reasons, views
from tfcluster_operator.model.actions import (
    Action,
    CreateConfigMap,
    CreatePod,
    CreateService,
    Delete,
    Finding,
    Patch,
    Plan,
)
from tfcluster_operator.model.observed import Child, Observed, ObservedPod
from tfcluster_operator.model.spec import Task, TFCluster

#: Seconds before a failed pod is replaced for the first time; it doubles with each failure in a row.
FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 300.0
#: A pod that ran this long (seconds) before it failed starts the count of failures in a row anew.
FORGIVEN_AFTER: Final = 600.0


def plan(cluster: TFCluster, observed: Observed, now: float) -> Plan:
    """Decide what to do for one cluster.

    Args:
        cluster: the declaration.
        observed: everything that exists under its names or its control.
        now: the time, in seconds since the epoch.

    Returns:
        The plan: empty stages when all is as declared.
    """
    wanted = views.views_of(cluster, observed)
    if oversized := tuple(_oversized(wanted)):
        return Plan(stages=(), findings=oversized, views=wanted)
    foundations = _Story()
    _plan_service(cluster, observed, foundations)
    for job_views in wanted:
        _plan_config_map(cluster, job_views, observed, foundations)
    pods = _Story()
    if not cluster.suspend and not foundations.blocked:
        for job_views in wanted:
            for index in range(job_views.job.replicas):
                _plan_pod(cluster, Task(job_views.job, index), job_views.digest_for(index), observed, now, pods)
    return Plan(
        stages=tuple(
            stage
            for stage in (
                tuple(foundations.actions),
                tuple(pods.actions),
                tuple(_surplus_pods(cluster, observed)) if cluster.suspend or not foundations.blocked else (),
                tuple(_surplus_foundations(cluster, wanted, observed)),
            )
            if stage
        ),
        findings=(*foundations.findings, *pods.findings),
        wake_after=min(pods.wake_after, default=None),
        views=wanted,
    )


class _Story:
    """What the steps of one plan have decided so far."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.findings: list[Finding] = []
        self.wake_after: list[float] = []
        self.blocked = False

    def wait(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.blocked = True


# --- the foundations: Service and ConfigMaps


def _oversized(wanted: tuple[views.JobViews, ...]) -> Iterator[Finding]:
    for job_views in wanted:
        if job_views.size > views.LARGEST_CONFIG_MAP:
            yield Finding(
                reasons.VIEW_TOO_LARGE,
                f"the views of job {job_views.job.name} take {job_views.size} bytes, more than the "
                f"{views.LARGEST_CONFIG_MAP} that a ConfigMap holds: declare device filters, or fewer tasks",
            )


def _plan_service(cluster: TFCluster, observed: Observed, story: _Story) -> None:
    name = naming.service_name(cluster.name)
    service = observed.services.get(name)
    if service is None:
        story.actions.append(CreateService(name, reasons.CREATED))
    elif obstacle := _obstacle(cluster, "Service", service):
        story.wait(obstacle)
    elif drift.service_is_beyond_repair(service):
        story.actions.append(Delete("Service", name, service.meta.uid, reasons.MADE_ANEW))
        story.blocked = True
    elif change := drift.service_change(cluster, service):
        story.actions.append(Patch("Service", name, service.meta.uid, change, reasons.REPAIRED))


def _plan_config_map(cluster: TFCluster, wanted: views.JobViews, observed: Observed, story: _Story) -> None:
    existing = observed.config_maps.get(wanted.name)
    if existing is None:
        story.actions.append(CreateConfigMap(wanted, reasons.CREATED))
    elif obstacle := _obstacle(cluster, "ConfigMap", existing):
        story.wait(obstacle)
    elif change := drift.config_map_change(cluster, wanted, existing):
        if existing.immutable:
            story.actions.append(Delete("ConfigMap", wanted.name, existing.meta.uid, reasons.MADE_ANEW))
            story.blocked = True
        else:
            reason = reasons.VIEW_CHANGED if "data" in change else reasons.REPAIRED
            story.actions.append(Patch("ConfigMap", wanted.name, existing.meta.uid, change, reason))


def _obstacle(cluster: TFCluster, kind: str, existing: Child) -> Finding | None:
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


# --- the pods


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is to be done about one existing pod: an action, or a wait with a finding, or neither."""

    action: Action | None = None
    finding: Finding | None = None
    wake_after: float | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    cluster: TFCluster
    task: Task
    pod: ObservedPod
    view_digest: str
    now: float


def _plan_pod(  # noqa: PLR0917 - the six are one case; a class for them would be read once
    cluster: TFCluster, task: Task, view_digest: str, observed: Observed, now: float, story: _Story
) -> None:
    name = naming.pod_name(cluster.name, task.job.name, task.index)
    pod = observed.pods.get(name)
    if pod is None:
        story.actions.append(CreatePod(task, name, view_digest, attempt=0, reason=reasons.CREATED))
        return
    case = _Case(cluster, task, pod, view_digest, now)
    verdict = next((v for policy in _POD_POLICIES if (v := policy(case)) is not None), _Verdict())
    if verdict.action is not None:
        story.actions.append(verdict.action)
    if verdict.finding is not None:
        story.findings.append(verdict.finding)
    if verdict.wake_after is not None:
        story.wake_after.append(verdict.wake_after)


def _leave_what_is_not_ours(case: _Case) -> _Verdict | None:
    obstacle = None if case.pod.meta.terminating else _obstacle(case.cluster, "Pod", case.pod)
    if case.pod.meta.owner_uid != case.cluster.uid and obstacle is None:
        obstacle = Finding(
            reasons.WAITING_FOR_PREDECESSOR,
            f"Pod {case.pod.meta.name} is not of this TFCluster and still terminates; its name is needed",
        )
    return None if obstacle is None else _Verdict(finding=obstacle)


def _await_the_end_of_a_terminating_pod(case: _Case) -> _Verdict | None:
    return _Verdict() if case.pod.meta.terminating else None


def _replace_a_pod_of_an_old_template(case: _Case) -> _Verdict | None:
    if case.pod.meta.annotations.get(naming.ANNOTATION_TEMPLATE_HASH) == case.task.job.template_hash:
        return None
    return _Verdict(Delete("Pod", case.pod.meta.name, case.pod.meta.uid, reasons.TEMPLATE_CHANGED))


def _replace_an_edited_pod(case: _Case) -> _Verdict | None:
    if drift.edited_image(case.task.job, case.pod) is None:
        return None
    return _Verdict(Delete("Pod", case.pod.meta.name, case.pod.meta.uid, reasons.POD_EDITED))


def _replace_a_failed_pod(case: _Case) -> _Verdict | None:
    pod = case.pod
    if pod.phase != "Failed":
        return None
    lasted = pod.finished_at - pod.started_at if pod.started_at and pod.finished_at else 0.0
    attempt = 0 if lasted >= FORGIVEN_AFTER else pod.attempt
    delay = 0.0 if pod.disrupted else min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 30))
    remaining = pod.finished_at + delay - case.now
    if remaining > 0:
        return _Verdict(
            finding=Finding(
                reasons.REPLACING_FAILED_POD,
                f"{case.task} failed ({pod.reason or 'no reason given'}): it is replaced {delay:.0f} s after its end",
            ),
            wake_after=remaining,
        )
    reason = reasons.POD_DISRUPTED if pod.disrupted else reasons.POD_FAILED
    following = attempt if pod.disrupted else attempt + 1
    return _Verdict(CreatePod(case.task, pod.meta.name, case.view_digest, following, reason, replaces=pod.meta.uid))


def _tell_and_relabel(case: _Case) -> _Verdict | None:
    change = drift.pod_change(case.cluster, case.task, case.pod, view_digest=case.view_digest)
    if change is None:
        return None
    reason = reasons.VIEW_CHANGED if "annotations" in change["metadata"] else reasons.REPAIRED
    return _Verdict(Patch("Pod", case.pod.meta.name, case.pod.meta.uid, change, reason))


_POD_POLICIES: Final[tuple[Callable[[_Case], _Verdict | None], ...]] = (
    _leave_what_is_not_ours,
    _await_the_end_of_a_terminating_pod,
    _replace_a_pod_of_an_old_template,
    _replace_an_edited_pod,
    _replace_a_failed_pod,
    _tell_and_relabel,
)


# --- what is no longer declared


def _surplus_pods(cluster: TFCluster, observed: Observed) -> Iterator[Delete]:
    declared = (
        set() if cluster.suspend else {naming.pod_name(cluster.name, t.job.name, t.index) for t in cluster.tasks()}
    )
    jobs = {job.name for job in cluster.jobs}
    surplus = [
        pod
        for name, pod in observed.pods.items()
        if name not in declared and pod.meta.owner_uid == cluster.uid and not pod.meta.terminating
    ]
    for pod in sorted(surplus, key=_index_of, reverse=True):
        job = pod.meta.labels.get(naming.LABEL_JOB)
        undeclared = reasons.SCALED_DOWN if job in jobs else reasons.JOB_REMOVED
        yield Delete("Pod", pod.meta.name, pod.meta.uid, reasons.SUSPENDED if cluster.suspend else undeclared)


def _index_of(pod: ObservedPod) -> int:
    index = pod.meta.name.rpartition("-")[2]
    return int(index) if index.isascii() and index.isdigit() else 0


def _surplus_foundations(
    cluster: TFCluster, wanted: tuple[views.JobViews, ...], observed: Observed
) -> Iterator[Delete]:
    names = {job_views.name for job_views in wanted}
    for name, config_map in observed.config_maps.items():
        if name not in names and config_map.meta.owner_uid == cluster.uid and not config_map.meta.terminating:
            yield Delete("ConfigMap", name, config_map.meta.uid, reasons.JOB_REMOVED)
    for name, service in observed.services.items():
        if name == naming.service_name(cluster.name) or service.meta.owner_uid != cluster.uid:
            continue
        if not service.meta.terminating:
            yield Delete("Service", name, service.meta.uid, reasons.JOB_REMOVED)
