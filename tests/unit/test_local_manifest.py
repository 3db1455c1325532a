"""What `tfcluster local` refuses of a manifest before anything runs, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.local_world import cluster, job

from tfcluster.errors import ManifestError
from tfcluster.local import manifest
from tfcluster.local.control_plane import definition

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def schema() -> Mapping[str, Any]:
    """The schema of a TFCluster."""
    return definition().schema


def read(tmp_path: Path, schema: Mapping[str, Any], *objects: Any) -> list[Any]:
    file = tmp_path / "manifest.yaml"
    file.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return manifest.load([file], schema)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"replica": 2}, "manifest.yaml:7: spec.jobs.worker: Additional properties"),
        ({"replicas": "many"}, "spec.jobs.worker.replicas: 'many' is not of type 'integer'"),
        ({"replicas": -1}, "less than the minimum"),
        ({"deviceFilters": ["/job:none"]}, "names a job that is not declared"),
        ({"template": {"spec": {"containers": []}}}, "spec.jobs.worker.template.spec.containers"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, schema: Any, change: Any, words: str) -> None:
    """By the schema of the definition, and by what the operator itself would say."""
    with pytest.raises(ManifestError) as refusal:
        read(tmp_path, schema, cluster(jobs={"worker": {**job("pass"), **change}}))

    assert words in str(refusal.value)


def test_other_kinds_are_refused(tmp_path: Path, schema: Any) -> None:
    """What has no meaning on this machine must not look as if it had; what pods use is taken, from lists too."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    whole = {"apiVersion": "v1", "kind": "List", "items": [cluster(jobs={"worker": job("pass")}), config_map]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}

    assert [one["kind"] for one in read(tmp_path, schema, whole)] == ["ConfigMap", "TFCluster"]
    with pytest.raises(ManifestError, match="Deployment: leave it out"):
        read(tmp_path, schema, whole, deployment)


def test_a_container_whose_program_nobody_knows_is_refused(tmp_path: Path, schema: Any) -> None:
    """An image's entry point cannot be played; the operator's own server for a bare container can."""
    bare = {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    with_arguments = {"template": {"spec": {"containers": [{"name": "a", "image": "b", "args": ["x"]}]}}}
    beside = {"template": {"spec": {"containers": [{"name": "a", "image": "b"}, {"name": "c", "image": "b"}]}}}

    manifest.check_programs(read(tmp_path, schema, cluster(jobs={"ps": bare})), {})
    unresolved = read(tmp_path, schema, cluster(jobs={"ps": bare}, resolver={"delivery": "None"}))
    for objects, where in (
        (read(tmp_path, schema, cluster(jobs={"ps": with_arguments})), "job ps, container a"),
        (read(tmp_path, schema, cluster(jobs={"ps": beside})), "job ps, container c"),
        (unresolved, "job ps, container a"),
    ):
        with pytest.raises(ManifestError, match=where):
            manifest.check_programs(objects, {})
        manifest.check_programs(objects, {"": ["true"]})


def test_files_of_the_image_are_named_unless_they_are_here(tmp_path: Path, schema: Any) -> None:
    """A script that only the image has is named, so that the user can map its folder."""
    there = {"command": ["python3", "/opt/of-the-image/train.py", "--logs", "/logs/x"], "name": "a", "image": "b"}
    objects = read(tmp_path, schema, cluster(jobs={"chief": {"template": {"spec": {"containers": [there]}}}}))

    assert manifest.image_paths(objects, []) == ["/opt/of-the-image/train.py"]
    assert manifest.image_paths(objects, ["/opt/of-the-image"]) == []


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_can_be_read(example: Path, schema: Any) -> None:
    """The examples are valid, but for kinds that have no meaning here."""
    if example.name == "hpa.yaml":
        with pytest.raises(ManifestError, match="HorizontalPodAutoscaler: leave it out"):
            manifest.load([example], schema)
    else:
        objects = manifest.load([example], schema)
        manifest.check_programs(objects, {})
        assert "image" in manifest.unplayed(manifest.clusters_of(objects))
