"""The field that is named is the first that an edit changed."""

from __future__ import annotations

import pytest
from in_memory import make_cluster, merge_patch

from tfcluster_operator.model.edited import edited_field, fields_told, older_template

CONTAINER = {"name": "tensorflow", "image": "image:1", "command": ["python3"], "env": [{"name": "A", "value": "1"}]}
TEMPLATE = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"containers": [CONTAINER], "volumes": [{"name": "data", "emptyDir": {}}]},
}


def declared(template=TEMPLATE, job=None, **spec):
    return make_cluster({"worker": {"replicas": 2, "template": template, **(job or {})}}, **spec)


def edited(**container):
    """Edit the container of the template."""
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
    """By its path, with the names of containers, variables and volumes in it; what replaces no pod is none."""
    assert edited_field(declared(), after, "worker") == field


def test_what_was_told_is_known_after_a_restart():
    """The condition says it; where there is none, the report lacks the field."""
    message = f"2 of 3 {older_template('ps', 'port')}; 1 of 2 {older_template('worker', 'containers[a].env[B]')}"
    status = {"conditions": [{"type": "UpToDate", "message": f"{message}; next when ps-1 is ready"}]}

    assert edited_field(None, declared(), "worker") == ""
    assert fields_told(status) == {"ps": "port", "worker": "containers[a].env[B]"}
    assert fields_told({"conditions": [{"type": "UpToDate", "message": f"1 of 2 {older_template('ps', '')}"}]}) == {}
