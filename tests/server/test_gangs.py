"""Gangs on a real scheduler: the tasks of a cluster are scheduled together, on a simulated node with eight GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.audit import AuditLog, Request
from support.manifests import gpu_tasks
from support.metrics import Scrape
from support.objects import POD_GROUPS, PRIORITY_CLASSES, Objects
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_RULES, OPERATOR_USER
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.exhaustive

GANG = {"gang": {}}
#: This server drops the topology of a PodGroup: its feature gate is disabled.
NEAR = {"gang": {}, "colocate": {"topologyKey": "kubernetes.io/hostname"}}


@pytest.fixture(scope="module")
def own_server_options() -> dict[str, int]:
    """With Kubernetes' defaults: without PodGroups."""
    return {"kwok_nodes": 1}


@pytest.fixture(scope="module")
def with_gangs(own_server: ControlPlane, own_operator: OperatorProcess) -> None:
    """From here on the server has PodGroups, and the operator has discovered them."""
    del own_operator
    if not own_server.gangs:
        own_server.gangs = True
        own_server.restart_apiserver()
        own_server.restart_controllers()


@pytest.fixture
def gangs(with_gangs: None, home: World) -> World:
    del with_gangs
    return home


def groups(world: World) -> dict[str, int]:
    found = {
        one["metadata"]["name"]: one["spec"]["schedulingPolicy"]
        for one in world.objects.list(POD_GROUPS, world.namespace)
    }
    return {name: policy["gang"]["minCount"] for name, policy in found.items()}


def test_gang_waits_until_the_server_has_pod_groups(home, own_server, request):
    """No task starts without a PodGroup; the operator discovers the API when it is enabled."""
    assert not own_server.gangs, "this test comes first"
    home.launch("early", {"chief": {}, "worker": {"replicas": 2}}, scheduling=GANG)
    told = home.await_condition("early", "Ready", status="False", reason="GangUnavailable")["message"]
    assert "the API server does not serve podgroups of scheduling.k8s.io/v1beta1" in told
    assert home.pods_of("early") == {}

    request.getfixturevalue("with_gangs")
    eventually(lambda: home.condition("early", "Ready")["status"], lambda s: s == "True", what="it runs")
    assert groups(home) == {"early.0": 3}


def test_second_gang_waits_whole_until_the_first_has_gone(gangs, own_operator):
    """Each needs six of eight GPUs: one runs, no pod of the other has a node, and its status has the request."""
    gangs.launch("first", {"worker": gpu_tasks(3)}, scheduling=GANG)
    gangs.await_condition("first", "Ready", status="True")
    gangs.launch("second", {"worker": gpu_tasks(3)}, scheduling=GANG)

    told = gangs.await_condition("second", "Ready", status="False", reason="WaitingForGang")["message"]
    assert told.startswith("gang second.0 waits until 3 tasks can be scheduled together with 6 nvidia.com/gpu: ")
    since = gangs.status("second")["waitingSince"]
    waiting = Scrape(own_operator.scrape()[0])
    assert waiting.not_zero("tfcluster_clusters_waiting") == {("WaitingForGang",): 1}
    assert waiting.value("tfcluster_waiting_oldest_seconds", reason="WaitingForGang") < 60
    assert waiting.not_zero("tfcluster_clusters_not_ready") == {}
    assert "Insufficient nvidia.com/gpu" in told
    assert gangs.placed("second") == set()
    assert len(gangs.pods_of("second")) == 3
    assert gangs.status("second")["waitingSince"] == since

    gangs.remove("first")
    gangs.await_condition("second", "Ready", status="True")
    assert groups(gangs) == {"second.0": 3}
    assert "waitingSince" not in gangs.status("second")
    assert Scrape(own_operator.scrape()[0]).not_zero("tfcluster_clusters_waiting") == {}


def test_elastic_cluster_starts_with_the_workers_that_it_needs(gangs):
    """Two of five workers are enough; the others run as far as there is room."""
    gangs.launch("c", {"chief": {}, "worker": {**gpu_tasks(5), "minReplicas": 2}}, scheduling=NEAR)
    eventually(lambda: len(gangs.placed("c")), lambda count: count == 5, what="the chief and four workers have nodes")

    assert groups(gangs) == {"c.0": 3}
    assert "schedulingConstraints" not in gangs.demand(POD_GROUPS, "c.0")["spec"]
    members = {name for name, pod in gangs.pods_of("c").items() if "schedulingGroup" in pod["spec"]}
    assert members == {"c-chief-0", "c-worker-0", "c-worker-1"}
    assert gangs.placed("c") >= members


def test_waiting_gang_survives_the_end_of_its_group(gangs):
    """Kubernetes keeps the deleted PodGroup while its pods wait: they are re-created with another one."""
    gangs.launch("c", {"worker": gpu_tasks(5)}, scheduling=GANG)
    gangs.await_condition("c", "Ready", status="False", reason="WaitingForGang")
    before = gangs.demand(POD_GROUPS, "c.0")["metadata"]["uid"]
    gangs.delete(POD_GROUPS, "c.0")

    eventually(
        lambda: gangs.get(POD_GROUPS, "c.0"),
        lambda found: found is not None and found["metadata"]["uid"] != before,
        what="there is another PodGroup",
    )
    gangs.await_condition("c", "Ready", status="False", reason="WaitingForGang")
    gangs.scale("c", replicas=4)
    gangs.await_condition("c", "Ready", status="True")


@pytest.fixture
def priorities(own_objects: Objects) -> Iterator[None]:
    """Create two priorities; one is the default."""
    for name, value in (("usual", 10), ("high", 1000)):
        metadata = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        own_objects.create(PRIORITY_CLASSES, "", {**metadata, "value": value, "globalDefault": name == "usual"})
    yield
    for name in ("usual", "high"):
        own_objects.delete(PRIORITY_CLASSES, "", name)


def test_waiting_gang_gets_another_priority(gangs, priorities):
    """A PodGroup's priority is immutable: the gang gets another PodGroup, also for the default priority."""
    del priorities
    worker = gpu_tasks(5)
    worker["template"]["spec"]["priorityClassName"] = "high"
    gangs.launch("c", {"worker": worker}, scheduling=GANG)
    gangs.await_condition("c", "Ready", status="False", reason="WaitingForGang")

    gangs.edit("c", {"jobs": {"worker": {"template": {"spec": {"priorityClassName": None}}}}})
    eventually(
        lambda: gangs.get(POD_GROUPS, "c.0"),
        lambda found: found is not None and found["spec"].get("priorityClassName") == "usual",
        what="the PodGroup has the default priority",
    )
    gangs.scale("c", replicas=4)
    gangs.await_condition("c", "Ready", status="True")


def test_deleted_cluster_leaves_no_group(gangs):
    """The garbage collector deletes it, although Kubernetes protects a PodGroup while it has pods."""
    gangs.launch("c", {"worker": gpu_tasks(5)}, scheduling=GANG)
    gangs.await_condition("c", "Ready", status="False", reason="WaitingForGang")
    gangs.remove("c")

    eventually(lambda: groups(gangs), lambda found: not found, what="the PodGroup is gone")


def test_rights_on_pod_groups_are_all_used(gangs, own_server, own_objects, own_operator):
    """The tests above used each permission on PodGroups, and no other was requested."""
    gangs.launch("c", {"worker": {}}, scheduling=GANG)
    gangs.await_condition("c", "Ready", status="True")
    own_operator.kill()  # a watch is logged when it ends
    audit = AuditLog(Path(own_server.audit_log), own_objects)
    granted = {verb for _, target, verbs in OPERATOR_RULES for verb in verbs if target == "podgroups"}

    def requests() -> list[Request]:
        return [one for one in audit.since(0, user=OPERATOR_USER) if one.resource == "podgroups"]

    eventually(lambda: {one.verb for one in requests()}, lambda used: used == granted, what="each right was used")
    assert [str(one) for one in requests() if one.code == 403] == []
    own_operator.start()
