"""`tfcluster matrix`: who sees whom, as text and as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.manifests import tfcluster

from tfcluster.commands.root import root
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.validate import declare
from tfcluster.matrix import grid_lines, grid_of, membership_of
from tfcluster.preview.render import render

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(root, ["matrix", *arguments], input=stdin)


def grid(builder, most=24):
    return grid_of(membership_of(declare(Manifest(builder.build(), "a test"), "default")), most=most)


def filtered(workers=3):
    return (
        tfcluster("digits")
        .job("chief")
        .job("ps", replicas=2, filters=["/job:worker"])
        .job("worker", replicas=workers, filters=["/job:ps"], task_filters={0: ["/job:ps/task:1"]})
        .spec(isolation={"mode": "DeviceFilters"})
    )


def seen(found) -> dict[str, set[str]]:
    """Say for each group whom it sees, itself included."""
    return {
        str(group): {str(one) for one, cell in zip(found.groups, cells, strict=True) if cell in {"sees", "self"}}
        for group, cells in zip(found.groups, found.cells, strict=True)
    }


def test_grid_is_what_the_views_say():
    read = {}
    for one in render(declare(Manifest(filtered().build(), "a test"), "default")).views:
        jobs = {job: tasks if isinstance(tasks, Mapping) else range(len(tasks)) for job, tasks in one.view.jobs.items()}
        shown = {f"{job}-{index}" for job, tasks in jobs.items() for index in tasks}
        read |= {f"{one.job}-{index}": shown | {f"{one.job}-{index}"} for index in one.tasks}
    assert seen(grid(filtered())) == read


def test_text_draws_and_says_why():
    drawn = grid_lines(grid(filtered()), fancy=True)
    assert drawn == [
        "           1 2 3 4 5 6",
        "chief-0  1 — ● ● ● ● ●",
        "ps-0     2 · — ✕ ● ● ●",
        "ps-1     3 · ✕ — ● ● ●",
        "worker-0 4 · · ● — ✕ ✕",
        "worker-1 5 · ● ● ✕ — ✕",
        "worker-2 6 · ● ● ✕ ✕ —",
        "● sees, · hidden by device filters, ✕ hidden, and blocked by network policy, — itself",
    ]
    assert all(line.isascii() for line in grid_lines(grid(filtered()), fancy=False))


def test_devices_alone_are_a_part():
    found = grid(tfcluster("c").job("worker", replicas=2, filters=["/job:worker/task:0/device:CPU:0"]).job("chief"))
    assert list(found.cells[2]) == ["hidden", "sees", "self"]
    gpu = {"spec": {"containers": [{"name": "t", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    found = grid(tfcluster("c").job("ps", template=gpu).job("worker", filters=["/job:ps/device:GPU:0"]))
    assert found.cells[1][0] == "partly"


def test_large_clusters_are_folded():
    whole, folded, rough = (grid(filtered(30), most=most) for most in (100, 24, 4))
    assert (len(whole.groups), len(folded.groups)) == (33, 5)
    assert seen(folded)["worker-1..29"] == {"ps-0", "ps-1"}
    assert rough is None


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
