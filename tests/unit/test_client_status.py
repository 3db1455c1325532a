"""`tfcluster status`: what a picture of a cluster says, how it is drawn, and that it follows what happens."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading

import pytest
import yaml
from rich.cells import cell_len
from support.manifests import pod_template, tfcluster
from unit.refusing import refuse

from tfcluster import looking
from tfcluster.errors import RefusedError, UnreachableError
from tfcluster.picture import picture_of
from tfcluster.snapshots import Snapshots
from tfcluster.standing import standing_of
from tfcluster.status_changes import changes
from tfcluster.status_text import age, draw, draw_list
from tfcluster.task_picture import Devices
from tfcluster.text_columns import Paper
from tfcluster_operator.model.digests import digest

NOW = 1_800_000_000.0
CREATED = "2027-01-15T07:55:00Z"  # five minutes before NOW
VIEW = "what worker tasks see"
TOLD = digest(VIEW)


def cluster(jobs, *, conditions=(), status=None, metadata=None, **spec):
    """Give a TFCluster as the API server has it."""
    builder = tfcluster("mnist").spec(**spec)
    for job, fields in jobs.items():
        builder.job(job, **fields)
    body = builder.build()
    body["metadata"] |= {
        "namespace": "default",
        "uid": "uid-1",
        "generation": 1,
        "creationTimestamp": CREATED,
        **(metadata or {}),
    }
    said = [{"type": kind, "status": state, "reason": why, "message": words} for kind, state, why, words in conditions]
    body["status"] = {"observedGeneration": 1, "conditions": said, **(status or {})}
    return body


def pod(job, index, *, phase="Running", ready=True, suffix="", labels=None, told=TOLD, metadata=None, **status):
    """Give a pod of a task as the API server has it."""
    return {
        "metadata": {
            "name": f"mnist-{job}-{index}{suffix}",
            "namespace": "default",
            "uid": f"uid-{job}-{index}{suffix}",
            "resourceVersion": "5",
            "creationTimestamp": CREATED,
            "labels": {
                "tfcluster.dev/cluster": "mnist",
                "tfcluster.dev/job": job,
                "tfcluster.dev/task-index": str(index),
                **(labels or {}),
            },
            "annotations": {"tfcluster.dev/view": told},
            "ownerReferences": [{"kind": "TFCluster", "name": "mnist", "uid": "uid-1", "controller": True}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}],
            **(metadata or {}),
        },
        "spec": {"nodeName": f"node-{index % 2}", "containers": [{"name": "tensorflow"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}], **status},
    }


def waiting(reason, message):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "ready": False, "containerStatuses": [{"name": "tensorflow", "state": state}]}


def ended(code, reason="Error", message=""):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed", "ready": False, "containerStatuses": [{"name": "tensorflow", "state": state}]}


def views(job="worker", **files):
    return {"metadata": {"name": f"mnist-{job}"}, "data": files or {"cluster.json": VIEW}}


def lines_of(picture, width=None, **options):
    return [line.plain for line in draw(picture, Paper(width), now=NOW, **options)]


# --- what a picture says


def test_each_task_has_its_pod_node_and_view():
    """A ready task whose pod was told of its newest view."""
    body = cluster({"worker": {"replicas": 2}}, conditions=[("Ready", "True", "AllTasksReady", "2 of 2 ready")])

    picture = picture_of(body, [pod("worker", 0), pod("worker", 1)], [views()], now=NOW)

    assert [(one.name, one.state, one.pod, one.node, one.view, one.cause) for one in picture.tasks()] == [
        ("worker-0", "Ready", "mnist-worker-0", "node-0", "delivered", ""),
        ("worker-1", "Ready", "mnist-worker-1", "node-1", "delivered", ""),
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
def test_a_view_counts_as_delivered_if_the_pod_was_told_of_the_newest_file(files, view):
    """The file is the task's own where there is one; what cannot be read is not guessed."""
    picture = picture_of(cluster({"worker": {}}), [pod("worker", 0)], files, now=NOW)

    assert [one.view for one in picture.tasks()] == [view]


def test_the_cause_is_what_the_kubelet_or_the_scheduler_says():
    """An image that is not found, and a pod that no node takes."""
    unschedulable = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}],
    }
    pods = [
        pod("worker", 0, **waiting("ErrImagePull", 'Back-off pulling image "nope:1"')),
        pod("worker", 1, **unschedulable),
    ]

    picture = picture_of(cluster({"worker": {"replicas": 2}}), pods, [views()], now=NOW)

    assert [(one.state, one.cause) for one in picture.tasks()] == [
        ("Pending", 'ImagePullBackOff: Back-off pulling image "nope:1"'),
        ("Pending", "Unschedulable: 0/3 nodes"),
    ]


def test_a_failed_task_that_waits_for_its_next_try_says_when_that_is():
    """The end of its program in words, the pod that is kept, and the time."""
    status = {
        "internal": {
            "jobs": {"worker": {"failing": {"0": {"inRow": 2, "retryTime": "2027-01-15T08:00:30.000Z"}}}},
        }
    }
    kept = pod("worker", 0, labels={"tfcluster.dev/kept": "true"}, **ended(1))
    failed = pod("worker", 0, suffix="-r1", **ended(137, message="lost the data\x1b[31m\nno more memory\x1b]0;x\x07"))

    picture = picture_of(cluster({"worker": {}}, status=status), [kept, failed], [views()], now=NOW)

    (task,) = picture.tasks()
    assert (task.state, task.pod, task.kept, task.restarts) == (
        "BackingOff",
        "mnist-worker-0-r1",
        ("mnist-worker-0",),
        2,
    )
    words = "killed by signal 9 (exit code 137): no more memory�]0;x�; next try at 08:00:30 UTC"
    assert task.cause == words


def test_devices_are_granted_with_the_pod_and_may_fail():
    """What is asked for is not there before the pod runs; what the kubelet calls unhealthy is told."""
    template = pod_template(resources={"limits": {"nvidia.com/gpu": "2", "cpu": "4"}})
    broken = {
        "name": "nvidia.com/gpu",
        "resources": [{"resourceID": "a", "health": "Healthy"}, {"resourceID": "b", "health": "Unhealthy"}],
    }
    running = {"name": "tensorflow", "state": {"running": {}}, "allocatedResourcesStatus": [broken]}
    pods = [
        pod("worker", 0),
        pod("worker", 1, containerStatuses=[running]),
        pod("worker", 2, **waiting("ContainerCreating", "")),
    ]

    picture = picture_of(cluster({"worker": {"replicas": 3, "template": template}}), pods, [views()], now=NOW)

    assert [one.devices["nvidia.com/gpu"] for one in picture.tasks()] == [
        Devices(2, 2, 2),
        Devices(2, 2, 1),
        Devices(2, None, None),
    ]
    text = "\n".join(lines_of(picture))
    assert "1 of 2 gpu healthy" in text
    assert "2 gpu asked for" in text
    assert "cpu" not in text


def test_a_pod_that_no_node_lets_go_is_stuck():
    """The deletion was asked for longer ago than its grace period and some seconds."""
    leaving = {"deletionTimestamp": "2027-01-15T07:58:30Z", "deletionGracePeriodSeconds": 30}
    stuck = pod("worker", 0, metadata=None)
    stuck["metadata"] |= leaving
    fresh = pod("worker", 1)
    fresh["metadata"] |= {**leaving, "deletionTimestamp": "2027-01-15T08:00:20Z"}

    picture = picture_of(cluster({"worker": {"replicas": 2}}), [stuck, fresh], [views()], now=NOW)

    assert [one.state for one in picture.tasks()] == ["StuckTerminating", "Terminating"]
    assert "node node-0 does not confirm its end" in next(picture.tasks()).cause


def test_a_pod_that_is_declared_no_more_is_shown_until_it_is_gone():
    """It says when it goes; it is not among those that are counted."""
    draining = pod("worker", 1)
    draining["metadata"]["annotations"]["tfcluster.dev/surplus-since"] = str(int(NOW) - 10)

    picture = picture_of(
        cluster({"worker": {"drainTimeoutSeconds": 30}}), [pod("worker", 0), draining], [views()], now=NOW
    )

    assert [(one.name, one.state) for one in picture.tasks()] == [("worker-0", "Ready"), ("worker-1", "Draining")]
    assert (picture.jobs[0].ready, picture.jobs[0].desired) == (1, 1)
    assert "its pod is deleted at 08:00:20 UTC" in "\n".join(lines_of(picture))


def test_tasks_without_a_pod_say_why():
    """A job that waits for another; one beyond its gang; a suspended one; one whose cluster has finished."""
    beyond = cluster({"worker": {"replicas": 2}}, scheduling={"gang": {"minTasks": {"worker": 1}}})
    waits = cluster({"ps": {}, "worker": {"startAfter": ["ps"]}})
    suspended = cluster({"worker": {}}, suspend=True)
    over = cluster({"worker": {}}, conditions=[("Failed", "True", "TaskFailed", "worker-0 failed")])

    found = [[one.state for one in picture_of(body, [], [], now=NOW).tasks()] for body in (waits, suspended, over)]
    placed = [one.state for one in picture_of(beyond, [pod("worker", 0)], [], now=NOW).tasks()]
    waiting = [(one.state, one.cause) for one in picture_of(beyond, [], [], now=NOW).tasks()]

    assert found == [["Missing", "WaitingForJob"], ["Suspended"], ["CleanedUp"]]
    assert placed == ["Ready", "Missing"]
    assert waiting[1] == ("WaitingForGang", "gang mnist.0 has no places yet")


def test_pods_of_others_are_not_taken_for_the_clusters_own():
    """A pod of the deleted TFCluster of that name, and one that somebody made."""
    before = [{"kind": "TFCluster", "name": "mnist", "uid": "uid-0", "controller": True}]
    pods = [
        pod("worker", 0, metadata={"ownerReferences": before}),
        pod("worker", 1, metadata={"ownerReferences": []}),
    ]

    picture = picture_of(cluster({"worker": {"replicas": 2}}), pods, [views()], now=NOW)

    assert [(one.state, one.pod) for one in picture.tasks()] == [("WaitingForPredecessor", ""), ("NameTaken", "")]


def test_a_spec_that_cannot_be_read_is_counted_by_the_status_alone():
    """An older definition let it pass; the problem is told."""
    body = cluster({"worker": {}}, status={"jobs": {"worker": {"desired": 3, "ready": 2}}})
    body["spec"]["jobs"]["worker"]["replicas"] = "three"

    picture = picture_of(body, [pod("worker", 0)], None, now=NOW)

    assert [(job.name, job.ready, job.desired, job.tasks) for job in picture.jobs] == [("worker", 2, 3, ())]
    assert "spec.jobs.worker.replicas" in picture.gaps[0]


# --- how a cluster stands

READY = ("Ready", "True", "AllTasksReady", "2 of 2 ready")


@pytest.mark.parametrize(
    ("conditions", "changed", "state", "told"),
    [
        ([READY], {}, "Ready", "2 of 2 ready"),
        ([READY], {"generation": 2}, "Updating", "has not seen generation 2"),
        ([READY], {"deletionTimestamp": CREATED, "finalizers": ["a/b"]}, "Deleting", "a/b"),
        ([], {}, "Unseen", "tfcluster doctor"),
        ([("Ready", "False", "Rejected", "quota")], {}, "NotReady", "quota"),
        (
            [("Ready", "False", "Suspended", "no pods"), ("Suspended", "True", "Suspended", "x")],
            {},
            "Suspended",
            "pods",
        ),
        ([("Ready", "False", "InvalidSpec", "no"), ("Stalled", "True", "InvalidSpec", "no")], {}, "Stalled", "no"),
        (
            [("Ready", "False", "DeadlineExceeded", "x"), ("Failed", "True", "DeadlineExceeded", "too long")],
            {"generation": 2},
            "Failed",
            "too long",
        ),
        ([("Ready", "True", "Succeeded", "x"), ("Succeeded", "True", "TasksSucceeded", "all")], {}, "Succeeded", "all"),
    ],
)
def test_one_word_says_how_a_cluster_stands(conditions, changed, state, told):
    """The words are the operator's, the verdict goes first."""
    standing = standing_of(cluster({"worker": {}}, conditions=conditions, metadata=changed))

    assert standing.state == state
    assert told in standing.message


def test_what_else_is_wrong_is_told_besides():
    """A ready cluster whose rollout has stopped."""
    told = [READY, ("UpToDate", "False", "RolloutStalled", "worker-3"), ("MembershipPublished", "True", "x", "y")]

    assert standing_of(cluster({"worker": {}}, conditions=told)).notices == ("RolloutStalled: worker-3",)


def test_another_controllers_cluster_is_told_as_such():
    """The operator leaves it alone, so it has no conditions."""
    assert standing_of(cluster({"worker": {}}, managedBy="example.com/queue")).state == "Elsewhere"


# --- how it is drawn


def test_neighbours_that_are_alike_share_a_line_and_what_is_not_fine_is_always_shown():
    """Of 2,000 workers the one that fails has a line of its own, with its cause."""
    pods = [pod("worker", index) for index in range(2000)]
    pods[1337] = pod("worker", 1337, **waiting("CreateContainerConfigError", 'secret "key" not found'))

    text = lines_of(picture_of(cluster({"worker": {"replicas": 2000}}), pods, [views()], now=NOW))

    assert len(text) < 15
    tree = [" ".join(line.split()) for line in text]
    assert "├─ worker 0–1336 Ready ×1337 2 nodes 5m delivered" in tree  # noqa: RUF001 - it is what is shown
    assert "├─ worker-1337 Pending mnist-worker-1337 node-1 5m delivered" in tree
    assert '│ CreateContainerConfigError: secret "key" not found' in tree
    assert "└─ worker 1338–1999 Ready ×662 2 nodes 5m delivered" in tree  # noqa: RUF001 - likewise


def test_only_neighbours_share_a_line():
    """Of pods that are declared no more, some may be gone in the middle."""
    pods = [pod("worker", index) for index in (0, *range(11, 15), *range(17, 21))]

    text = lines_of(picture_of(cluster({"worker": {}}), pods, [views()], now=NOW), fold=1)

    assert [line.split()[1:3] for line in text if "Draining" in line] == [
        ["worker", "11–14"],  # noqa: RUF001 - it is what is shown
        ["worker", "17–20"],  # noqa: RUF001 - likewise
    ]


def test_each_task_is_shown_on_demand():
    """--all-tasks folds nothing."""
    pods = [pod("worker", index) for index in range(50)]
    picture = picture_of(cluster({"worker": {"replicas": 50}}), pods, [views()], now=NOW)

    assert len(lines_of(picture, fold=1000)) - len(lines_of(picture)) == 49


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    """Columns go before the state of a task does; causes are wrapped, also in a script of wide characters."""
    pods = [pod("worker", 0), pod("worker", 1, **waiting("ImagePullBackOff", "画像が見つかりません " * 20))]
    body = cluster({"worker": {"replicas": 2}}, conditions=[("Ready", "False", "TasksNotReady", "word " * 60)])

    picture = picture_of(body, pods, [views()], now=NOW)
    table = draw_list([picture], Paper(width), now=NOW, namespaces=True)
    text = [*lines_of(picture, width), *(one.plain for one in table)]

    assert max(map(cell_len, text)) <= width
    if width >= 40:
        assert any("ImagePullBackOff" in line for line in text)
        assert any("worker-1" in line and "Pending" in line for line in text)


def test_a_terminal_without_unicode_gets_plain_guides():
    """ASCII draws the tree, too."""
    picture = picture_of(cluster({"worker": {"replicas": 2}}), [pod("worker", 0)], [views()], now=NOW)

    text = "\n".join(line.plain for line in draw(picture, Paper(80, fancy=False), now=NOW))

    assert text.isascii()
    assert "`- worker-1" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (90, "90s"), (300, "5m"), (4 * 3600 + 120, "4h2m"), (86400, "24h"), (3e5, "3d")]
)
def test_ages_are_short(seconds, text):
    """As kubectl spells them."""
    assert age(seconds) == text


# --- what changed


def test_changes_name_the_cluster_and_the_tasks_that_changed():
    """Nothing else is told, and of the first picture all."""
    body = cluster({"worker": {"replicas": 2}}, conditions=[READY], status={"ready": "2/2"})
    before = picture_of(body, [pod("worker", 0), pod("worker", 1)], [views()], now=NOW)
    after = picture_of(body, [pod("worker", 0), pod("worker", 1, **ended(3))], [views()], now=NOW + 60)

    assert len(list(changes(None, before))) == 3
    assert list(changes(before, after)) == [
        "worker-1: Ready -> Failed, pod mnist-worker-1 on node-1: exit code 3",
    ]
    assert list(changes(after, after)) == []


def test_words_that_alternate_are_no_change():
    """While an image is not found, the kubelet tells so in two ways, in turns."""
    said = ("ErrImagePull", "failed to resolve nope:1"), ("ImagePullBackOff", "back-off pulling nope:1")
    conditions = [[("Ready", "False", "TasksNotReady", words)] for _, words in said]
    first, second = (
        picture_of(cluster({"worker": {}}, conditions=told), [pod("worker", 0, **waiting(*words))], [views()], now=NOW)
        for told, words in zip(conditions, said, strict=True)
    )

    assert list(changes(first, second)) == []


# --- the command, on the real engine


def test_status_draws_a_cluster(client_world):
    """What is fine is short, what is not says why; nothing is coloured on a pipe."""
    client_world.at_once(lambda: client_world.nodes.never_ready.add("mnist-worker-1"))
    client_world.declare("mnist", {"ps": {}, "worker": {"replicas": 2}}, backoffLimit=3)
    client_world.await_that(
        lambda: (client_world.cluster("mnist") or {}).get("status", {}).get("ready") == "2/3",
    )

    result = client_world.cli("status", "mnist")

    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    text = [" ".join(line.split()) for line in result.output.splitlines()]
    assert text[0].startswith("mnist NotReady 2/3 ready in namespace default")
    assert any(line.startswith("TasksNotReady: 2 of 3 tasks are ready; worker-1") for line in text)
    assert any("0 restarts of at most 3" in line for line in text)
    assert any(line.startswith("├─ worker-0 Ready mnist-worker-0 node-") for line in text)
    assert any(line.startswith("└─ worker-1 NotReady mnist-worker-1") for line in text)


def test_status_lists_all_clusters(client_world):
    """One request; each has a row."""
    client_world.declare("fine", {"worker": {}})
    client_world.declare("resting", {"worker": {}}, suspend=True)
    client_world.await_condition("fine", "Ready")
    client_world.await_condition("resting", "Suspended")

    table = client_world.cli("status").output.splitlines()
    found = json.loads(client_world.cli("status", "-A", "-o", "json").output)

    assert [line.split()[:2] for line in table] == [["NAME", "STATE"], ["fine", "Ready"], ["resting", "Suspended"]]
    assert [(one["namespace"], one["name"], one["state"]) for one in found["clusters"]] == [
        ("default", "fine", "Ready"),
        ("default", "resting", "Suspended"),
    ]


def test_status_as_data_has_every_task(client_world):
    """JSON and YAML say the same."""
    client_world.declare("mnist", {"worker": {"replicas": 2}})
    client_world.await_condition("mnist", "Ready")

    spelled = json.loads(client_world.cli("status", "mnist", "-o", "json").output)
    again = yaml.safe_load(client_world.cli("status", "mnist", "-o", "yaml").output)

    assert spelled == again
    assert [(one["name"], one["state"], one["view"]) for one in spelled["jobs"][0]["tasks"]] == [
        ("worker-0", "Ready", "delivered"),
        ("worker-1", "Ready", "delivered"),
    ]
    nothing = [spelled[key] for key in ("lastRestart", "deadline", "queue", "waitingSince")]
    assert (spelled["state"], nothing) == ("Ready", [None] * 4)


def test_status_of_nothing_is_an_error_and_an_empty_namespace_is_not(client_world):
    """Scripts tell by the exit code."""
    cli = client_world.cli
    missing, empty, both = cli("status", "nope"), cli("status"), cli("status", "x", "-A")

    assert (missing.exit_code, empty.exit_code, both.exit_code) == (1, 0, 2)
    assert "no TFCluster nope in namespace default" in missing.stderr
    assert "There is no TFCluster in namespace default" in empty.stderr
    assert empty.stdout == ""


def test_where_the_kind_is_not_installed_that_is_said(client_world):
    """It is not the cluster that is missing."""
    client_world.at_once(lambda: client_world.kube.uninstall("tfclusters"))

    result = client_world.cli("status", "mnist")

    assert result.exit_code == 1
    assert "no TFCluster" not in result.stderr
    assert "Is the operator installed?" in result.stderr


def test_a_reader_that_goes_away_is_no_failure(client_world):
    """As `tfcluster status mnist | head -1` does."""
    client_world.declare("mnist", {"worker": {"replicas": 2}})
    client_world.await_condition("mnist", "Ready")
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "tfcluster", "status", "mnist", "--kubeconfig", str(client_world.kubeconfig)]

    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert (done.returncode, done.stderr) == (0, b"")


def test_who_may_not_list_pods_still_sees_the_counts(client_world, monkeypatch):
    """What could not be looked at is told, and nothing is made up."""
    client_world.declare("mnist", {"worker": {"replicas": 2}})
    client_world.await_condition("mnist", "Ready")
    refuse(monkeypatch, "pods", "configmaps")

    result = client_world.cli("status", "mnist")

    assert result.exit_code == 0
    assert "worker  2/2 ready" in result.output
    assert "the pods cannot be listed: pods is forbidden" in result.output


def test_a_watch_shows_what_happens_until_the_cluster_is_gone(client_world):
    """A scale-down, a failure and the end, each as a change."""
    client_world.declare("mnist", {"worker": {"replicas": 2}})
    client_world.await_condition("mnist", "Ready")
    seen = []
    with client_world.client() as client:
        pictures = looking.watch(client, "mnist", tick=None)
        before = next(pictures)
        assert [one.state for one in before.tasks()] == ["Ready", "Ready"]
        client_world.at_once(lambda: client_world.nodes.exit("mnist-worker-0", 7))
        for picture in itertools.takewhile(lambda one: one is not None, pictures):
            seen += changes(before, picture)
            before = picture
            if any("mnist-worker-0-r1" in line for line in seen):
                client_world.at_once(lambda: client_world.kube.delete("tfclusters", "default", "mnist"))

    assert any(line.startswith("worker-0: Ready -> ") and "exit code 7" in line for line in seen), seen


def test_a_watch_goes_on_where_the_server_breaks_it(client_world, monkeypatch):
    """Each watch breaks after its first change, by a lost connection or an expired version; nothing is missed."""
    client_world.declare("mnist", {"worker": {}})
    client_world.await_condition("mnist", "Ready")
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
        pictures = looking.watch(client, "mnist", tick=None)
        next(pictures)
        for replicas in (3, 2):
            change = {"spec": {"jobs": {"worker": {"replicas": replicas}}}}
            client_world.at_once(
                lambda change=change: client_world.kube.patch("tfclusters", "default", "mnist", change)
            )
            states = ([one.state for one in picture.tasks()] for picture in pictures)
            assert next(one for one in states if one == ["Ready"] * replicas)

    assert broken.is_set()


def test_a_watch_that_dies_of_a_fault_says_so(client_world, monkeypatch):
    """A thread that ends is no watch that never changes."""
    with client_world.client() as client:
        monkeypatch.setattr(client.api, "list", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(Snapshots(client.api, [looking.Selection(looking.PODS)]).each())
