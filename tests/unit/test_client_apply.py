"""Files become objects: all of them, in the order in which they need each other, or none where one is refused."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest
from support.waiting import GUARD

from memory_kubernetes import Refusal

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


def test_apply_creates_and_waits(client_world, file):
    """What a TFCluster needs comes first, whatever the order in the file."""
    shown = client_world.cli("apply", "-f", str(file), "--wait", "ready", "--timeout", f"{GUARD:g}s")

    assert (shown.exit_code, shown.stdout) == (0, "configmap/script created\ntfcluster/digits created\n")
    assert client_world.cluster("digits")["status"]["ready"] == "2/2"


def test_apply_again_says_what_changed(client_world, file):
    """Unchanged objects are told apart from changed ones."""
    client_world.cli("apply", "-f", str(file), "--wait", "ready")
    file.write_text(CLUSTER.replace("replicas: 2", "replicas: 1") + SCRIPT)

    assert (
        client_world.cli("apply", "-f", str(file)).stdout == "configmap/script unchanged\ntfcluster/digits configured\n"
    )


def test_dry_run_creates_nothing(client_world, file):
    """It prints what would be."""
    shown = client_world.cli("apply", "-f", str(file), "--dry-run", "-o", "json")

    assert [one["kind"] for one in json.loads(shown.stdout)["items"]] == ["ConfigMap", "TFCluster"]
    assert client_world.cluster("digits") is None


def test_nothing_is_applied_where_the_cluster_is_refused(client_world, file):
    """No ConfigMap is left of a TFCluster that cannot be; the message names the file and the line."""

    def refuse(request):
        if request.resource == "tfclusters" and request.verb == "patch":
            raise Refusal(403, "Forbidden", "tfclusters is forbidden: exceeded quota")

    client_world.at_once(lambda: client_world.kube.authorize.append(refuse))
    shown = client_world.cli("apply", "-f", str(file))

    assert shown.exit_code == 1
    assert "digits.yaml:2: TFCluster digits: tfclusters is forbidden" in shown.stderr
    assert client_world.at_once(lambda: client_world.kube.get("configmaps", "default", "script")) is None


def test_a_namespace_comes_first(client_world, file):
    """A file may bring the namespace that it works in."""
    inside = CLUSTER.replace("name: digits", "name: digits, namespace: team")
    file.write_text(inside + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: team}}\n")

    shown = client_world.cli("apply", "-f", str(file))

    assert shown.stdout == "namespace/team created\ntfcluster/digits created\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: batch/v9\nkind: Job\nmetadata: {name: x}", "knows no Job of batch/v9"),
        ("apiVersion: v1\nkind: Gadget\nmetadata: {name: x}", "knows no Gadget of v1"),
        ("apiVersion: v1\nkind: ConfigMap", "give it metadata.name"),
    ],
)
def test_what_is_no_object_is_refused(client_world, file, text, words):
    """The message names the file, and what to write."""
    file.write_text(dedent(text))
    shown = client_world.cli("apply", "-f", str(file))

    assert shown.exit_code == 1
    assert words in shown.stderr
    assert "digits.yaml:1" in shown.stderr


def test_another_namespace_than_asked_for_is_refused(client_world, file):
    """-n never moves an object to where its file does not say."""
    file.write_text(CLUSTER.replace("name: digits", "name: digits, namespace: team"))
    shown = client_world.cli("apply", "-n", "default", "-f", str(file))

    assert shown.exit_code == 1
    assert "-n says default" in shown.stderr
    assert client_world.cli("apply", "-f", str(file), "--wait", "done").exit_code == 2
