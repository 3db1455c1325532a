"""A TFCluster built from Python says what its manifest would, and can say all that a manifest can."""

import dataclasses
import re
from types import NoneType
from typing import get_args, get_type_hints

import pytest
import yaml
from support.odd_texts import ODD_TEXTS, readings

from tfcluster import (
    Colocate,
    Isolation,
    Job,
    ManifestError,
    Resolver,
    Spread,
    SuccessPolicy,
    TFCluster,
    UpdateStrategy,
)
from tfcluster.manifest.files import Manifest
from tfcluster.manifest.python import paths_of
from tfcluster.manifest.validate import declare, schema

SPEC = schema()["properties"]["spec"]["properties"]


def fields_of(kind) -> dict[tuple[str, ...], type | None]:
    """Give where each field of a dataclass stands, and the dataclass that it is made of."""
    hints = get_type_hints(kind)
    return {path: dataclass_in(hints[name]) for name, path in paths_of(kind).items() if path}


def dataclass_in(hint) -> type | None:
    return hint if dataclasses.is_dataclass(hint) else next(filter(None, map(dataclass_in, get_args(hint))), None)


def leaves(properties, kind, where=()):
    """Give each field of the API that a dataclass should have, and whether it has it."""
    known = fields_of(kind)
    for name, of_field in properties.items():
        path = (*where, name)
        if path in known and known[path] is not None:
            yield from leaves((of_field.get("items") or of_field)["properties"], known[path])
        elif path in known:
            yield path, True
        elif of_field.get("properties"):
            yield from leaves(of_field["properties"], kind, path)
        else:
            yield path, False


def test_every_crd_field_has_an_attribute():
    """The attributes are those of the CustomResourceDefinition: a field that is added there must be added here."""
    of_cluster = dict(SPEC)
    of_job = of_cluster.pop("jobs")["additionalProperties"]["properties"]
    assert [path for path, there in leaves(of_cluster, TFCluster) if not there] == []
    assert [path for path, there in leaves(of_job, Job) if not there] == []
    assert {path[0] for path in fields_of(TFCluster)} <= {*of_cluster}
    assert {path[0] for path in fields_of(Job)} <= {*of_job}


def test_choices_match_the_crd():
    scheduling = SPEC["scheduling"]["properties"]
    places = {
        Job: SPEC["jobs"]["additionalProperties"],
        SuccessPolicy: SPEC["successPolicy"],
        UpdateStrategy: SPEC["updateStrategy"],
        Resolver: SPEC["resolver"],
        Isolation: SPEC["isolation"],
        Colocate: scheduling["colocate"],
        Spread: scheduling["spread"]["items"],
    }
    for kind, properties in ((TFCluster, SPEC), *((kind, place["properties"]) for kind, place in places.items())):
        for one in dataclasses.fields(kind):
            path = paths_of(kind)[one.name]
            choices = properties.get(path[0], {}).get("enum") if len(path) == 1 else None
            if choices:
                # Literal["A", "B"], or Literal["A", "B"] | None
                inside = {word for part in get_args(one.type) for word in get_args(part) or (part,)} - {NoneType}
                assert inside == {*choices}, (kind, one.name)


def test_the_short_form_is_a_sound_manifest():
    cluster = TFCluster(
        "digits",
        image="example.test/train:1",
        chief=Job(command="python3 train.py --name 'my digits'", env={"SEED": 7}, cpu=2, memory="4Gi", gpus=1),
        workers=Job(replicas=4, max_replicas=8, device_filters=["/job:ps"], task_device_filters={0: ["/job:chief"]}),
        ps=2,
        jobs={"my_data": Job(image="example.test/data:1", args=["serve"], volumes={"/data": "images"})},
        update_strategy=UpdateStrategy(type="RollingUpdate", max_unavailable="25%"),
    )

    manifest = cluster.to_manifest()
    jobs = manifest["spec"]["jobs"]
    chief, data, ps = (jobs[name]["template"]["spec"] for name in ("chief", "my_data", "ps"))
    main = chief["containers"][0]
    assert main["command"] == ["python3", "train.py", "--name", "my digits"]
    assert main["env"] == [{"name": "SEED", "value": "7"}]
    limits = {"memory": "4Gi", "nvidia.com/gpu": 1}
    assert main["resources"] == {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": limits}
    assert jobs["worker"]["taskDeviceFilters"] == {"0": ["/job:chief"]}
    assert "command" not in ps["containers"][0]
    assert data["containers"][0]["image"] == "example.test/data:1"
    assert data["volumes"] == [{"name": "volume-0", "persistentVolumeClaim": {"claimName": "images"}}]
    assert manifest["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    declare(Manifest(manifest, "test"), "default")
    assert yaml.safe_load(cluster.to_yaml()) == manifest


def test_a_template_brings_everything_else():
    logs = {"name": "logs", "image": "example.test/logs:1"}
    own = {"name": "tensorflow", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}
    spec = {"containers": [logs, own], "volumes": [{"name": "volume-0", "emptyDir": {}}]}
    template = {"metadata": {"labels": {"team": "vision"}}, "spec": spec}
    before = yaml.safe_dump(template)
    job = Job(template=template, image="example.test/train:1", env={"B": "2"}, volumes={"/data": {"emptyDir": {}}})

    made = TFCluster("digits", workers=job).to_manifest()["spec"]["jobs"]["worker"]["template"]
    sidecar, main = made["spec"]["containers"]
    assert sidecar == logs
    assert main["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert main["volumeMounts"] == [{"name": "volume-1", "mountPath": "/data"}]
    assert yaml.safe_dump(template) == before


def test_invalid_cluster_arguments_are_rejected():
    with pytest.raises(ManifestError, match="job worker has no image"):
        TFCluster("digits", workers=2).to_manifest()
    with pytest.raises(ManifestError, match="worker is given twice"):
        TFCluster("digits", image="i", workers=2, jobs={"worker": 1}).to_manifest()


def test_texts_stay_texts_in_yaml():
    labels = {word: word for word in ("y", "on", "1e3", "0o7")}
    job = Job(command=ODD_TEXTS, env={f"V{index}": text for index, text in enumerate(ODD_TEXTS)})
    cluster = TFCluster("y", image="i", workers=job, labels=labels)
    assert all(read == [cluster.to_manifest()] for read in readings(cluster.to_yaml()))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"workers": "2"}, "got `str` - at `$.workers`"),
        ({"workers": True}, "got `bool` - at `$.workers`"),
        ({"jobs": {"data": None}}, "got `null` - at `$.jobs[...]`"),
        ({"labels": {"a": 1}}, "Expected `str`, got `int` - at `$.labels[...]`"),
        ({"spread": Spread(topology_key="zone")}, "got `object` - at `$.spread`"),
        ({"update_strategy": UpdateStrategy(type="Now")}, "Invalid enum value 'Now' - at `$.update_strategy.type`"),
        ({"workers": Job(env={"A": None})}, "got `null` - at `$.workers.env[...]`"),
        ({"workers": Job(command=["a", None])}, "got `null` - at `$.workers.command[1]`"),
        ({"workers": Job(command="echo 'a")}, "command cannot be split as a shell does: No closing quotation"),
        ({"workers": Job(template={"spec": {"containers": ["x"]}})}, "got `str` - at `$.spec.containers[0]`"),
        ({"workers": Job(template={"spec": "x"})}, "got `str` - at `$.spec`"),
    ],
)
def test_argument_of_another_type_is_named(arguments, problem):
    """Python itself looks at no type, and an error of its own would name none of the user's words."""
    with pytest.raises(ManifestError, match=re.escape(problem)):
        TFCluster("digits", image="i", **arguments).to_manifest()


def test_a_mapping_stands_for_a_dataclass():
    job = {"replicas": 2, "cpu": 1, "command": "run"}
    assert TFCluster("a", "i", workers=job).to_manifest() == TFCluster("a", "i", workers=Job(**job)).to_manifest()
