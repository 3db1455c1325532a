"""The client and TFClusters in queues: what it says of them is what happens."""

import json
import re
import time

import pytest
import yaml
from click.testing import CliRunner
from client.client_world import ClientWorld
from simulation.quota import Queue
from support.manifests import pod_template, tfcluster

from tfcluster.commands.root import root
from tfcluster.manifest.files import Manifest
from tfcluster.preview.diff import Edit, edit_of
from tfcluster_operator.declaration import naming

NAME = "digits"


def manifest(workers=2, cpu="1"):
    template = pod_template(image="train:1", resources={"requests": {"cpu": cpu}})
    queued = tfcluster(NAME).metadata(labels={naming.LABEL_QUEUE: "team"})
    return queued.job("worker", template=template, replicas=workers).build()


@pytest.fixture
def queue(client_world: ClientWorld) -> Queue:
    """The cluster runs with two workers, for which its queue has quota."""

    def make() -> Queue:
        made = Queue(client_world.kube, time.time)
        made.quota = 2
        return made

    queue = client_world.at_once(make)
    with client_world.client() as client:
        client.apply(manifest())
    client_world.await_condition(NAME, "Ready")
    return queue


def edit(world: ClientWorld, changed) -> Edit:
    with world.client() as client:
        return edit_of(client.api, Manifest(changed, "a test"))


def shown(world: ClientWorld) -> dict:
    return json.loads(world.ok("status", NAME, "-o", "json").stdout)


def states(world: ClientWorld) -> list[str]:
    """Give the states of the tasks, as `tfcluster status` tells them."""
    return [task["state"] for task in shown(world)["tasks"]]


def test_new_cluster_is_said_to_wait_and_a_server_without_kueue_is_noted(client_world):
    found = edit(client_world, manifest())
    assert "it waits in queue team: its pods are created when the queue has granted it quota" in found.notes
    assert found.pods == ()
    with client_world.client() as client:
        client.apply(manifest())
    client_world.at_once(lambda: client_world.kube.state.storages.pop("workloads", None))
    assert any("workloads" in note for note in edit(client_world, manifest(3)).notes)


def test_growth_is_said_to_wait(client_world, queue):  # noqa: ARG001 - it grants quota
    found = edit(client_world, manifest(5))
    assert "3 more tasks of job worker come when queue team has granted them quota" in found.notes
    assert found.pods == ()
    with client_world.client() as client:
        client.apply(manifest(3))
    client_world.await_that(lambda: states(client_world) == ["Ready", "Ready", "WaitingForQuota"])
    text = client_world.cli("status", NAME).stdout
    assert "WaitingForQuota" in text
    assert "queue team has granted it no quota yet" in text


def test_edit_of_what_the_pods_ask_for_is_said_to_stop_them(client_world, queue):
    found = edit(client_world, manifest(cpu="2"))
    assert [(one.what, one.tasks, one.reason) for one in found.pods] == [("delete", (1, 0), "QuotaWithdrawn")]
    assert any("the pods are deleted" in note for note in found.notes)
    other = manifest()
    other["spec"]["jobs"]["worker"]["template"]["spec"]["containers"][0]["image"] = "train:2"
    assert [one.what for one in edit(client_world, other).pods] == ["keep"]

    client_world.at_once(lambda: (setattr(queue, "quota", 0), queue.take_back()))
    client_world.await_that(lambda: set(states(client_world)) == {"WaitingForQuota"})
    assert "WaitingForQuota" in client_world.cli("status").stdout
    assert re.search(r"queue team, it has waited for \d+s", client_world.cli("status", NAME).stdout)


def test_rendered_cluster_has_its_workload():
    done = CliRunner().invoke(root, ["render", "-f", "-"], input=json.dumps(manifest()))
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert (kinds.count("Pod"), kinds.count("Workload")) == (2, 1)
    assert "its pods come when queue team has granted it quota" in done.stderr
