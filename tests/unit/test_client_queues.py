"""The client and TFClusters in queues: what it says of them is what happens."""

from __future__ import annotations

import json
import re
import tarfile
import time

import pytest
import yaml
from click.testing import CliRunner
from simulation.quota import Queue
from support.manifests import pod_template, tfcluster
from unit.client_world import ClientWorld

from tfcluster.commands.root import root
from tfcluster.edits import Edit, edit_of
from tfcluster.manifest_files import Manifest
from tfcluster_operator.model import naming

NAME = "digits"


def manifest(workers=2, cpu="1", **spec):
    """Declare a TFCluster in a queue."""
    template = pod_template(image="train:1", resources={"requests": {"cpu": cpu}})
    labels = {naming.LABEL_QUEUE: "team"}
    return (
        tfcluster(NAME).metadata(labels=labels).job("worker", template=template, replicas=workers).spec(**spec).build()
    )


@pytest.fixture
def queue(client_world: ClientWorld) -> Queue:
    """A queue with quota for two pods."""

    def make() -> Queue:
        made = Queue(client_world.kube, time.time)
        made.quota = 2
        return made

    return client_world.at_once(make)


@pytest.fixture
def running(client_world: ClientWorld, queue: Queue) -> ClientWorld:
    """The cluster runs with its two workers."""
    del queue
    with client_world.client() as client:
        client.apply(manifest())
    client_world.await_condition(NAME, "Ready")
    return client_world


def edit(world: ClientWorld, changed) -> Edit:
    """Ask what an edit would do."""
    with world.client() as client:
        return edit_of(client.api, Manifest(changed, "a test"))


def states(world: ClientWorld) -> dict[str, str]:
    """Give the state of each task, as `tfcluster status` tells it."""
    shown = json.loads(world.cli("status", NAME, "-o", "json").stdout)
    return {f"{job['name']}-{task['index']}": task["state"] for job in shown["jobs"] for task in job["tasks"]}


def test_new_cluster_is_said_to_wait(client_world):
    """Nothing of it is there yet, so that it gets no pods."""
    found = edit(client_world, manifest())

    assert "it waits in queue team: there are no pods until that has granted it quota" in found.notes
    assert found.pods == ()


def test_growth_is_said_to_wait(running):
    """What runs is not touched; the others are told of as what they are."""
    found = edit(running, manifest(5))
    assert "3 more tasks of job worker come when queue team has granted them quota" in found.notes
    assert found.pods == ()

    with running.client() as client:
        client.apply(manifest(3))
    running.await_that(lambda: states(running).get("worker-2") == "WaitingForQuota")
    assert states(running) == {"worker-0": "Ready", "worker-1": "Ready", "worker-2": "WaitingForQuota"}
    shown = running.cli("status", NAME)
    assert "WaitingForQuota" in shown.stdout
    assert "queue team has granted it no quota yet" in shown.stdout


def test_edit_of_what_the_pods_ask_for_is_said_to_stop_them(running):
    """They go, and wait again; another image changes nothing in the queue."""
    found = edit(running, manifest(cpu="2"))
    assert [(one.what, one.tasks, one.reason) for one in found.pods] == [("delete", (1, 0), "QuotaWithdrawn")]
    assert any("asks for something else" in note or "would ask for something else" in note for note in found.notes)

    other = manifest()
    other["spec"]["jobs"]["worker"]["template"]["spec"]["containers"][0]["image"] = "train:2"
    assert [one.what for one in edit(running, other).pods] == ["replace"]


def test_waiting_cluster_is_shown(running, queue):
    """Its tasks wait for quota, and are not suspended."""
    running.at_once(lambda: (setattr(queue, "quota", 0), queue.take_back()))
    running.await_that(lambda: set(states(running).values()) == {"WaitingForQuota"})

    assert "WaitingForQuota" in running.cli("status").stdout
    shown = json.loads(running.cli("status", NAME, "-o", "json").stdout)
    assert (shown["queue"], bool(shown["waitingSince"])) == ("team", True)
    assert re.search(r"queue team, it has waited for \d+s", running.cli("status", NAME).stdout)


def test_server_without_kueue_is_noted(client_world):
    """What is said without the Workloads is not all there is."""
    with client_world.client() as client:
        client.apply(manifest())
    client_world.at_once(lambda: client_world.kube.state.storages.pop("workloads", None))
    found = edit(client_world, manifest(3))

    assert any("workloads" in note for note in found.notes)


def test_rendered_cluster_has_its_workload():
    """With all pods, as they are once it is granted, and the words that they wait."""
    shown = CliRunner().invoke(root, ["render", "-f", "-"], input=json.dumps(manifest()))
    kinds = [one["kind"] for one in yaml.safe_load_all(shown.stdout)]

    assert kinds.count("Pod") == 2
    assert kinds.count("Workload") == 1
    assert "its pods come when queue team has granted it quota" in shown.stderr


def test_report_has_the_workloads(running, tmp_path):
    """Whoever looks into it needs to know what was asked for."""
    target = tmp_path / "report.tar.gz"
    shown = running.cli("report", NAME, "--output-file", str(target))
    assert shown.exit_code == 0, shown.stderr

    with tarfile.open(target) as report:
        (name,) = [one for one in report.getnames() if one.endswith("workloads.yaml")]
        file = report.extractfile(name)
        assert file is not None
        assert b"tfcluster-digits.0" in file.read()
