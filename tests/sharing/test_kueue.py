"""TFClusters in the queues of the real Kueue, on two simulated nodes of 64 CPUs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.audit import AuditLog, Request
from support.manifests import kueue_object as made
from support.manifests import pod_template, tfcluster
from support.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    TFCLUSTERS,
    TOPOLOGIES,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    Object,
    Objects,
)
from support.operator_process import OperatorProcess
from support.rbac import OPERATOR_RULES, OPERATOR_USER, QUEUE_RULES
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"


@pytest.fixture(scope="module")
def own_server_options() -> dict[str, int]:
    """At first without Kueue."""
    return {"kwok_nodes": 2, "gangs": True}


@pytest.fixture(scope="module")
def kueue(own_server: ControlPlane, own_operator: OperatorProcess) -> None:
    """From here on Kueue runs."""
    from local_kubernetes.kueue import start

    del own_operator
    start(own_server)


class Team:
    """A namespace with its own queue and this number of CPUs."""

    def __init__(self, world: World, cpu: int, *, flavors: dict[str, int] | None = None, **spec: Any) -> None:
        self.world = world
        self.objects = world.objects
        self.queue = world.namespace
        quotas = (
            {world.namespace: cpu} if flavors is None else {f"{world.namespace}-{k}": v for k, v in flavors.items()}
        )
        for flavor in quotas:
            self.objects.create(FLAVORS, "", made("ResourceFlavor", flavor, spec={}))
        of_flavors = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota}]} for flavor, quota in quotas.items()
        ]
        groups = [{"coveredResources": ["cpu"], "flavors": of_flavors}]
        shape = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        self.objects.create(CLUSTER_QUEUES, "", made("ClusterQueue", self.queue, spec=shape))
        self.objects.create(
            LOCAL_QUEUES, world.namespace, made("LocalQueue", "team", spec={"clusterQueue": self.queue})
        )

    def launch(
        self, name: str, workers: int, *, priority: str = "", queue: str = "team", least: int | None = None, **spec: Any
    ) -> Object:
        """Create a TFCluster whose workers request one CPU each."""
        labels = {QUEUE: queue, **({PRIORITY: priority} if priority else {})}
        builder = tfcluster(name).metadata(labels=labels).spec(failedPodsHistoryLimit=0, **spec)
        elastic = {} if least is None else {"minReplicas": least}
        return self.world.apply(builder.job("worker", **asking(workers), **elastic).build())

    def workloads(self, cluster: str = "") -> dict[str, Object]:
        found = {one["metadata"]["name"]: one for one in self.objects.list(WORKLOADS, self.world.namespace)}
        return {name: one for name, one in found.items() if name.startswith(f"tfcluster-{cluster}")}

    def admitted(self, cluster: str) -> dict[str, str]:
        return {name: condition(one, "Admitted") for name, one in self.workloads(f"{cluster}.").items()}

    def await_used(self, cpu: int) -> None:
        """Wait until this number of CPUs of the quota is used; Kueue reports it a moment later."""
        eventually(self.used, lambda used: used == cpu, what=f"{cpu} processors of the quota are used")

    def used(self) -> int:
        status = self.objects.get(CLUSTER_QUEUES, "", self.queue)["status"]
        return sum(int(one["total"]) for of in status["flavorsUsage"] for one in of["resources"])

    def complete(self, pod: str) -> None:
        """End a pod as the kubelet does after exit code 0."""
        end = {"status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}}
        self.objects.request("PATCH", PODS.path(self.world.namespace, pod, "status"), end, content=MERGE)

    def await_ready(self, cluster: str) -> None:
        def told() -> Object:
            found = self.world.cluster(cluster)
            newest = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            return {**self.world.condition(cluster, "Ready"), "newest": newest}

        eventually(told, lambda said: said.get("status") == "True" and said["newest"], what=f"{cluster} is ready")

    def await_waiting(self, cluster: str) -> str:
        return str(self.world.await_condition(cluster, "Ready", status="False", reason="WaitingForQuota")["message"])


def asking(replicas: int, cpu: int = 1, **fields: Any) -> Object:
    template = pod_template(resources={"requests": {"cpu": str(cpu)}})
    return {"replicas": replicas, "template": template, **fields}


def condition(workload: Object, kind: str) -> str:
    conditions = workload.get("status", {}).get("conditions", ())
    return next((one["status"] for one in conditions if one["type"] == kind), "")


@pytest.fixture
def team(kueue: None, home: World) -> Iterator[Team]:
    del kueue
    yield from _team(home, 4)


def _team(home: World, cpu: int, **spec: Any) -> Iterator[Team]:
    team = Team(home, cpu, **spec)
    yield team
    for one in home.objects.list(TFCLUSTERS, home.namespace):
        home.remove(one["metadata"]["name"])
    eventually(team.workloads, lambda left: not left, what="the Workloads are gone", within=60)
    home.objects.delete(LOCAL_QUEUES, home.namespace, "team")
    home.objects.delete(CLUSTER_QUEUES, "", team.queue)


@pytest.fixture
def urgent(own_objects: Objects, kueue: None) -> str:
    del kueue
    name = f"urgent-{uuid.uuid4().hex[:8]}"
    own_objects.create(WORKLOAD_PRIORITIES, "", made("WorkloadPriorityClass", name, value=1000))
    return name


def test_cluster_waits_until_there_is_kueue(home, request):
    """Nothing starts outside of the queue; the operator discovers Kueue when it is installed."""
    manifest = tfcluster("early").metadata(labels={QUEUE: "team"}).job("worker", **asking(1)).build()
    home.apply(manifest)
    told = home.await_condition("early", "Ready", status="False", reason="QueueUnavailable")["message"]
    assert "the API server does not serve workloads of kueue.x-k8s.io" in told
    assert home.pods_of("early") == {}

    request.getfixturevalue("kueue")
    Team(home, 1)
    eventually(lambda: home.condition("early", "Ready")["status"], lambda s: s == "True", what="it runs", within=120)


def test_second_cluster_waits_for_the_first_one_s_quota(team):
    """Three of four CPUs each: the second reports the lack of quota, and starts when the first is deleted."""
    team.launch("first", 3)
    team.await_ready("first")
    team.launch("second", 3)
    told = eventually(
        lambda: team.await_waiting("second"), lambda words: "insufficient" in words, what="Kueue's words are told"
    )
    assert "2 more needed" in told
    assert team.world.pods_of("second") == {}
    team.await_used(3)

    team.world.remove("first")
    team.await_ready("second")


def test_finished_cluster_gives_its_quota_back(team):
    team.launch("first", 4, successPolicy={"jobs": ["worker"]})
    team.await_ready("first")
    team.launch("second", 4)
    team.await_waiting("second")
    for pod in team.world.pods_of("first"):
        team.complete(pod)

    team.await_ready("second")
    assert condition(team.workloads()["tfcluster-first.0"], "Finished") == "True"


def test_twenty_clusters_share_a_queue_whose_quota_is_never_exceeded(team):
    """Every one has its turn."""
    pods = PODS.path(team.world.namespace)
    before = team.objects.request("GET", pods)["metadata"]["resourceVersion"]
    names = [f"c{number}" for number in range(20)]
    for name in names:
        team.launch(name, 2, successPolicy={"jobs": ["worker"]})

    def left() -> list[str]:
        for name, pod in team.world.pods().items():
            if pod["status"]["phase"] == "Running":
                team.complete(name)
        return [name for name in names if team.world.condition(name, "Succeeded").get("status") != "True"]

    eventually(left, lambda some: not some, what="all have succeeded", within=300)
    history = team.objects.text(f"{pods}?watch=true&resourceVersion={before}&timeoutSeconds=5")
    at_work: set[str] = set()
    most = 0
    for event in map(json.loads, history.splitlines()):
        pod = event["object"]
        ended = event["type"] == "DELETED" or pod["status"]["phase"] == "Succeeded"
        (at_work.discard if ended else at_work.add)(pod["metadata"]["uid"])
        most = max(most, len(at_work))
    assert most == 4


def test_cluster_that_is_deleted_while_it_waits_leaves_nothing(team):
    team.launch("first", 4)
    team.await_ready("first")
    team.launch("second", 1)
    team.await_waiting("second")
    team.world.remove("second")
    eventually(lambda: team.world.get(TFCLUSTERS, "second"), lambda found: found is None, what="it is gone")
    eventually(lambda: team.workloads("second."), lambda found: not found, what="its Workload is gone")


MERGE = "application/merge-patch+json"


def test_growth_asks_first_and_shrinking_gives_back(team):
    """Running tasks are not changed, and the quota is never exceeded."""
    team.launch("c", 2)
    team.await_ready("c")
    uids = {name: team.world.uid(name) for name in ("c-worker-0", "c-worker-1")}
    team.world.scale("c", replicas=6)
    assert "4 more" not in team.await_waiting("c")
    assert set(team.world.pods_of("c")) == set(uids)

    team.world.scale("c", replicas=4)
    team.await_ready("c")
    team.await_used(4)
    assert team.admitted("c") == {"tfcluster-c.0": "True", "tfcluster-c.1": "True"}
    assert {name: team.world.uid(name) for name in uids} == uids

    team.world.scale("c", replicas=1)
    team.await_used(1)
    team.await_ready("c")
    assert team.world.uid("c-worker-0") == uids["c-worker-0"]

    team.world.scale("c", replicas=3)
    team.await_ready("c")
    team.await_used(3)


def test_more_urgent_cluster_takes_the_quota(home, kueue, urgent):
    """The other's pods are deleted, it reports the reason, and it runs again when the quota suffices."""
    del kueue
    teams = _team(home, 4, preemption={"withinClusterQueue": "LowerPriority"})
    team = next(teams)
    team.launch("patient", 3)
    team.await_ready("patient")
    team.launch("urgent", 3, priority=urgent)
    team.await_ready("urgent")
    eventually(lambda: team.world.pods_of("patient"), lambda pods: not pods, what="its pods are gone")
    team.await_waiting("patient")
    team.await_used(3)
    team.world.await_event("patient", "QuotaWithdrawn")

    team.world.remove("urgent")
    team.await_ready("patient")
    assert list(teams) == []


def test_growth_that_is_preempted_leaves_the_rest_alone(home, kueue, urgent):
    del kueue
    teams = _team(home, 4, preemption={"withinClusterQueue": "LowerPriority"})
    team = next(teams)
    team.launch("elastic", 2)
    team.await_ready("elastic")
    first = {name: team.world.uid(name) for name in ("elastic-worker-0", "elastic-worker-1")}
    team.world.scale("elastic", replicas=4)
    team.await_ready("elastic")
    epoch = team.world.status("elastic")["epoch"]

    team.launch("urgent", 2, priority=urgent)
    team.await_ready("urgent")
    team.await_waiting("elastic")
    assert {name: team.world.uid(name) for name in team.world.pods_of("elastic")} == first
    assert team.world.status("elastic")["epoch"] > epoch

    team.world.remove("urgent")
    team.await_ready("elastic")
    assert list(teams) == []


def test_workload_that_is_deactivated_stops_the_cluster(team):
    """Until a user activates it again."""
    team.launch("c", 2)
    team.await_ready("c")
    team.world.patch(WORKLOADS, "tfcluster-c.0", {"spec": {"active": False}})
    eventually(lambda: team.world.pods_of("c"), lambda pods: not pods, what="its pods are gone")
    team.await_used(0)
    assert "deactivated" in eventually(
        lambda: team.await_waiting("c"), lambda words: "deactivated" in words, what="it says so"
    )

    team.world.patch(WORKLOADS, "tfcluster-c.0", {"spec": {"active": True}})
    team.await_ready("c")


def test_edit_of_what_the_pods_ask_for_waits_in_line_again(team):
    team.launch("c", 2)
    team.await_ready("c")
    team.world.edit("c", {"jobs": {"worker": asking(2, cpu=3)}})
    team.await_waiting("c")
    eventually(lambda: team.world.pods_of("c"), lambda pods: not pods, what="its pods are gone")
    team.await_used(0)

    team.world.edit("c", {"jobs": {"worker": asking(2, cpu=2)}})
    team.await_ready("c")
    team.await_used(4)


def test_queue_grants_fewer_workers(team):
    """Between minReplicas and replicas, and the rest as quota becomes free."""
    team.launch("other", 1)
    team.await_ready("other")
    team.launch("elastic", 5, scheduling={"gang": {}}, least=2)
    eventually(
        lambda: set(team.admitted("elastic").items()), lambda of: ("tfcluster-elastic.0", "True") in of, what="a part"
    )
    eventually(lambda: len(team.world.pods_of("elastic")), lambda count: count == 3, what="three workers")
    team.await_used(4)

    team.world.remove("other")
    eventually(lambda: len(team.world.pods_of("elastic")), lambda count: count == 4, what="a fourth worker")
    team.await_used(4)

    team.world.scale("elastic", replicas=2)
    team.await_ready("elastic")
    team.await_used(2)


def test_flavor_says_where_the_pods_run(home, kueue):
    """Its node labels and tolerations are in the pods; tasks beyond the first flavor run in the second."""
    del kueue
    teams = _team(home, 0, flavors={"a": 2, "b": 2})
    team = next(teams)
    spec = {
        "nodeLabels": {"type": "kwok"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    team.objects.patch(FLAVORS, "", f"{team.queue}-b", {"spec": spec})
    team.launch("first", 2)
    team.await_ready("first")
    team.launch("second", 2)
    team.await_ready("second")

    first = team.world.demand(PODS, "first-worker-0")["spec"]
    second = team.world.demand(PODS, "second-worker-0")["spec"]
    assert "nodeSelector" not in first
    assert second["nodeSelector"] == {"type": "kwok"}
    assert {"key": "spot", "operator": "Exists", "effect": "NoSchedule"} in second["tolerations"]
    assert list(teams) == []


def test_workers_run_in_the_rack_that_the_queue_has_chosen(home, kueue):
    """A replaced one returns to it, and workers that no rack can hold wait."""
    del kueue
    rack, teams = "example.com/rack", _team(home, 200)
    team = next(teams)
    for node in ("fake-0", "fake-1"):
        team.objects.patch(NODES, "", node, {"metadata": {"labels": {rack: f"rack-of-{node}"}}})
    levels = [{"nodeLabel": rack}, {"nodeLabel": "kubernetes.io/hostname"}]
    team.objects.create(TOPOLOGIES, "", made("Topology", team.queue, spec={"levels": levels}))
    spec = {"nodeLabels": {"type": "kwok"}, "topologyName": team.queue}
    team.objects.patch(FLAVORS, "", team.queue, {"spec": spec})

    def launch(name: str, workers: int) -> None:
        job = asking(workers, cpu=30)
        job["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": rack}}
        home.apply(tfcluster(name).metadata(labels={QUEUE: "team"}).job("worker", **job).build())

    def nodes(name: str) -> set[str]:
        return {home.demand(PODS, pod)["spec"]["nodeName"] for pod in home.pods_of(name)}

    launch("first", 2)
    team.await_ready("first")
    (chosen,) = nodes("first")
    assert home.demand(PODS, "first-worker-1")["spec"]["nodeSelector"] == {
        "type": "kwok",
        levels[1]["nodeLabel"]: chosen,
    }
    launch("second", 3)
    assert "topology" in eventually(lambda: team.await_waiting("second"), lambda says: "topology" in says, what="why")
    home.scale("second", replicas=2)
    team.await_ready("second")
    assert nodes("second") == {"fake-0", "fake-1"} - {chosen}

    old = home.uid("first-worker-1")
    home.delete(PODS, "first-worker-1")

    def successor() -> str | None:
        pod = home.get(PODS, "first-worker-1")
        return None if pod is None or pod["metadata"]["uid"] == old else pod["spec"].get("nodeName")

    assert eventually(successor, what="another pod runs") == chosen
    assert list(teams) == []


def test_rights_on_workloads_are_all_used(team, own_server, own_objects, own_operator):
    """The tests above used each permission on Kueue's objects, and no other was requested."""
    team.launch("c", 1)
    team.await_ready("c")
    own_operator.kill()  # a watch is logged when it ends
    audit = AuditLog(Path(own_server.audit_log), own_objects)
    of_kueue = "kueue.x-k8s.io"
    granted = {(t, v) for group, t, verbs in (*OPERATOR_RULES, *QUEUE_RULES) for v in verbs if group == of_kueue}

    def requests() -> list[Request]:
        kinds = {"workloads", "resourceflavors", "workloadpriorityclasses"}
        return [one for one in audit.since(0, user=OPERATOR_USER) if one.resource in kinds]

    eventually(
        lambda: {(one.target, one.verb) for one in requests()}, lambda used: used == granted, what="each right was used"
    )
    assert [str(one) for one in requests() if one.code == 403] == []
    own_operator.start()
