"""A TFJob and the TFCluster that it becomes give each replica the same TF_CONFIG, but for defects of TFJob.

TFJob's rules are in ``pkg/controller.v1/tensorflow/tensorflow.go`` of kubeflow/training-operator v1.9.4.  Addresses
are compared by the name of the pod and the port, because the two have different Services.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tfjobs import TFJOBS

from tfcluster.convert.conversion import convert
from tfcluster.convert.documents import convert_text
from tfcluster.convert.tfjob import TFJob
from tfcluster.manifest.validate import complete
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import EVALUATOR, Task
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.life.views import tf_config_of, views_of
from tfcluster_operator.objects.observed import Observed
from tfcluster_resolver import contract

#: The tasks of a replica's cluster by job and index; None for a replica without TF_CONFIG.
Clusters = dict[tuple[str, int], dict[str, dict[int, str]] | None]


def of_tfjob(job: TFJob) -> Clusters:
    """What TFJob sets, without its defects: an evaluator in the clusters of others, wrong ones with dynamic workers."""
    tasks = {one.job: {i: f"{job.name}-{one.job}-{i}:{one.port}" for i in range(one.count)} for one in job.replicas}
    whole = {name: of for name, of in tasks.items() if name != EVALUATOR and of}
    clusters: Clusters = {}
    for name, of in tasks.items():
        for index, address in of.items():
            own = {name: {index: address}}
            if job.dynamic and name in {"worker", "ps"}:
                seen = own | ({"ps": tasks["ps"]} if name == "worker" and tasks.get("ps") else {})
            else:
                seen = whole | own if name == EVALUATOR else whole
            clusters[name, index] = seen if job.distributed else None
    return clusters


def of_tfcluster(document: Mapping[str, Any]) -> Clusters:
    """What the operator sets, by its own code."""
    cluster = parse(complete(document, "default"))
    clusters: Clusters = {}
    for views in views_of(call_roll(cluster, Observed())).of_jobs:
        for index in range(views.job.replicas):
            file = views.files.get(contract.task_view_file(index)) or views.files.get(contract.VIEW_FILE)
            clusters[views.job.name, index] = None
            if cluster.sets_tf_config and file is not None:
                config = json.loads(tf_config_of(cluster, Task(views.job, index), file.text))
                assert config["task"] == {"type": views.job.name, "index": index}
                clusters[views.job.name, index] = {
                    name: {
                        int(number): f"{address.partition('.')[0]}:{address.rpartition(':')[2]}"
                        for number, address in (enumerate(of) if isinstance(of, list) else of.items())
                    }
                    for name, of in config["cluster"].items()
                }
    return clusters


@pytest.mark.parametrize("name", TFJOBS)
def test_conversion_keeps_tf_config(name: str):
    for conversion in convert_text(TFJOBS[name].text, "f").conversions:
        assert conversion.cluster is not None
        assert of_tfcluster(conversion.cluster) == of_tfjob(conversion.job)


MOST = {"PS": (0, 4), "Worker": (0, 12), "Evaluator": (1, 2), "Chief": (1, 1), "Reader": (1, 2)}
COUNTS = st.fixed_dictionaries({}, optional={key: st.integers(*ends) for key, ends in MOST.items()}).filter(bool)


@settings(max_examples=20, deadline=None)
@given(counts=COUNTS, dynamic=st.booleans(), version=st.sampled_from(["v1", "v1beta2"]), port=st.integers(1, 65535))
def test_conversion_of_any_tfjob_keeps_tf_config(counts: dict[str, int], dynamic: bool, version: str, port: int):
    specs: dict[str, Any] = {}
    for key, count in counts.items():
        container: dict[str, Any] = {"name": "tensorflow", "image": "i", "command": ["run"]}
        if key == "Worker":
            container["ports"] = [{"name": "tfjob-port", "containerPort": port}]
        specs[key] = {"replicas": count, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": f"kubeflow.org/{version}", "kind": "TFJob", "metadata": {"name": "small"}}
    conversion = convert({**job, "spec": {"enableDynamicWorker": dynamic, "tfReplicaSpecs": specs}})
    assert conversion.cluster is not None
    assert of_tfcluster(conversion.cluster) == of_tfjob(conversion.job)
