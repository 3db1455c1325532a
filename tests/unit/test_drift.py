"""Drift: for each field that a user can edit, the exact patch that corrects it."""

from __future__ import annotations

import pytest
from unit.in_memory import make_cluster, merge_patch, running, settled, views_for

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.edited import edited_field, fields_told, older_template
from tfcluster_operator.objects import config_map, service

PORT = {"name": "tf-2222", "port": 2222, "targetPort": 2222, "protocol": "TCP"}


def test_a_service_has_each_distinct_port_once():
    cluster = make_cluster({"chief": {"port": 9000}, "ps": 2, "worker": 2})
    assert service.build(cluster)["spec"]["ports"] == [
        PORT,
        {"name": "tf-9000", "port": 9000, "targetPort": 9000, "protocol": "TCP"},
    ]


@pytest.mark.parametrize(
    ("edit", "patch"),
    [
        ({"spec": {"selector": {"app": "x"}}}, {"spec": {"selector": {"app": None, naming.LABEL_CLUSTER: "demo"}}}),
        ({"spec": {"selector": {naming.LABEL_CLUSTER: "x"}}}, {"spec": {"selector": {naming.LABEL_CLUSTER: "demo"}}}),
        ({"spec": {"selector": None}}, {"spec": {"selector": {naming.LABEL_CLUSTER: "demo"}}}),
        ({"spec": {"ports": None}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"ports": [{**PORT, "targetPort": 9}]}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"ports": [{**PORT, "targetPort": "http"}]}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"ports": [{**PORT, "protocol": "UDP"}]}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"ports": [{**PORT, "name": "x"}]}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"ports": [PORT, {**PORT, "name": "x", "port": 1}]}}, {"spec": {"ports": [PORT]}}),
        ({"spec": {"publishNotReadyAddresses": False}}, {"spec": {"publishNotReadyAddresses": True}}),
        (
            {"metadata": {"labels": {naming.LABEL_MANAGED_BY: "helm"}}},
            {"metadata": {"labels": {naming.LABEL_MANAGED_BY: "tfcluster-operator"}}},
        ),
        ({"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}}}, None),
        ({"spec": {"sessionAffinity": "ClientIP"}}, None),
    ],
)
def test_each_edit_of_the_service_is_reverted_with_a_minimal_patch(edit, patch):
    cluster, world = running()
    world.edit("Service", "demo", edit)
    assert patch == service.change(cluster, world.read("Service", "demo"))


@pytest.mark.parametrize(
    ("edit", "beyond"),
    [({"clusterIP": "10.0.0.1"}, True), ({"type": "NodePort"}, True), ({"ports": None}, False), ({}, False)],
)
def test_a_service_is_beyond_repair_when_it_is_not_headless(edit, beyond):
    """The cluster IP and the type of a Service are immutable."""
    world = settled(make_cluster())
    world.edit("Service", "demo", {"spec": edit})
    assert beyond == world.read("Service", "demo").beyond_repair


OWN = {"worker": {"replicas": 2, "taskDeviceFilters": {"1": ["/job:worker"]}}}
LABEL = {"metadata": {"labels": {naming.LABEL_JOB: None}}}


@pytest.mark.parametrize(
    ("edit", "written", "removed"),
    [
        ({"metadata": {"labels": {"team": "blue"}}}, [], None),
        ({"data": {"cluster.json": "{}"}}, ["cluster.json"], {"data": {}}),
        ({"data": {"task-1.json": None, "task-0.json": "{}"}}, ["task-1.json"], {"data": {"task-0.json": None}}),
        # A binary file would be mounted next to the views, and be read as one.
        ({"binaryData": {"task-0.json": "e30="}}, [], {"binaryData": {"task-0.json": None}}),
        (LABEL, [], {"metadata": {"labels": {naming.LABEL_JOB: "worker"}}}),
    ],
    ids=["labels of others", "an edited file", "a missing and a foreign file", "a binary file", "our label"],
)
def test_each_edit_of_a_config_map_is_reverted_alone(edit, written, removed):
    cluster, world = running(OWN)
    world.edit("ConfigMap", "demo-worker", edit)
    (wanted,) = views_for(cluster, world.observe(cluster))
    change = config_map.change(cluster, "worker", wanted.files, world.read("ConfigMap", "demo-worker"))
    found = {name: change["data"].pop(name) for name in written}
    assert (found, change) == ({name: wanted.files[name].text for name in written}, removed)


def test_a_changed_view_brings_its_epochs_along():
    """Text and annotation change in one patch, so that they never disagree."""
    world = settled(make_cluster({"worker": 2}))
    cluster = make_cluster({"worker": 3}, generation=4)
    (wanted,) = views_for(cluster, world.observe(cluster))
    assert {
        "data": {"cluster.json": wanted.files["cluster.json"].text},
        "metadata": {"annotations": {naming.ANNOTATION_EPOCHS: '{"cluster.json":4}'}},
    } == config_map.change(cluster, "worker", wanted.files, world.read("ConfigMap", "demo-worker"))


# --- the field that an edit changed
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
