"""What `tfcluster local` refuses of a manifest before anything runs, and what it says of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from unit.local_world import cluster, job

from tfcluster.commands.root import root
from tfcluster.errors import ManifestError
from tfcluster.local import manifest

ROOT = Path(__file__).resolve().parents[2]


def read(tmp_path: Path, *objects: Any, **options: Any) -> list[Any]:
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return manifest.load([file], **options)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"replica": 2}, "manifest.yaml:8: spec.jobs.worker.replica"),
        ({"replicas": "many"}, "spec.jobs.worker.replicas"),
        ({"deviceFilters": ["/job:none"]}, "names a job that is not declared"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, change: Any, words: str) -> None:
    """By the schema of the definition, and by what the operator itself would say."""
    with pytest.raises(ManifestError) as refusal:
        read(tmp_path, cluster(jobs={"worker": {**job("pass"), **change}}))

    assert words in str(refusal.value)


def test_other_kinds_are_refused_or_skipped(tmp_path: Path) -> None:
    """What runs programs must not look as if it ran; what pods use is taken, from lists too; the rest is named."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    whole = {"apiVersion": "v1", "kind": "List", "items": [cluster(jobs={"worker": job("pass")}), config_map]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}

    assert [one["kind"] for one in read(tmp_path, whole)] == ["ConfigMap", "TFCluster"]
    with pytest.raises(ManifestError, match="Deployment: leave it out"):
        read(tmp_path, whole, deployment)
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "net"}}
    told: list[str] = []
    assert [one["kind"] for one in read(tmp_path, whole, policy, tell=told.append)] == ["ConfigMap", "TFCluster"]
    assert told == ["skipped, because it means nothing on this machine: NetworkPolicy net"]


@pytest.mark.parametrize(
    ("kind", "field", "value", "words"),
    [
        ("ConfigMap", "data", {"a": "x", "b": 5}, "manifest.yaml:4: ConfigMap c: data.b must be a text: put it in"),
        ("ConfigMap", "data", {"b": None}, "data.b must be a text"),
        ("ConfigMap", "binaryData", 5, "manifest.yaml:2: ConfigMap c: binaryData must be an object"),
        ("ConfigMap", "binaryData", {"b": "#"}, "binaryData.b is not base64: encode it, or write it into data"),
        ("Secret", "data", {"b": "secret"}, "data.b is not base64: encode it, or write it into stringData"),
        ("Secret", "stringData", {"b": {}}, "stringData.b must be a text"),
    ],
)
def test_data_that_is_no_text_is_refused(tmp_path: Path, kind: str, field: str, value: Any, words: str) -> None:
    broken = {"apiVersion": "v1", field: value, "kind": kind, "metadata": {"name": "c"}}

    with pytest.raises(ManifestError, match="this cannot be played") as refusal:
        read(tmp_path, broken, cluster(jobs={"worker": job("pass")}))
    assert words in str(refusal.value)


def test_a_container_whose_program_nobody_knows_is_refused(tmp_path: Path) -> None:
    """An image's entry point cannot be played; the operator's own server for a bare container can."""
    bare = {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    with_arguments = {"template": {"spec": {"containers": [{"name": "a", "image": "b", "args": ["x"]}]}}}
    beside = {"template": {"spec": {"containers": [{"name": "a", "image": "b"}, {"name": "c", "image": "b"}]}}}

    manifest.check_programs(read(tmp_path, cluster(jobs={"ps": bare})), {})
    unresolved = read(tmp_path, cluster(jobs={"ps": bare}, resolver={"delivery": "None"}))
    configured = read(tmp_path, cluster(jobs={"ps": bare}, resolver={"tfConfig": "Environment"}))
    for objects, where in (
        (configured, "job ps, container a"),
        (read(tmp_path, cluster(jobs={"ps": with_arguments})), "job ps, container a"),
        (read(tmp_path, cluster(jobs={"ps": beside})), "job ps, container c"),
        (unresolved, "job ps, container a"),
    ):
        with pytest.raises(ManifestError, match=where):
            manifest.check_programs(objects, {})
        manifest.check_programs(objects, {"": ["true"]})


def test_files_of_the_image_are_named_unless_they_are_here(tmp_path: Path) -> None:
    """A script that only the image has is named, so that the user can map its folder."""
    there = {"command": ["python3", "/opt/of-the-image/train.py", "--logs", "/logs/x"], "name": "a", "image": "b"}
    other = {"command": ["/of-the-image/bin/run"], "workingDir": "/of-the-image", "name": "c", "image": "b"}
    objects = read(tmp_path, cluster(jobs={"chief": {"template": {"spec": {"containers": [there, other]}}}}))

    assert manifest.image_paths(objects, []) == ["/opt/of-the-image/train.py", "/of-the-image/bin/run", "/of-the-image"]
    assert manifest.image_paths(objects, ["/opt/of-the-image", "/of-the-image/"]) == []


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_can_be_read(example: Path) -> None:
    """The examples are valid; what has no meaning here is skipped."""
    objects = manifest.load([example])
    manifest.check_programs(objects, {})
    assert "image" in manifest.unplayed(manifest.clusters_of(objects))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--name", "../x"), "is no name"),
        (("--map", "opt=."), "is not IMAGEPATH=PATH"),
        (("--map", "/opt=/no/such/folder"), "is not there"),
        (("--python", "/no/such/python"), "is no program"),
        (("--entrypoint", "a="), "names no program"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    """Before anything runs, with click's own exit code."""
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump(cluster(jobs={"worker": job("pass")})), encoding="utf-8")

    done = CliRunner().invoke(root, ["local", "run", "-f", str(file), *options])

    assert done.exit_code == 2
    assert words in done.stderr
