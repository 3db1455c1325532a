"""The roster: the owner of each object and the state of each task, decided once for all readers."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from operator import methodcaller as does
from typing import Any

import pytest
from unit.in_memory import (
    CLUSTER_UID,
    LEAVING,
    OTHERS,
    PREDECESSORS,
    InMemoryWorld,
    RefusedError,
    make_cluster,
    owned_by,
    settled,
)

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import JobRecord, Ledger
from tfcluster_operator.life.ending import Ending
from tfcluster_operator.life.roster import Holder, Place, Roster, Stage, call_roll, roll_in_turns
from tfcluster_operator.life.stock import take_stock
from tfcluster_operator.life.turns import AT_ONCE, Turns, at_once
from tfcluster_operator.life.views import views_of
from tfcluster_operator.objects.observed import Observed
from tfcluster_operator.objects.resolver_copy import ResolverArchive
from tfcluster_operator.objects.resolver_copy import build as build_resolver_config_map
from tfcluster_operator.plan.actions import Delete, Plan
from tfcluster_operator.plan.plan import plan, plan_in_turns
from tfcluster_operator.report.status import status_in_turns, status_of

SUBJECT = "demo-worker-1"
#: It represents the resolver: no test runs it here.
NO_ARCHIVE = ResolverArchive(b"zip")
RESOLVER = naming.resolver_name(NO_ARCHIVE.digest)


def place(world: InMemoryWorld, known: Ledger | None = None) -> Place:
    roster = call_roll(make_cluster(), world.observe(make_cluster())).completed_by(known or Ledger())
    return roster.places["worker"][1]


@pytest.fixture
def world() -> InMemoryWorld:
    return settled(make_cluster())


# --- the state of a task
def edit(change: dict[str, Any], name: str = SUBJECT) -> Any:
    return does("edit", "Pod", name, change)


def annotated(key: str, value: str | None, name: str = SUBJECT) -> Any:
    return edit({"metadata": {"annotations": {key: value}}}, name)


def labelled(key: str, value: str | None) -> Any:
    return edit({"metadata": {"labels": {key: value}}})


def make_later_pod(world: InMemoryWorld) -> None:
    """Create a second pod of the task, as after a failure."""
    pod = copy.deepcopy(world.objects["Pod", SUBJECT])
    pod["metadata"] |= {"name": naming.later_pod_name(SUBJECT, 1), "uid": "uid-later"}
    world.create("Pod", pod)


NOTHING = does("names", "Pod")
LOST, DELETED = does("delete", "Pod", SUBJECT, force=True), does("delete", "Pod", SUBJECT)
UNREADY, PENDING = does("pod_runs", SUBJECT, conditions=[]), does("pod_runs", SUBJECT, phase="Pending")
FAILED, SUCCEEDED = does("pod_ends", SUBJECT, "Failed"), does("pod_ends", SUBJECT, "Succeeded")
NOBODYS, OF_PREDECESSOR = edit(OTHERS["nobody's"]), edit(PREDECESSORS)
EVICTED = does("pod_ends", SUBJECT, "Failed", reason="Evicted", containerStatuses=[])


@pytest.mark.parametrize(
    ("happens", "stage", "ending"),
    [
        (LOST, Stage.MISSING, None),
        (NOTHING, Stage.SERVING, None),
        (UNREADY, Stage.STARTING, None),
        (PENDING, Stage.STARTING, None),
        (does("pod_runs", SUBJECT, phase="Unknown"), Stage.STARTING, None),
        (DELETED, Stage.TERMINATING, None),
        (FAILED, Stage.ENDED, Ending.FAILED),
        (SUCCEEDED, Stage.ENDED, Ending.SUCCEEDED),
        (does("pod_ends", SUBJECT, "Running"), Stage.ENDED, Ending.FAILED),
        (EVICTED, Stage.ENDED, Ending.DISRUPTED),
        (NOBODYS, Stage.FOREIGN, None),
        (edit(OTHERS["another controller's"]), Stage.FOREIGN, None),
        (OF_PREDECESSOR, Stage.PREDECESSOR, None),
    ],
)
def test_each_task_is_at_one_stage(world, happens, stage, ending):
    happens(world)
    found = place(world)
    assert (str(found.task), found.name, found.stage, found.ending) == ("worker-1", SUBJECT, stage, ending)
    assert found.serving == (stage is Stage.SERVING)


MARKED = labelled(naming.LABEL_KEPT, "true")
HAPPENINGS = [LOST, UNREADY, DELETED, FAILED, SUCCEEDED, NOBODYS, OF_PREDECESSOR, MARKED, make_later_pod]


@pytest.mark.parametrize("first", HAPPENINGS)
@pytest.mark.parametrize("then", HAPPENINGS)
def test_roster_that_begins_with_an_earlier_one_is_the_same(world, first, then):
    cluster, before, observed = make_cluster(), None, Observed()
    for happens in (NOTHING, first, then):
        with contextlib.suppress(KeyError, RefusedError):  # the pod can be deleted by then
            happens(world)
        observed = with_known_objects(world.observe(cluster), observed)
        assert (before := call_roll(cluster, observed, before=before)) == call_roll(cluster, observed)


def test_tasks_whose_pods_did_not_change_are_not_classified_again(world):
    """A reconcile over thousands of tasks costs only what has changed since the last one."""
    observed = world.observe(make_cluster())
    before = call_roll(make_cluster(), observed)
    world.pod_runs(SUBJECT, conditions=[])
    after = call_roll(make_cluster(), with_known_objects(world.observe(make_cluster()), observed), before=before)
    same = [new is old for new, old in zip(after.places["worker"], before.places["worker"], strict=True)]
    assert same == [True, False]
    assert after.places["chief"][0] is before.places["chief"][0]


#: As the server reports it: the operator created the pod, and another manager wrote its image.
IMAGE = {"f:spec": {"f:containers": {'k:{"name":"task"}': {"f:image": {}}}}}
OURS = {"manager": naming.FIELD_MANAGER, "fieldsV1": {"f:spec": {}}}
ANOTHER_IMAGE = {"metadata": {"managedFields": [OURS, {"manager": "kubectl", "fieldsV1": IMAGE}]}}


@pytest.mark.parametrize(
    "happens",
    [
        *HAPPENINGS,
        NOTHING,
        PENDING,
        labelled(naming.LABEL_CLUSTER, None),
        labelled(naming.LABEL_JOB, "ps"),
        labelled(naming.LABEL_TASK_INDEX, "7"),
        annotated(naming.ANNOTATION_VIEW, "old"),
        annotated(naming.ANNOTATION_INCARNATION, "7"),
        annotated(naming.ANNOTATION_SURPLUS_SINCE, "9"),
        annotated(naming.ANNOTATION_TEMPLATE_HASH, "x"),
        edit({"spec": {"schedulingGroup": {"podGroupName": "another"}}}),
        edit(ANOTHER_IMAGE),
        annotated(naming.ANNOTATION_TEMPLATE_HASH, "x", "demo-worker-0"),
    ],
)
@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_skipping_settled_tasks_does_not_change_decisions(world, happens, phase):
    cluster = make_cluster(updateStrategy={"type": "RollingUpdate"})
    world.pod_runs(SUBJECT, phase=phase)
    happens(world)
    quick = call_roll(cluster, world.observe(cluster))
    assert quick.places["chief"][0].settled
    closely = {job: tuple(one._replace(settled=False) for one in of_job) for job, of_job in quick.places.items()}
    decided = [decide(roster, world) for roster in (quick, replace(quick, places=closely))]
    assert decided[0] == decided[1]


def decide(roster: Roster, world: InMemoryWorld) -> tuple[Ledger, Plan, dict[str, Any]]:
    known = take_stock(roster, world.ledger, world.now)
    roster = roster.completed_by(known)
    planned = plan(roster, known, views_of(roster).of_jobs, world.now)
    return known, planned, status_of(roster, known, planned.views, planned.findings, world.now)


def test_decisions_over_thousands_of_tasks_yield():
    cluster, now = make_cluster({"worker": 4 * AT_ONCE}), 0.0
    roster = at_once(counted)(roll_in_turns(cluster, Observed()), least=4)
    known = take_stock(roster, Ledger(), now)
    planned = at_once(counted)(plan_in_turns(roster, known, views_of(roster).of_jobs, now), least=4)
    at_once(counted)(status_in_turns(roster, known, planned.views, planned.findings, now), least=2)


def counted(deciding: Turns[Any], *, least: int) -> Turns[Any]:
    """Yield where a decision yields, and check how often it does."""
    pauses = 0
    while True:
        try:
            next(deciding)
        except StopIteration as over:
            assert pauses >= least
            return over.value
        pauses += 1
        yield


def test_tasks_of_an_edited_job_are_classified_again(world):
    before_edit = make_cluster()
    edited = replace(before_edit, jobs=tuple(replace(job, template_hash="another") for job in before_edit.jobs))
    observed = world.observe(before_edit)
    before = call_roll(before_edit, observed)
    assert call_roll(edited, observed, before=before) == call_roll(edited, observed)
    assert call_roll(edited, observed, before=before).places["worker"][1].outdated


def with_known_objects(observed: Observed, before: Observed) -> Observed:
    """Return the existing objects, with identical unchanged objects, as the caches hold them."""
    pods = {name: before.pods[name] if before.pods.get(name) == pod else pod for name, pod in observed.pods.items()}
    return replace(observed, pods=pods)


def test_end_before_the_deletion_counts_for_a_terminating_pod(world):
    world.pod_ends(SUBJECT, "Failed")
    place(world)
    edit(LEAVING)(world)
    assert (place(world).stage, place(world).ending) == (Stage.TERMINATING, Ending.FAILED)


@pytest.mark.parametrize(
    ("change", "own", "staying"),
    [({}, True, True), (LEAVING, True, False), (OTHERS["nobody's"], False, False), (PREDECESSORS, False, False)],
    ids=["ours", "terminating", "nobody's", "a predecessor's"],
)
def test_pod_of_others_is_neither_judged_nor_counted(world, change, own, staying):
    edit(change)(world)
    found = place(world)
    assert found.pod is not None
    assert ((found.own is not None), (found.staying is not None)) == (own, staying)


@pytest.mark.parametrize("change", [*OTHERS.values(), PREDECESSORS])
def test_end_and_template_of_others_pods_decide_nothing(world, change):
    SUCCEEDED(world)
    annotated(naming.ANNOTATION_TEMPLATE_HASH, "older")(world)
    edit(change)(world)
    assert (place(world).ending, place(world).outdated) == (None, False)


@pytest.mark.parametrize("hashed", ["older", None])
def test_pod_of_another_template_is_outdated(world, hashed):
    assert not place(world).outdated
    annotated(naming.ANNOTATION_TEMPLATE_HASH, hashed)(world)
    assert place(world).outdated


# --- completed tasks
def completed(*indices: int) -> Ledger:
    return Ledger(jobs={"worker": JobRecord(completed=frozenset(indices))})


@pytest.mark.parametrize("happens", [NOTHING, LOST, FAILED])
def test_completed_task_stays_so_whatever_becomes_of_its_pod(world, happens):
    happens(world)
    assert place(world, completed(1)).stage is Stage.COMPLETED
    assert place(world, completed(0)).stage is not Stage.COMPLETED


def test_completed_task_ignores_foreign_pods(world):
    NOBODYS(world)
    assert place(world, completed(1)).pod is None


def test_open_tasks_are_those_that_have_not_completed(world):
    cluster = make_cluster()
    roster = call_roll(cluster, world.observe(cluster)).completed_by(completed(0))
    job = cluster.job("worker")
    assert [each.task.index for each in roster.open(job)] == [1]
    assert [each.task.index for each in roster.of(job)] == [0, 1]


# --- objects outside of tasks
def names(pods: Any) -> set[str]:
    return {pod.meta.name for pod in pods}


def called(world: InMemoryWorld, jobs: Any = None) -> Roster:
    cluster = make_cluster(jobs)
    return call_roll(cluster, world.observe(cluster))


def test_surplus_pods_are_ours_and_stay(world):
    jobs = {"chief": 1, "worker": 0}
    world.delete("Pod", "demo-worker-0")
    roster = called(world, jobs)
    assert (names(roster.surplus), names(roster.leaving)) == ({SUBJECT}, {"demo-worker-0"})
    assert names(roster.staying()) == {"demo-chief-0", SUBJECT}
    NOBODYS(world)
    assert called(world, jobs).surplus == ()


@pytest.mark.parametrize(
    ("change", "leaving"), [({}, True), (PREDECESSORS, True), *((one, False) for one in OTHERS.values())]
)
def test_leaving_pods_are_ours_and_our_predecessors(world, change, leaving):
    edit(change)(world)
    DELETED(world)
    assert names(called(world).leaving) == ({SUBJECT} if leaving else set())


@pytest.mark.parametrize(
    ("change", "holder"),
    [
        ({}, Holder.OURS),
        (LEAVING, Holder.LEAVING),
        (PREDECESSORS, Holder.PREDECESSOR),
        *((one, Holder.FOREIGN) for one in OTHERS.values()),
    ],
)
@pytest.mark.parametrize("kind", ["Service", "ConfigMap"])
def test_each_name_has_one_holder(world, kind, change, holder):
    name = {"Service": "demo", "ConfigMap": "demo-worker"}[kind]
    world.edit(kind, name, change)
    roster = called(world)
    held = roster.service if kind == "Service" else roster.views(roster.cluster.job("worker"))
    assert (held.name, held.holder, held.own is not None) == (name, holder, holder is Holder.OURS)


def test_unused_name_is_free():
    roster = call_roll(make_cluster(), InMemoryWorld().observe(make_cluster()), resolver=RESOLVER)
    holders = [roster.service.holder, roster.views(make_cluster().job("chief")).holder, roster.copy.holder]
    assert holders == [Holder.NOBODY] * 3
    assert {each.stage for of_job in roster.places.values() for each in of_job} == {Stage.MISSING}


def _add(world: InMemoryWorld, kind: Any, name: str, owner: str = CLUSTER_UID) -> None:
    labels = naming.cluster_labels("demo")
    world.create(kind, {"metadata": {"name": name, "labels": labels, **owned_by(owner, "demo")["metadata"]}})


def test_undeclared_objects_are_deleted_and_foreign_ones_kept(world):
    for kind, name in (("Service", "stray"), ("ConfigMap", "demo-old"), ("NetworkPolicy", "demo-of-old")):
        _add(world, kind, name)
    world.create("ConfigMap", build_resolver_config_map("default", NO_ARCHIVE))
    _add(world, "ConfigMap", "demo-not-ours", owner="uid-before")
    _add(world, "ConfigMap", "tfcluster-resolver-owned")
    cluster = make_cluster()
    roster = call_roll(cluster, world.observe(cluster, resolver=RESOLVER), resolver=RESOLVER)
    deleted = [one.name for one in world.plan(cluster).actions if isinstance(one, Delete)]
    assert (deleted, roster.copy.holder) == (["demo-of-old", "stray", "demo-old"], Holder.OURS)


def test_uids_are_those_of_every_pod_of_ours(world):
    uids = {name: world.read("Pod", name).meta.uid for name in world.names("Pod")}
    world.delete("Pod", "demo-worker-0")
    world.edit("Pod", "demo-chief-0", OTHERS["nobody's"])
    cluster = make_cluster({"chief": 1, "worker": 1})
    assert call_roll(cluster, world.observe(cluster)).uids == {uids["demo-worker-0"], uids[SUBJECT]}
