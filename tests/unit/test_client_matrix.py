"""`tfcluster matrix`: who sees whom, as text, as data and as a picture that shows the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from support.manifests import tfcluster

from tfcluster.commands.root import root
from tfcluster.declared import declare
from tfcluster.manifest_files import Manifest
from tfcluster.rendering import render
from tfcluster.sight_grid import grid_lines, grid_of, membership_of
from tfcluster.sight_picture import picture_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments: str, stdin: str | None = None):
    return CliRunner().invoke(root, ["matrix", *arguments], input=stdin)


def cluster_of(builder):
    return declare(Manifest(builder.build(), "a test"), "default").cluster


def grid(builder, most=24):
    return grid_of(membership_of(cluster_of(builder)), most=most)


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
        str(group): {str(one) for one, cell in zip(found.groups, cells, strict=True) if cell.sees in {"sees", "self"}}
        for group, cells in zip(found.groups, found.cells, strict=True)
    }


def test_grid_is_what_the_views_say():
    """What each task reads in its file, and itself."""
    views = render(declare(Manifest(filtered().build(), "a test"), "default")).views
    read = {}
    for one in views:
        shown = {
            f"{job}-{index}"
            for job, tasks in one.view.jobs.items()
            for index in (tasks if isinstance(tasks, Mapping) else range(len(tasks)))
        }
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

    assert [cell.sees for cell in found.cells[2]] == ["hidden", "sees", "self"]
    gpu = {"spec": {"containers": [{"name": "t", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    found = grid(tfcluster("c").job("ps", template=gpu).job("worker", filters=["/job:ps/device:GPU:0"]))
    assert (found.cells[1][0].sees, found.cells[1][0].why) == ("partly", "by /job:ps/device:GPU:0, GPU:0 alone")


@pytest.mark.parametrize(
    ("most", "groups"),
    [
        (100, 33),
        (24, 5),
        (4, 3),
    ],
)
def test_large_clusters_are_folded(most, groups):
    """First equal neighbours are one, then all of a job; nobody sees less or more for that."""
    found = grid(filtered(30), most=most)

    assert len(found.groups) == groups
    if groups == 5:
        assert seen(found)["worker-1..29"] == {"ps-0", "ps-1"}
    if groups == 3:
        assert {str(one) for one in found.groups} == {"chief-0", "ps-0..1", "worker-0..29"}
        assert [cell.sees for cell in found.cells[2]] == ["hidden", "partly", "blocked"]


def test_picture_shows_the_grid_and_can_be_read_aloud():
    """It is well-formed, has a title and a description, a square for each cell, and colours for the dark."""
    found = grid(filtered())
    drawn = ET.fromstring(picture_of(found, "Who sees <whom>", "a & b"))  # noqa: S314 - it is our own

    cells = [one.get("class") for group in drawn.findall(f"{SVG}g") for one in group.findall(f"{SVG}rect")]
    assert cells == [f"cell {cell.sees}" for row in found.cells for cell in row]
    assert drawn.findtext(f"{SVG}title") == "Who sees <whom>"
    assert "worker-0 sees ps-1." in str(drawn.findtext(f"{SVG}desc"))
    assert "prefers-color-scheme: dark" in str(drawn.findtext(f"{SVG}style"))
    told = [group.findtext(f"{SVG}title") for group in drawn.findall(f"{SVG}g")]
    assert "worker-0, ps-1: sees (by /job:ps/task:1)" in told


def test_nothing_in_the_picture_overlaps_or_leaves_it():
    """However long the names are, and however many."""
    long = tfcluster("a-name").job("a_long_name_of_a_job_that_somebody_has_chosen").job("ps", replicas=20).job("b")
    for builder in (filtered(), long, tfcluster("one").job("w")):
        drawn = ET.fromstring(picture_of(grid(builder, most=60), "Who sees whom", "words"))  # noqa: S314 - it is our own
        width, height = float(drawn.get("width") or 0), float(drawn.get("height") or 0)
        boxes = [
            tuple(float(one.get(key) or 0) for key in ("x", "y", "width", "height"))
            for one in drawn.iter(f"{SVG}rect")
            if one.get("class") != "page"
        ]
        assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
        assert len({(x, y) for x, y, _, _ in boxes}) == len(boxes)
        left = min(x for x, _, w, _ in boxes if w > 20)
        assert all(len(str(one.text)) * 7 < left for one in drawn.findall(f"{SVG}text[@text-anchor='end']"))


def test_file_and_cluster_say_the_same(client_world, tmp_path):
    """Of what runs, the spec is read; the picture goes to a file or to stdout."""
    client_world.declare("digits", filtered().build()["spec"]["jobs"], isolation={"mode": "DeviceFilters"})
    (tmp_path / "c.json").write_text(json.dumps(filtered().build()))

    live = client_world.cli("matrix", "digits")
    file = run("-f", str(tmp_path / "c.json"))
    picture = client_world.cli("matrix", "digits", "--svg", str(tmp_path / "m.svg"))
    printed = run("-f", str(tmp_path / "c.json"), "--svg", "-")

    assert live.exit_code == file.exit_code == picture.exit_code == printed.exit_code == 0
    assert live.stdout == file.stdout
    assert "blocked by policy" in live.stdout
    assert (tmp_path / "m.svg").read_text() == printed.stdout


def test_json_is_whole():
    """It is what the resolver's matrix prints in a pod that sees all."""
    document = json.loads(run("-f", str(EXAMPLES / "parameter-server.yaml"), "-o", "json").stdout)

    assert (document["complete"], document["isolation"], document["cluster"]["name"]) == (
        True,
        "DeviceFilters",
        "digits",
    )
    assert [row["job"] for row in document["rows"]] == ["chief", "ps", "worker"]


def test_evaluator_and_the_network_have_words():
    manifest = json.dumps(tfcluster("c").job("chief").job("evaluator", filters=["/job:chief"]).build())

    shown = run("-f", "-", stdin=manifest).stdout

    assert "The evaluator sees what /job:chief show" in shown
    assert "Isolation Cluster" in shown
    assert "No isolation" in run("-f", "-", "--default-isolation", "None", stdin=manifest).stdout
    assert "ask a task without device" not in shown


@pytest.mark.parametrize("arguments", [(), ("digits", "-f", "x.yaml")])
def test_one_of_name_and_file_is_wanted(arguments):
    assert run(*arguments).exit_code == 2


def test_missing_cluster_is_told(client_world):
    shown = client_world.cli("matrix", "nobody")

    assert shown.exit_code == 1
    assert "there is no TFCluster nobody" in shown.stderr


def test_picture_that_cannot_be_written_is_told():
    shown = run("-f", str(EXAMPLES / "tf-config.yaml"), "--svg", "/proc/nowhere/m.svg")

    assert shown.exit_code == 1
    assert "cannot be written" in shown.stderr
