"""What a change will do is said before it is done, and one that could do nothing is refused."""

import json

import pytest
from support.waiting import GUARD

from tfcluster.apply import change_cluster
from tfcluster.changes import restart_of_jobs, restart_of_task, resumption, scaling, suspension
from tfcluster.errors import ConflictError, ManifestError, NoClusterError, NotRunningError
from tfcluster.kube.api import seconds_of
from tfcluster.tasks import TaskName

WAIT = ("--wait", "--timeout", f"{GUARD:g}s")


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


def test_scaling_names_who_comes_and_who_goes_first():
    up, down = scaling(cluster(), "worker", 5), scaling(cluster(), "worker", 1)
    assert up.patch == {"spec": {"jobs": {"worker": {"replicas": 5}}}}
    assert up.words == ("worker: from 3 to 5 tasks.", "New: worker-3, worker-4; no pod that runs is replaced.")
    assert down.words[0] == "worker: from 3 to 1 task."
    assert down.words[1].startswith("To be deleted: worker-2, worker-1, 30 s (drainTimeoutSeconds) after")
    body = cluster()
    del body["spec"]["jobs"]["worker"]["maxReplicas"]
    assert "New: worker-3, worker-4, worker-5 and 994 more;" in scaling(body, "worker", 1000).words[1]


def test_another_controller_is_named():
    assert "example.com/queue" in suspension(cluster(managedBy="example.com/queue")).words[-1]


@pytest.mark.parametrize(
    ("job", "replicas", "words"),
    [
        ("worker", 7, r"7 tasks are more than spec\.jobs\.worker\.maxReplicas allows, which is 6"),
        ("chief", 1, "digits has no job chief"),
        ("worker", -1, "-1 is not a number of tasks"),
    ],
)
def test_invalid_scaling_is_rejected(job, replicas, words):
    with pytest.raises(ManifestError, match=words):
        scaling(cluster(), job, replicas)


def scaled_down(body):
    return scaling(body, "worker", 1)


@pytest.mark.parametrize("decide", [scaled_down, suspension, resumption])
@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_a_finished_cluster_is_not_changed(decide, kind):
    with pytest.raises(NotRunningError, match=f"digits has {kind.lower()}"):
        decide(cluster(kind))


def test_a_cluster_that_is_being_deleted_is_not_changed():
    body = cluster()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(NotRunningError, match="is being deleted"):
        suspension(body)


def test_unchanged_value_gives_an_empty_patch():
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


def test_scale_announces_its_effect_and_supports_dry_run(client_world):
    client_world.launch("digits", worker={"replicas": 1, "maxReplicas": 3})
    shown = client_world.cli("scale", "digits", "3", "--dry-run", "-o", "json")
    assert json.loads(shown.stdout)["spec"]["jobs"]["worker"]["replicas"] == 3
    assert client_world.cluster("digits")["spec"]["jobs"]["worker"]["replicas"] == 1
    client_world.ok("delete", "digits", "--dry-run")
    assert "deletionTimestamp" not in client_world.cluster("digits")["metadata"]
    shown = client_world.ok("scale", "digits", "3", *WAIT)
    assert shown.stdout == "digits scaled\n"
    assert "New: worker-1, worker-2;" in shown.stderr
    assert client_world.status("digits")["readyTasks"] == 3


def test_suspend_resume_and_delete_wait_for_the_pods(client_world):
    client_world.launch("digits", worker=2)
    client_world.launch("letters", worker=1)
    shown = client_world.ok("suspend", "digits", "letters", *WAIT)
    assert shown.stdout == "digits suspended\nletters suspended\n"
    assert "digits: To be deleted: 2 pods" in shown.stderr
    assert client_world.uids() == {}
    assert "complete ones too" in client_world.cli("resume", "digits", *WAIT).stderr
    assert (client_world.status("digits")["readyTasks"], client_world.status("digits")["tasks"]) == (2, 2)
    assert client_world.ok("delete", "digits", "digits", "--yes", *WAIT).stdout == "digits deleted\n"
    assert (client_world.cluster("digits"), client_world.uids()) == (None, {})
    assert client_world.cli("delete", "digits", "--yes").exit_code == 1


def test_recreated_cluster_is_not_changed_by_older_decisions(client_world):
    client_world.declare("digits", worker=1)
    with client_world.client() as client:
        first = client.wait("digits", timeout=GUARD)
        client.delete("digits", wait=True, timeout=GUARD)
        with pytest.raises(NoClusterError):
            client.delete("digits")
        client_world.launch("digits", worker=1)
        with pytest.raises(ConflictError):
            client.delete("digits", uid=first["metadata"]["uid"])
        with pytest.raises(ConflictError):
            change_cluster(client.api, first, scaling(first, "worker", 2), dry_run=False, tell=print)
        assert client.wait("digits", "deleted", uid=first["metadata"]["uid"], timeout=GUARD) is None


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
    ],
)
def test_restart_of_a_job_is_left_to_the_update_strategy(body, words):
    change = restart_of_jobs(body, ["worker"], 0.0)
    annotations = {"kubectl.kubernetes.io/restartedAt": "1970-01-01T00:00:00.000Z"}
    assert change.patch == {"spec": {"jobs": {"worker": {"template": {"metadata": {"annotations": annotations}}}}}}
    assert words in change.words[0]


def test_restart_of_a_cluster_that_does_not_run_is_rejected():
    with pytest.raises(NotRunningError, match="suspended"):
        restart_of_jobs(cluster(suspend=True), ["ps"], 0.0)
    with pytest.raises(NotRunningError, match="has failed"):
        restart_of_jobs(cluster("Failed"), ["worker"], 0.0)


def test_restart_leaves_a_task_in_back_off_to_the_operator():
    """Its next try is named; deleting its failed pod would lose the log, and start nothing sooner."""
    body = rolling("Recreate")
    failing = {"1": {"in_row": 1, "retry_at": 1767225660.0}}
    body["status"]["internal"] = {"jobs": {"worker": {"failing": failing}}}
    now = seconds_of("2026-01-01T00:00:30Z")
    found = restart_of_task(body, [], TaskName("worker", 1), now)
    assert found.pod == ""
    assert found.words == ("worker-1: it has failed, and is started again by itself (next try at 00:01:00 UTC).",)


def replaced_by(client_world, word):
    """Restart a task or a job, and give the pods that are others after it."""
    before = client_world.uids()
    shown = client_world.ok("restart", "digits", word, *WAIT)
    after = client_world.uids()
    return shown, {name for name in before if before[name] != after[name]}


def test_restart_replaces_the_pods_of_a_task_or_of_a_job_alone(client_world):
    client_world.launch("digits", worker=2, ps=1)
    shown, replaced = replaced_by(client_world, "worker-1")
    assert (shown.stdout, replaced) == ("digits restarted\n", {"digits-worker-1"})
    assert "worker-1: pod digits-worker-1 is deleted" in shown.stderr
    client_world.await_that(lambda: client_world.status("digits")["jobs"]["worker"]["disruptions"] == 1)
    _, replaced = replaced_by(client_world, "worker")
    assert replaced == {"digits-worker-0", "digits-worker-1"}
    assert client_world.status("digits")["restarts"] == 0


def test_restart_of_a_complete_task_is_rejected(client_world):
    client_world.launch("digits", worker=2, chief=1)
    client_world.exit("digits-worker-0", 0)
    client_world.exit("digits-worker-1", 1)

    def ended():
        worker = client_world.status("digits")["jobs"]["worker"]
        return worker["succeeded"] == worker["restarts"] == 1

    client_world.await_that(ended)
    shown = client_world.cli("restart", "digits", "worker-0")
    assert (shown.exit_code, "worker-0 is complete" in shown.stderr) == (1, True)
    assert "tfcluster resume digits" in shown.stderr
    assert client_world.cli("restart", "digits", "worker-7").exit_code == 1
    kept = client_world.uids()["digits-worker-1"]
    client_world.cli("restart", "digits", "worker-1", "--dry-run")
    client_world.cli("restart", "digits", "worker-1")
    assert client_world.uids()["digits-worker-1"] == kept
