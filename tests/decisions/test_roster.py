"""The roster: the owner of each object and the state of each task, decided once for all readers."""

import contextlib
import copy
from dataclasses import replace
from operator import methodcaller as does
from typing import Any

import pytest
from decisions.in_memory import OTHERS, PREDECESSORS, InMemoryWorld, RefusedError, make_cluster, settled

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.life.roster import Roster, call_roll
from tfcluster_operator.life.stock import take_stock
from tfcluster_operator.life.views import views_of
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.plan.actions import Plan
from tfcluster_operator.plan.plan import plan
from tfcluster_operator.report.status import status_of

SUBJECT = "demo-worker-1"


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
    pod = copy.deepcopy(world.objects["Pod", SUBJECT])
    pod["metadata"] |= {"name": naming.later_pod_name(SUBJECT, 1), "uid": "uid-later"}
    world.create("Pod", pod)


NOTHING = does("names", "Pod")
LOST, DELETED = does("delete", "Pod", SUBJECT, force=True), does("delete", "Pod", SUBJECT)
UNREADY, PENDING = does("pod_runs", SUBJECT, conditions=[]), does("pod_runs", SUBJECT, phase="Pending")
FAILED, SUCCEEDED = does("pod_ends", SUBJECT, "Failed"), does("pod_ends", SUBJECT, "Succeeded")
NOBODYS, OF_PREDECESSOR = edit(OTHERS["nobody's"]), edit(PREDECESSORS)


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


def with_known_objects(observed: Observed, before: Observed) -> Observed:
    """Return the existing objects, with identical unchanged objects, as the caches hold them."""
    pods = {name: before.pods[name] if before.pods.get(name) == pod else pod for name, pod in observed.pods.items()}
    return replace(observed, pods=pods)
