"""Queues: which Workloads ask for quota, what runs with it, and when it is given back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.in_memory import InMemoryWorld, make_body

from tfcluster_operator.model import ledger, naming, reasons
from tfcluster_operator.model.actions import CreatePod, CreateWorkload, Delete, Finding
from tfcluster_operator.model.ledger import Ledger, Verdict
from tfcluster_operator.model.parse import parse
from tfcluster_operator.model.queueing import Turn, stand
from tfcluster_operator.model.spec import TFCluster
from tfcluster_operator.model.status import status_of
from tfcluster_operator.model.views import views_of

KIND = "Workload"
FIRST, SECOND, THIRD = "tfcluster-demo.0", "tfcluster-demo.1", "tfcluster-demo.2"


def queued(jobs: Mapping[str, Any] | None = None, *, queue: str = "team", priority: str = "", **spec: Any) -> TFCluster:
    """Make a cluster that waits in a queue."""
    body = make_body({"chief": 1, "worker": 2} if jobs is None else jobs, **spec)
    labels = {naming.LABEL_QUEUE: queue, naming.LABEL_PRIORITY: priority}
    body["metadata"]["labels"] = {key: value for key, value in labels.items() if value}
    return parse(body)


def asking(cpu: str, replicas: int, **fields: Any) -> dict[str, Any]:
    """Declare a job whose pods ask for processors."""
    container = {"name": "task", "image": "image:1", "resources": {"requests": {"cpu": cpu}}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}, **fields}


def admitted(cluster: TFCluster, **counts: int) -> InMemoryWorld:
    """Make a world in which the first Workload has quota and every pod runs."""
    world = InMemoryWorld()
    world.settle(cluster)
    world.quota_is_granted(FIRST, **counts)
    run(world, cluster)
    return world


def run(world: InMemoryWorld, cluster: TFCluster) -> None:
    """Let the operator do what there is to do, and every pod run."""
    world.settle(cluster)
    world.all_pods_run()
    world.settle(cluster)


def asked(world: InMemoryWorld) -> dict[str, dict[str, int]]:
    """Give how many pods of each podSet each Workload asks for."""
    found = {name: body["spec"]["podSets"] for (kind, name), body in world.objects.items() if kind == KIND}
    return {name: {one["name"]: one["count"] for one in sets} for name, sets in found.items()}


def pods(world: InMemoryWorld) -> set[str]:
    """Name the pods."""
    return world.names("Pod")


def told(world: InMemoryWorld, cluster: TFCluster) -> dict[str, Any]:
    """Give the conditions by their types, and how many tasks are desired."""
    planned, roster = world.plan(cluster), world.roster(cluster)
    status = status_of(roster, world.ledger, planned.views, planned.findings, world.now)
    conditions = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    return {**conditions, "desired": {name: job["desired"] for name, job in status["jobs"].items()}}


def judged_at(world: InMemoryWorld, *, generation: int, judged: int) -> None:
    """Say which edit of the first Workload is the newest, and which one Kueue has judged."""
    (condition,) = world.objects[KIND, FIRST]["status"]["conditions"]
    conditions = [{**condition, "observedGeneration": judged}]
    world.edit(KIND, FIRST, {"metadata": {"generation": generation}, "status": {"conditions": conditions}})


def of_workers(*indices: int) -> set[str]:
    """Name the pods of some workers."""
    return {f"demo-worker-{index}" for index in indices}


# --- the first claim


def test_queued_cluster_asks_and_has_no_pods():
    """One Workload with a podSet a job, and nothing that takes anything, until it is granted."""
    cluster = queued({"chief": 1, "worker": asking("2", 3)})
    world = InMemoryWorld()
    world.settle(cluster)

    assert asked(world) == {FIRST: {"chief": 1, "worker": 3}}
    assert pods(world) == set()
    body = world.objects[KIND, FIRST]
    assert body["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert body["spec"]["queueName"] == "team"
    worker = body["spec"]["podSets"][1]["template"]["spec"]
    assert worker["containers"] == [{"name": "task", "resources": {"requests": {"cpu": "2"}}}]
    assert body["metadata"]["ownerReferences"][0]["name"] == "demo"
    says = told(world, cluster)
    assert says["Ready"][:2] == ("False", reasons.WAITING_FOR_QUOTA)
    assert says["Suspended"][:2] == ("True", reasons.WAITING_FOR_QUOTA)
    assert says["desired"] == {"chief": 1, "worker": 3}


def test_words_of_the_queue_are_told():
    """Why it waits, as Kueue says it."""
    cluster, world = queued(), InMemoryWorld()
    world.settle(cluster)
    assert "Kueue has said nothing of it yet" in told(world, cluster)["Ready"][2]

    world.quota_is_short(FIRST, "insufficient unused quota for cpu, 2 more needed")
    assert told(world, cluster)["Ready"][2] == (
        "Workload tfcluster-demo.0 waits in queue team: insufficient unused quota for cpu, 2 more needed"
    )


def test_granted_cluster_runs():
    """All its pods, and it is ready."""
    cluster = queued()
    world = admitted(cluster)

    assert pods(world) == {"demo-chief-0", *of_workers(0, 1)}
    assert told(world, cluster)["Ready"][1] == reasons.ALL_TASKS_READY
    assert world.says_of(FIRST)["PodsReady"] == "True"


def test_quota_that_waits_for_checks_starts_nothing():
    """Reserved is not admitted."""
    cluster, world = queued(), InMemoryWorld()
    world.settle(cluster)
    world.quota_is_granted(FIRST)
    checks = [{"name": "budget", "state": "Pending"}]
    world.edit(KIND, FIRST, {"status": {"admissionChecks": checks}})
    conditions = world.objects[KIND, FIRST]["status"]["conditions"]
    kept = [one for one in conditions if one["type"] != "Admitted"]
    world.edit(KIND, FIRST, {"status": {"conditions": kept}})
    world.settle(cluster)

    assert pods(world) == set()
    assert told(world, cluster)["Ready"][2].endswith("it has quota, and waits for admission checks: budget (Pending)")


def test_edit_while_it_waits_changes_what_it_asks_for():
    """The Workload stays, and with it the place in the queue."""
    world = InMemoryWorld()
    world.settle(queued({"worker": asking("1", 2)}))
    uid = world.objects[KIND, FIRST]["metadata"]["uid"]
    cluster = queued({"worker": asking("2", 5), "ps": 1}, queue="other")
    world.settle(cluster)

    body = world.objects[KIND, FIRST]
    assert body["metadata"]["uid"] == uid
    assert asked(world) == {FIRST: {"ps": 1, "worker": 5}}
    assert body["spec"]["queueName"] == "other"
    assert body["spec"]["podSets"][1]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_change_that_kueue_has_not_judged_is_told_again():
    """Kueue may be looking at the Workload in the moment in which it changes, and hears of nothing but changes."""
    world = InMemoryWorld()
    world.settle(queued({"worker": 4}))
    world.quota_is_short(FIRST, "2 more needed")
    cluster = queued({"worker": 2}, generation=2)
    world.settle(cluster)
    judged_at(world, generation=2, judged=1)
    before = world.annotation(KIND, FIRST, naming.ANNOTATION_ASKED_AT)
    soon = world.plan(cluster)
    assert soon.actions == ()
    assert soon.wake_after is not None
    assert 0 < soon.wake_after <= 5
    world.now += soon.wake_after
    world.apply_all(world.plan(cluster).actions, cluster)
    asked_at, _, pause = world.annotation(KIND, FIRST, naming.ANNOTATION_ASKED_AT).partition("/")
    assert int(asked_at) >= int(before) + 5
    assert world.plan(cluster).wake_after == int(pause) > soon.wake_after, "Kueue may be down for long"

    judged_at(world, generation=2, judged=2)
    assert world.plan(cluster).actions == ()
    assert world.plan(cluster).wake_after is None


# --- what Kueue takes back


def test_evicted_cluster_gives_its_quota_back_when_its_pods_are_gone():
    """The pods go first; then the reservation is cleared as Kueue's own controllers do, and it waits again."""
    cluster = queued()
    world = admitted(cluster)
    world.quota_is_taken_back(FIRST)

    world.apply_all(world.plan(cluster).actions, cluster)
    assert {"deletionTimestamp" in world.objects["Pod", name]["metadata"] for name in pods(world)} == {True}
    assert not any(action.reason == reasons.QUOTA_REQUEST_CHANGED for action in world.plan(cluster).actions)
    assert "admission" in world.objects[KIND, FIRST]["status"], "its pods have not ended yet"
    assert "its 3 pods end before" in told(world, cluster)["Ready"][2]

    world.settle(cluster)
    assert pods(world) == set()
    status = world.objects[KIND, FIRST]["status"]
    assert "admission" not in status
    assert world.says_of(FIRST) == {
        "QuotaReserved": "False",
        "Admitted": "False",
        "Evicted": "True",
        "PodsReady": "False",
        "Requeued": "True",
    }

    world.quota_is_granted(FIRST)
    run(world, cluster)
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1)}


def test_workload_that_is_deactivated_is_not_queued_again_by_us():
    """Somebody has switched it off: no Requeued condition, and the reason is told."""
    cluster = queued()
    world = admitted(cluster)
    world.edit(KIND, FIRST, {"spec": {"active": False}})
    world.quota_is_taken_back(FIRST, "Deactivated")
    world.settle(cluster)

    assert pods(world) == set()
    assert "Requeued" not in world.says_of(FIRST)
    message = told(world, cluster)["Ready"][2]
    assert "deactivated (Deactivated: for another), until somebody sets spec.active of the Workload to true" in message


def test_workload_that_somebody_marks_as_finished_has_no_quota():
    """Kueue counts it no more, so that the pods go and another one asks."""
    cluster = queued()
    world = admitted(cluster)
    world.edit(KIND, FIRST, {"status": {"conditions": [*finished(), *conditions(world, FIRST)]}})
    before = world.objects[KIND, FIRST]["metadata"]["uid"]
    world.settle(cluster)

    assert pods(world) == set()
    assert world.objects[KIND, FIRST]["metadata"]["uid"] != before
    assert asked(world) == {FIRST: {"chief": 1, "worker": 2}}


def finished() -> list[dict[str, str]]:
    """Give the condition of a Workload that needs no quota any more."""
    return [{"type": "Finished", "status": "True", "reason": "Succeeded", "message": "by hand"}]


def conditions(world: InMemoryWorld, name: str) -> list[dict[str, str]]:
    """Give the conditions of a Workload."""
    return list(world.objects[KIND, name]["status"]["conditions"])


def test_cluster_without_tasks_waits_for_nothing():
    """As without a queue: it is ready, and asks when it gets tasks."""
    world, cluster = InMemoryWorld(), queued({"worker": 0})
    world.settle(cluster)
    assert told(world, cluster)["Ready"][:2] == ("True", reasons.ALL_TASKS_READY)
    assert asked(world) == {}

    grown = queued({"worker": 2}, generation=2)
    world.settle(grown)
    assert (asked(world), pods(world)) == ({FIRST: {"worker": 2}}, set())

    world.settle(queued({"worker": 0}, generation=3))
    assert asked(world) == {}


def test_workload_that_somebody_deletes_is_asked_for_again():
    """Without it nothing runs: the pods go, and then it asks again."""
    cluster = queued()
    world = admitted(cluster)
    world.delete(KIND, FIRST)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert not any(isinstance(one, CreateWorkload) for one in world.plan(cluster).actions)

    world.settle(cluster)
    assert pods(world) == set()
    assert asked(world) == {FIRST: {"chief": 1, "worker": 2}}


# --- a running cluster that is edited


def test_growth_asks_first():
    """What runs goes on, as it was; the new workers come with the second Workload's quota, in a new epoch."""
    world = admitted(queued(generation=1))
    cluster = queued({"chief": 1, "worker": 5}, generation=2)
    world.settle(cluster)

    assert asked(world) == {FIRST: {"chief": 1, "worker": 2}, SECOND: {"worker": 3}}
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1)}
    says = told(world, cluster)
    assert says["Ready"][:2] == ("False", reasons.WAITING_FOR_QUOTA)
    assert says["Suspended"][0] == "False"
    assert says["desired"] == {"chief": 1, "worker": 5}
    before = epoch(world, cluster)

    world.quota_is_granted(SECOND)
    run(world, cluster)
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1, 2, 3, 4)}
    assert told(world, cluster)["Ready"][1] == reasons.ALL_TASKS_READY
    assert epoch(world, cluster) > before


def epoch(world: InMemoryWorld, cluster: TFCluster) -> int:
    """Give the newest epoch of the views."""
    return max(file.epoch for job in views_of(world.roster(cluster)).of_jobs for file in job.files.values())


def test_growth_that_is_taken_back_is_a_new_membership():
    """The tasks leave, what was first stays, and the epoch grows although nobody edited anything."""
    world = admitted(queued())
    cluster = queued({"chief": 1, "worker": 4}, generation=2)
    world.settle(cluster)
    world.quota_is_granted(SECOND)
    run(world, cluster)
    before = epoch(world, cluster)

    world.quota_is_taken_back(SECOND)
    world.settle(cluster)
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1)}
    assert world.says_of(SECOND)["QuotaReserved"] == "False"
    assert world.says_of(FIRST)["Admitted"] == "True"
    assert epoch(world, cluster) == before + 1

    world.quota_is_granted(SECOND)
    run(world, cluster)
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1, 2, 3)}
    assert epoch(world, cluster) == before + 2


def test_growth_that_is_taken_back_costs_no_other_growth():
    """What was added later runs on, and the quota of what was taken back is asked for again."""
    world = admitted(queued({"chief": 1}))
    for number, jobs in enumerate(({"chief": 1, "worker": 3}, {"chief": 1, "worker": 3, "ps": 1}), 1):
        cluster = queued(jobs, generation=number + 1)
        world.settle(cluster)
        world.quota_is_granted(naming.claim_name("demo", number))
        run(world, cluster)
    assert pods(world) == {"demo-chief-0", "demo-ps-0", *of_workers(0, 1, 2)}

    world.quota_is_taken_back(SECOND)
    world.settle(cluster)
    assert pods(world) == {"demo-chief-0", "demo-ps-0"}
    assert asked(world) == {FIRST: {"chief": 1}, SECOND: {"worker": 3}, THIRD: {"ps": 1}}
    assert world.says_of(SECOND)["QuotaReserved"] == "False"

    world.quota_is_granted(SECOND)
    run(world, cluster)
    assert pods(world) == {"demo-chief-0", "demo-ps-0", *of_workers(0, 1, 2)}


def grown(**fields: Any) -> tuple[InMemoryWorld, TFCluster]:
    """Make a cluster of two workers, with quota for two more since an edit."""
    world = admitted(queued({"worker": {"replicas": 2, **fields}}))
    cluster = queued({"worker": {"replicas": 4, **fields}}, generation=2)
    world.settle(cluster)
    world.quota_is_granted(SECOND)
    run(world, cluster)
    return world, cluster


def test_cluster_succeeds_by_what_is_declared():
    """Half of the tasks have ended, and the others have lost their quota: that is no success."""
    world, cluster = grown()
    world.quota_is_taken_back(SECOND)
    world.settle(cluster)
    for name in of_workers(0, 1):
        world.pod_ends(name, "Succeeded")
    world.settle(cluster)

    assert told(world, cluster)["Succeeded"][:2] == ("False", reasons.NOT_FINISHED)


def test_completed_task_does_not_run_again_when_its_quota_comes_back():
    """What has ended well has ended, whatever is granted meanwhile."""
    world, cluster = grown()
    world.pod_ends("demo-worker-2", "Succeeded")
    world.settle(cluster)
    world.quota_is_taken_back(SECOND)
    world.settle(cluster)

    world.quota_is_granted(SECOND)
    run(world, cluster)

    assert pods(world) == of_workers(0, 1, 3)


def test_quota_that_is_taken_back_is_given_at_once():
    """Whoever the queue took it for does not wait for drainTimeoutSeconds."""
    world, cluster = grown(drainTimeoutSeconds=3600)

    world.quota_is_taken_back(SECOND)

    gone = [one.name for one in world.plan(cluster).actions if isinstance(one, Delete)]
    assert set(gone) == of_workers(2, 3)


def test_as_many_tasks_go_as_quota_was_taken_back():
    """The last ones by index, because a ClusterSpec has no gaps; what was added later has quota for the others."""
    world = admitted(queued({"worker": 1}))
    for number, workers in enumerate((3, 4), 1):
        cluster = queued({"worker": workers}, generation=number + 1)
        world.settle(cluster)
        world.quota_is_granted(naming.claim_name("demo", number))
        run(world, cluster)

    world.quota_is_taken_back(SECOND)
    world.settle(cluster)
    assert pods(world) == of_workers(0, 1)
    assert asked(world) == {FIRST: {"worker": 1}, SECOND: {"worker": 2}, THIRD: {"worker": 1}}


def test_waiting_growth_follows_the_edits():
    """It asks for what lacks now, and for nothing once nothing lacks."""
    world = admitted(queued())
    world.settle(queued({"chief": 1, "worker": 5}, generation=2))
    world.settle(queued({"chief": 1, "worker": 7, "ps": 1}, generation=3))
    assert asked(world)[SECOND] == {"ps": 1, "worker": 5}

    world.settle(queued(generation=4))
    assert asked(world) == {FIRST: {"chief": 1, "worker": 2}}


def test_shrinking_gives_quota_back_when_the_pods_are_gone():
    """The Workload of the growth goes whole, of the first one a part is given back; growing again asks again."""
    world = admitted(queued({"worker": 3}))
    grown = queued({"worker": 5}, generation=2)
    world.settle(grown)
    world.quota_is_granted(SECOND)
    run(world, grown)

    cluster = queued({"worker": 2}, generation=3)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert set(asked(world)) == {FIRST, SECOND}, "the pods have not ended yet"
    world.settle(cluster)
    assert pods(world) == of_workers(0, 1)
    assert set(asked(world)) == {FIRST}
    assert world.objects[KIND, FIRST]["status"]["reclaimablePods"] == [{"name": "worker", "count": 1}]

    again = queued({"worker": 4}, generation=4)
    world.settle(again)
    assert asked(world) == {FIRST: {"worker": 3}, SECOND: {"worker": 2}}
    assert pods(world) == of_workers(0, 1)
    world.quota_is_granted(SECOND)
    run(world, again)
    assert pods(world) == of_workers(0, 1, 2, 3)


def test_quota_that_was_given_back_is_asked_for_again_after_an_eviction():
    """Of a Workload without quota nothing is given back: Kueue would count fewer pods than come."""
    world = admitted(queued({"worker": 3}))
    cluster = queued({"worker": 2}, generation=2)
    world.settle(cluster)
    world.quota_is_taken_back(FIRST)
    grown = queued({"worker": 3}, generation=3)
    world.settle(grown)

    assert "reclaimablePods" not in world.objects[KIND, FIRST]["status"]
    assert asked(world) == {FIRST: {"worker": 3}}


def test_job_that_is_declared_no_more_gives_its_quota_back():
    """All of it, when its pods are gone."""
    world = admitted(queued({"chief": 1, "ps": 2, "worker": 2}))
    cluster = queued(generation=2)
    world.settle(cluster)

    assert world.objects[KIND, FIRST]["status"]["reclaimablePods"] == [{"name": "ps", "count": 2}]


def test_template_that_asks_for_more_waits_again():
    """Nobody gets around the queue by an edit; an edit of anything else needs no new quota."""
    world = admitted(queued({"worker": asking("1", 2)}))
    uid = world.objects[KIND, FIRST]["metadata"]["uid"]
    harmless = asking("1", 2)
    harmless["template"]["spec"]["containers"][0]["image"] = "image:2"
    run(world, queued({"worker": harmless}, generation=2))
    assert world.objects[KIND, FIRST]["metadata"]["uid"] == uid

    cluster = queued({"worker": asking("8", 2)}, generation=3)
    assert world.roster(cluster).standing.turn is Turn.CHANGED
    world.settle(cluster)
    assert pods(world) == set()
    body = world.objects[KIND, FIRST]
    assert body["metadata"]["uid"] != uid
    container = body["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "8"}}


@pytest.mark.parametrize("left", [{naming.ANNOTATION_ASKS: None}, {naming.ANNOTATION_ASKS: "{"}])
def test_note_that_somebody_takes_away_ends_no_training(left):
    """Without what its pods asked for a claim keeps its quota, and the note is written again."""
    cluster = queued()
    world = admitted(cluster)

    def kept() -> tuple[set[str], str]:
        uids = {body["metadata"]["uid"] for (kind, _), body in world.objects.items() if kind == "Pod"}
        return uids, world.objects[KIND, FIRST]["metadata"]["annotations"][naming.ANNOTATION_ASKS]

    before = kept()
    world.edit(KIND, FIRST, {"metadata": {"annotations": left}})

    world.settle(cluster)

    assert before == kept()


def test_another_queue_takes_a_running_cluster_from_the_beginning():
    """It was granted by the one, and runs by the grace of that."""
    world = admitted(queued())
    world.settle(queued(queue="other"))

    assert pods(world) == set()
    assert world.objects[KIND, FIRST]["spec"]["queueName"] == "other"


def test_cluster_that_leaves_its_queue_gives_its_quota_back():
    """Without the label it runs as any other; with it on a running one, it stops and asks."""
    world = admitted(queued())
    free = parse(make_body())
    run(world, free)
    assert asked(world) == {}
    assert pods(world) == {"demo-chief-0", *of_workers(0, 1)}

    world.settle(queued())
    assert pods(world) == set()
    assert asked(world) == {FIRST: {"chief": 1, "worker": 2}}


def test_suspended_cluster_asks_for_nothing():
    """Its quota goes back when its pods are gone, and it asks again when it is resumed."""
    world = admitted(queued())
    cluster = queued(suspend=True)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert set(asked(world)) == {FIRST}
    world.settle(cluster)
    assert asked(world) == {}
    assert told(world, cluster)["Suspended"][1] == reasons.SUSPENDED

    world.settle(queued())
    assert set(asked(world)) == {FIRST}


# --- partial admission


def test_queue_may_grant_fewer_tasks():
    """Between minTasks and replicas; what lacks is asked for besides, one by one."""
    cluster = queued({"chief": 1, "worker": 5}, scheduling={"gang": {"minTasks": {"worker": 2}}})
    world = InMemoryWorld()
    world.settle(cluster)
    sets = {one["name"]: one.get("minCount") for one in world.objects[KIND, FIRST]["spec"]["podSets"]}
    assert sets == {"chief": None, "worker": 2}

    world.quota_is_granted(FIRST, worker=3)
    world.apply_all(world.plan(cluster).actions, cluster)
    assert asked(world)[SECOND] == {"worker": 2}
    assert world.objects[KIND, SECOND]["spec"]["podSets"][0]["minCount"] == 1
    assert {len(job.replicas * "x") for job in world.roster(cluster).cluster.jobs if job.name == "worker"} == {3}


def test_queue_that_granted_fewer_tasks_gets_back_what_is_needed_no_more():
    """Kueue counts what is given back from what was asked for, so that it is more than the pods that went."""
    gang = {"gang": {"minTasks": {"worker": 2}}}
    cluster, world = queued({"worker": 6}, scheduling=gang), InMemoryWorld()
    world.settle(cluster)
    world.quota_is_granted(FIRST, worker=4)
    run(world, cluster)
    assert pods(world) == of_workers(0, 1, 2, 3)

    for workers, given_back in ((3, 3), (1, 5)):
        world.settle(queued({"worker": workers}, generation=2, scheduling={"gang": {"minTasks": {"worker": 1}}}))
        assert pods(world) == of_workers(*range(workers))
        assert world.objects[KIND, FIRST]["status"]["reclaimablePods"] == [{"name": "worker", "count": given_back}]


# --- where the pods may run


def test_flavor_decides_which_nodes_the_pods_may_use():
    """Its node labels and tolerations, and those of another flavor for what came later."""
    world = InMemoryWorld()
    toleration = {"key": "spot", "operator": "Exists"}
    for name, spec in {
        "spot": {"nodeLabels": {"pool": "spot"}, "tolerations": [toleration]},
        "reserved": {"nodeLabels": {"pool": "reserved"}},
    }.items():
        world.create("ResourceFlavor", {"metadata": {"name": name}, "spec": spec})
    cluster = queued({"worker": 1})
    world.settle(cluster)
    world.quota_is_granted(FIRST, "spot")
    run(world, cluster)
    first = world.objects["Pod", "demo-worker-0"]["spec"]
    assert first["nodeSelector"] == {"pool": "spot"}
    assert first["tolerations"] == [toleration]

    grown = queued({"worker": 2}, generation=2)
    world.settle(grown)
    world.quota_is_granted(SECOND, "reserved")
    run(world, grown)
    second = world.objects["Pod", "demo-worker-1"]["spec"]
    assert second["nodeSelector"] == {"pool": "reserved"}
    assert "tolerations" not in second

    world.quota_is_taken_back(FIRST)
    world.settle(grown)
    world.quota_is_granted(FIRST, "reserved")
    run(world, grown)
    assert world.objects["Pod", "demo-worker-0"]["spec"]["nodeSelector"] == {"pool": "reserved"}


def test_admission_check_adds_to_the_pods():
    """Labels, annotations, node selectors and tolerations, to those of its podSet."""
    cluster, world = queued(), InMemoryWorld()
    world.settle(cluster)
    world.quota_is_granted(FIRST)
    update = {
        "name": "worker",
        "labels": {"provisioned": "yes"},
        "annotations": {"request": "one"},
        "nodeSelector": {"pool": "new"},
        "tolerations": [{"key": "new", "operator": "Exists"}],
    }
    checks = [{"name": "provision", "state": "Ready", "podSetUpdates": [update]}]
    world.edit(KIND, FIRST, {"status": {"admissionChecks": checks}})
    run(world, cluster)

    worker = world.objects["Pod", "demo-worker-0"]
    assert worker["metadata"]["labels"]["provisioned"] == "yes"
    assert worker["metadata"]["annotations"]["request"] == "one"
    assert worker["spec"]["nodeSelector"] == {"pool": "new"}
    assert "nodeSelector" not in world.objects["Pod", "demo-chief-0"]["spec"]


def test_flavor_that_nobody_can_read_holds_the_pods_up():
    """They would run where they must not; what runs already goes on."""
    cluster, world = queued({"worker": 1}), InMemoryWorld()
    world.settle(cluster)
    world.quota_is_granted(FIRST, "hidden")
    planned = world.plan(cluster)

    assert not any(isinstance(one, CreatePod) for one in planned.actions)
    assert [one.reason for one in planned.findings] == [reasons.QUEUE_UNAVAILABLE]
    assert "ResourceFlavor hidden" in planned.findings[0].message


# --- the end


def test_finished_cluster_is_told_to_the_queue():
    """Once its pods have ended; Kueue may delete the Workload afterwards, and nothing comes back."""
    cluster = queued({"worker": 1})
    world = admitted(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")
    world.settle(cluster)
    assert world.says_of(FIRST)["Finished"] == "True"

    done = replace(cluster, status={"conditions": [{"type": "Succeeded", "status": "True", "observedGeneration": 1}]})
    world.delete(KIND, FIRST)
    world.settle(done)
    assert asked(world) == {}
    assert world.roster(done).standing.turn is Turn.FINISHED


def test_finish_that_is_refused_is_told():
    """Whoever waits for the quota of what has succeeded sees why it is still taken."""
    cluster = queued({"worker": 1})
    world = admitted(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")
    world.settle(cluster)
    refused = Finding(reasons.REJECTED, "Workload tfcluster-demo.0: denied by policy")
    status = status_of(world.roster(cluster), world.ledger, world.plan(cluster).views, (refused,), world.now)

    told = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert (told["Ready"], told["UpToDate"]) == (("True", reasons.SUCCEEDED), ("False", reasons.REJECTED))


def test_finish_waits_for_pods_that_still_run():
    """A parameter server is there until it is cleaned up."""
    cluster = queued({"ps": 1, "worker": 1})
    world = admitted(cluster)
    world.pod_ends("demo-worker-0", "Succeeded")
    world.apply_all(world.plan(cluster).actions, cluster)
    assert "Finished" not in world.says_of(FIRST)

    world.settle(cluster)
    assert world.says_of(FIRST)["Finished"] == "True"


# --- what is not there


def test_without_kueue_it_says_what_lacks():
    """No pod, no Workload, and the words of the server."""
    cluster, world = queued(), InMemoryWorld()
    world.stores.of[KIND].have_none("the API server does not serve workloads of kueue.x-k8s.io/v1beta2", None)
    planned = world.plan(cluster)

    assert not any(isinstance(one, CreatePod | CreateWorkload) for one in planned.actions)
    assert planned.findings[0].reason == reasons.QUEUE_UNAVAILABLE
    assert "does not serve workloads" in planned.findings[0].message
    assert planned.wake_after


def test_what_runs_goes_on_while_nothing_is_known_of_its_claims():
    """A right that was taken away, or an API that goes, stops no training; nothing is added meanwhile."""
    world = admitted(queued())
    grown = queued({"chief": 1, "worker": 9}, generation=2)
    standing = stand(grown, replace(world.observe(grown), no_workloads="forbidden"))

    assert {job.name: job.replicas for job in standing.cluster.jobs} == {"chief": 1, "worker": 2}
    assert not standing.cluster.suspend


def test_name_of_another_is_an_obstacle():
    """The Workload of a deleted TFCluster of the same name goes first."""
    cluster, world = queued(), InMemoryWorld()
    owner = {"apiVersion": naming.API_VERSION, "kind": naming.KIND, "name": "demo", "uid": "old", "controller": True}
    about = {"name": FIRST, "labels": {naming.LABEL_CLUSTER: "demo"}, "ownerReferences": [owner]}
    world.create(KIND, {"metadata": about, "spec": {"podSets": []}})
    planned = world.plan(cluster)

    assert not any(isinstance(one, CreateWorkload) for one in planned.actions)
    assert planned.findings[0].reason == reasons.WAITING_FOR_PREDECESSOR


# --- priorities


@pytest.mark.parametrize("priority", ["urgent", ""])
def test_priority_is_the_label_s_or_the_pods(priority: str):
    """Kueue's own class by the label; else that of the chief's pods, or of the first that has one."""
    template = {"spec": {"containers": [{"name": "t"}], "priorityClassName": "high"}}
    cluster = queued({"ps": 1, "worker": {"template": template}}, priority=priority)
    (create,) = [one for one in InMemoryWorld().plan(cluster).actions if isinstance(one, CreateWorkload)]

    assert (create.claim.priority_class, create.claim.priority_of_pods) == (
        (priority, False) if priority else ("high", True)
    )


def test_ledger_keeps_the_grants():
    """A restarted operator goes on with the epochs."""
    known = Ledger(granted={"worker": 2}, regrants=3, verdict=Verdict("Failed", "TaskFailed", "words"))
    written = {"internal": json.loads(json.dumps(ledger.internal_fields(known)))}
    assert (ledger.read(written).granted, ledger.read(written).regrants) == ({"worker": 2}, 3)
