"""The client's gateway to the Kubernetes API, against the API server in memory behind HTTP."""

from __future__ import annotations

import pytest

from tfcluster.errors import NoClusterError, NotFoundError, RefusedError, UnreachableError
from tfcluster.kubernetes_api import PODS, TFCLUSTERS, KubernetesApi


def manifest(**jobs):
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "tf"}]}}
    return {
        "apiVersion": "tfcluster.dev/v1alpha1",
        "kind": "TFCluster",
        "metadata": {"name": "digits"},
        "spec": {"jobs": {job: {"template": template, **fields} for job, fields in jobs.items()}},
    }


def test_an_applied_cluster_gets_its_pods(client_world):
    """Apply creates; the engine behind the API server makes the pods, and nodes make them ready."""
    with client_world.client() as client:
        client.apply(manifest(worker={"replicas": 2}))
        client_world.await_condition("digits", "Ready")

        assert sorted(one["metadata"]["name"] for one in client.api.list(PODS)) == [
            "digits-worker-0",
            "digits-worker-1",
        ]
        assert [one["metadata"]["name"] for one in client.list()] == ["digits"]


def test_applying_again_takes_away_what_is_no_longer_named(client_world):
    """What the same manager no longer applies goes; what another one set stays."""
    with client_world.client() as client:
        client.apply(manifest(worker={"replicas": 2}, ps={}))
        client.api.patch(TFCLUSTERS, "digits", {"metadata": {"labels": {"team": "blue"}}})

        after = client.apply(manifest(worker={"replicas": 3}))

        assert list(after["spec"]["jobs"]) == ["worker"]
        assert after["spec"]["jobs"]["worker"]["replicas"] == 3
        assert after["metadata"]["labels"] == {"team": "blue"}


def test_a_watch_tells_of_each_change(client_world):
    """A watch from a list on tells what comes after it."""
    with client_world.client() as client:
        since = client.api.list(TFCLUSTERS).version
        client.apply(manifest(worker={}))

        kind, body = next(client.api.watch(TFCLUSTERS, since=since))

        assert (kind, body["metadata"]["name"]) == ("ADDED", "digits")


def test_a_missing_cluster_says_where_it_was_looked_for(client_world):
    """The message names the namespace, and the hint the next command."""
    with client_world.client() as client, pytest.raises(NoClusterError, match="no TFCluster nope in namespace default"):
        client.get("nope")


def test_a_log_is_read_by_lines(client_world):
    """Each line of a container's log comes alone; a missing pod is a NotFoundError."""
    with client_world.client() as client:
        client.apply(manifest(worker={}))
        client_world.await_condition("digits", "Ready")
        client_world.logs["digits-worker-0"] = "one\ntwo\nthree"

        assert list(client.api.log("digits-worker-0")) == ["one", "two", "three"]
        with pytest.raises(NotFoundError):
            list(client.api.log("nope"))


def test_nobody_gets_in_without_the_token(client_world):
    """Whoever has another token is refused, whatever they ask."""
    text = client_world.kubeconfig.read_text()
    stranger = client_world.kubeconfig.with_name("stranger")
    server = text.split('"server": "')[1].split('"')[0]
    stranger.write_text(text.replace(server, server[:-1] + ("A" if server[-1] != "A" else "B")))

    with pytest.raises(RefusedError) as refused:
        KubernetesApi.connect(kubeconfig=stranger).list(PODS)

    assert refused.value.status == 401


def test_a_server_that_is_not_there_is_named(tmp_path, client_world):
    """The message names the server, the hint where the credentials are from."""
    dead = tmp_path / "kubeconfig"
    url = client_world.kubeconfig.read_text().split('"server": "')[1].split('"')[0]
    dead.write_text(client_world.kubeconfig.read_text().replace(url, "http://127.0.0.1:1"))

    with pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1 does not answer"):
        KubernetesApi.connect(kubeconfig=dead).list(PODS)
