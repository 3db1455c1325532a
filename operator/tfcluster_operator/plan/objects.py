"""The objects of a cluster other than pods: created, corrected, and deleted when they are no longer needed."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, assert_never

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES, GangScheduler
from tfcluster_operator.life import views
from tfcluster_operator.life.gangs import Gang
from tfcluster_operator.life.roster import Holder, Holding, Roster
from tfcluster_operator.objects import config_map, network_policy, pod_group
from tfcluster_operator.objects.base import Facts
from tfcluster_operator.objects.config_map import ConfigMap, lasting
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.network_policy import NetworkPolicy
from tfcluster_operator.objects.pod_group import PodGroup
from tfcluster_operator.plan.actions import Build, Create, Finding, Gate, Patch
from tfcluster_operator.plan.story import ISOLATION, RESOLVER, Story, gate_of

#: Seconds until the operator checks again for a PodGroup API that the API server does not serve.
_LOOK_FOR_GROUPS_AGAIN: Final = 20.0


def plan_kinds(roster: Roster, story: Story, *, finished: bool) -> None:
    """Create, correct or delete the objects of the kinds whose row in the table says what a cluster needs."""
    facts = Facts(roster.cluster, lambda job: sum(1 for _ in roster.open(job)), finished)
    for kind in KINDS.values():
        if kind.wanted is None:
            continue
        wanted = {one.name: one for one in kind.wanted(facts)}
        for one in () if finished else wanted.values():
            held = roster.held(kind.child, one.name)
            change, unfit = (one.change(held.own), one.unfit(held.own)) if held.own else (None, False)
            gate = kind.gate or gate_of(kind.name, one.name)
            _plan(held, one.build, change, story, gate=gate, unfit=unfit, changed=kind.edited)
        for other in roster.ours(kind.child):
            if other.meta.name not in wanted:
                story.delete(other, reasons.UNUSED)


def plan_policies(roster: Roster, story: Story) -> None:
    """Create the NetworkPolicies of the isolation, or correct them, and delete those that it no longer needs."""
    # A change that removes a running task's policy waits until all others exist: any pod could connect otherwise.
    cluster = roster.cluster
    for wanted in roster.policies:
        held = roster.held(NetworkPolicy, wanted.name)
        change = network_policy.change(cluster, wanted, held.own) if held.own else None
        build = partial(network_policy.build, cluster, wanted)
        moves = held.own is not None and held.own.pod_selector != wanted.spec["podSelector"]
        needs = (ISOLATION,) if moves else ()
        _plan(held, build, change, story, gate=ISOLATION, changed=reasons.ISOLATION_CHANGED, needs=needs)
    settled = (ISOLATION, *map(policy_gate, roster.unsettled))
    wanted_names = {one.name for one in roster.policies}
    for one in roster.ours(NetworkPolicy):
        if one.meta.name not in wanted_names and not _still_protects(roster, one):
            story.delete(one, reasons.UNUSED, needs=settled)


def policy_gate(name: str) -> Gate:
    """Return the gate that is closed while a NetworkPolicy does not exist or differs."""
    return gate_of(NetworkPolicy.KIND, name)


def _still_protects(roster: Roster, policy: NetworkPolicy) -> bool:
    """Return whether the policy is that of a removed job whose pods still exist."""
    job = policy.meta.labels.get(naming.LABEL_JOB, "")
    if not job or roster.cluster.job(job) is not None or roster.cluster.isolation.mode == "None":
        return False
    return any(pod.meta.labels.get(naming.LABEL_JOB) == job for pod in (*roster.surplus, *roster.leaving))


def plan_gangs(roster: Roster, gangs: Mapping[str, Gang], story: Story) -> None:
    """Create or correct the PodGroup of each gang that is not scheduled yet, and delete those of earlier starts."""
    lacking = roster.observed.lacking.get(PodGroup.KIND, "")
    for gang in gangs.values():
        if lacking:
            if not gang.placed:
                story.close(gate_of("gang", gang.name), _no_gangs(_scheduler_of(roster), lacking))
                story.wake_after.append(_LOOK_FOR_GROUPS_AGAIN)
            continue
        _plan_group(roster, gang, story)
        if gang.trouble:
            story.wait(_waits_for_places(gang, _scheduler_of(roster)))
    for one in roster.ours(PodGroup):
        if one.meta.name not in gangs:
            story.delete(one, reasons.UNUSED)


def _plan_group(roster: Roster, gang: Gang, story: Story) -> None:
    held, change, unfit = roster.held(PodGroup, gang.name), None, False
    if held.own is None and gang.placed:
        return
    if held.own is not None:
        unfit = not gang.placed and pod_group.is_unfit(gang.priority_class, gang.topology, held.own)
        change = pod_group.change(
            roster.cluster,
            held.own,
            job=gang.job,
            min_count=gang.min_count,
            placed=gang.placed,
            begun=gang.begun,
        )
    about = gang.name, gang.job, gang.min_count, gang.priority_class, gang.topology
    build = partial(pod_group.build, roster.cluster, *about)
    _plan(held, build, change, story, gate=gate_of("gang", gang.name), unfit=unfit, changed=reasons.GANG_CHANGED)


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
    wants = f" with {asked}" if asked else ""
    tasks = f"{len(gang.members)} tasks" if len(gang.members) > 1 else "1 task"
    by = f" (scheduler {scheduler.name})" if scheduler.name else ""
    message = f"gang {gang.name}{by} waits until {tasks} can be scheduled together{wants}: {gang.trouble}"
    return Finding(reasons.WAITING_FOR_GANG, message)


def plan_config_map(roster: Roster, wanted: views.JobViews, story: Story) -> None:
    """Create the ConfigMap of one job's views, or publish changes to them."""
    held, gate, job = roster.views(wanted.job), gate_of("views", wanted.job.name), wanted.job.name
    if wanted.too_large:
        message = (
            f"the views of job {job} take {wanted.size} bytes, more than the {views.LARGEST_CONFIG_MAP} that a "
            "ConfigMap holds: declare device filters, or fewer tasks"
        )
        story.close(gate, Finding(reasons.VIEW_TOO_LARGE, message))
        return
    change = config_map.change(roster.cluster, job, wanted.files, held.own) if held.own else None
    build = partial(config_map.build, roster.cluster, job, wanted.files)
    if held.own is None or change is None or held.own.immutable:
        unfit = held.own is not None and change is not None
        _plan(held, build, None, story, gate=gate, unfit=unfit)
        return
    reason = _why_published(wanted, held.own, change)
    story.do("publish", Patch(held.kind, held.name, held.own.meta.uid, change, reason), gate=gate)


def _why_published(wanted: views.JobViews, existing: ConfigMap, change: Mapping[str, Any]) -> str:
    if "data" not in change:
        return reasons.REPAIRED
    was = {name: lasting(file.told) for name, file in existing.files.items()}
    will = {name: lasting(file.says.told) for name, file in wanted.files.items()}
    return reasons.VIEW_REFRESHED if was == will else reasons.VIEW_CHANGED


def plan_resolver(roster: Roster, story: Story) -> None:
    """Create the resolver's ConfigMap, if a pod mounts it or a pod that will mount it is to be created."""
    # A full ConfigMap quota must not stop running tasks.  Its creator is not checked: with the right content only its
    # labels can be wrong; with other content it is not ours to delete, and pods cannot mount it.
    held = roster.copy
    if held is None:
        return
    mounted = held.name in roster.mounted
    if held.own is None and not mounted and not story.creates_pods:
        return
    if held.holder is Holder.FOREIGN:
        story.close(RESOLVER, untrusted(held.name))
        return
    change = config_map.change_of_copy(held.own) if held.own else None
    _plan(held, None, change, story, gate=RESOLVER, created=reasons.REPAIRED if mounted else reasons.CREATED)


def untrusted(name: str) -> Finding:
    """Return why the resolver's ConfigMap of this name cannot be used."""
    message = (
        f"ConfigMap {name} does not contain the resolver that its name promises, so no pod that mounts it is "
        "created: find out who created it, and delete it; the operator then creates the right one"
    )
    return Finding(reasons.RESOLVER_UNTRUSTED, message)


def plan_surplus_views(roster: Roster, story: Story) -> None:
    """Delete the ConfigMaps that no declared job needs."""
    needed = {naming.view_name(roster.cluster.name, job.name) for job in roster.cluster.jobs}
    for one in roster.ours(ConfigMap):
        # All clusters share this ConfigMap: a TFCluster does not delete it even if a user made it the owner.
        if one.meta.name not in needed and not naming.is_of_the_resolver(one.meta.name):
            story.delete(one, reasons.JOB_REMOVED)


def _plan(
    held: Holding[Any],
    build: Build | None,
    change: Mapping[str, Any] | None,
    story: Story,
    *,
    gate: Gate,
    unfit: bool = False,
    created: str = reasons.CREATED,
    changed: str = reasons.REPAIRED,
    needs: tuple[Gate, ...] = (),
) -> None:
    """Create one object, or correct it; if it cannot be corrected (``unfit``), it is deleted and created again."""
    if held.holder is Holder.NOBODY:
        story.do("publish", Create(held.kind, held.name, created, build), gate=gate)
    elif (own := held.own) is None:
        story.close(gate, obstacle_of(held))
    elif unfit:
        message = f"{held.kind} {held.name} cannot be changed in place: it is deleted and re-created"
        story.close(gate, Finding(reasons.TASKS_NOT_READY, message))
        story.delete(own, reasons.RECREATED, phase="publish")
    elif change:
        reason = changed if "spec" in change else reasons.REPAIRED
        story.patch(own, change, reason, phase="tell" if needs else "publish", needs=needs)


def obstacle_of(held: Holding[Any]) -> Finding:
    """Return why a name that we need cannot be used."""
    finalizers = () if held.object is None else held.object.meta.finalizers
    return obstacle(held.kind, held.name, held.holder, finalizers)


def obstacle(kind: str, name: str, holder: Holder, finalizers: tuple[str, ...] = ()) -> Finding:
    """Return why a name that we need cannot be used."""
    match holder:
        case Holder.OURS | Holder.LEAVING | Holder.NOBODY:
            kept = f"; its finalizers keep it: {', '.join(finalizers)}" if finalizers else ""
            message = f"{kind} {name} is being deleted and will be re-created{kept}"
            return Finding(reasons.TASKS_NOT_READY, message)
        case Holder.PREDECESSOR:
            message = f"{kind} {name} belongs to a deleted TFCluster of the same name and still exists"
            return Finding(reasons.WAITING_FOR_PREDECESSOR, message)
        case Holder.FOREIGN:
            message = (
                f"{kind} {name} exists and is not controlled by this TFCluster: "
                "delete or rename it, or give the TFCluster another name"
            )
            return Finding(reasons.NAME_TAKEN, message)
        case _:
            assert_never(holder)
