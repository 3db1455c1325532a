"""Queues: which Workloads request quota, which pods run with it, and when it is returned."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from decisions.in_memory import InMemoryWorld, creates
from decisions.queue_world import FIRST, KIND, SECOND, Queue, queued

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.parse import with_status
from tfcluster_operator.life.queueing import Turn, stand
from tfcluster_operator.plan.actions import Finding


def asking(cpu: str, replicas: int, image: str = "image:1") -> dict[str, Any]:
    container = {"name": "task", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"replicas": replicas, "template": {"spec": {"containers": [container]}}}


TOPOLOGY = "kueue.x-k8s.io/podset-"


def workers(count: int, **jobs: int) -> dict[str, int]:
    return {**jobs, "worker": count}


def running() -> Queue:
    return Queue().play("grant 0")


PAIR, FIVE = workers(2, chief=1), workers(5, chief=1)
BOTH, ALL_FIVE = "chief-0 worker-0 worker-1", "chief-0 worker-0 worker-1 worker-2 worker-3 worker-4"
THREE = ({"chief": 1}, "grant 0", workers(3, chief=1), "grant 1", workers(3, chief=1, ps=1), "grant 2")
THREE_ASK = {0: {"chief": 1}, 1: workers(3), 2: {"ps": 1}}
SHRUNK = (workers(3), "grant 0", workers(5), "grant 1", workers(2))
TWICE = (workers(2), "grant 0", workers(4), "grant 1")
#: The last ones by index are deleted, because a ClusterSpec is without gaps; the later grant serves the others.
GAP = (workers(1), "grant 0", workers(3), "grant 1", workers(4), "grant 2", "evict 1")
#: With a topology each pod belongs to its Workload, so that no other one takes over its task.
PLACED_GAP = tuple(step.replace("grant", "place") if isinstance(step, str) else step for step in GAP)


@pytest.mark.parametrize(
    ("steps", "asked", "tasks"),
    [
        ([PAIR], {0: PAIR}, ""),
        ([PAIR, "grant 0"], {0: PAIR}, BOTH),
        ([PAIR, workers(5, ps=1)], {0: workers(5, ps=1)}, ""),
        ([workers(0)], {}, ""),
        ([workers(0), workers(2)], {0: workers(2)}, ""),
        ([workers(0), workers(2), workers(0)], {}, ""),
        ([PAIR, "grant 0", "evict 0"], {0: PAIR}, ""),
        ([PAIR, "grant 0", "evict 0", "grant 0"], {0: PAIR}, BOTH),
        ([PAIR, "grant 0", "lose 0"], {0: PAIR}, ""),
        ([PAIR, "grant 0", "finish 0"], {0: PAIR}, ""),
        ([PAIR, "grant 0", FIVE], {0: PAIR, 1: workers(3)}, BOTH),
        ([PAIR, "grant 0", FIVE, "grant 1"], {0: PAIR, 1: workers(3)}, ALL_FIVE),
        ([PAIR, "grant 0", FIVE, workers(7, chief=1, ps=1)], {0: PAIR, 1: workers(5, ps=1)}, BOTH),
        ([PAIR, "grant 0", FIVE, PAIR], {0: PAIR}, BOTH),
        ([*THREE, "evict 1"], THREE_ASK, "chief-0 ps-0"),
        ([*THREE, "evict 1", "grant 1"], THREE_ASK, "chief-0 ps-0 worker-0 worker-1 worker-2"),
        ([*GAP], {0: workers(1), 1: workers(2), 2: workers(1)}, "worker-0 worker-1"),
        ([*PLACED_GAP], {0: workers(1), 1: workers(3)}, "worker-0"),
        ([*PLACED_GAP, "place 1"], {0: workers(1), 1: workers(3)}, "worker-0 worker-1 worker-2 worker-3"),
        ([*SHRUNK, workers(4)], {0: workers(3), 1: workers(2)}, "worker-0 worker-1"),
        ([*SHRUNK, workers(4), "grant 1"], {0: workers(3), 1: workers(2)}, "worker-0 worker-1 worker-2 worker-3"),
        ([*TWICE, "end worker-2", "evict 1", "grant 1"], {0: workers(2), 1: workers(2)}, "worker-0 worker-1 worker-3"),
        ([PAIR, "grant 0", "suspend"], {}, ""),
        ([PAIR, "grant 0", "suspend", PAIR], {0: PAIR}, ""),
        ([PAIR, "grant 0", "queue "], {}, BOTH),
        ([PAIR, "grant 0", "queue ", PAIR], {0: PAIR}, ""),
        ([PAIR, "grant 0", "queue other"], {0: PAIR}, ""),
    ],
)
def test_pods_run_by_the_quota_that_their_workloads_have(steps, asked, tasks):
    queue = Queue(steps[0]).play(*steps[1:])
    assert (queue.asked(), queue.tasks()) == (asked, tasks)


@pytest.mark.parametrize(
    ("steps", "asked", "tasks", "given_back"),
    [
        ([*SHRUNK], {0: workers(3)}, "worker-0 worker-1", workers(1)),
        ([workers(2, chief=1, ps=2), "grant 0", PAIR], {0: workers(2, chief=1, ps=2)}, BOTH, {"ps": 2}),
        # A Workload without quota is not reclaimed: Kueue would count fewer pods than are created.
        ([workers(3), "grant 0", workers(2), "evict 0", workers(3)], {0: workers(3)}, "", {}),
    ],
)
def test_a_part_of_the_quota_is_given_back(steps, asked, tasks, given_back):
    queue = Queue(steps[0]).play(*steps[1:])
    assert (queue.asked(), queue.tasks()) == (asked, tasks)
    wanted = [{"name": name, "count": count} for name, count in given_back.items()]
    assert queue.claim()["status"].get("reclaimablePods", []) == wanted


LOST_GROWTH = (*TWICE, "evict 1", "end worker-0", "end worker-1")


@pytest.mark.parametrize(
    ("steps", "kind", "says"),
    [
        ([PAIR], "Ready", "False WaitingForQuota: Kueue has not evaluated it yet"),
        ([PAIR], "Suspended", "True WaitingForQuota"),
        ([PAIR, "short of 2"], "Ready", "False WaitingForQuota: Workload tfcluster-demo.0 waits in queue team: of 2"),
        ([PAIR, "grant 0"], "Ready", "True AllTasksReady"),
        ([PAIR, "grant 0", FIVE], "Ready", "False WaitingForQuota"),
        ([PAIR, "grant 0", FIVE], "Suspended", "False NotSuspended"),
        ([PAIR, "grant 0", FIVE, "grant 1"], "Ready", "True AllTasksReady"),
        ([workers(0)], "Ready", "True AllTasksReady"),
        ([PAIR, "grant 0", "suspend"], "Suspended", "True Suspended"),
        ([*LOST_GROWTH], "Succeeded", "False NotFinished"),
    ],
)
def test_conditions_name_what_the_cluster_waits_for(steps, kind, says):
    queue = Queue(steps[0]).play(*steps[1:])
    status, reason, message = queue.condition(kind)
    reasoned, _, words = says.partition(": ")
    assert (f"{status} {reason}", words in message) == (reasoned, True)
    assert queue.desired == next(step for step in reversed([PAIR, *steps]) if isinstance(step, Mapping))


# --- the first claim
def test_workload_asks_for_what_the_pods_ask_for():
    queue = Queue({"chief": 1, "worker": asking("2", 3)})
    body = queue.claim()
    assert (body["apiVersion"], body["spec"]["queueName"]) == ("kueue.x-k8s.io/v1beta2", "team")
    worker = body["spec"]["podSets"][1]["template"]["spec"]
    assert worker["containers"] == [{"name": "task", "resources": {"requests": {"cpu": "2"}}}]
    assert body["metadata"]["ownerReferences"][0]["name"] == "demo"


def test_quota_with_pending_checks_does_not_start_tasks():
    queue = Queue()
    queue.quota_is_granted(FIRST)
    reserved = [one for one in queue.claim()["status"]["conditions"] if one["type"] != "Admitted"]
    checks = [{"name": "budget", "state": "Pending"}]
    queue.edit_claim({"status": {"admissionChecks": checks, "conditions": reserved}})
    queue.settle(queue.cluster)
    assert queue.tasks() == ""
    assert queue.condition("Ready")[2].endswith("quota is reserved; waiting for admission checks: budget (Pending)")


def test_edit_while_it_waits_keeps_its_place_in_the_queue():
    queue = Queue({"worker": asking("1", 2)})
    uid = queue.claim()["metadata"]["uid"]
    queue.declare({"worker": asking("2", 5), "ps": 1}, queue="other")
    body = queue.claim()
    assert (body["metadata"]["uid"], body["spec"]["queueName"]) == (uid, "other")
    assert body["spec"]["podSets"][1]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_change_that_kueue_has_not_judged_is_written_again():
    """Kueue reacts only to changes, and can process the Workload while it changes."""
    queue = Queue({"worker": 4}).play("short 2 more needed", {"worker": 2})

    def kueue_has_judged(generation: int) -> None:
        (condition,) = queue.claim()["status"]["conditions"]
        conditions = [{**condition, "observedGeneration": generation}]
        queue.edit_claim({"metadata": {"generation": 2}, "status": {"conditions": conditions}})

    kueue_has_judged(1)
    before = queue.annotation(KIND, FIRST, naming.ANNOTATION_ASKED_AT)
    soon = queue.plan(queue.cluster)
    assert soon.actions == ()
    assert 0 < soon.wake_after <= 5
    queue.now += soon.wake_after
    queue.step()
    asked_at, _, pause = queue.annotation(KIND, FIRST, naming.ANNOTATION_ASKED_AT).partition("/")
    assert int(asked_at) >= int(before) + 5
    assert queue.plan(queue.cluster).wake_after == int(pause) > soon.wake_after, "Kueue may be down for long"
    kueue_has_judged(2)
    judged = queue.plan(queue.cluster)
    assert (judged.actions, judged.wake_after) == ((), None)


# --- evictions by Kueue
def test_evicted_cluster_waits_for_its_pods_to_end():
    queue = running()
    queue.quota_is_taken_back(FIRST)
    queue.step()
    assert "its 3 pods to end before" in queue.condition("Ready")[2]


def test_workload_that_a_user_deactivates_is_not_queued_again():
    queue = running()
    queue.edit_claim({"spec": {"active": False}})
    queue.evict(0, "Deactivated")
    assert queue.tasks() == ""
    assert "Requeued" not in queue.says_of(FIRST)
    words = "deactivated (Deactivated: for another): set its spec.active to true"
    assert words in queue.condition("Ready")[2]


@pytest.mark.parametrize("step", ["lose 0", "finish 0"])
def test_another_workload_asks_where_a_user_deletes_or_finishes_one(step):
    queue = running()
    uid = queue.claim()["metadata"]["uid"]
    assert queue.play(step).claim()["metadata"]["uid"] != uid


def test_workload_that_a_user_deletes_is_asked_for_after_the_pods_have_gone():
    queue = running()
    queue.delete(KIND, FIRST)
    queue.step()
    assert not any(creates(one, "Workload") for one in queue.plan(queue.cluster).actions)


def test_membership_changes_with_the_quota_of_a_growth():
    queue = running()
    queue.play(workers(4, chief=1))
    epochs = [queue.epoch()]
    for step in ("grant 1", "evict 1", "grant 1"):
        epochs.append(queue.play(step).epoch())
        admitted = {name: queue.says_of(name)["Admitted"] for name in (FIRST, SECOND)}
        assert admitted == {FIRST: "True", SECOND: str(step == "grant 1")}
    assert epochs[0] < epochs[1]
    assert epochs[1:] == [epochs[1], epochs[1] + 1, epochs[1] + 2]


def test_template_that_asks_for_something_else_waits_again():
    """An edit of other fields keeps the quota."""
    queue = Queue({"worker": asking("1", 2)}).play("grant 0")
    uid = queue.claim()["metadata"]["uid"]
    queue.play({"worker": asking("1", 2, "image:2")})
    assert queue.claim()["metadata"]["uid"] == uid
    elsewhere, more = asking("1", 2), asking("8", 2)
    elsewhere["template"]["metadata"] = {"annotations": {f"{TOPOLOGY}required-topology": "rack"}}
    for edited in (elsewhere, more):
        queue.declare({"worker": edited}, settles=False)
        assert queue.roster(queue.cluster).standing.turn is Turn.CHANGED
    queue.settle(queue.cluster)
    assert (queue.tasks(), queue.claim()["metadata"]["uid"] == uid) == ("", False)
    container = queue.claim()["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": "8"}}


@pytest.mark.parametrize("left", [{naming.ANNOTATION_ASKS: None}, {naming.ANNOTATION_ASKS: "{"}])
def test_note_that_a_user_takes_away_ends_no_training(left):
    queue = running()

    def kept() -> tuple[set[str], str]:
        uids = {body["metadata"]["uid"] for (kind, _), body in queue.objects.items() if kind == "Pod"}
        return uids, queue.annotation(KIND, FIRST, naming.ANNOTATION_ASKS)

    before = kept()
    queue.edit_claim({"metadata": {"annotations": left}})
    queue.settle(queue.cluster)
    assert before == kept()


# --- partial admission
GANG = {"gang": {}}


def elastic(replicas: int, least: int) -> dict[str, Any]:
    return {"worker": {"replicas": replicas, "minReplicas": least}}


def test_queue_may_grant_fewer_tasks():
    queue = Queue({**FIVE, **elastic(5, 2)}, scheduling=GANG)
    sets = {one["name"]: one.get("minCount") for one in queue.claim()["spec"]["podSets"]}
    assert sets == {"chief": None, "worker": 2}
    queue.quota_is_granted(FIRST, worker=3)
    queue.step()
    assert queue.asked()[1] == {"worker": 2}
    assert queue.claim(SECOND)["spec"]["podSets"][0]["minCount"] == 1
    assert queue.roster(queue.cluster).cluster.job("worker").replicas == 3


def test_queue_that_granted_fewer_tasks_gets_back_what_is_needed_no_longer():
    """Kueue counts reclaimed pods from the requested number, so it is more than the deleted pods."""
    queue = Queue(elastic(6, 2), scheduling=GANG)
    queue.grant(worker=4)
    assert queue.tasks() == "worker-0 worker-1 worker-2 worker-3"
    for count, tasks, given_back in ((3, "worker-0 worker-1 worker-2", 3), (1, "worker-0", 5)):
        queue.declare(elastic(count, 1), scheduling=GANG)
        assert queue.tasks() == tasks
        assert queue.claim()["status"]["reclaimablePods"] == [{"name": "worker", "count": given_back}]


# --- where the pods can run
def test_flavor_selects_the_nodes_of_the_pods():
    queue, toleration = Queue({"worker": 1}), {"key": "spot", "operator": "Exists"}
    for name, more in {"spot": {"tolerations": [toleration]}, "reserved": {}}.items():
        spec = {"nodeLabels": {"pool": name}, **more}
        queue.create("ResourceFlavor", {"metadata": {"name": name}, "spec": spec})

    def nodes(pod: str) -> tuple[Any, Any]:
        spec = queue.objects["Pod", pod]["spec"]
        return spec["nodeSelector"], spec.get("tolerations")

    queue.grant(0, "spot")
    assert nodes("demo-worker-0") == ({"pool": "spot"}, [toleration])
    queue.play({"worker": 2}).grant(1, "reserved")
    assert nodes("demo-worker-1") == ({"pool": "reserved"}, None)
    queue.evict()
    queue.grant(0, "reserved")
    assert nodes("demo-worker-0") == ({"pool": "reserved"}, None)


def test_admission_check_adds_to_the_pods():
    queue = Queue()
    queue.quota_is_granted(FIRST)
    update = {
        "name": "worker",
        "labels": {"provisioned": "yes"},
        "annotations": {"request": "one"},
        "nodeSelector": {"pool": "new"},
        "tolerations": [{"key": "new", "operator": "Exists"}],
    }
    checks = [{"name": "provision", "state": "Ready", "podSetUpdates": [update]}]
    queue.edit_claim({"status": {"admissionChecks": checks}})
    queue.all_run()
    worker = queue.objects["Pod", "demo-worker-0"]
    assert worker["metadata"]["labels"]["provisioned"] == "yes"
    assert worker["metadata"]["annotations"]["request"] == "one"
    assert worker["spec"]["nodeSelector"] == {"pool": "new"}
    assert "nodeSelector" not in queue.objects["Pod", "demo-chief-0"]["spec"]


@pytest.mark.parametrize(
    ("annotations", "request_", "added"),
    [
        ({"required-topology": "rack"}, {"required": "rack"}, {}),
        ({"preferred-topology": "rack", "group-name": "g"}, {"preferred": "rack", "podSetGroupName": "g"}, {}),
        (
            {"slice-required-topology": "rack", "slice-size": "8"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 8},
            {},
        ),
        ({"slice-size": "many"}, {"podSetSliceSize": "many"}, {}),
        ({"unconstrained-topology": "true"}, {"unconstrained": True}, {}),
        ({}, None, {"unconstrained-topology": "true"}),
    ],
)
def test_kueue_chooses_the_topology_domains_of_the_pods(annotations, request_, added):
    """Each pod waits at Kueue's gate, and names the Workload, the podSet and the first index of its domains."""

    def tasks(replicas: int) -> dict[str, Any]:
        declared = asking("1", replicas)
        declared["template"]["metadata"] = {"annotations": {TOPOLOGY + key: of for key, of in annotations.items()}}
        return {"worker": declared}

    queue = Queue(tasks(2)).play("place 0", tasks(3), "place 1")
    wanted = None if request_ is None else {"podIndexLabel": naming.LABEL_TASK_INDEX, **request_}
    for claim, pod, first in ((FIRST, "demo-worker-1", "0"), (SECOND, "demo-worker-2", "2")):
        assert queue.claim(claim)["spec"]["podSets"][0].get("topologyRequest") == wanted
        body = queue.objects["Pod", pod]
        found = {key: of for key, of in body["metadata"]["annotations"].items() if "kueue" in key}
        asked = {TOPOLOGY + key: of for key, of in {**annotations, **added}.items()}
        own = {"kueue.x-k8s.io/workload": claim, "kueue.x-k8s.io/pod-index-offset": first}
        assert found == {**asked, **own}
        assert body["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
        assert body["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]


# --- the end
def test_finished_cluster_is_finished_for_the_queue():
    """After its pods have ended; Kueue can delete the Workload afterwards, and it is not re-created."""
    queue = Queue(workers(1, ps=1)).play("grant 0")
    queue.pod_ends("demo-worker-0", "Succeeded")
    queue.step()
    assert "Finished" not in queue.says_of(FIRST), "the parameter server is there until it is cleaned up"
    queue.settle(queue.cluster)
    assert queue.says_of(FIRST)["Finished"] == "True"
    refused = Finding(reasons.REJECTED, "Workload tfcluster-demo.0: denied by policy")
    assert queue.condition("Ready", refused)[:2] == ("True", reasons.SUCCEEDED)
    assert queue.condition("UpToDate", refused)[:2] == ("False", reasons.REJECTED)
    said = {"conditions": [{"type": "Succeeded", "status": "True", "observedGeneration": 1}]}
    queue.cluster = with_status(queue.cluster, said)
    queue.play("lose 0")
    assert (queue.asked(), queue.roster(queue.cluster).standing.turn) == ({}, Turn.FINISHED)


# --- missing objects
@pytest.mark.parametrize(
    ("lacks", "reason", "words"),
    [
        ("Kueue", reasons.QUEUE_UNAVAILABLE, "does not serve workloads"),
        ("the flavor", reasons.QUEUE_UNAVAILABLE, "ResourceFlavor hidden"),
        ("the name", reasons.WAITING_FOR_PREDECESSOR, ""),
    ],
)
def test_pods_wait_for_what_the_queue_lacks(lacks, reason, words):
    """Without the flavor pods would run on wrong nodes; a deleted TFCluster of the same name must disappear first."""
    queue = Queue({"worker": 0 if lacks != "the flavor" else 1})
    queue.declare({"worker": 1}, settles=False)
    if lacks == "Kueue":
        queue.stores.of[KIND].have_none("the API server does not serve workloads of kueue.x-k8s.io/v1beta2", None)
    elif lacks == "the flavor":
        queue.quota_is_granted(FIRST, "hidden")
    else:
        owner = {"apiVersion": naming.API_VERSION, "kind": naming.KIND, "name": "demo", "uid": "x", "controller": True}
        about = {"name": FIRST, "labels": {naming.LABEL_CLUSTER: "demo"}, "ownerReferences": [owner]}
        queue.create(KIND, {"metadata": about, "spec": {"podSets": []}})
    planned = queue.plan(queue.cluster)
    assert not any(creates(one, "Pod", "Workload") for one in planned.actions)
    assert planned.findings[0].reason == reason
    assert words in planned.findings[0].message
    assert planned.wake_after or lacks != "Kueue"


def test_running_tasks_continue_while_their_claims_are_unknown():
    queue = running()
    grown = queued(workers(9, chief=1), generation=2)
    standing = stand(grown, replace(queue.observe(grown), lacking={"Workload": "forbidden"}))
    assert {job.name: job.replicas for job in standing.cluster.jobs} == {"chief": 1, "worker": 2}
    assert not standing.cluster.suspend


# --- priorities
@pytest.mark.parametrize(
    ("priority", "found"), [("urgent", ("urgent", "WorkloadPriorityClass")), ("", ("high", "PriorityClass"))]
)
def test_priority_is_the_label_s_or_the_pods(priority, found):
    """Kueue's own class by the label; else that of the chief's pods, or of the first that has one."""
    template = {"spec": {"containers": [{"name": "t"}], "priorityClassName": "high"}}
    cluster = queued({"ps": 1, "worker": {"template": template}}, priority=priority)
    (create,) = [one for one in InMemoryWorld().plan(cluster).actions if creates(one, "Workload")]
    named = create.build()["spec"]["priorityClassRef"]
    assert (named["name"], named["kind"]) == found
