"""`tfcluster diff`: what it says would happen is what happens."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import yaml
from support.manifests import pod_template, tfcluster
from unit.client_world import ClientWorld

from tfcluster import merging
from tfcluster.edits import edit_of
from tfcluster.kubernetes_api import TFCLUSTERS
from tfcluster.manifest_files import Manifest
from tfcluster_operator.model import naming
from tfcluster_resolver import contract

WORKER = pod_template(image="train:1")


def digits():
    return (
        tfcluster("digits")
        .job("ps", replicas=2)
        .job("worker", replicas=3, filters=["/job:ps"], template=WORKER)
        .spec(isolation={"mode": "DeviceFilters"})
    )


def edited(**jobs):
    """The manifest with other fields in its jobs; None takes a job away."""
    manifest = digits().build()
    for job, fields in jobs.items():
        if fields is None:
            del manifest["spec"]["jobs"][job]
        else:
            manifest["spec"]["jobs"].setdefault(job, {"template": WORKER}).update(fields)
    return manifest


def with_spec(**fields):
    return digits().spec(**fields).build()


NEWER = pod_template(image="train:2")
EDITS = {
    "scale up": edited(worker={"replicas": 5}),
    "scale down": edited(ps={"replicas": 1}, worker={"replicas": 1}),
    "drain": edited(worker={"replicas": 2, "drainTimeoutSeconds": 1}),
    "image": edited(worker={"template": NEWER}),
    "rolling": {
        **edited(worker={"template": NEWER}),
        "spec": {**edited(worker={"template": NEWER})["spec"], "updateStrategy": {"type": "RollingUpdate"}},
    },
    "on delete": {
        **edited(worker={"template": NEWER}),
        "spec": {**edited(worker={"template": NEWER})["spec"], "updateStrategy": {"type": "OnDelete"}},
    },
    "port": with_spec(port=4444),
    "filters": edited(worker={"deviceFilters": ["/job:ps/task:0"]}, ps={"deviceFilters": ["/job:worker"]}),
    "no filters": edited(worker={"deviceFilters": []}),
    "another job": edited(chief={}),
    "a job less": edited(ps=None, worker={"deviceFilters": []}),
    "suspend": with_spec(suspend=True),
    "resolver": with_spec(resolver={"delivery": "None"}),
    "isolation": with_spec(isolation={"mode": "None"}),
    "budgets": edited(
        ps={"disruptionBudget": {"minAvailable": "100%"}}, worker={"disruptionBudget": {"minAvailable": 1}}
    ),
    "GPUs": edited(ps={"template": pod_template(resources={"limits": {"nvidia.com/gpu": 1}})}),
    "what touches no pod": with_spec(backoffLimit=3, cleanPodPolicy="All"),
}


def state(world, name="digits"):
    """Give the UID of each task's pod, the text of each file of views, and the policies and budgets, as they are."""

    def ours(kind):
        return [one for one in world.kube.list(kind) if one["metadata"]["labels"][naming.LABEL_CLUSTER] == name]

    def look():
        pods = {
            one["metadata"]["name"].removeprefix(f"{name}-"): one["metadata"]["uid"]
            for one in ours("pods")
            if "deletionTimestamp" not in one["metadata"]
        }
        files = {
            (one["metadata"]["labels"][naming.LABEL_JOB], file): text
            for one in ours("configmaps")
            for file, text in one.get("data", {}).items()
        }
        policies = {
            (one["kind"], one["metadata"]["name"]): one["spec"]
            for kind in ("networkpolicies", "poddisruptionbudgets")
            for one in ours(kind)
        }
        return pods, files, policies

    return world.at_once(look)


def settled(world, generation, ready="True", name="digits"):
    status = (world.cluster(name) or {}).get("status", {})
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
            client.apply({**digits().build(), "metadata": {"name": name}})
        world.await_that(lambda: all(settled(world, 1, name=name) for name in names.values()))
        for case, name in names.items():
            manifest = {**EDITS[case], "metadata": {"name": name}}
            told[case] = name, edit_of(client.api, Manifest(manifest, "a test")), state(world, name)
            client.apply(manifest)
    yield world, told
    world.stop()


@pytest.mark.parametrize("case", EDITS)
def test_what_it_says_is_what_happens(lives, case):
    """The pods that are replaced, created and deleted; the views and their epochs; the NetworkPolicies; no others."""
    world, (name, edit, was) = lives[0], lives[1][case]
    said = {what: tasks_of(edit, what) for what in ("create", "replace", "delete", "keep")}

    def happened():
        pods = state(world, name)[0]
        return {
            "create": pods.keys() - was[0].keys(),
            "delete": was[0].keys() - pods.keys(),
            "replace": {pod for pod in pods.keys() & was[0].keys() if pods[pod] != was[0][pod]},
        }

    wanted = {what: said[what] for what in ("create", "delete", "replace")}
    world.await_that(lambda: happened() == wanted)
    world.await_that(lambda: settled(world, 2, "False" if case == "suspend" else "True", name))
    now = state(world, name)
    assert happened() == wanted
    assert (case == "on delete") == bool(said["keep"])
    assert epochs_said(edit) == {
        key: lasting(now[1][key]).epoch
        for key in now[1].keys() & was[1].keys()
        if lasting(now[1][key]) != lasting(was[1][key])
    }
    kinds = {"NetworkPolicy", "PodDisruptionBudget"}
    policies = {(one.kind, one.name): one.what for one in edit.objects if one.kind in kinds}
    assert policies == {
        policy: "create" if policy not in was[2] else "delete" if policy not in now[2] else "change"
        for policy in {*was[2], *now[2]}
        if was[2].get(policy) != now[2].get(policy)
    }


def tasks_of(edit, what):
    return {f"{one.job}-{index}" for one in edit.pods if one.what == what for index in one.tasks}


def lasting(text):
    """Read a view without what comes and goes with pods."""
    return replace(contract.load(text), leaving={}, incarnations={})


def epochs_said(edit):
    return {(one.job, "cluster.json"): one.epochs[1] for one in edit.views}


def diff(world, manifest, *options):
    return world.cli("diff", "-f", "-", *options, stdin=yaml.safe_dump(manifest))


def test_exit_codes_are_those_of_kubectl_diff(client_world):
    """0 nothing differs, 1 something does, 2 it cannot be said; the words are for people, the JSON for programs."""
    new = diff(client_world, digits().build())
    with client_world.client() as client:
        client.apply(digits().build())
    client_world.await_that(lambda: settled(client_world, 1))

    same = diff(client_world, digits().build())
    other = diff(client_world, EDITS["image"], "-o", "json")
    wrong = diff(client_world, with_spec(port="x"))
    nobody = client_world.cli("diff", "-f", "-", "--kubeconfig", "/nowhere", stdin=yaml.safe_dump(digits().build()))

    assert [one.exit_code for one in (new, same, other, wrong, nobody)] == [1, 0, 1, 2, 2]
    assert "digits is new" in new.stdout
    assert "nothing differs" in same.stdout
    (told,) = json.loads(other.stdout)["clusters"]
    assert told["pods"] == [
        {
            "what": "replace",
            "job": "worker",
            "tasks": ["worker-0", "worker-1", "worker-2"],
            "reason": "TemplateChanged",
            "words": "all at once (updateStrategy Recreate)",
            "field": "containers[tensorflow].image",
        }
    ]
    assert "spec.port: this must be a whole number" in wrong.stderr


def test_what_an_autoscaler_set_stays(client_world):
    """A manifest that leaves replicas out says nothing of them."""
    manifest = digits().build()
    del manifest["spec"]["jobs"]["worker"]["replicas"]
    manifest["spec"]["jobs"]["worker"]["maxReplicas"] = 9
    with client_world.client() as client:
        client.apply(manifest)
        client.api.patch(TFCLUSTERS, "digits", {"spec": {"replicas": 6}}, subresource="scale")
        assert client.get("digits")["spec"]["jobs"]["worker"]["replicas"] == 6

        assert diff(client_world, manifest).exit_code == 0


def test_managed_by_cannot_change(client_world):
    """The API server says it, too, but not where the line is."""
    with client_world.client() as client:
        client.apply(digits().build())

    shown = diff(client_world, with_spec(managedBy="example.test/other"))

    assert shown.exit_code == 2
    assert "standard input:" in shown.stderr
    assert "spec.managedBy: two controllers" in shown.stderr


def test_cluster_that_is_being_deleted_takes_no_edit(client_world):
    held = digits().metadata(finalizers=["example.test/keep"]).build()
    with client_world.client() as client:
        client.apply(held)
        client.delete("digits")

    shown = diff(client_world, edited(worker={"replicas": 5}))

    assert shown.exit_code == 1
    assert "it is being deleted; its finalizers keep it: example.test/keep" in shown.stdout
    assert "created" not in shown.stdout


def test_kept_failed_pods_are_no_part_of_it(client_world):
    """The task goes on in a pod with another name, and that one is replaced."""
    manifest = digits().spec(failedPodsHistoryLimit=1).build()
    with client_world.client() as client:
        client.apply(manifest)
        client_world.await_that(lambda: settled(client_world, 1))
        client_world.at_once(lambda: client_world.nodes.exit("digits-worker-1", 1))
        client_world.await_that(lambda: "worker-1-r1" in state(client_world)[0])
        newer = copy.deepcopy(manifest)
        newer["spec"]["jobs"]["worker"]["template"] = NEWER

        edit = edit_of(client.api, Manifest(newer, "a test"))

    assert tasks_of(edit, "replace") == {"worker-0", "worker-1", "worker-2"}


def test_who_may_not_write_is_told_what_would_come(client_world, monkeypatch):
    """Reading is enough for an answer, and the answer says what it is worth."""
    with client_world.client() as client:
        client.apply(digits().build())

        def refuse(*_, **__):
            raise merging.RefusedError("forbidden", status=403)

        monkeypatch.setattr(type(client.api), "apply", refuse)
        edit = edit_of(client.api, Manifest(EDITS["scale up"], "a test"))

    assert tasks_of(edit, "create") == {"worker-3", "worker-4"}
    assert [one.path for one in edit.fields] == ["spec.jobs.worker.replicas"]
    assert "you may not write" in edit.notes[0]


def test_who_applies_with_kubectl_gets_what_kubectl_would_make(client_world):
    """What was in the last manifest and is not in this one goes; what others set stays."""
    first = edited(worker={"drainTimeoutSeconds": 20, "replicas": 2})
    applied = copy.deepcopy(first)
    applied["metadata"]["annotations"] = {merging.LAST_APPLIED: json.dumps(first)}
    applied["spec"]["jobs"]["worker"]["maxReplicas"] = 7
    client_world.at_once(lambda: client_world.kube.create("tfclusters", "default", applied))

    with client_world.client() as client:
        edit = edit_of(client.api, Manifest(edited(worker={"replicas": 2}), "a test"))

    assert [(one.path, one.before, one.after) for one in edit.fields] == [
        ("spec.jobs.worker.drainTimeoutSeconds", 20, 0)
    ]
    assert "kubectl apply" in edit.how


def test_isolation_is_that_of_the_operator_where_the_manifest_has_none(client_world):
    manifest = digits().build()
    del manifest["spec"]["isolation"]
    text = json.dumps(manifest)

    asked = [client_world.cli("diff", "-f", "-", *words, stdin=text) for words in ((), ("--default-isolation", "None"))]

    assert ["NetworkPolicy" in shown.stdout for shown in asked] == [True, False]


def test_other_objects_in_the_file_are_said_to_be_left_out(client_world):
    both = yaml.safe_dump_all([digits().build(), {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}])

    shown = client_world.cli("diff", "-f", "-", stdin=both)

    assert "Secret: not compared" in shown.stderr
