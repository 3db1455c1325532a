"""After any change of the operator's objects, they return to the declared state, field by field."""

import base64
from collections.abc import Callable

import pytest
from kubernetes.client.exceptions import ApiException
from support.lives import give_the_service_an_ip
from support.manifests import RECREATE
from support.objects import CONFIG_MAPS, NETWORK_POLICIES, PODS, SERVICES, Kind
from support.snapshot import await_snapshot, snapshot
from support.waiting import eventually
from support.world import World, task_names

JOBS = {
    "chief": {},
    "worker": {
        "replicas": 2,
        "maxReplicas": 4,
        "deviceFilters": ["/job:ps", "/job:chief"],
        "taskDeviceFilters": {"1": ["/job:ps"]},
    },
    "ps": {"replicas": 1, "deviceFilters": ["/job:worker", "/job:chief"]},
}
CLUSTER_LABEL = "tfcluster.dev/cluster"
Tampering = Callable[[World], object]


def delete(kind: Kind, name: str) -> Tampering:
    return lambda world: world.delete(kind, name)


def label(kind: Kind, name: str, key: str, value: str | None) -> Tampering:
    return lambda world: world.patch(kind, name, {"metadata": {"labels": {key: value}}})


def no_labels(kind: Kind, name: str) -> Tampering:
    return lambda world: world.json_patch(kind, name, {"op": "remove", "path": "/metadata/labels"})


def annotation(kind: Kind, name: str, key: str, value: str | None) -> Tampering:
    return lambda world: world.patch(kind, name, {"metadata": {"annotations": {key: value}}})


def field(kind: Kind, name: str, **changes: object) -> Tampering:
    return lambda world: world.patch(kind, name, changes)


def deleted_with_everything(world: World) -> None:
    for name in task_names("c", chief=1, worker=2, ps=1):
        world.delete(PODS, name)
    for name in ("c-chief", "c-worker", "c-ps"):
        world.delete(CONFIG_MAPS, name)
        world.delete(NETWORK_POLICIES, name.replace("-", "."))
    world.delete(SERVICES, "c")


FORGED = '{"version":1,"cluster":{"name":"c","namespace":"x","uid":"y"},"epoch":99,"rpcLayer":"grpc","jobs":{}}'
TWO_PORTS = [{"name": "tf-2222", "port": 2222}, {"name": "ssh", "port": 22}]
TAMPERINGS: dict[str, Tampering] = {
    "a pod is deleted": delete(PODS, "c-worker-1"),
    "a pod loses the label that the watch selects by": label(PODS, "c-worker-0", CLUSTER_LABEL, None),
    "a pod's label names another cluster": label(PODS, "c-worker-0", CLUSTER_LABEL, "other"),
    "a pod's label names another task": label(PODS, "c-worker-0", "tfcluster.dev/task-index", "1"),
    "a pod loses all labels": no_labels(PODS, "c-ps-0"),
    "a pod's template hash is edited": annotation(PODS, "c-chief-0", "tfcluster.dev/template-hash", "0"),
    "a pod's view annotation is edited": annotation(PODS, "c-chief-0", "tfcluster.dev/view", "0"),
    "the Service is deleted": delete(SERVICES, "c"),
    "the Service loses the label that the watch selects by": label(SERVICES, "c", CLUSTER_LABEL, None),
    "the Service loses all labels": no_labels(SERVICES, "c"),
    "the Service selects by a further key": field(SERVICES, "c", spec={"selector": {"color": "blue"}}),
    "the Service gets a second port": field(SERVICES, "c", spec={"ports": TWO_PORTS}),
    "the Service no longer publishes early": field(SERVICES, "c", spec={"publishNotReadyAddresses": False}),
    "the Service is made with a cluster IP": give_the_service_an_ip,
    "a ConfigMap is deleted": delete(CONFIG_MAPS, "c-worker"),
    "a ConfigMap loses the label that the watch selects by": label(CONFIG_MAPS, "c-ps", CLUSTER_LABEL, None),
    "a ConfigMap loses all labels": no_labels(CONFIG_MAPS, "c-ps"),
    "a view is forged": field(CONFIG_MAPS, "c-ps", data={"cluster.json": FORGED}),
    "a view is removed": field(CONFIG_MAPS, "c-ps", data={"cluster.json": None}),
    "the view of one task is removed": field(CONFIG_MAPS, "c-worker", data={"task-1.json": None}),
    "a file is added to a ConfigMap": field(CONFIG_MAPS, "c-worker", data={"task-0.json": FORGED}),
    "a binary file is added to a ConfigMap": field(
        CONFIG_MAPS, "c-worker", binaryData={"task-0.json": base64.b64encode(b"\xff").decode()}
    ),
    "a ConfigMap is edited and made immutable": field(
        CONFIG_MAPS, "c-ps", data={"cluster.json": FORGED}, immutable=True
    ),
    "a ConfigMap's epochs are edited": annotation(
        CONFIG_MAPS, "c-chief", "tfcluster.dev/epochs", '{"cluster.json":77}'
    ),
    "a NetworkPolicy is deleted": delete(NETWORK_POLICIES, "c.worker"),
    "a NetworkPolicy loses the label that the watch selects by": label(NETWORK_POLICIES, "c.ps", CLUSTER_LABEL, None),
    "a NetworkPolicy lets everybody in": field(NETWORK_POLICIES, "c.worker", spec={"ingress": [{}]}),
    "a NetworkPolicy protects every pod": field(NETWORK_POLICIES, "c.ps", spec={"podSelector": {"matchLabels": None}}),
    "a NetworkPolicy closes the way out": field(NETWORK_POLICIES, "c.ps", spec={"policyTypes": ["Ingress", "Egress"]}),
    "everything is deleted": deleted_with_everything,
}


def launched(world: World) -> dict:
    world.launch("c", JOBS, isolation={"mode": "DeviceFilters"}, **RECREATE)
    world.await_settled("c")
    world.await_condition("c", "MembershipPublished", status="True")
    eventually(lambda: world.chief_knows_the_pods("c"), what="the chief's view tells of the pods")
    return snapshot(world, "c")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_undone(world, what):
    before = launched(world)

    TAMPERINGS[what](world)

    await_snapshot(world, "c", before, what=f"{what}, and all is as before")


def test_tampering_while_the_operator_is_away_is_undone(world, operator):
    before = launched(world)
    operator.stop()
    for what, tamper in TAMPERINGS.items():
        if what not in {"everything is deleted", "the Service is made with a cluster IP"} and "immutable" not in what:
            try_to(tamper, world)

    operator.start()

    await_snapshot(world, "c", before, what="all is as before")


def try_to(tamper: Tampering, world: World) -> None:
    """Tamper with objects that an earlier step can have deleted."""
    try:
        tamper(world)
    except ApiException as error:
        if error.status not in {404, 422}:
            raise


@pytest.mark.usefixtures("operator")
def test_tampering_with_an_immutable_flag_does_not_stop_a_view(world):
    launched(world)
    world.patch(CONFIG_MAPS, "c-chief", {"immutable": True})

    world.scale("c", replicas=3)

    eventually(
        lambda: world.view("c", "chief"),
        lambda view: view is not None and len(view["jobs"]["worker"]) == 3,
        what="the view shows three workers",
    )
    assert not world.demand(CONFIG_MAPS, "c-chief").get("immutable")


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("kind", "name"),
    [(SERVICES, "c"), (CONFIG_MAPS, "c-ps"), (NETWORK_POLICIES, "c.ps"), (PODS, "c-ps-0")],
    ids=["Service", "ConfigMap", "NetworkPolicy", "pod"],
)
def test_tampering_with_the_owner_is_a_conflict_until_the_object_goes(world, kind, name):
    before = launched(world)
    world.json_patch(kind, name, {"op": "remove", "path": "/metadata/ownerReferences"})

    condition = world.await_condition("c", "NameConflict", status="True", reason="NameTaken")
    assert name in condition["message"]
    assert "ownerReferences" not in world.demand(kind, name)["metadata"]
    world.delete(kind, name)

    await_snapshot(world, "c", before, what="all is as before")


@pytest.mark.usefixtures("operator")
def test_tampering_that_does_no_harm_is_left_alone(world):
    launched(world)
    foreign = {"metadata": {"labels": {"example.test/seen": "yes"}, "annotations": {"example.test/by": "audit"}}}
    for kind, name in ((SERVICES, "c"), (CONFIG_MAPS, "c-ps"), (NETWORK_POLICIES, "c.ps"), (PODS, "c-ps-0")):
        world.patch(kind, name, foreign)

    world.scale("c", replicas=3)
    world.await_settled("c")

    for kind, name in ((SERVICES, "c"), (CONFIG_MAPS, "c-ps"), (NETWORK_POLICIES, "c.ps"), (PODS, "c-ps-0")):
        metadata = world.demand(kind, name)["metadata"]
        assert metadata["labels"]["example.test/seen"] == "yes", name
        assert metadata["annotations"]["example.test/by"] == "audit", name
