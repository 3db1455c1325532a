"""Drift: for each field that somebody may edit, the exact patch that puts it right."""

from __future__ import annotations

import pytest
from unit.in_memory import make_cluster, settled, views_for

from tfcluster_operator.model import drift, naming

PORT = {"name": "tf-2222", "port": 2222, "targetPort": 2222, "protocol": "TCP"}


def test_a_service_has_each_distinct_port_once():
    """The Service's ports are the jobs' ports, ascending, without repetition, named after their number."""
    cluster = make_cluster({"chief": {"port": 9000}, "ps": 2, "worker": 2})

    assert drift.service_ports(cluster) == [
        PORT,
        {"name": "tf-9000", "port": 9000, "targetPort": 9000, "protocol": "TCP"},
    ]


@pytest.mark.parametrize(
    ("edit", "patch"),
    [
        (
            {"spec": {"selector": {"app": "x"}}},
            {"spec": {"selector": {"app": None, naming.LABEL_CLUSTER: "demo"}}},
        ),
        (
            {"spec": {"selector": {naming.LABEL_CLUSTER: "x"}}},
            {"spec": {"selector": {naming.LABEL_CLUSTER: "demo"}}},
        ),
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
def test_each_edit_of_the_service_is_put_right_by_the_smallest_patch(edit, patch):
    """The patch holds what was edited and nothing else; what does no harm gives none."""
    cluster = make_cluster()
    world = settled(cluster)
    world.edit("Service", "demo", edit)

    assert patch == drift.service_change(cluster, world.read("Service", "demo"))


@pytest.mark.parametrize(
    ("edit", "beyond"),
    [({"clusterIP": "10.0.0.1"}, True), ({"type": "NodePort"}, True), ({"ports": None}, False), ({}, False)],
)
def test_a_service_is_beyond_repair_when_it_is_not_headless(edit, beyond):
    """The cluster IP and the type of a Service cannot be edited back."""
    world = settled(make_cluster())
    world.edit("Service", "demo", {"spec": edit})

    assert beyond == drift.service_is_beyond_repair(world.read("Service", "demo"))


def _config_map_change(edit, jobs=None):
    cluster = make_cluster(jobs or {"worker": 2})
    world = settled(cluster)
    world.edit("ConfigMap", "demo-worker", edit)
    (wanted,) = views_for(cluster, world.observe(cluster))
    return drift.config_map_change(cluster, wanted, world.read("ConfigMap", "demo-worker")), wanted


def test_a_right_config_map_needs_no_patch():
    """The same files, labels and epochs: nothing to do, also beside labels of others."""
    change, _ = _config_map_change({"metadata": {"labels": {"team": "blue"}}})

    assert None is change


def test_an_edited_file_is_written_again():
    """A text that differs by one byte is replaced by the wanted one."""
    change, wanted = _config_map_change({"data": {"cluster.json": "{}"}})

    assert {"cluster.json": wanted.files["cluster.json"].text} == change["data"]


def test_a_missing_file_is_written_and_a_foreign_one_removed():
    """Each file is put right by itself, in one patch."""
    own = {"worker": {"replicas": 2, "taskDeviceFilters": {"1": ["/job:worker"]}}}
    change, wanted = _config_map_change({"data": {"task-1.json": None, "task-0.json": "{}"}}, own)

    assert {"task-0.json": None, "task-1.json": wanted.files["task-1.json"].text} == change["data"]


def test_a_binary_file_is_removed():
    """A binary file would be mounted beside the views, and be read as one."""
    change, _ = _config_map_change({"binaryData": {"task-0.json": "e30="}})

    assert change == {"binaryData": {"task-0.json": None}}


def test_a_changed_view_brings_its_epochs_along():
    """Text and annotation change in one patch, so that they never disagree by our doing."""
    world = settled(make_cluster({"worker": 2}))
    cluster = make_cluster({"worker": 3}, generation=4)
    (wanted,) = views_for(cluster, world.observe(cluster))

    assert {
        "data": {"cluster.json": wanted.files["cluster.json"].text},
        "metadata": {"annotations": {naming.ANNOTATION_EPOCHS: '{"cluster.json":4}'}},
    } == drift.config_map_change(cluster, wanted, world.read("ConfigMap", "demo-worker"))


def test_a_label_of_a_config_map_is_put_right_alone():
    """A removed label gives a patch of that label; the data stay."""
    change, _ = _config_map_change({"metadata": {"labels": {naming.LABEL_JOB: None}}})

    assert change == {"metadata": {"labels": {naming.LABEL_JOB: "worker"}}}
