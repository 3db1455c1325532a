"""Files of TFJobs: other objects survive, and Kubernetes reads what was meant."""

import json
from typing import Any

import jsonschema
import pytest
import yaml
from support.odd_texts import ODD_TEXTS, readings
from support.tfjobs import TFJOBS

from scripts import reference
from tfcluster.convert.conversion import Stream, convert, convert_text
from tfcluster.errors import ManifestError
from tfcluster.manifest.yaml import documents
from tfcluster.terminal import spelled

DEFINITION = yaml.safe_load(reference.CRD.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mnist}
spec:
  tfReplicaSpecs:
    Chief: {template: {spec: {containers: [{name: tensorflow, image: i}]}}}
    Worker: {template: {spec: {containers: [{name: tensorflow, image: i}]}}}
"""


def without_nulls(node: Any) -> Any:
    """Leave out what is null, as the API server does."""
    if isinstance(node, dict):
        return {key: without_nulls(value) for key, value in node.items() if value is not None}
    return [without_nulls(one) for one in node] if isinstance(node, list) else node


def converted(text: str) -> str:
    return convert_text(text.encode(), "tfjob.yaml").text


def read(text: str) -> list[Any]:
    """Read a text as Kubernetes does."""
    return [one.value for one in documents(text.encode())]


@pytest.mark.parametrize("name", [*TFJOBS])
def test_the_text_says_what_the_objects_do(name: str):
    stream: Stream = convert_text(TFJOBS[name].encode(), "f")
    (before,) = read(TFJOBS[name])
    items = before["items"] if before["kind"] == "List" else [before]
    for old, new in zip(items, read(stream.text), strict=True):
        expected = convert(old).cluster if old["kind"] == "TFJob" else old
        assert new == json.loads(json.dumps(expected))
        if old["kind"] == "TFJob":
            VALIDATOR.validate(without_nulls(new))


def test_other_objects_are_not_changed():
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n"
    stream = convert_text(f"# a bundle\n{claim}---\n{JOB}--- # another\n{claim}".encode(), "f")
    first, cluster, last = read(stream.text)
    assert (first, last) == (*read(claim), *read(claim))
    assert cluster["kind"] == "TFCluster"


def test_anchors_and_merges_are_written_out():
    text = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: shared}
spec:
  tfReplicaSpecs:
    Chief: &one
      restartPolicy: OnFailure
      template: &task
        spec: {restartPolicy: Never, containers: [{name: tensorflow, image: i}]}
    Worker: {template: *task}
    PS:
      <<: *one
      replicas: 2
"""
    after = converted(text)

    assert not {"&", "*", "<<"} & {*after.split()}
    jobs = read(after)[0]["spec"]["jobs"]
    assert jobs["ps"]["restartPolicy"] == "OnFailure"
    assert jobs["worker"]["template"] == {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}


def test_other_forms_of_files_are_read():
    (job,) = read(JOB)
    items = [{key: job[key] for key in ("metadata", "spec")}]
    listed = {"apiVersion": "kubeflow.org/v1", "kind": "TFJobList", "items": items}
    for text in (f"%YAML 1.1\n---\n{JOB}", JOB.replace("\n", "\r\n")):
        assert read(converted(text))[0]["kind"] == "TFCluster"
    (after,) = read(converted(json.dumps(listed)))
    assert after["kind"] == "TFCluster"


def test_texts_stay_texts():
    job = read(JOB)[0]
    odd = {f"k{index}": word for index, word in enumerate(ODD_TEXTS)}
    job["metadata"]["annotations"] = {**odd, "ab": "\u4e00\x85\xe9"}  # a line end that only YAML knows
    after = converted(json.dumps(job, indent="\t"))
    for (cluster,) in readings(after):
        assert cluster["metadata"]["annotations"] == job["metadata"]["annotations"]
    assert after.startswith("apiVersion: tfcluster.dev/v1alpha1\nkind: TFCluster\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "f:1: this is not an object") for text in ("words", "- a\n- b\n")),
        (f"kind: Pod\n---\n{JOB}\tx: y\n", "f:10: "),
        (f"{JOB}spec: {{}}\n", 'f:8: the key "spec" is in one object twice'),
        ("kind: TFJob\nspec: {{ .Values.x }}\n", "f:2: "),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(text: str, words: str):
    with pytest.raises(ManifestError) as refused:
        convert_text(text.encode(), "f")
    assert words in "\n".join([str(refused.value), *refused.value.problems])
    assert ("tabs" in str(refused.value)) == ("\t" in text)
    assert ("{{…}}" in refused.value.hint) == ("{{" in text)


def test_value_that_the_api_server_rejects_has_its_tfjob_path():
    (conversion,) = convert_text(JOB.replace("image: i}", "image: i, args: [7]}").encode(), "f").conversions
    told = [f"{spelled(one.path)}: {one.words}" for one in conversion.verdicts if one.outcome == "rejected"]
    path = "template.spec.containers[0].args[0]: this must be a text, and is 7: put it in quotes"
    assert sorted(told) == [f"spec.tfReplicaSpecs.{key}.{path}" for key in ("Chief", "Worker")]


def test_tfjob_without_a_spec_is_rejected():
    (conversion,) = convert_text(b"apiVersion: kubeflow.org/v1\nkind: TFJob\n", "f").conversions
    assert conversion.cluster is None
    refused = {one.words.partition(":")[0] for one in conversion.verdicts if one.outcome == "rejected"}
    assert refused == {"the name is missing", "the replicas are missing"}
