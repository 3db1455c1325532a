"""`tfcluster diff`: what it says would happen is what happens."""

import json

import pytest
import yaml
from client.client_world import ClientWorld
from support.manifests import pod_template, tfcluster

from tfcluster.manifest.files import Manifest
from tfcluster.preview.diff import edit_of
from tfcluster_operator.declaration import naming

WORKER, NEWER = pod_template(image="train:1"), pod_template(image="train:2")


def of_type(strategy):
    return {"updateStrategy": {"type": strategy}}


def digits(**spec):
    return (
        tfcluster("digits")
        .job("ps", replicas=2)
        .job("worker", replicas=3, filters=["/job:ps"], template=WORKER)
        .spec(**{"isolation": {"mode": "DeviceFilters"}, **of_type("Recreate"), **spec})
    )


def edited(spec=None, **jobs):
    """Give the manifest with other fields in its spec and in its jobs; None takes a job away."""
    manifest = digits(**(spec or {})).build()
    for job, fields in jobs.items():
        if fields is None:
            del manifest["spec"]["jobs"][job]
        else:
            manifest["spec"]["jobs"].setdefault(job, {"template": WORKER}).update(fields)
    return manifest


GPU = pod_template(resources={"limits": {"nvidia.com/gpu": 1}})
DIGITS = digits().build()
EDITS = {
    "scale up": edited(worker={"replicas": 5}),
    "scale down": edited(ps={"replicas": 1}, worker={"replicas": 1}),
    "drain": edited(worker={"replicas": 2, "drainTimeoutSeconds": 1}),
    "image": edited(worker={"template": NEWER}),
    "rolling": edited(of_type("RollingUpdate"), worker={"template": NEWER}),
    "on delete": edited(of_type("OnDelete"), worker={"template": NEWER}),
    "port": edited({"port": 4444}),
    "filters": edited(worker={"deviceFilters": ["/job:ps/task:0"]}, ps={"deviceFilters": ["/job:worker"]}),
    "no filters": edited(worker={"deviceFilters": []}),
    "another job": edited(chief={}),
    "a job less": edited(ps=None, worker={"deviceFilters": []}),
    "suspend": edited({"suspend": True}),
    "resolver": edited({"resolver": {"delivery": "None"}}),
    "GPUs": edited(ps={"template": GPU}),
    "what touches no pod": edited({"isolation": {"mode": "None"}}, ps={"disruptionBudget": {"minAvailable": 1}}),
}


def state(world, name="digits"):
    """Return the UID of each task's pod."""

    def look():
        pods = (one["metadata"] for one in world.kube.list("pods"))
        ours = [one for one in pods if one["labels"][naming.LABEL_CLUSTER] == name and "deletionTimestamp" not in one]
        return {one["name"].removeprefix(f"{name}-"): one["uid"] for one in ours}

    return world.at_once(look)


def settled(world, generation, ready="True", name="digits"):
    status = world.status(name)
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return (
        status.get("observedGeneration") == generation
        and conditions.get("Ready") == ready
        and conditions.get("MembershipPublished") != "False"
    )


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """One cluster for each edit, and what was said of it, and what there was before: all are edited at once."""
    world = ClientWorld(tmp_path_factory.mktemp("world"))
    world.start()
    world.at_once(lambda: setattr(world.nodes, "hurried", True))
    names = {case: f"digits{number}" for number, case in enumerate(EDITS)}
    told = {}
    with world.client() as client:
        for name in names.values():
            client.apply({**DIGITS, "metadata": {"name": name}})
        world.await_that(lambda: all(settled(world, 1, name=name) for name in names.values()))
        for case, name in names.items():
            manifest = {**EDITS[case], "metadata": {"name": name}}
            told[case] = name, edit_of(client.api, Manifest(manifest, "a test")), state(world, name)
            client.apply(manifest)
    yield world, told
    world.stop()


@pytest.mark.parametrize("case", EDITS)
def test_what_it_says_is_what_happens(lives, case):
    world, (name, edit, was) = lives[0], lives[1][case]
    said = {what: tasks_of(edit, what) for what in ("create", "replace", "delete", "keep")}

    def happened():
        pods = state(world, name)
        return {
            "create": pods.keys() - was.keys(),
            "delete": was.keys() - pods.keys(),
            "replace": {pod for pod in pods.keys() & was.keys() if pods[pod] != was[pod]},
        }

    wanted = {what: said[what] for what in ("create", "delete", "replace")}
    world.await_that(lambda: happened() == wanted)
    world.await_that(lambda: settled(world, 2, "False" if case == "suspend" else "True", name))
    assert happened() == wanted
    assert (case == "on delete") == bool(said["keep"])


def tasks_of(edit, what):
    return {f"{one.job}-{index}" for one in edit.pods if one.what == what for index in one.tasks}


def diff(world, manifest, *options):
    return world.cli("diff", "-f", "-", *options, stdin=yaml.safe_dump(manifest))


@pytest.fixture
def client(client_world):
    with client_world.client() as connected:
        yield connected


def asked(client, manifest):
    return edit_of(client.api, Manifest(manifest, "a test"))


def test_exit_codes_are_those_of_kubectl_diff(client_world, client):
    new = diff(client_world, DIGITS)
    client.apply(DIGITS)
    client_world.await_that(lambda: settled(client_world, 1))
    same = diff(client_world, DIGITS)
    other = diff(client_world, EDITS["image"], "-o", "json")
    wrong = diff(client_world, edited({"port": "x"}))
    managed = diff(client_world, edited({"managedBy": "example.test/other"}))
    offline = client_world.cli("diff", "-f", "-", "--kubeconfig", "/nowhere", stdin=yaml.safe_dump(DIGITS))
    assert [one.exit_code for one in (new, same, other, wrong, managed, offline)] == [1, 0, 1, 2, 2, 2]
    assert "digits is new" in new.stdout
    assert "nothing differs" in same.stdout
    (told,) = json.loads(other.stdout)["clusters"]
    why = {"reason": "TemplateChanged", "words": "all together (updateStrategy Recreate)"}
    replaced = {"what": "replace", "job": "worker", "tasks": ["worker-0", "worker-1", "worker-2"]}
    assert told["pods"] == [{**replaced, **why}]
    assert "spec.port: this must be a whole number" in wrong.stderr
    for words in ("standard input:", "spec.managedBy: two controllers"):
        assert words in managed.stderr


def test_what_an_autoscaler_set_stays(client_world, client):
    manifest = edited(worker={"maxReplicas": 9})
    del manifest["spec"]["jobs"]["worker"]["replicas"]
    client.apply(manifest)
    client_world.scale("digits", worker=6)
    assert client.get("digits")["spec"]["jobs"]["worker"]["replicas"] == 6
    assert diff(client_world, manifest).exit_code == 0


def test_cluster_being_deleted_cannot_be_edited(client_world, client):
    client.apply(digits().metadata(finalizers=["example.test/keep"]).build())
    client.delete("digits")
    shown = diff(client_world, EDITS["scale up"])
    assert (shown.exit_code, "created" in shown.stdout) == (1, False)
    assert "it is being deleted; its finalizers keep it: example.test/keep" in shown.stdout


def test_kept_failed_pods_are_excluded(client_world, client):
    history = {"failedPodsHistoryLimit": 1}
    client.apply(edited(history))
    client_world.await_that(lambda: settled(client_world, 1))
    client_world.exit("digits-worker-1", 1)
    client_world.await_that(lambda: "worker-1-r1" in state(client_world))
    edit = asked(client, edited(history, worker={"template": NEWER}))
    assert tasks_of(edit, "replace") == {"worker-0", "worker-1", "worker-2"}


def test_other_objects_are_left_out(client_world):
    both = yaml.safe_dump_all([DIGITS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}])
    assert "Secret: not compared" in client_world.cli("diff", "-f", "-", stdin=both).stderr
