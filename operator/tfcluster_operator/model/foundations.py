"""The objects that must be there before a pod: the Service, the NetworkPolicies, the ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

from tfcluster_operator.model import drift, naming, reasons, views
from tfcluster_operator.model.actions import (
    CreateConfigMap,
    CreateDisruptionBudget,
    CreateNetworkPolicy,
    CreatePodGroup,
    CreateResolver,
    CreateService,
    Delete,
    Finding,
    Gate,
    Kind,
    Patch,
)
from tfcluster_operator.model.budgets import budgets_of
from tfcluster_operator.model.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.model.gangs import Gang
from tfcluster_operator.model.observed import (
    ObservedConfigMap,
    ObservedDisruptionBudget,
    ObservedNetworkPolicy,
    ObservedPodGroup,
    ObservedService,
    ObservedWorkload,
)
from tfcluster_operator.model.roster import Holder, Holding, Roster
from tfcluster_operator.model.story import (
    ISOLATION,
    RESOLVER,
    SERVICE,
    Story,
    gang_gate,
    object_gate,
    tf_config_gate,
    views_gate,
)
from tfcluster_operator.model.tf_config import LARGEST_TF_CONFIG


def plan_service(roster: Roster, story: Story) -> None:
    """Create the headless Service, or put it right."""
    held = roster.service
    if held.holder is Holder.NOBODY:
        story.do("publish", CreateService(held.name, reasons.CREATED), gate=SERVICE)
    elif (service := held.own) is None:
        story.close(SERVICE, obstacle_of("Service", held))
    elif drift.service_is_beyond_repair(service):
        story.close(SERVICE, _recreated("Service", held.name))
        delete = Delete("Service", held.name, service.meta.uid, reasons.RECREATED)
        story.do("publish", delete, gate=object_gate("Service", held.name))
    elif change := drift.service_change(roster.cluster, service):
        patch = Patch("Service", held.name, service.meta.uid, change, reasons.REPAIRED)
        story.do("publish", patch, gate=object_gate("Service", held.name))


def plan_policies(roster: Roster, story: Story) -> None:
    """Create the NetworkPolicies of the isolation, or put them right, and delete those that it needs no more.

    What takes a running task from under a policy waits until all others are there: it would be open to everybody.
    """
    for wanted, held in roster.policies:
        if held.holder is Holder.NOBODY:
            story.do("publish", CreateNetworkPolicy(wanted, reasons.CREATED), gate=ISOLATION)
        elif (existing := held.own) is None:
            story.close(ISOLATION, obstacle_of("NetworkPolicy", held))
        elif change := drift.network_policy_change(roster.cluster, wanted, existing):
            reason = reasons.ISOLATION_CHANGED if "spec" in change else reasons.REPAIRED
            patch = Patch("NetworkPolicy", held.name, existing.meta.uid, change, reason)
            gate = policy_gate(held.name)
            if existing.pod_selector == wanted.spec["podSelector"]:
                story.do("publish", patch, gate=gate)
            else:
                story.do("tell", patch, gate=gate, needs=(ISOLATION,))
    settled = (ISOLATION, *map(policy_gate, roster.unsettled))
    for one in roster.unneeded_policies:
        if not _still_protects(roster, one):
            delete = Delete("NetworkPolicy", one.meta.name, one.meta.uid, reasons.UNUSED)
            story.do("free", delete, gate=policy_gate(one.meta.name), needs=settled)


def policy_gate(name: str) -> Gate:
    """Name what is closed while a NetworkPolicy is not as it should be."""
    return object_gate("NetworkPolicy", name)


def _still_protects(roster: Roster, policy: ObservedNetworkPolicy) -> bool:
    """Tell whether a pod of a job that is declared no more is there still, and the policy is that job's."""
    job = policy.meta.labels.get(naming.LABEL_JOB, "")
    if not job or roster.cluster.job(job) is not None or roster.cluster.isolation.mode == "None":
        return False
    return any(pod.meta.labels.get(naming.LABEL_JOB) == job for pod in (*roster.surplus, *roster.leaving))


def plan_budgets(roster: Roster, story: Story) -> None:
    """Create the PodDisruptionBudgets that jobs declare, or put them right, and delete those that none declares.

    No pod waits for one: what it keeps away comes later than the pods.
    """
    for wanted in budgets_of(roster):
        held = roster.budgets[wanted.job]
        gate = object_gate("PodDisruptionBudget", held.name)
        if held.holder is Holder.NOBODY:
            story.do("publish", CreateDisruptionBudget(wanted, reasons.CREATED), gate=gate)
        elif (existing := held.own) is None:
            story.close(gate, obstacle_of("PodDisruptionBudget", held))
        elif change := drift.disruption_budget_change(roster.cluster, wanted, existing):
            reason = reasons.BUDGET_CHANGED if "spec" in change else reasons.REPAIRED
            patch = Patch("PodDisruptionBudget", held.name, existing.meta.uid, change, reason)
            story.do("publish", patch, gate=gate)
    _free_budgets(roster.unneeded_budgets, story)


def lift_budgets(roster: Roster, story: Story) -> None:
    """Delete every PodDisruptionBudget of a cluster that has finished: a pod that is left there holds up no drain."""
    held = (one.own for one in roster.budgets.values())
    _free_budgets([*(one for one in held if one is not None), *roster.unneeded_budgets], story)


def _free_budgets(budgets: Iterable[ObservedDisruptionBudget], story: Story) -> None:
    for one in budgets:
        delete = Delete("PodDisruptionBudget", one.meta.name, one.meta.uid, reasons.UNUSED)
        story.do("free", delete, gate=object_gate("PodDisruptionBudget", one.meta.name))


def plan_gangs(roster: Roster, gangs: Mapping[str, Gang], story: Story) -> None:
    """Create the PodGroup of each gang that has no places yet, or put it right, and delete those of earlier starts."""
    for gang in gangs.values():
        if roster.no_groups:
            if not gang.placed:
                story.close(gang_gate(gang.name), _no_gangs(_scheduler_of(roster), roster.no_groups))
                story.wake_after.append(_LOOK_FOR_GROUPS_AGAIN)
            continue
        _plan_group(roster, gang, story)
        if gang.trouble:
            story.wait(_waits_for_places(gang, _scheduler_of(roster)))
    for name, held in roster.groups.items():
        if name not in gangs and (one := held.own) is not None:
            delete = Delete("PodGroup", name, one.meta.uid, reasons.UNUSED)
            story.do("free", delete, gate=object_gate("PodGroup", name))


#: How soon (seconds) a gang is looked at again that the API server does not serve.
_LOOK_FOR_GROUPS_AGAIN: Final = 20.0


def _plan_group(roster: Roster, gang: Gang, story: Story) -> None:
    gate, held = gang_gate(gang.name), roster.groups.get(gang.name)
    if held is None:
        if not gang.placed:
            create = CreatePodGroup(gang.name, gang.job, gang.min_count, gang.priority_class, reasons.CREATED)
            story.do("publish", create, gate=gate)
    elif (existing := held.own) is None:
        if not gang.placed:
            story.close(gate, obstacle_of("PodGroup", held))
    elif not gang.placed and drift.has_another_priority(gang, existing):
        story.close(gate, _recreated("PodGroup", gang.name))
        delete = Delete("PodGroup", gang.name, existing.meta.uid, reasons.RECREATED)
        story.do("publish", delete, gate=object_gate("PodGroup", gang.name))
    elif change := drift.pod_group_change(roster.cluster, gang, existing):
        reason = reasons.GANG_CHANGED if "spec" in change else reasons.REPAIRED
        patch = Patch("PodGroup", gang.name, existing.meta.uid, change, reason)
        story.do("publish", patch, gate=object_gate("PodGroup", gang.name))


def _scheduler_of(roster: Roster) -> GangScheduler:
    gang = roster.cluster.gang
    return KUBERNETES if gang is None else gang.scheduler


def _no_gangs(scheduler: GangScheduler, why: str) -> Finding:
    message = (
        f"spec.scheduling.gang needs PodGroups of {scheduler.api}, which the API server does not serve ({why}): "
        f"{scheduler.remedy}, or remove spec.scheduling.gang"
    )
    return Finding(reasons.GANG_UNAVAILABLE, message)


def _waits_for_places(gang: Gang, scheduler: GangScheduler) -> Finding:
    asked = ", ".join(f"{count} {resource}" for resource, count in sorted(gang.resources().items()))
    wants = f", which ask for {asked}" if asked else ""
    tasks = f"{len(gang.members)} tasks" if len(gang.members) > 1 else "1 task"
    by = f" (scheduler {scheduler.name})" if scheduler.name else ""
    message = f"gang {gang.name}{by} waits for room for {tasks} at once{wants}: {gang.trouble}"
    return Finding(reasons.WAITING_FOR_GANG, message)


def plan_config_map(roster: Roster, wanted: views.JobViews, story: Story) -> None:
    """Create the ConfigMap of one job's views, or publish what changed in them."""
    held, gate = roster.views[wanted.job.name], views_gate(wanted.job.name)
    if wanted.too_large:
        story.close(gate, _too_large(wanted))
    elif held.holder is Holder.NOBODY:
        story.do("publish", CreateConfigMap(wanted, reasons.CREATED), gate=gate)
    elif (existing := held.own) is None:
        story.close(gate, obstacle_of("ConfigMap", held))
    elif change := drift.config_map_change(roster.cluster, wanted, existing):
        if existing.immutable:
            story.close(gate, _recreated("ConfigMap", held.name))
            delete = Delete("ConfigMap", held.name, existing.meta.uid, reasons.RECREATED)
            story.do("publish", delete, gate=object_gate("ConfigMap", held.name))
        else:
            reason = _why_published(wanted, existing, change)
            story.do("publish", Patch("ConfigMap", held.name, existing.meta.uid, change, reason), gate=gate)


def _why_published(wanted: views.JobViews, existing: ObservedConfigMap, change: Mapping[str, Any]) -> str:
    if "data" not in change:
        return reasons.REPAIRED
    was, will = ({name: of.lasting for name, of in files.items()} for files in (existing.files, wanted.says()))
    return reasons.VIEW_REFRESHED if was == will else reasons.VIEW_CHANGED


def plan_tf_config(wanted: views.JobViews, story: Story) -> None:
    """Hold up new pods of a job whose TF_CONFIG no program could be started with."""
    if wanted.tf_config_size > LARGEST_TF_CONFIG:
        story.close(tf_config_gate(wanted.job.name), _tf_config_too_large(wanted))


def plan_resolver(roster: Roster, story: Story) -> None:
    """Create the ConfigMap that delivers the resolver, where a pod mounts it or is to be created that does.

    An operator of another version brings another one, and a full quota of ConfigMaps must not stop what runs.  Who made
    it does not matter: with the right bytes only its labels can be wrong, and with others it is no copy of ours, which
    no pod may mount and which is not ours to delete.
    """
    held = roster.resolver
    if held is None:
        return
    if (existing := held.own) is not None:
        if change := drift.resolver_change(existing):
            patch = Patch("ConfigMap", held.name, existing.meta.uid, change, reasons.REPAIRED)
            story.do("publish", patch, gate=object_gate("ConfigMap", held.name))
        return
    mounted = held.name in roster.mounted
    if not mounted and not story.creates_pods:
        return
    if held.holder is Holder.NOBODY:
        reason = reasons.REPAIRED if mounted else reasons.CREATED
        story.do("publish", CreateResolver(held.name, reason), gate=RESOLVER)
    elif held.holder is Holder.FOREIGN:
        story.close(RESOLVER, _untrusted(held.name))
    else:
        story.close(RESOLVER, obstacle_of("ConfigMap", held))


def plan_surplus_objects(roster: Roster, story: Story) -> None:
    """Delete what is no longer needed."""
    for one in roster.unneeded:
        _free("Service" if isinstance(one, ObservedService) else "ConfigMap", one, reasons.JOB_REMOVED, story)


def _free(kind: Kind, one: ObservedService | ObservedConfigMap, reason: str, story: Story) -> None:
    delete = Delete(kind, one.meta.name, one.meta.uid, reason)
    story.do("free", delete, gate=object_gate(kind, one.meta.name))


def obstacle_of(
    kind: str,
    held: Holding[ObservedService]
    | Holding[ObservedConfigMap]
    | Holding[ObservedNetworkPolicy]
    | Holding[ObservedDisruptionBudget]
    | Holding[ObservedPodGroup]
    | Holding[ObservedWorkload],
) -> Finding:
    """Say why a name that we need is not ours to use."""
    return obstacle(kind, held.name, held.holder, () if held.object is None else held.object.meta.finalizers)


def obstacle(kind: str, name: str, holder: Holder, finalizers: tuple[str, ...] = ()) -> Finding:
    """Say why a name that we need is not ours to use."""
    match holder:
        case Holder.OURS | Holder.LEAVING | Holder.NOBODY:
            kept = f"; its finalizers keep it: {', '.join(finalizers)}" if finalizers else ""
            message = f"{kind} {name} is being deleted and is created again when it is gone{kept}"
            return Finding(reasons.TASKS_NOT_READY, message)
        case Holder.PREDECESSOR:
            message = f"{kind} {name} belongs to a deleted TFCluster of the same name and is not gone yet"
            return Finding(reasons.WAITING_FOR_PREDECESSOR, message)
        case Holder.FOREIGN:
            message = (
                f"{kind} {name} exists and is not controlled by this TFCluster: "
                "delete or rename it, or give the TFCluster another name"
            )
            return Finding(reasons.NAME_TAKEN, message)
        case _:
            assert_never(holder)


def _untrusted(name: str) -> Finding:
    message = (
        f"ConfigMap {name} does not hold the resolver that its name promises, so no pod is made that mounts it: find "
        "out who made it, and delete it; the operator then makes the right one"
    )
    return Finding(reasons.RESOLVER_UNTRUSTED, message)


def _recreated(kind: str, name: str) -> Finding:
    message = f"{kind} {name} cannot be changed in place: it is deleted and created again"
    return Finding(reasons.TASKS_NOT_READY, message)


def _tf_config_too_large(wanted: views.JobViews) -> Finding:
    return Finding(
        reasons.TF_CONFIG_TOO_LARGE,
        f"the TF_CONFIG of job {wanted.job.name} takes {wanted.tf_config_size} bytes, more than the "
        f"{LARGEST_TF_CONFIG} that an environment variable holds: declare device filters, or fewer tasks, or shorter "
        "names, or set spec.resolver.tfConfig to None",
    )


def _too_large(wanted: views.JobViews) -> Finding:
    return Finding(
        reasons.VIEW_TOO_LARGE,
        f"the views of job {wanted.job.name} take {wanted.size} bytes, more than the "
        f"{views.LARGEST_CONFIG_MAP} that a ConfigMap holds: declare device filters, or fewer tasks",
    )
