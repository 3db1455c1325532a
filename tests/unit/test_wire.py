"""Reading the API's bytes: every field that a decision needs, and nothing lost on sparse objects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfcluster_operator.kube import wire
from tfcluster_operator.model import naming
from tfcluster_operator.model.observed import Exit, Meta, ObservedConfigMap, ObservedPod, ObservedService
from tfcluster_operator.model.view_files import read_file

METADATA = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "12"}
META = Meta("a", "n", "u", 12, "", "", {}, {}, terminating=False)


def pod(status: dict[str, Any] | None = None, **spec: Any) -> ObservedPod:
    """Read a pod with this status."""
    body = {"metadata": METADATA, "spec": spec, "status": status or {}}
    found = wire.PODS.read(msgspec.json.encode(body))
    assert isinstance(found, ObservedPod)
    return found


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Make a container's status."""
    return {"name": "task", "state": state, **more}


def test_an_object_with_nothing_but_its_name_is_read():
    """What the API leaves out has its default; a Service's cluster IP is then none of ours."""
    bare = msgspec.json.encode({"metadata": METADATA})

    assert ObservedService(META, {}, (), "", "ClusterIP", publish_not_ready=False) == wire.SERVICES.read(bare)
    assert ObservedConfigMap(META, {}, (), immutable=False) == wire.CONFIG_MAPS.read(bare)
    assert ObservedPod(
        meta=META,
        phase="Pending",
        ready=False,
        disrupted=False,
        reason="",
        node="",
        devices=None,
        trouble="",
    ) == wire.PODS.read(bare)


@pytest.mark.parametrize(
    ("references", "owner"),
    [
        (None, ("", "")),
        ([{"uid": "x", "kind": "TFCluster", "name": "c"}], ("", "")),
        ([{"uid": "x", "kind": "TFCluster", "name": "c", "controller": False}], ("", "")),
        ([{"uid": "x", "kind": "TFCluster", "name": "c", "controller": True}], ("x", "c")),
        ([{"uid": "x", "kind": "ReplicaSet", "name": "c", "controller": True}], ("x", "")),
        ([{"uid": "w"}, {"uid": "x", "kind": "TFCluster", "name": "c", "controller": True}], ("x", "c")),
    ],
)
def test_the_owner_is_the_controller(references, owner):
    """Of several owner references the controller's counts; its name counts if it is a TFCluster."""
    body = {"metadata": {**METADATA, "ownerReferences": references}}

    meta = wire.CONFIG_MAPS.read(msgspec.json.encode(body)).meta

    assert owner == (meta.owner_uid, meta.owner_name)


def test_labels_are_kept_and_annotations_only_ours():
    """Others' annotations can be long, and no decision reads them."""
    annotations = {naming.ANNOTATION_VIEW: "d", "kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    metadata = {
        **METADATA,
        "labels": {"team": "blue"},
        "annotations": annotations,
        "deletionTimestamp": "2027-01-01T00:00:00Z",
    }

    meta = wire.PODS.read(msgspec.json.encode({"metadata": metadata})).meta

    assert (meta.labels, meta.annotations, meta.terminating) == ({"team": "blue"}, {naming.ANNOTATION_VIEW: "d"}, True)


def test_words_that_stand_in_every_pod_of_a_job_are_kept_once():
    """Ten thousand pods have the labels, the digests and the owner of their job; each is one string in memory."""
    metadata = {
        "namespace": "ns-of-many",
        "labels": {"app.kubernetes.io/component": "some-worker"},
        "annotations": {naming.ANNOTATION_VIEW: "0123456789abcdef"},
        "ownerReferences": [{"uid": "uid-of-many", "kind": naming.KIND, "name": "some-cluster", "controller": True}],
    }
    volumes = [{"name": naming.RESOLVER_VOLUME, "configMap": {"name": "some-cluster.resolver-1"}}]
    body = msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": "node-of-many", "volumes": volumes}})

    one, other = wire.PODS.read(body), wire.PODS.read(body)

    assert isinstance(one, ObservedPod)
    assert isinstance(other, ObservedPod)
    assert [id(word) for word in words_of(one)] == [id(word) for word in words_of(other)]


def words_of(pod: ObservedPod) -> list[str]:
    """List what is the same in all pods of a job on one node."""
    meta = pod.meta
    of_all = [meta.namespace, meta.owner_uid, meta.owner_name, pod.node, pod.resolver]
    return [*of_all, *meta.labels, *meta.labels.values(), *meta.annotations, *meta.annotations.values()]


def test_a_service_is_read_in_the_fields_that_we_set():
    """Selector, ports with target and protocol, cluster IP, type, early publication."""
    spec = {
        "selector": {"a": "b"},
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "ports": [{"name": "x", "port": 1, "targetPort": "named", "protocol": "UDP"}, {"port": 2}],
    }

    assert ObservedService(
        META, {"a": "b"}, (("x", 1, "named", "UDP"), ("", 2, 2, "TCP")), "None", "ClusterIP", publish_not_ready=True
    ) == wire.SERVICES.read(msgspec.json.encode({"metadata": METADATA, "spec": spec}))


def test_a_config_map_is_read_as_digests():
    """Of a file its digest and meaning are kept, of a binary file the name."""
    body = {"metadata": METADATA, "data": {"a": "text"}, "binaryData": {"b": "AA=="}, "immutable": True}

    found = wire.CONFIG_MAPS.read(msgspec.json.encode(body))

    assert ObservedConfigMap(META, {"a": read_file("text")}, ("b",), immutable=True) == found


def test_a_list_gives_its_objects_and_where_it_goes_on():
    """The resource version and the continue token are the list's."""
    body = {"metadata": {"resourceVersion": "99", "continue": "more"}, "items": [{"metadata": METADATA}]}

    listed, meta = wire.SERVICES.read_list(msgspec.json.encode(body))
    found = list(listed)

    assert ([one.meta for one in found], meta.resource_version, meta.continue_token) == ([META], "99", "more")


@pytest.mark.parametrize(
    ("namespace", "name", "path"),
    [
        (None, "", "/api/v1/pods"),
        ("n", "", "/api/v1/namespaces/n/pods"),
        ("n", "a", "/api/v1/namespaces/n/pods/a"),
    ],
)
def test_paths_are_of_all_namespaces_one_or_an_object(namespace, name, path):
    """Where a kind is served."""
    assert path == wire.PODS.path(namespace, name)


# --- pods


@pytest.mark.parametrize(("value", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_pod_is_ready_by_its_condition(value, ready):
    """Only the condition Ready=True means ready."""
    assert ready == pod({"phase": "Running", "conditions": [{"type": "Ready", "status": value}]}).ready


ENDED_BY = {
    reason: [{"name": "tensorflow", "state": {"terminated": {"exitCode": 137, "reason": reason}}}]
    for reason in ("Error", "OOMKilled", "Unknown", "ContainerStatusUnknown")
}


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        ({"phase": "Failed"}, False),
        ({"phase": "Failed", "reason": "Evicted"}, True),
        ({"phase": "Failed", "reason": "Preempting"}, True),
        ({"phase": "Failed", "reason": "NodeShutdown"}, True),
        ({"phase": "Failed", "reason": "OutOfmemory"}, True),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "containerStatuses": ENDED_BY["Error"]}, True),
        ({"phase": "Failed", "reason": "NodeAffinity", "containerStatuses": ENDED_BY["Error"]}, True),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, False),
        ({"phase": "Failed", "containerStatuses": ENDED_BY["Unknown"]}, True),
        ({"phase": "Failed", "containerStatuses": ENDED_BY["ContainerStatusUnknown"]}, True),
        ({"phase": "Failed", "containerStatuses": ENDED_BY["Error"]}, False),
        ({"phase": "Failed", "containerStatuses": ENDED_BY["OOMKilled"]}, False),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
    ],
)
def test_a_disruption_is_told_by_reason_or_condition(status, disrupted):
    """Somebody took the pod away, its node never let it run, or the runtime lost it; what its program did is a failure.

    A reason of the pod decides before one of its container.
    """
    assert disrupted == pod(status, containers=[{"name": "tensorflow"}]).disrupted


def test_the_main_containers_end_is_the_tasks_end():
    """A sidecar that runs on or fails says nothing of the task; of several, the one named tensorflow speaks."""
    spec = {"containers": [{"name": "proxy"}, {"name": "tensorflow"}]}
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "first\nlast line\n"}}
    running = [{**container({"running": {}}), "name": "proxy"}, {**container(ended), "name": "tensorflow"}]
    other = [{**container(ended), "name": "proxy"}, {**container({"running": {}}), "name": "tensorflow"}]

    assert pod({"phase": "Running", "containerStatuses": running}, **spec).exit == Exit(3, "Error", "last line")
    assert pod({"phase": "Running", "containerStatuses": other}, **spec).exit is None


@pytest.mark.parametrize(("log", "told"), [("ValueError: x\n}\n  ])\n", "ValueError: x"), ("}\n", ""), ("", "")])
def test_last_line_that_says_something_is_told(log, told):
    """A log may end with brackets."""
    ended = [{**container({"terminated": {"exitCode": 1, "message": log}}), "name": "tensorflow"}]

    assert (
        pod({"phase": "Failed", "containerStatuses": ended}, containers=[{"name": "tensorflow"}]).exit.message == told
    )


def test_a_container_with_rules_of_its_own_has_not_ended_while_the_pod_runs():
    """The kubelet starts it again, so its end is the task's only once the pod is over."""
    spec = {"containers": [{"name": "a", "restartPolicy": "Always"}]}
    ended = [{**container({"terminated": {"exitCode": 3}}), "name": "a"}]

    assert pod({"phase": "Running", "containerStatuses": ended}, **spec).exit is None
    assert pod({"phase": "Failed", "containerStatuses": ended}, **spec).exit == Exit(3, "")


def test_a_failed_init_container_speaks_for_a_program_that_never_ran():
    """The main container waits for ever then, and the pod has failed."""
    init = [{**container({"terminated": {"exitCode": 2, "reason": "Error"}}), "name": "init"}]
    status = {"phase": "Failed", "initContainerStatuses": init, "containerStatuses": [container({"waiting": {}})]}

    assert pod(status, containers=[{"name": "main"}]).exit == Exit(2, "Error")


def test_how_long_a_pod_may_take_to_end_is_known():
    """The grace period counts from when we first saw the deletion, so that its time stamp is not read."""
    metadata = {**METADATA, "deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 30}

    meta = wire.PODS.read(msgspec.json.encode({"metadata": metadata})).meta

    assert (meta.terminating, meta.grace) == (True, 30.0)


def test_the_node_of_a_pod_is_known():
    """The spec names it."""
    assert pod(nodeName="node").node == "node"


def test_the_main_container_is_the_one_that_was_noted():
    """A policy may put its own container first, and its end says nothing of the task."""
    noted = {**METADATA, "annotations": {naming.ANNOTATION_MAIN_CONTAINER: "task"}}
    spec = {"containers": [{"name": "proxy"}, {"name": "task"}]}
    ended = {"proxy": container({"terminated": {"exitCode": 9}}, name="proxy"), "task": container({"running": {}})}

    def read(metadata: dict[str, Any], *names: str) -> Any:
        status = {"phase": "Running", "containerStatuses": [ended[name] for name in names]}
        return wire.PODS.read(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})).exit

    assert read(noted, "proxy", "task") is None
    assert read(METADATA, "proxy", "task") == Exit(9, "")
    gone = {**METADATA, "annotations": {naming.ANNOTATION_MAIN_CONTAINER: "another"}}
    assert read(gone, "proxy", "task") == Exit(9, "")


@pytest.mark.parametrize(
    ("told_of", "ready_told_of", "generation", "proved"),
    [(1, 0, 2, True), (0, 1, 2, True), (2, 2, 2, False), (2, 1, 2, False), (0, 0, 2, False), (1, 0, 0, False)],
    ids=["by the status", "by a condition", "it knew", "the status is newer", "an old server", "no generation"],
)
def test_an_end_that_was_told_before_the_deletion_was_known_is_proved(told_of, ready_told_of, generation, proved):
    """The kubelet says of which generation its status speaks, and a deletion counts that up."""
    ready = {"type": "Ready", "status": "False", "observedGeneration": ready_told_of}
    ended = [container({"terminated": {"exitCode": 1}})]
    status = {"phase": "Running", "observedGeneration": told_of, "conditions": [ready], "containerStatuses": ended}
    metadata = {**METADATA, "generation": generation, "deletionTimestamp": "2027-01-15T08:00:30Z"}
    spec = {"containers": [{"name": "task"}]}

    def proves(metadata: dict[str, Any], status: dict[str, Any]) -> bool:
        body = {"metadata": metadata, "spec": spec, "status": status}
        return wire.PODS.read(msgspec.json.encode(body)).seen(None, 100.0).noted.ended_first

    assert proves(metadata, status) is proved
    assert not proves(metadata, {**status, "containerStatuses": [container({"running": {}})]})


# --- devices and troubles


def test_healthy_devices_are_summed_over_containers():
    """Unhealthy devices do not count, those of unknown health do."""

    def allocated(*healths: str) -> dict[str, Any]:
        resources = [{"resourceID": str(i), "health": health} for i, health in enumerate(healths)]
        return container({}, allocatedResourcesStatus=[{"name": "nvidia.com/gpu", "resources": resources}])

    status = {"containerStatuses": [allocated("Healthy", "Unhealthy"), allocated("Unknown"), container({})]}

    assert pod(status).devices == {"nvidia.com/gpu": 2}
    assert None is pod({"containerStatuses": [container({})]}).devices


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"containerStatuses": [container({"waiting": {"reason": "ContainerCreating"}})]}, ""),
        ({"initContainerStatuses": [container({"waiting": {"reason": "PodInitializing"}})]}, ""),
        ({"containerStatuses": [container({"running": {}})]}, ""),
        ({"containerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}})]}, "CrashLoopBackOff"),
        (
            {"initContainerStatuses": [container({"waiting": {"reason": "ErrImagePull", "message": "x" * 300}})]},
            "ImagePullBackOff: " + "x" * 200,
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]},
            "Unschedulable: 0/3",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, ""),
        ({"reason": "NodeLost"}, "NodeLost"),
    ],
)
def test_the_most_telling_trouble_is_named(status, trouble):
    """A container that waits for more than its start, a pod that finds no node, or the pod's own reason."""
    assert trouble == pod(status).trouble


@pytest.mark.parametrize(
    ("text", "attempt"),
    [("0", 0), ("7", 7), ("-1", 0), ("", 0), ("x", 0), ("٣", 0), ("9" * 5000, 0)],
)
def test_an_attempt_that_is_no_number_is_none(text, attempt):
    """Anyone can write the annotation; only a sane number counts."""
    metadata = {**METADATA, "annotations": {naming.ANNOTATION_ATTEMPT: text}}

    assert attempt == wire.PODS.read(msgspec.json.encode({"metadata": metadata})).attempt
