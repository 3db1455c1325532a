"""The client's read-only commands, with the operator on a real API server."""

import json

import pytest
from click.testing import CliRunner

from tfcluster.commands.root import root

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def tfcluster(control_plane, world):
    """Runs `tfcluster` as an administrator in the test's namespace."""

    def run(command, *arguments, kubeconfig=control_plane.kubeconfig):
        at = ["--kubeconfig", str(kubeconfig), "-n", world.namespace]
        return CliRunner().invoke(root, [command, *at, *arguments])

    return run


def test_status_and_doctor_see_what_is_wrong(tfcluster, world, kubelet):
    world.launch("c", {"ps": {}, "worker": {"replicas": 3}})
    world.await_settled("c")
    kubelet.run("c-ps-0", "c-worker-0", "c-worker-1")
    world.await_status("c", lambda s: (s["readyTasks"], s["tasks"]) == (3, 4), what="3 of 4 tasks are ready")

    status = json.loads(tfcluster("status", "c", "-o", "json").stdout)
    assert (status["state"], status["reason"]) == ("NotReady", "TasksNotReady")
    assert (status["status"]["readyTasks"], status["status"]["tasks"]) == (3, 4)
    assert {task["name"]: (task["state"], task["view"]) for task in status["tasks"]} == {
        "ps-0": ("Ready", "delivered"),
        "worker-0": ("Ready", "delivered"),
        "worker-1": ("Ready", "delivered"),
        "worker-2": ("Pending", "delivered"),
    }
    assert [line.split()[:3] for line in tfcluster("status").output.splitlines()[1:]] == [["c", "NotReady", "3/4"]]

    doctor = json.loads(tfcluster("doctor", "c", "-o", "json").stdout)
    found = {(one["name"], one["verdict"]): one["message"] for one in doctor["checks"]}
    assert ("API server", "ok") in found
    assert found["definition", "ok"].endswith("as new as this client")
    assert "no Deployment" in found["operator", "warning"]  # it is a process of the tests
    assert ("rights", "ok") in found


def test_user_who_can_only_read_tfclusters_gets_partial_output(tfcluster, world, control_plane, kubectl):
    user = "only-looks"
    namespace = ["-n", world.namespace]
    assert kubectl("create", "role", "looks", "--verb=get", "--resource=tfclusters", *namespace).returncode == 0
    assert kubectl("create", "rolebinding", "looks", "--role=looks", f"--user={user}", *namespace).returncode == 0
    kubeconfig = control_plane.kubeconfig_for(user)
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_settled("c")
    status = tfcluster("status", "c", kubeconfig=kubeconfig)
    listed = tfcluster("status", kubeconfig=kubeconfig)
    doctor = tfcluster("doctor", "c", "-o", "json", kubeconfig=kubeconfig)
    assert (status.exit_code, listed.exit_code) == (0, 1), doctor.output
    assert "worker  0/2 ready" in status.output
    assert "the pods cannot be listed" in status.output
    assert "forbidden" in listed.stderr
    verdicts = {one["name"]: one["verdict"] for one in json.loads(doctor.stdout)["checks"]}
    assert (verdicts["API server"], verdicts["operator"], verdicts["rights"]) == ("ok", "unknown", "warning")
    assert "failed" not in verdicts.values()
