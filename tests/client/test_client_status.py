"""`tfcluster status`: what a picture of a cluster says, how it is drawn, and that it follows what happens."""

import itertools
import json
import os
import subprocess
import sys
import threading

import pytest
import yaml
from client.client_world import refuse
from client.pictured import CREATED, NOW, READY, TOLD, VIEW, cluster, ended, picture, pod, views, waiting
from rich.cells import cell_len
from support.manifests import pod_template

from tfcluster.errors import RefusedError, UnreachableError
from tfcluster.kube.api import PODS, Selection
from tfcluster.kube.watch import snapshots
from tfcluster.status.load import watch
from tfcluster.status.picture import Devices, picture_of
from tfcluster.status.standing import standing_of
from tfcluster.status.text import age, draw, draw_list


def lines_of(shown, width=None, **options):
    return [line.plain for line in draw(shown, width, now=NOW, **options)]


def states(shown):
    return [one.state for one in shown.tasks()]


def test_each_task_has_its_pod_node_and_view():
    shown = picture(pod(0), pod(1), conditions=[READY])
    assert [(one.name, one.state, one.pod, one.node, one.view, one.cause) for one in shown.tasks()] == [
        (f"worker-{index}", "Ready", f"mnist-worker-{index}", f"node-{index}", "delivered", "") for index in (0, 1)
    ]


@pytest.mark.parametrize(
    ("files", "view"),
    [
        ([views(**{"cluster.json": "newer"})], "waiting"),
        ([views(**{"cluster.json": "newer", "task-0.json": VIEW})], "delivered"),
        ([], "unknown"),
        (None, "unknown"),
    ],
)
def test_view_counts_as_delivered_if_the_pod_has_the_newest_file(files, view):
    assert [one.view for one in picture(pod(0), files=files).tasks()] == [view]


def test_a_failed_task_that_waits_for_its_next_try_says_when_that_is():
    failing = {"0": {"in_row": 2, "retry_at": 1800000030.0}}
    kept = pod(0, labels={"tfcluster.dev/kept": "true"}, **ended(1))
    failed = pod(0, suffix="-r1", **ended(139, message="lost the data\x1b[31m\nno more memory\x1b]0;x\x07"))
    shown = picture(kept, failed, worker={}, status={"internal": {"jobs": {"worker": {"failing": failing}}}})
    (task,) = shown.tasks()
    assert (task.state, task.pod, task.kept) == ("BackingOff", "mnist-worker-0-r1", ("mnist-worker-0",))
    assert task.restarts == 2
    assert task.cause == "killed by signal 11 (exit code 139): no more memory�]0;x�; next try at 08:00:30 UTC"


def test_devices_are_granted_with_the_pod_and_may_fail():
    template = pod_template(resources={"limits": {"nvidia.com/gpu": "2", "cpu": "4"}})
    health = [{"resourceID": "a", "health": "Healthy"}, {"resourceID": "b", "health": "Unhealthy"}]
    broken = [{"name": "nvidia.com/gpu", "resources": health}]
    running = [{"name": "tensorflow", "state": {"running": {}}, "allocatedResourcesStatus": broken}]
    pods = [pod(0), pod(1, containerStatuses=running), pod(2, **waiting("ContainerCreating", ""))]
    shown = picture(*pods, worker={"replicas": 3, "template": template})
    expected = [Devices(2, 2, 2), Devices(2, 2, 1), Devices(2, None, None)]
    assert [one.devices["nvidia.com/gpu"] for one in shown.tasks()] == expected
    text = "\n".join(lines_of(shown))
    assert [words in text for words in ("1 of 2 gpu healthy", "2 gpu asked for", "cpu")] == [True, True, False]


def test_undeclared_pod_is_shown_until_its_deletion():
    since = {"tfcluster.dev/view": TOLD, "tfcluster.dev/surplus-since": str(int(NOW) - 10)}
    shown = picture(pod(0), pod(1, metadata={"annotations": since}), worker={"drainTimeoutSeconds": 30})
    assert [(one.name, one.state) for one in shown.tasks()] == [("worker-0", "Ready"), ("worker-1", "Draining")]
    assert (shown.jobs[0].ready, shown.jobs[0].desired) == (1, 1)
    assert "its pod is deleted at 08:00:20 UTC" in "\n".join(lines_of(shown))


GANG = cluster({"worker": {"replicas": 2, "minReplicas": 1}}, scheduling={"gang": {}})
FORMER = {"ownerReferences": [{"kind": "TFCluster", "name": "mnist", "uid": "uid-0", "controller": True}]}
NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
PULLED = pod(0, **waiting("ErrImagePull", 'Back-off pulling image "nope:1"'))
TWO = cluster({"worker": {"replicas": 2}})


def leaving(index, since):
    return pod(index, metadata={"deletionTimestamp": since, "deletionGracePeriodSeconds": 30})


@pytest.mark.parametrize(
    ("body", "pods", "expected"),
    [
        (
            TWO,
            [PULLED, pod(1, phase="Pending", conditions=[NO_NODE])],
            ['Pending: ImagePullBackOff: Back-off pulling image "nope:1"', "Pending: Unschedulable: 0/3 nodes"],
        ),
        (
            TWO,
            [leaving(0, "2027-01-15T07:58:30Z"), leaving(1, "2027-01-15T08:00:20Z")],
            [
                "StuckTerminating: pod mnist-worker-0 is still terminating: node node-0 has not confirmed its end",
                "Terminating: ",
            ],
        ),
        (cluster({"ps": {}, "worker": {"startAfter": ["ps"]}}), [], ["Missing: ", "WaitingForJob: "]),
        (cluster({"worker": {}}, suspend=True), [], ["Suspended: "]),
        (cluster({"worker": {}}, conditions=[("Failed", "True", "TaskFailed", "x")]), [], ["CleanedUp: "]),
        (GANG, [pod(0)], ["Ready: ", "Missing: "]),
        (GANG, [], ["", "WaitingForGang: gang mnist.0 is not scheduled yet"]),
        (
            TWO,
            [pod(0, metadata=FORMER), pod(1, metadata={"ownerReferences": []})],
            ["WaitingForPredecessor: ", "NameTaken: "],
        ),
    ],
)
def test_tasks_that_are_not_ready_say_why(body, pods, expected):
    tasks = list(picture_of(body, pods, [views()], now=NOW).tasks())
    for task, words in zip(tasks, expected, strict=True):
        assert words in f"{task.state}: {task.cause}"
        assert bool(task.pod) == (task.state in {"Ready", "Pending", "StuckTerminating", "Terminating"})


def test_a_spec_that_cannot_be_read_is_counted_by_the_status_alone():
    body = cluster({"worker": {}}, status={"jobs": {"worker": {"replicas": 3, "ready": 2}}})
    body["spec"]["jobs"]["worker"]["replicas"] = "three"
    shown = picture_of(body, [pod(0)], None, now=NOW)
    assert [(job.name, job.ready, job.desired, job.tasks) for job in shown.jobs] == [("worker", 2, 3, ())]
    assert "spec.jobs.worker.replicas" in shown.gaps[0]


def unready(reason, message):
    return ("Ready", "False", reason, message)


@pytest.mark.parametrize(
    ("conditions", "changed", "state", "told"),
    [
        ([READY], {}, "Ready", "2 of 2 ready"),
        ([READY], {"generation": 2}, "Updating", "has not seen generation 2"),
        ([READY], {"deletionTimestamp": CREATED, "finalizers": ["a/b"]}, "Deleting", "a/b"),
        ([], {}, "Unseen", "tfcluster doctor"),
        ([unready("Rejected", "quota")], {}, "NotReady", "quota"),
        ([unready("Suspended", "no pods"), ("Suspended", "True", "Suspended", "x")], {}, "Suspended", "pods"),
        ([unready("InvalidSpec", "no"), ("Stalled", "True", "InvalidSpec", "no")], {}, "Stalled", "no"),
        ([unready("Late", "x"), ("Failed", "True", "Late", "too long")], {"generation": 2}, "Failed", "too long"),
        ([("Ready", "True", "Succeeded", "x"), ("Succeeded", "True", "TasksSucceeded", "all")], {}, "Succeeded", "all"),
    ],
)
def test_one_word_says_how_a_cluster_stands(conditions, changed, state, told):
    standing = standing_of(cluster({"worker": {}}, conditions=conditions, metadata=changed))
    assert (standing.state, told in standing.message) == (state, True)


def test_other_problems_and_another_controller_are_reported():
    told = [READY, ("UpToDate", "False", "RolloutStalled", "worker-3"), ("MembershipPublished", "True", "x", "y")]
    assert standing_of(cluster({"worker": {}}, conditions=told)).notices == ("RolloutStalled: worker-3",)
    assert standing_of(cluster({"worker": {}}, managedBy="example.com/queue")).state == "Elsewhere"


def test_neighbours_that_are_alike_share_a_line_and_what_is_not_fine_is_always_shown():
    pods = [pod(index) for index in range(2000)]
    pods[1337] = pod(1337, **waiting("CreateContainerConfigError", 'secret "key" not found'))
    text = lines_of(picture(*pods))
    assert len(text) < 15
    assert {
        "├─ worker 0–1336 Ready ×1337 2 nodes 5m delivered",  # noqa: RUF001 - it is what is shown
        "├─ worker-1337 Pending mnist-worker-1337 node-1 5m delivered",
        '│ CreateContainerConfigError: secret "key" not found',
        "└─ worker 1338–1999 Ready ×662 2 nodes 5m delivered",  # noqa: RUF001 - likewise
    } <= {" ".join(line.split()) for line in text}


def test_only_neighbours_share_a_line():
    pods = [pod(index) for index in (0, *range(11, 15), *range(17, 21))]
    draining = [line.split()[1:3] for line in lines_of(picture(*pods, worker={}), fold=1) if "Draining" in line]
    assert draining == [["worker", "11–14"], ["worker", "17–20"]]  # noqa: RUF001 - it is what is shown


def test_each_task_is_shown_on_demand():
    shown = picture(*map(pod, range(50)))
    assert len(lines_of(shown, fold=1000)) - len(lines_of(shown)) == 49


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    failing = pod(1, **waiting("ImagePullBackOff", "画像が見つかりません " * 20))
    shown = picture(pod(0), failing, conditions=[unready("TasksNotReady", "word " * 60)])
    table = draw_list([shown], width, now=NOW, namespaces=True)
    text = [*lines_of(shown, width), *(one.plain for one in table)]
    assert max(map(cell_len, text)) <= width
    if width >= 40:
        assert any("ImagePullBackOff" in line for line in text)
        assert any("worker-1" in line and "Pending" in line for line in text)


def test_ages_are_short():
    ages = {-3: "0s", 90: "90s", 300: "5m", 4 * 3600 + 120: "4h2m", 86400: "24h", 3e5: "3d"}
    assert {seconds: age(seconds) for seconds in ages} == ages


def test_status_draws_a_cluster(client_world, monkeypatch):
    client_world.keep_unready("mnist-worker-1")
    client_world.declare("mnist", {"backoffLimit": 3}, ps=1, worker=2)
    client_world.await_that(lambda: client_world.status("mnist").get("readyTasks") == 2)
    output = client_world.ok("status", "mnist").output
    assert "\x1b" not in output
    text = [" ".join(line.split()) for line in output.splitlines()]
    assert text[0].startswith("mnist NotReady 2/3 ready in namespace default")
    assert any("0 restarts of at most 3" in line for line in text)
    for begin in (
        "TasksNotReady: 2 of 3 tasks are ready; worker-1",
        "├─ worker-0 Ready mnist-worker-0 node-",
        "└─ worker-1 NotReady mnist-worker-1",
    ):
        assert any(line.startswith(begin) for line in text), begin
    refuse(monkeypatch, "pods", "configmaps")
    counted = client_world.ok("status", "mnist").output
    assert "worker  1/2 ready" in counted
    assert "the pods cannot be listed: pods is forbidden" in counted


def test_status_lists_all_clusters(client_world):
    client_world.launch("fine", worker=1)
    client_world.declare("resting", {"suspend": True}, worker=1)
    client_world.await_condition("resting", "Suspended")
    table = client_world.cli("status").output.splitlines()
    assert [line.split()[:2] for line in table] == [["NAME", "STATE"], ["fine", "Ready"], ["resting", "Suspended"]]
    found = json.loads(client_world.cli("status", "-A", "-o", "json").output)["items"]
    spelled = [(one["metadata"]["namespace"], one["metadata"]["name"], one["state"]) for one in found]
    assert spelled == [("default", "fine", "Ready"), ("default", "resting", "Suspended")]


def test_status_as_data_lists_all_tasks_and_survives_a_closed_pipe(client_world):
    client_world.launch("mnist", worker=2)
    spelled = json.loads(client_world.cli("status", "mnist", "-o", "json").output)
    assert spelled == yaml.safe_load(client_world.cli("status", "mnist", "-o", "yaml").output)
    tasks = [(one["name"], one["state"], one["view"]) for one in spelled["tasks"]]
    assert tasks == [(f"worker-{index}", "Ready", "delivered") for index in (0, 1)]
    status = client_world.status("mnist")
    del status["internal"]
    assert (spelled["state"], spelled["status"], status["readyTasks"]) == ("Ready", status, 2)
    # As `tfcluster status mnist | head -1` does.
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "tfcluster", "status", "mnist", "--kubeconfig", str(client_world.kubeconfig)]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_status_of_nothing_is_an_error_and_an_empty_namespace_is_not(client_world):
    cli = client_world.cli
    missing, empty, both = cli("status", "nope"), cli("status"), cli("status", "x", "-A")
    assert (missing.exit_code, empty.exit_code, both.exit_code) == (1, 0, 2)
    assert "TFCluster nope not found in namespace default" in missing.stderr
    assert "No TFCluster found in namespace default" in empty.stderr
    assert empty.stdout == ""
    client_world.at_once(lambda: client_world.kube.uninstall("tfclusters"))
    uninstalled = cli("status", "mnist")
    assert (uninstalled.exit_code, "no TFCluster" in uninstalled.stderr) == (1, False)
    assert "Is the operator installed?" in uninstalled.stderr


def test_watch_shows_changes_until_the_cluster_is_deleted(client_world):
    client_world.launch("mnist", worker=2)
    seen = []
    with client_world.client() as client:
        pictures = watch(client.api, "mnist", tick=None)
        assert states(next(pictures)) == ["Ready", "Ready"]
        client_world.exit("mnist-worker-0", 7)
        for shown in itertools.takewhile(lambda one: one is not None, pictures):
            seen += [one for one in shown.tasks() if one.name == "worker-0"]
            if seen[-1].pod == "mnist-worker-0-r1":
                client_world.delete("tfclusters", "mnist")
    assert any(one.state != "Ready" and "exit code 7" in one.cause for one in seen), seen


def test_watch_continues_after_a_disconnect(client_world, monkeypatch):
    client_world.launch("mnist", worker=1)
    errors = itertools.cycle([UnreachableError("lost"), RefusedError("too old", status=410)])
    broken = threading.Event()
    with client_world.client() as client:
        whole = client.api.watch

        def breaking(*arguments, **options):
            for change in whole(*arguments, **options):
                yield change
                broken.set()
                raise next(errors)

        monkeypatch.setattr(client.api, "watch", breaking)
        pictures = watch(client.api, "mnist", tick=None)
        next(pictures)
        for replicas in (3, 2):
            client_world.scale("mnist", worker=replicas)
            assert next(shown for shown in pictures if states(shown) == ["Ready"] * replicas)
    assert broken.is_set()


def test_a_watch_that_dies_of_a_fault_says_so(client_world, monkeypatch):
    with client_world.client() as client:
        monkeypatch.setattr(client.api, "list", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(snapshots(client.api, [Selection(PODS)]))
