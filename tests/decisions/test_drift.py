"""The field that an edit changed, as the status names it."""

from __future__ import annotations

import pytest
from decisions.in_memory import make_cluster, merge_patch

from tfcluster_operator.report.conditions import edited_field, fields_told, older_template

CONTAINER = {"name": "tensorflow", "image": "image:1", "command": ["python3"], "env": [{"name": "A", "value": "1"}]}
TEMPLATE = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"containers": [CONTAINER], "volumes": [{"name": "data", "emptyDir": {}}]},
}


def declared(template=TEMPLATE, job=None, **spec):
    return make_cluster({"worker": {"replicas": 2, "template": template, **(job or {})}}, **spec)


def edited(**container):
    return merge_patch(TEMPLATE, {"spec": {"containers": [{**CONTAINER, **container}]}})


@pytest.mark.parametrize(
    ("after", "field"),
    [
        (declared(), ""),
        (declared(job={"replicas": 3}), ""),
        (declared(edited(image="image:2", command=["x"])), "containers[tensorflow].image"),
        (declared(edited(command=["python3", "--fast"])), "containers[tensorflow].command"),
        (declared(edited(command=None)), "containers[tensorflow].command"),
        (declared(edited(env=[{"name": "A", "value": "2"}])), "containers[tensorflow].env[A].value"),
        (declared(edited(env=[*CONTAINER["env"], {"name": "B"}])), "containers[tensorflow].env[B]"),
        (declared(edited(env=None)), "containers[tensorflow].env[A]"),
        (declared(edited(resources={"limits": {"cpu": "2"}})), "containers[tensorflow].resources"),
        (declared(merge_patch(TEMPLATE, {"metadata": {"labels": {"team": "b"}}})), "metadata.labels.team"),
        (declared(merge_patch(TEMPLATE, {"spec": {"nodeSelector": {"zone": "a"}}})), "nodeSelector"),
        (declared(merge_patch(TEMPLATE, {"spec": {"volumes": []}})), "volumes[data]"),
        (declared(job={"port": 3000}), "port"),
        (declared(clusterDomain="example.test"), "clusterDomain"),
        (declared(resolver={"tfConfig": "Environment"}), "resolver.tfConfig"),
        (declared(resolver={"delivery": "None"}), "resolver.delivery"),
        (make_cluster({"ps": 1}), ""),
    ],
)
def test_edited_field_is_named(after, field):
    assert edited_field(declared(), after, "worker") == field


def test_reported_field_is_read_back_after_a_restart():
    message = f"2 of 3 {older_template('ps', 'port')}; 1 of 2 {older_template('worker', 'containers[a].env[B]')}"
    status = {"conditions": [{"type": "UpToDate", "message": f"{message}; waiting for ps-1 to become ready"}]}
    assert edited_field(None, declared(), "worker") == ""
    assert fields_told(status) == {"ps": "port", "worker": "containers[a].env[B]"}
    assert fields_told({"conditions": [{"type": "UpToDate", "message": f"1 of 2 {older_template('ps', '')}"}]}) == {}
