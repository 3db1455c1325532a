"""The field that is named is the first that an edit changed, and none that the API server filled in."""

from __future__ import annotations

import copy

import pytest
from in_memory import make_cluster, merge_patch

from tfcluster_operator.manifests import build_pod
from tfcluster_operator.manifests.difference import first_difference
from tfcluster_operator.model.spec import Task

CONTAINER = {
    "name": "tensorflow",
    "image": "image:1",
    "command": ["python3", "train.py"],
    "env": [{"name": "A", "value": "1"}],
    "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
}
TEMPLATE = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
    "spec": {"containers": [CONTAINER], "tolerations": [{"key": "gpu"}], "volumes": [{"name": "data", "emptyDir": {}}]},
}


def made(template):
    """Make the pod of a template as the operator does."""
    cluster = make_cluster({"worker": {"template": template}})
    return build_pod(cluster, Task(cluster.jobs[0], 0), view_digest="", attempt=0, incarnation=0)


def live(template=TEMPLATE):
    """Make a pod as the API server gives it back: with defaults, a token's volume, and its own quantities."""
    pod = copy.deepcopy(made(template))
    pod["spec"].update(schedulerName="default-scheduler", dnsPolicy="ClusterFirst", nodeName="node")
    pod["spec"]["volumes"].append({"name": "kube-api-access-x7k", "projected": {}})
    for container in pod["spec"]["containers"]:
        container.update(imagePullPolicy="IfNotPresent", terminationMessagePath="/dev/termination-log")
        container["volumeMounts"] = [
            *container.get("volumeMounts", []),
            {"name": "kube-api-access-x7k", "mountPath": "/var"},
        ]
        if "resources" in container:
            container["resources"] = {
                "limits": {"cpu": "1", "memory": "1Gi"},
                "requests": {"cpu": "1", "memory": "1Gi"},
            }
    pod["metadata"]["annotations"]["injected.example/by"] = "somebody"
    return pod


def edited(**container):
    """Make the template with an edited container."""
    return merge_patch(TEMPLATE, {"spec": {"containers": [{**CONTAINER, **container}]}})


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (edited(image="image:2"), "containers[tensorflow].image"),
        (edited(command=["python3", "other.py"]), "containers[tensorflow].command[1]"),
        (edited(command=["python3", "train.py", "--fast"]), "containers[tensorflow].command"),
        (edited(env=[{"name": "A", "value": "2"}]), "containers[tensorflow].env[A].value"),
        (edited(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]), "containers[tensorflow].env[B]"),
        (edited(resources={"limits": {"cpu": "2", "memory": "1Gi"}}), "containers[tensorflow].resources.limits.cpu"),
        (edited(resources={"limits": {"cpu": "1", "memory": "1G"}}), "containers[tensorflow].resources.limits.memory"),
        (edited(workingDir="/data"), "containers[tensorflow].workingDir"),
        (merge_patch(TEMPLATE, {"metadata": {"labels": {"team": "b"}}}), "metadata.labels.team"),
        (merge_patch(TEMPLATE, {"metadata": {"annotations": {"more": "y"}}}), "metadata.annotations.more"),
        (merge_patch(TEMPLATE, {"spec": {"nodeSelector": {"zone": "a"}}}), "nodeSelector"),
        (merge_patch(TEMPLATE, {"spec": {"volumes": []}}), "volumes[data]"),
        (merge_patch(TEMPLATE, {"spec": {"priorityClassName": "high"}}), "priorityClassName"),
    ],
)
def test_edited_field_is_named(template, field):
    """By its path, with the names of containers, variables and volumes in it."""
    assert first_difference(made(template), live()) == field


@pytest.mark.parametrize(
    "limits",
    [{"cpu": "1", "memory": "1Gi"}, {"cpu": 1, "memory": "1048576Ki"}, {"cpu": "1000m", "memory": "1073741824"}],
)
def test_other_spelling_of_a_quantity_is_no_difference(limits):
    """The API server spells quantities in its own way."""
    template = edited(resources={"limits": limits}, image="image:2")

    assert first_difference(made(template), live()) == "containers[tensorflow].image"


def test_what_the_server_fills_in_is_no_difference():
    """Defaults, an injected annotation and the token's volume are nobody's edit; a removed field is the template's."""
    assert first_difference(made(TEMPLATE), live()) == "template"
    shorter = {key: value for key, value in CONTAINER.items() if key != "command"}
    pinned = live(merge_patch(TEMPLATE, {"spec": {"containers": [{**shorter, "workingDir": "/data"}]}}))
    assert first_difference(made(merge_patch(TEMPLATE, {"spec": {"containers": [shorter]}})), pinned) == "template"


def test_first_difference_is_told():
    """Labels are looked at before the containers, and of these the fields in the order of the template."""
    template = merge_patch(edited(image="image:2", command=["x"]), {"metadata": {"labels": {"team": "b"}}})

    assert first_difference(made(template), live()) == "metadata.labels.team"
    assert first_difference(made(edited(image="image:2", command=["x"])), live()) == "containers[tensorflow].image"
