"""Validation without an API server: it refuses what a real one refuses, and takes what that takes.

The tables are those of the integration tests, in which a real API server judges each row.
"""

import json

import pytest
import yaml
from admission import test_admission_accepted as good
from admission import test_admission_refused as bad
from click.testing import CliRunner
from support.manifests import pod_template, tfcluster

from tfcluster.commands.root import root
from tfcluster.errors import ManifestError
from tfcluster.manifest.files import Manifest, read
from tfcluster.manifest.validate import declare, problems

#: What the server says where its schema refuses.
SCHEMA_SAYS = (
    *("Required value", "Duplicate value", "unknown field", "must be of type", "supported values", "should match"),
    *("must have at most", "should have at least", "may not be more than", "greater than or", "less than or"),
)


def rows(test):
    return next(mark for mark in test.pytestmark if mark.name == "parametrize").args[1]


@pytest.mark.parametrize(("manifest", "path", "remedy"), rows(bad.test_invalid_spec_is_rejected_with_path_and_remedy))
def test_spec_that_the_server_rejects_is_rejected_with_the_same_path(manifest, path, remedy):
    found = [str(one) for one in problems(manifest)]
    assert any(path in one for one in found), found
    assert any(remedy in one for one in found) or any(words in remedy for words in SCHEMA_SAYS), found


@pytest.mark.parametrize("manifest", rows(good.test_accepted))
def test_what_the_server_takes_is_taken(manifest):
    assert problems(json.loads(json.dumps(manifest))) == []


@pytest.mark.parametrize("text", good.FILTERS)
def test_filter_that_the_server_takes_is_taken(text):
    assert problems(good.training(filters=[text], task_filters={0: [text]}).build()) == []


FILTERED = bad.worker_and_ps(filters=["/job:ps"], task_filters={2: ["/job:ps/task:3"]}).build()
NO_TASK = "spec.jobs.worker.taskDeviceFilters.2: one names a task that the job does not have"


@pytest.mark.parametrize(
    ("manifest", "told"),
    [(tfcluster("a").job("wörker").build(), 'spec.jobs."wörker" cannot name a job'), (FILTERED, NO_TASK)],
)
def test_problem_is_reported_once(manifest, told):
    (found,) = map(str, problems(manifest))
    assert found.startswith(told)


WRONG = """\
apiVersion: tfcluster.dev/v1alpha1
kind: TFCluster
metadata: {name: My_Cluster}
spec:
  jobs:
    worker:
      replicas: "3"
      deviceFilters: [ps]
      templte: {spec: {containers: [{name: tensorflow, image: tf}]}}
"""


def test_all_problems_are_reported_in_line_order(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(WRONG)

    with pytest.raises(ManifestError) as refused:
        declare(read([file]).only(), "default")

    told = [one.rpartition("/cluster.yaml:")[2].partition(": ") for one in refused.value.problems]
    fields = ["template", "replicas", "deviceFilters", "templte"]
    expected = [(str(line), f"spec.jobs.worker.{field}") for line, field in enumerate(fields, start=6)]
    assert [(line, words.partition(":")[0]) for line, _, words in told] == [("3", "metadata.name"), *expected]


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({}, "metadata.name: give the cluster a name"),
        ({"generateName": 7}, "metadata.name: give the cluster a name"),
        ({"name": 7}, "metadata.name: this must be a text, and is 7: put it in quotes"),
        ({"name": "a", "lables": {}}, "metadata.lables: this field does not exist: do you mean labels?"),
        ({"name": "a", "labels": {"x": 1}}, "metadata.labels.x: this must be a text, and is 1: put it in quotes"),
        ({"name": "a", "labels": {"x": "a b"}}, 'metadata.labels.x: "a b" is not a label'),
        ({"name": "a", "annotations": {"a b": ""}}, 'metadata.annotations["a b"]: this is not a key'),
        ({"name": "a", "annotations": ["x"]}, "metadata.annotations: this must be an object"),
        ("a", "metadata: this must be an object"),
        ({"name": "größe"}, 'metadata.name: "größe" cannot name a Service'),
    ],
)
def test_metadata_is_judged(metadata, problem):
    manifest = {**tfcluster("a").job("worker").build(), "metadata": metadata}
    assert [str(one)[: len(problem)] for one in problems(manifest)] == [problem]


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"env": [{"name": "N", "value": 1}]}, "env[0].value: this must be a text, and is 1: put it in quotes"),
        ({"resources": {"limits": {"memory": "4GB"}}}, "such as 500m or 4Gi"),
        ({"ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]}, ""),
        (
            {"ports": [{"containerPort": 2**40}]},
            "containerPort: 1099511627776 is out of range: write a number from -21",
        ),
        (
            {"resources": {"limits": {"example.com/gpu": 10**20}}},
            '"example.com/gpu"]: 100000000000000000000 is out of ',
        ),
        ({"resources": {"limits": {"example.com/gpu": -(2**64)}}}, "or put it in quotes"),
    ],
)
def test_words_say_what_to_write(container, words):
    manifest = tfcluster("a").job("worker", template=pod_template(**container)).build()
    found = "\n".join(map(str, problems(manifest)))
    assert words in found if words else found == ""


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("field", ["replicas", "port", "drainTimeoutSeconds"])
def test_number_outside_the_cel_range_is_reported(field, number):
    """The rules are in CEL, which has no such number."""
    manifest = tfcluster("a").job("worker", **{field: number}).build()
    assert ("spec", "jobs", "worker", field) in {one.where for one in problems(manifest)}


def test_null_is_as_if_it_were_left_out():
    manifest = tfcluster("a").job("worker", replicas=None, deviceFilters=None).spec(port=None, isolation=None).build()
    cluster = declare(Manifest(manifest, "a test"), "default")
    assert (cluster.jobs[0].replicas, cluster.jobs[0].port) == (1, 2222)


def test_forbidden_change_is_reported():
    old = tfcluster("a").job("worker").build()
    new = tfcluster("a").job("worker").spec(managedBy="example.test/other").build()
    assert problems(new) == []
    assert [one.where for one in problems(new, old)] == [("spec", "managedBy")]


def test_validate_judges_each_cluster_of_a_file(tmp_path):
    job = {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}
    both = [tfcluster("bad").job("worker", **job, replicas=-1), tfcluster("good").job("worker", **job)]
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all([one.build() for one in both]))
    shown = CliRunner().invoke(root, ["validate", "-f", str(file)])
    assert shown.exit_code == 1
    assert "TFCluster good is valid" in shown.stdout
    assert "spec.jobs.worker.replicas: -1 is too little" in shown.stderr
    good = CliRunner().invoke(root, ["validate", "-f", "-"], input=yaml.safe_dump(both[1].build()))
    assert good.exit_code == 0
