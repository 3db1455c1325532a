"""`tfcluster matrix`: who sees whom, as text and as data."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.manifests import tfcluster

from tfcluster.commands.root import root

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(root, ["matrix", *arguments], input=stdin)


def filtered(workers=3):
    return (
        tfcluster("digits")
        .job("chief")
        .job("ps", replicas=2, filters=["/job:worker"])
        .job("worker", replicas=workers, filters=["/job:ps"], task_filters={0: ["/job:ps/task:1"]})
        .spec(isolation={"mode": "DeviceFilters"})
    )


def test_file_and_cluster_say_the_same(client_world):
    client_world.declare("digits", {"isolation": {"mode": "DeviceFilters"}}, **filtered().build()["spec"]["jobs"])
    manifest = json.dumps(filtered().build())
    text = client_world.ok("matrix", "digits").stdout
    assert text == run("-f", "-", stdin=manifest).stdout
    assert "blocked by policy" in text
    missing = client_world.cli("matrix", "other")
    assert (missing.exit_code, "TFCluster other not found" in missing.stderr) == (1, True)


def test_json_is_whole():
    document = json.loads(run("-f", str(EXAMPLES / "parameter-server.yaml"), "-o", "json").stdout)
    assert (document["isolation"], document["cluster"]["name"]) == ("DeviceFilters", "digits")
    assert [row["job"] for row in document["rows"]] == ["chief", "ps", "worker"]


def test_evaluator_and_the_network_have_words():
    cluster = tfcluster("c").job("chief").job("evaluator", filters=["/job:chief"])
    shown = run("-f", "-", stdin=json.dumps(cluster.build())).stdout
    assert "The evaluator sees what /job:chief show" in shown
    assert "Isolation Cluster" in shown
    opened = json.dumps(cluster.spec(isolation={"mode": "None"}).build())
    assert "No isolation" in run("-f", "-", stdin=opened).stdout


@pytest.mark.parametrize("arguments", [(), ("digits", "-f", "x.yaml")])
def test_one_of_name_and_file_is_wanted(arguments):
    assert run(*arguments).exit_code == 2
