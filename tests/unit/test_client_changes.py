"""What a change will do is said before it is done, and one that could do nothing is refused."""

from __future__ import annotations

import json

import pytest
from support.waiting import GUARD

from memory_kubernetes import Refusal
from tfcluster.changes import deletion, resumption, scaling, suspension
from tfcluster.errors import ConflictError, ManifestError, NoClusterError, NotRunningError
from tfcluster.observed import seconds_of
from tfcluster.restarts import restart_of_jobs, restart_of_task
from tfcluster.task_names import TaskName


def cluster(*conditions, **spec):
    worker = {"replicas": 3, "maxReplicas": 6, "drainTimeoutSeconds": 30, "template": {"spec": {"containers": []}}}
    return {
        "metadata": {"name": "digits", "namespace": "default", "uid": "u"},
        "spec": {"jobs": {"worker": worker, "ps": {"replicas": 1}}, **spec},
        "status": {
            "conditions": [{"type": kind, "status": "True"} for kind in conditions],
            "jobs": {"worker": {"created": 3}, "ps": {"created": 1}},
        },
    }


def test_scaling_up_names_who_comes():
    """The new tasks are named, and nothing else happens."""
    change = scaling(cluster(), "worker", 5)

    assert change.patch == {"spec": {"jobs": {"worker": {"replicas": 5}}}}
    assert change.words == (
        "worker: from 3 to 5 tasks.",
        "New: worker-3 and worker-4; no pod that runs is replaced.",
    )


def test_scaling_down_names_who_goes_first():
    """The highest index goes first, after drainTimeoutSeconds."""
    change = scaling(cluster(), "worker", 1)

    assert change.words[0] == "worker: from 3 to 1 task."
    assert change.words[1].startswith("To go: worker-2 and worker-1, 30 s (drainTimeoutSeconds) after")


def test_a_long_list_of_tasks_is_folded():
    """Of many tasks, the first and the last are named."""
    body = cluster()
    del body["spec"]["jobs"]["worker"]["maxReplicas"]

    assert "New: worker-3 … worker-999 (997 tasks);" in scaling(body, "worker", 1000).words[1]


def test_an_autoscaler_is_named():
    """Whoever sets a number that an autoscaler owns is told so."""
    assert "HorizontalPodAutoscaler busy" in scaling(cluster(), "worker", 4, ["busy"]).words[-1]


@pytest.mark.parametrize(
    ("job", "replicas", "words"),
    [
        ("worker", 7, r"7 tasks are more than spec\.jobs\.worker\.maxReplicas allows, which is 6"),
        ("chief", 1, "digits has no job chief"),
        ("worker", -1, "-1 is no number of tasks"),
    ],
)
def test_what_cannot_be_is_refused(job, replicas, words):
    """The message names the field, and the hint the next step."""
    with pytest.raises(ManifestError, match=words):
        scaling(cluster(), job, replicas)


@pytest.mark.parametrize("decide", [lambda body: scaling(body, "worker", 1), suspension, resumption])
@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_a_finished_cluster_is_not_changed(decide, kind):
    """An end is final: a change would look as if it had done something."""
    with pytest.raises(NotRunningError, match=f"digits has {kind.lower()}"):
        decide(cluster(kind))


def test_a_cluster_that_is_being_deleted_is_not_changed():
    """Its finalizers may keep it for long."""
    body = cluster()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    with pytest.raises(NotRunningError, match="is being deleted"):
        suspension(body)


def test_what_is_so_already_is_no_change():
    """Nothing is sent where nothing would change."""
    assert not scaling(cluster(), "worker", 3).patch
    assert not suspension(cluster(suspend=True)).patch
    assert not resumption(cluster()).patch


def test_cluster_that_gave_up_by_itself_is_resumed_by_two_edits():
    """Its spec wants it to run already, and only another generation of the spec is tried."""
    body = cluster()
    body["status"]["conditions"] = [{"type": "Suspended", "status": "True", "reason": "GangTimeout"}]
    change = resumption(body)

    assert (change.first, change.patch) == ({"spec": {"suspend": True}}, {"spec": {"suspend": False}})
    assert change.words[0] == "To start from the beginning: 4 tasks, complete ones too."


def test_another_controller_is_named():
    """The operator does nothing for such a cluster; whoever waits for it should know."""
    assert "example.com/queue" in suspension(cluster(managedBy="example.com/queue")).words[-1]


def test_deletion_says_what_stays():
    """Volumes and ConfigMaps of users are named."""
    body = cluster()
    body["spec"]["jobs"]["worker"]["template"]["spec"]["volumes"] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "checkpoints"}},
        {"name": "b", "configMap": {"name": "script"}},
        {"name": "c", "emptyDir": {}},
    ]

    assert "pods of its 4 tasks" in deletion(body)[0]
    assert deletion(body)[1] == "To be kept: ConfigMap script, PersistentVolumeClaim checkpoints."


# --- the commands, on the real engine


def test_scale_says_what_will_happen_and_waits(client_world):
    """The number reaches the cluster, and the command comes back when every task knows the others."""
    client_world.declare("digits", {"worker": {"replicas": 1, "maxReplicas": 3}})
    client_world.await_condition("digits", "Ready")

    shown = client_world.cli("scale", "digits", "3", "--wait", "--timeout", f"{GUARD:g}s")

    assert (shown.exit_code, shown.stdout) == (0, "digits scaled\n")
    assert "New: worker-1 and worker-2;" in shown.stderr
    assert client_world.cluster("digits")["status"]["ready"] == "3/3"


def test_dry_run_changes_nothing(client_world):
    """It prints the object as it would be."""
    client_world.declare("digits", {"worker": {"replicas": 1, "maxReplicas": 3}})
    client_world.await_condition("digits", "Ready")

    shown = client_world.cli("scale", "digits", "3", "--dry-run", "-o", "json")

    assert json.loads(shown.stdout)["spec"]["jobs"]["worker"]["replicas"] == 3
    assert client_world.cluster("digits")["spec"]["jobs"]["worker"]["replicas"] == 1
    assert client_world.cli("delete", "digits", "--dry-run").exit_code == 0
    assert "deletionTimestamp" not in client_world.cluster("digits")["metadata"]


def test_suspend_and_resume(client_world):
    """Both are waited for: the pods are gone, and there again."""
    client_world.declare("digits", {"worker": {"replicas": 2}})
    client_world.declare("letters", {"worker": {}})
    client_world.await_condition("digits", "Ready")
    client_world.await_condition("letters", "Ready")

    shown = client_world.cli("suspend", "digits", "letters", "--wait", "--timeout", f"{GUARD:g}s")

    assert (shown.exit_code, shown.stdout) == (0, "digits suspended\nletters suspended\n")
    assert "digits: To be deleted: 2 pods" in shown.stderr
    assert client_world.at_once(lambda: client_world.kube.list("pods")) == []
    shown = client_world.cli("resume", "digits", "--wait", "--timeout", f"{GUARD:g}s")
    assert "complete ones too" in shown.stderr
    assert client_world.cluster("digits")["status"]["ready"] == "2/2"


def test_delete_waits_for_the_pods(client_world):
    """When it comes back, the addresses are free for the next cluster of that name."""
    client_world.declare("digits", {"worker": {"replicas": 2}})
    client_world.await_condition("digits", "Ready")

    shown = client_world.cli("delete", "digits", "digits", "--yes", "--wait", "--timeout", f"{GUARD:g}s")

    assert (shown.exit_code, shown.stdout) == (0, "digits deleted\n")
    assert client_world.cluster("digits") is None
    assert client_world.at_once(lambda: client_world.kube.list("pods")) == []
    assert client_world.cli("delete", "digits", "--yes").exit_code == 1


def test_a_reborn_cluster_is_another_one(client_world):
    """What was decided of a TFCluster happens to no later one of that name."""
    client_world.declare("digits", {"worker": {"replicas": 1}})
    with client_world.client() as client:
        first = client.wait("digits", timeout=GUARD)
        client.delete("digits", wait=True, timeout=GUARD)
        with pytest.raises(NoClusterError):
            client.delete("digits")
        client_world.declare("digits", {"worker": {"replicas": 1}})
        client_world.await_condition("digits", "Ready")

        with pytest.raises(ConflictError):
            client.delete("digits", uid=first["metadata"]["uid"])
        with pytest.raises(ConflictError):
            client._change(first, scaling(first, "worker", 2), dry_run=False, tell=print)
        assert client.wait("digits", "deleted", uid=first["metadata"]["uid"], timeout=GUARD) is None


def test_who_may_not_read_autoscalers_may_scale(client_world):
    """The warning is left out; nothing fails."""

    def refuse(request):
        if request.resource == "horizontalpodautoscalers":
            raise Refusal(403, "Forbidden", "no")

    client_world.declare("digits", {"worker": {"replicas": 1}})
    client_world.at_once(lambda: client_world.kube.authorize.append(refuse))

    assert client_world.cli("scale", "digits", "2").exit_code == 0


# --- restart


def rolling(kind, **fields):
    body = cluster(updateStrategy={"type": kind, **fields})
    body["metadata"]["generation"] = 1
    for job in body["spec"]["jobs"].values():
        job["template"] = {"spec": {"containers": [{"name": "tensorflow", "image": "example.test/train:1"}]}}
    return body


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (rolling("Recreate"), "worker: its 3 tasks are replaced together"),
        (
            rolling("RollingUpdate", rollingUpdate={"maxUnavailable": 2}),
            "from the highest index down, 2 tasks at a time",
        ),
        (rolling("OnDelete"), "until somebody deletes it: tfcluster restart digits worker-0"),
    ],
)
def test_restart_of_a_job_is_left_to_the_update_strategy(body, words):
    """The template is marked as `kubectl rollout restart` does, and what follows is said."""
    change = restart_of_jobs(body, ["worker"], 0.0)

    annotations = {"kubectl.kubernetes.io/restartedAt": "1970-01-01T00:00:00.000Z"}
    assert change.patch == {"spec": {"jobs": {"worker": {"template": {"metadata": {"annotations": annotations}}}}}}
    assert words in change.words[0]


def test_restart_of_what_does_not_run_is_refused():
    """Of a suspended cluster nothing runs, and what has finished runs no more."""
    with pytest.raises(NotRunningError, match="suspended"):
        restart_of_jobs({**rolling("Recreate"), "spec": {**rolling("Recreate")["spec"], "suspend": True}}, ["ps"], 0.0)
    with pytest.raises(NotRunningError, match="has failed"):
        restart_of_jobs(cluster("Failed"), ["worker"], 0.0)


def test_restart_leaves_a_task_that_pauses_to_the_operator():
    """Its next try is named; deleting its failed pod would lose the log, and start nothing sooner."""
    body = rolling("Recreate")
    failing = {"1": {"inRow": 1, "retryTime": "2026-01-01T00:01:00Z"}}
    body["status"]["internal"] = {"jobs": {"worker": {"failing": failing}}}
    now = seconds_of("2026-01-01T00:00:30Z")

    found = restart_of_task(body, [], TaskName("worker", 1), now)

    assert found.pod == ""
    assert found.words == ("worker-1: it has failed, and is started again by itself (next try at 00:01:00 UTC).",)


def uids(client_world):
    pods = client_world.at_once(lambda: client_world.kube.list("pods"))
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in pods}


def test_restart_of_a_task_replaces_its_pod_alone(client_world):
    """It counts as replaced, not as failed, and the command comes back with the new pod."""
    client_world.declare("digits", {"worker": {"replicas": 2}})
    client_world.await_condition("digits", "Ready")
    before = uids(client_world)

    shown = client_world.cli("restart", "digits", "worker-1", "--wait", "--timeout", f"{GUARD:g}s")

    assert (shown.exit_code, shown.stdout) == (0, "digits restarted\n")
    assert "worker-1: pod digits-worker-1 is deleted" in shown.stderr
    after = uids(client_world)
    assert [name for name in before if before[name] != after[name]] == ["digits-worker-1"]
    client_world.await_that(lambda: client_world.cluster("digits")["status"]["jobs"]["worker"]["replaced"] == 1)
    assert client_world.cluster("digits")["status"]["restarts"] == 0


def test_restart_of_a_job_replaces_its_pods(client_world):
    """Every pod of it is new, and no other."""
    client_world.declare("digits", {"worker": {"replicas": 2}, "ps": {}})
    client_world.await_condition("digits", "Ready")
    before = uids(client_world)

    shown = client_world.cli("restart", "digits", "worker", "--wait", "--timeout", f"{GUARD:g}s")

    assert shown.exit_code == 0
    after = uids(client_world)
    assert {name for name in before if before[name] != after[name]} == {"digits-worker-0", "digits-worker-1"}
    assert client_world.cluster("digits")["status"]["restarts"] == 0


def test_restart_of_a_complete_task_is_refused(client_world):
    """The message says what to do; the pod of a task that failed is kept for its log, whoever restarts the task."""
    client_world.declare("digits", {"worker": {"replicas": 2}, "chief": {}})
    client_world.await_condition("digits", "Ready")
    client_world.at_once(lambda: client_world.nodes.exit("digits-worker-0", 0))
    client_world.at_once(lambda: client_world.nodes.exit("digits-worker-1", 1))

    def ended():
        jobs = client_world.cluster("digits")["status"]["jobs"]
        return jobs["worker"]["succeeded"] == 1 and jobs["worker"]["restarts"] == 1

    client_world.await_that(ended)
    shown = client_world.cli("restart", "digits", "worker-0")
    assert (shown.exit_code, "worker-0 is complete" in shown.stderr) == (1, True)
    assert "tfcluster resume digits" in shown.stderr
    assert client_world.cli("restart", "digits", "worker-7").exit_code == 1
    kept = uids(client_world)["digits-worker-1"]
    client_world.cli("restart", "digits", "worker-1", "--dry-run")
    client_world.cli("restart", "digits", "worker-1")
    assert uids(client_world)["digits-worker-1"] == kept
