"""Parsing the API's bytes: every field that a decision needs, and sparse objects."""

from typing import Any

import msgspec
import pytest

from tfcluster_operator.declaration import naming
from tfcluster_operator.objects.base import Meta
from tfcluster_operator.objects.config_map import ConfigMap
from tfcluster_operator.objects.kinds import KINDS
from tfcluster_operator.objects.pod import Exit, Pod
from tfcluster_operator.objects.service import Port, Service, ServiceSpec

METADATA = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "12"}
META = Meta("a", "n", "u", 12, "", "", {}, {}, terminating=False)


def read_pod(metadata: dict[str, Any] | None = None, **parts: Any) -> Pod:
    found = KINDS["Pod"].read(msgspec.json.encode({"metadata": {**METADATA, **(metadata or {})}, **parts}))
    assert isinstance(found, Pod)
    return found


def pod(status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    return read_pod(spec=spec, status=status or {})


def container(state: dict[str, Any], name: str = "task", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, **more}


def ended(code: int, name: str = "task", **more: Any) -> dict[str, Any]:
    return container({"terminated": {"exitCode": code, **more}}, name)


def test_an_object_with_nothing_but_its_name_is_read():
    """Missing fields have defaults; a Service without a cluster IP is not one of ours."""
    bare = msgspec.json.encode({"metadata": METADATA})
    assert Service(META, ServiceSpec()) == KINDS["Service"].read(bare)
    assert ConfigMap(META, {}, (), immutable=False) == KINDS["ConfigMap"].read(bare)
    assert Pod(META, "Pending", False, False, "", "", None, "") == KINDS["Pod"].read(bare)


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
    body = {"metadata": {**METADATA, "ownerReferences": references}}
    meta = KINDS["ConfigMap"].read(msgspec.json.encode(body)).meta
    assert owner == (meta.owner_uid, meta.owner_name)


def test_labels_are_kept_and_annotations_only_ours():
    """Others' annotations can be long and are not read; the grace period counts from our first observation."""
    annotations = {naming.ANNOTATION_VIEW: "d", "kubectl.kubernetes.io/last-applied-configuration": "x" * 1000}
    leaving = {"deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 30}
    meta = read_pod({"labels": {"team": "blue"}, "annotations": annotations, **leaving}).meta
    assert (meta.labels, meta.annotations) == ({"team": "blue"}, {naming.ANNOTATION_VIEW: "d"})
    assert (meta.terminating, meta.grace) == (True, 30.0)


def test_words_that_stand_in_every_pod_of_a_job_are_kept_once():
    metadata = {
        "namespace": "ns-of-many",
        "labels": {"app.kubernetes.io/component": "some-worker"},
        "annotations": {naming.ANNOTATION_VIEW: "0123456789abcdef"},
        "ownerReferences": [{"uid": "uid-of-many", "kind": naming.KIND, "name": "some-cluster", "controller": True}],
    }
    volumes = [{"name": naming.RESOLVER_VOLUME, "configMap": {"name": "some-cluster.resolver-1"}}]
    body = msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": "node-of-many", "volumes": volumes}})
    one, other = KINDS["Pod"].read(body), KINDS["Pod"].read(body)
    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert [id(word) for word in words_of(one)] == [id(word) for word in words_of(other)]


def words_of(pod: Pod) -> list[str]:
    meta = pod.meta
    of_all = [meta.namespace, meta.owner_uid, meta.owner_name, pod.node, pod.resolver]
    return [*of_all, *meta.labels, *meta.labels.values(), *meta.annotations, *meta.annotations.values()]


def test_a_service_is_read_in_the_fields_that_we_set():
    ports = [{"name": "x", "port": 1, "targetPort": "named", "protocol": "UDP"}, {"port": 2}]
    spec = {"selector": {"a": "b"}, "clusterIP": "None", "publishNotReadyAddresses": True, "ports": ports}
    read = KINDS["Service"].read(msgspec.json.encode({"metadata": METADATA, "spec": spec}))
    found = [Port("x", 1, "named", "UDP"), Port(port=2)]
    assert read == Service(META, ServiceSpec({"a": "b"}, found, "None", publish_not_ready_addresses=True))


def test_list_returns_objects_and_the_continue_token():
    body = {"metadata": {"resourceVersion": "99", "continue": "more"}, "items": [{"metadata": METADATA}]}
    listed, meta = KINDS["Service"].read_list(msgspec.json.encode(body))
    found = list(listed)
    assert ([one.meta for one in found], meta.resource_version, meta.continue_token) == ([META], "99", "more")


# --- pods


NEVER_RAN, ITS_OWN = ("Unknown", "ContainerStatusUnknown"), ("Error", "OOMKilled")
TAKEN = ("Evicted", "Preempting", "NodeShutdown", "OutOfmemory")


def disruption_target(value: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": value}]}


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        ({}, False),
        *(({"reason": reason}, True) for reason in TAKEN),
        ({"reason": "UnexpectedAdmissionError", "containerStatuses": [ended(137, reason="Error")]}, True),
        ({"reason": "NodeAffinity", "containerStatuses": [ended(137, reason="Error")]}, True),
        ({"reason": "DeadlineExceeded"}, False),
        *(({"containerStatuses": [ended(137, reason=reason)]}, True) for reason in NEVER_RAN),
        *(({"containerStatuses": [ended(137, reason=reason)]}, False) for reason in ITS_OWN),
        (disruption_target("True"), True),
        (disruption_target("False"), False),
    ],
)
def test_disruption_is_detected_by_reason_or_condition(status, disrupted):
    """The program's own end is a failure; a reason of the pod has priority over one of its container."""
    assert disrupted == pod({"phase": "Failed", **status}, containers=[{"name": "task"}]).disrupted


OF_PROXY = {"containers": [{"name": "proxy"}, {"name": "tensorflow"}]}
OF_ONE, RESTARTED = {"containers": [{"name": "task"}]}, {"containers": [{"name": "task", "restartPolicy": "Always"}]}
RUNS, BESIDE = container({"running": {}}, "tensorflow"), container({"running": {}}, "proxy")
THIRD = {"reason": "Error", "message": "first\nlast line\n"}
WAITING = {"containerStatuses": [container({"waiting": {}})]}
INIT_FAILED = {"initContainerStatuses": [ended(2, "init", reason="Error")], **WAITING}


@pytest.mark.parametrize(
    ("phase", "statuses", "spec", "found"),
    [
        ("Running", [BESIDE, ended(3, "tensorflow", **THIRD)], OF_PROXY, Exit(3, "Error", "last line")),
        ("Running", [ended(3, "proxy", **THIRD), RUNS], OF_PROXY, None),
        # The kubelet restarts a container with its own restart rules, so its end is the task's only when the pod has
        # ended.
        ("Running", [ended(3)], RESTARTED, None),
        ("Failed", [ended(3)], RESTARTED, Exit(3, "")),
        # The main container waits forever after a failed init container, and the pod has failed.
        ("Failed", INIT_FAILED, OF_ONE, Exit(2, "Error")),
        # A log can end with brackets.
        ("Failed", [ended(1, message="ValueError: x\n}\n  ])\n")], OF_ONE, Exit(1, "", "ValueError: x")),
        ("Failed", [ended(1, message="}\n")], OF_ONE, Exit(1, "", "")),
        ("Failed", [ended(1, message="")], OF_ONE, Exit(1, "", "")),
    ],
)
def test_the_main_containers_end_is_the_tasks_end(phase, statuses, spec, found):
    """A sidecar that continues or fails does not count; of several containers, the one named tensorflow does."""
    given = statuses if isinstance(statuses, dict) else {"containerStatuses": statuses}
    assert pod({"phase": phase, **given}, **spec).exit == found


def test_the_main_container_is_the_one_that_was_noted():
    """A policy can put its own container first, whose end is not that of the task."""
    spec = {"containers": [{"name": "proxy"}, {"name": "task"}]}
    status = {"phase": "Running", "containerStatuses": [ended(9, "proxy"), container({"running": {}})]}

    def read(**annotations: str) -> Any:
        return read_pod({"annotations": annotations}, spec=spec, status=status).exit

    assert read(**{naming.ANNOTATION_MAIN_CONTAINER: "task"}) is None
    assert read() == read(**{naming.ANNOTATION_MAIN_CONTAINER: "another"}) == Exit(9, "")


@pytest.mark.parametrize(
    ("told_of", "ready_told_of", "generation", "proved"),
    [(1, 0, 2, True), (0, 1, 2, True), (2, 2, 2, False), (2, 1, 2, False), (0, 0, 2, False), (1, 0, 0, False)],
    ids=["by the status", "by a condition", "it knew", "the status is newer", "an old server", "no generation"],
)
def test_end_reported_before_the_deletion_is_proved(told_of, ready_told_of, generation, proved):
    ready = {"type": "Ready", "status": "False", "observedGeneration": ready_told_of}
    of_end = {"phase": "Running", "observedGeneration": told_of, "conditions": [ready]}
    metadata = {"generation": generation, "deletionTimestamp": "2027-01-15T08:00:30Z"}

    def proves(*statuses: dict[str, Any]) -> bool:
        found = read_pod(metadata, spec=OF_ONE, status={**of_end, "containerStatuses": statuses})
        return found.seen(None, 100.0).noted.ended_first

    assert proves(ended(1)) is proved
    assert not proves(container({"running": {}}))


# --- devices and troubles
def test_healthy_devices_are_summed_over_containers():
    def allocated(*healths: str) -> dict[str, Any]:
        resources = [{"resourceID": str(i), "health": health} for i, health in enumerate(healths)]
        return container({}, allocatedResourcesStatus=[{"name": "nvidia.com/gpu", "resources": resources}])

    status = {"containerStatuses": [allocated("Healthy", "Unhealthy"), allocated("Unknown"), container({})]}

    assert pod(status).devices == {"nvidia.com/gpu": 2}
    assert None is pod({"containerStatuses": [container({})]}).devices


def waits(reason: str, message: str = "") -> list[dict[str, Any]]:
    return [container({"waiting": {"reason": reason, "message": message}})]


SCHEDULED = {"type": "PodScheduled", "status": "True"}
NO_ROOM = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ({"containerStatuses": waits("ContainerCreating")}, ""),
        ({"initContainerStatuses": waits("PodInitializing")}, ""),
        ({"containerStatuses": [container({"running": {}})]}, ""),
        ({"containerStatuses": waits("CrashLoopBackOff")}, "CrashLoopBackOff"),
        ({"initContainerStatuses": waits("ErrImagePull", "x" * 300)}, "ImagePullBackOff: " + "x" * 200),
        ({"conditions": [NO_ROOM]}, "Unschedulable: 0/3"),
        ({"conditions": [SCHEDULED]}, ""),
        ({"reason": "NodeLost"}, "NodeLost"),
    ],
)
def test_the_most_telling_trouble_is_named(status, trouble):
    assert trouble == pod(status).trouble


@pytest.mark.parametrize(
    ("text", "attempt"), [("0", 0), ("7", 7), ("-1", 0), ("", 0), ("x", 0), ("٣", 0), ("9" * 5000, 0)]
)
def test_invalid_attempt_is_read_as_zero(text, attempt):
    assert attempt == read_pod({"annotations": {naming.ANNOTATION_ATTEMPT: text}}).attempt
