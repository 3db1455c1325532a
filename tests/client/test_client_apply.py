"""The gateway to the Kubernetes API, and files that become objects: all of them, or none where one is refused."""

import json

import pytest
from support.waiting import GUARD

from tfcluster.errors import NoClusterError, RefusedError, UnreachableError
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Selection


def manifest(**jobs):
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "tf"}]}}
    return {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "metadata": {"name": "digits"},
        "spec": {"jobs": {job: {"template": template, **fields} for job, fields in jobs.items()}},
    }


def test_objects_are_applied_listed_watched_and_read(client_world):
    with client_world.client() as client:
        since = client.api.list(TFCLUSTERS).version
        client.apply(manifest(worker={"replicas": 2}))
        kind, body = next(client.api.watch(Selection(TFCLUSTERS), since=since))
        assert (kind, body["metadata"]["name"]) == ("ADDED", "digits")
        client_world.await_condition("digits", "Ready")
        pods = sorted(one["metadata"]["name"] for one in client.api.list(PODS))
        assert pods == ["digits-worker-0", "digits-worker-1"]
        assert [one["metadata"]["name"] for one in client.list()] == ["digits"]
        with pytest.raises(NoClusterError, match="TFCluster nope not found in namespace default"):
            client.get("nope")


def test_applying_again_takes_away_what_is_no_longer_named(client_world):
    with client_world.client() as client:
        client.apply(manifest(worker={"replicas": 2}, ps={}))
        client.api.patch(TFCLUSTERS, "digits", {"metadata": {"labels": {"team": "blue"}}})
        after = client.apply(manifest(worker={"replicas": 3}))
        assert list(after["spec"]["jobs"]) == ["worker"]
        assert after["spec"]["jobs"]["worker"]["replicas"] == 3
        assert after["metadata"]["labels"] == {"team": "blue"}


def test_a_server_is_reached_by_its_address_and_with_the_token_alone(client_world, tmp_path):
    config = json.loads(client_world.kubeconfig.read_text())
    server = config["clusters"][0]["cluster"]["server"]

    def connect(to: str) -> KubernetesApi:
        config["clusters"][0]["cluster"]["server"] = to
        (tmp_path / "other").write_text(json.dumps(config))
        return KubernetesApi.connect(kubeconfig=tmp_path / "other")

    with pytest.raises(RefusedError) as refused:
        connect(server[:-1] + ("A" if server[-1] != "A" else "B")).list(PODS)
    assert refused.value.status == 401
    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1 does not answer"):
        connect("http://127.0.0.1:1").list(PODS)


CLUSTER = """
apiVersion: tfcluster.dev/v1alpha1
kind: TFCluster
metadata: {name: digits}
spec:
  jobs:
    worker:
      replicas: 2
      template: {spec: {containers: [{name: tensorflow, image: example.test/train:1}]}}
"""
SCRIPT = """
---
apiVersion: v1
kind: ConfigMap
metadata: {name: script}
data: {train.py: "print(1)"}
"""


@pytest.fixture
def file(tmp_path):
    found = tmp_path / "digits.yaml"
    found.write_text(CLUSTER + SCRIPT)
    return found


def test_apply_creates_and_waits_and_says_what_changed(client_world, file):
    shown = client_world.ok("apply", "-f", str(file), "--dry-run", "-o", "json")
    assert [one["kind"] for one in json.loads(shown.stdout)["items"]] == ["ConfigMap", "TFCluster"]
    assert client_world.cluster("digits") is None
    shown = client_world.ok("apply", "-f", str(file), "--wait", "ready", "--timeout", f"{GUARD:g}s")
    assert shown.stdout == "configmap/script created\ntfcluster/digits created\n"
    assert (client_world.status("digits")["readyTasks"], client_world.status("digits")["tasks"]) == (2, 2)
    file.write_text(CLUSTER.replace("replicas: 2", "replicas: 1") + SCRIPT)
    changed = client_world.cli("apply", "-f", str(file)).stdout
    assert changed == "configmap/script unchanged\ntfcluster/digits configured\n"


def test_nothing_else_is_applied_if_the_cluster_is_rejected(client_world, file):
    client_world.refuse("tfclusters is forbidden: exceeded quota", "tfclusters", "patch")
    shown = client_world.cli("apply", "-f", str(file))
    assert shown.exit_code == 1
    assert "digits.yaml:2: TFCluster digits: tfclusters is forbidden" in shown.stderr
    assert client_world.get("configmaps", "script") is None


def test_a_namespace_comes_first_and_is_the_one_that_was_asked_for(client_world, file):
    inside = CLUSTER.replace("name: digits", "name: digits, namespace: team")
    file.write_text(inside + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: team}}\n")
    another = client_world.cli("apply", "-n", "default", "-f", str(file))
    assert (another.exit_code, "-n says default" in another.stderr) == (1, True)
    assert client_world.cli("apply", "-f", str(file), "--wait", "done").exit_code == 2
    shown = client_world.cli("apply", "-f", str(file))
    assert shown.stdout == "namespace/team created\ntfcluster/digits created\n"


def test_invalid_objects_are_rejected(client_world, file):
    for text, words in (
        ("apiVersion: batch/v9\nkind: Job\nmetadata: {name: x}", "does not have the kind Job of batch/v9"),
        ("apiVersion: v1\nkind: Gadget\nmetadata: {name: x}", "does not have the kind Gadget of v1"),
        ("apiVersion: v1\nkind: ConfigMap", "give it metadata.name"),
    ):
        file.write_text(text)
        shown = client_world.cli("apply", "-f", str(file))
        assert (shown.exit_code, "digits.yaml:1" in shown.stderr) == (1, True)
        assert words in shown.stderr
