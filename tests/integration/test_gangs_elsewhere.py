"""Gangs with the PodGroups of other schedulers, on a real API server; the test acts as the scheduler.

The CRD of scheduler-plugins is the real one, from its sources. Volcano's Go types (module volcano.sh/apis v1.12.1) come
without a CRD: it is written here, with the fields that the operator uses.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.audit import AuditLog, Request
from support.control_planes import client_of, create_namespace, install_crd, no_traceback
from support.objects import (
    CRDS,
    POD_GROUPS_OF_PLUGINS,
    POD_GROUPS_OF_VOLCANO,
    PODS,
    STRATEGIC,
    Kind,
    Object,
    Objects,
)
from support.operator_process import ALL_NAMESPACES, OperatorProcess
from support.pods import StandInKubelet
from support.rbac import GANG_VERBS, grant_operator_rights
from support.waiting import eventually
from support.world import World

if TYPE_CHECKING:
    from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.exhaustive

GANG = {"gang": {}}
NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
_CONDITION = {
    "type": "object",
    "properties": {
        **{field: {"type": "string"} for field in ("type", "status", "transitionID", "reason", "message")},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    },
}
VOLCANO_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.volcano.sh"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "scope": "Namespaced",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"},
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32"},
                                    "queue": {"type": "string", "default": "default"},
                                    "priorityClassName": {"type": "string"},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "conditions": {"type": "array", "items": _CONDITION},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


@dataclass(frozen=True)
class Form:
    """The form of a gang with one scheduler."""

    option: str
    groups: Kind
    scheduler: str
    define: Callable[[ControlPlane, Objects], None]

    def group_of(self, pod: Object) -> str:
        """Return the PodGroup of a pod as the scheduler reads it."""
        metadata = pod["metadata"]
        if self.option == "SchedulerPlugins":
            return str(metadata["labels"].get("scheduling.x-k8s.io/pod-group", ""))
        return str(metadata["annotations"].get("scheduling.k8s.io/group-name", ""))


def _define_plugins(plane: ControlPlane, objects: Objects) -> None:
    from local_kubernetes.scheduler_plugins import define_pod_groups

    del objects
    define_pod_groups(plane)


def _define_volcano(plane: ControlPlane, objects: Objects) -> None:
    del plane
    objects.create(CRDS, "", VOLCANO_DEFINITION)


FORMS = [
    Form("SchedulerPlugins", POD_GROUPS_OF_PLUGINS, "scheduler-plugins-scheduler", _define_plugins),
    Form("Volcano", POD_GROUPS_OF_VOLCANO, "volcano", _define_volcano),
]


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: form.option)
def form(request: pytest.FixtureRequest) -> Form:
    """One scheduler after the other."""
    found: Form = request.param
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A separate server, at first without PodGroups."""
    from local_kubernetes.control_plane import start

    with start(tmp_path_factory.mktemp("gangs-elsewhere")) as plane:
        yield plane


@pytest.fixture(scope="module")
def everything(server: ControlPlane) -> Objects:
    """Administrator access to a server with the CRD."""
    objects = Objects(client_of(server))
    install_crd(objects)
    return objects


@pytest.fixture(scope="module")
def user(form: Form, everything: Objects) -> str:
    """A user with the operator's permissions, on the PodGroups of this scheduler alone."""
    name = f"operator-{form.option.lower()}"
    grant_operator_rights(everything, user=name, gangs=form.groups.group_version.partition("/")[0])
    return name


@pytest.fixture(scope="module")
def running(
    server: ControlPlane, form: Form, user: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """The operator, configured for the scheduler and started before PodGroups are served."""
    kubeconfig = Path(server.kubeconfig_for(user))
    process = OperatorProcess(kubeconfig=kubeconfig, log=tmp_path_factory.mktemp("operator") / "operator.log")
    process.start(arguments=(*ALL_NAMESPACES, "--gang-scheduler", form.option))
    with no_traceback(process):
        yield process
    process.stop()


@pytest.fixture
def home(everything: Objects, running: OperatorProcess) -> World:
    del running
    name = f"test-{uuid.uuid4().hex[:8]}"
    create_namespace(everything, name)
    return World(everything, name)


@pytest.fixture
def kubelet(home: World) -> Iterator[StandInKubelet]:
    stand_in = StandInKubelet(home.objects, home.namespace)
    yield stand_in
    stand_in.close()


@pytest.fixture(scope="module")
def defined(form: Form, server: ControlPlane, everything: Objects, running: OperatorProcess) -> None:
    """From here on the PodGroups are served."""
    del running
    form.define(server, everything)


@pytest.fixture
def gangs(defined: None, home: World) -> World:
    del defined
    return home


def groups(world: World, form: Form) -> dict[str, Any]:
    """Return how many pods each PodGroup waits for."""
    return {
        one["metadata"]["name"]: one["spec"]["minMember"] for one in world.objects.list(form.groups, world.namespace)
    }


def await_members(world: World, form: Form, cluster: str, wanted: dict[str, str]) -> dict[str, Object]:
    """Wait until the pods belong to these PodGroups; return them."""

    def found() -> dict[str, str]:
        alive = {n: p for n, p in world.pods_of(cluster).items() if "deletionTimestamp" not in p["metadata"]}
        return {name: form.group_of(pod) for name, pod in alive.items()}

    eventually(found, lambda members: members == wanted, what=f"the pods' groups are {wanted}")
    return world.pods_of(cluster)


def test_gang_waits_until_its_pod_groups_are_served(home, form, request):
    """Kubernetes' own PodGroups are not used; the operator discovers those of the configured scheduler."""
    home.launch("early", {"chief": {}, "worker": {"replicas": 2}}, scheduling=GANG)
    told = home.await_condition("early", "Ready", status="False", reason="GangUnavailable")["message"]
    assert f"spec.scheduling.gang needs PodGroups of {form.groups.group_version}" in told
    assert f"the API server does not serve podgroups of {form.groups.group_version}" in told
    assert home.pods_of("early") == {}

    request.getfixturevalue("defined")
    pods = ("early-chief-0", "early-worker-0", "early-worker-1")
    await_members(home, form, "early", dict.fromkeys(pods, "early.0"))
    assert groups(home, form) == {"early.0": 3}


def test_gang_is_placed_when_one_of_its_pods_is(gangs, form, kubelet):
    """Surplus tasks wait for that; a lost task is re-created without a gang, also when all are lost."""
    gangs.launch("c", {"worker": {"replicas": 3, "minReplicas": 2}}, scheduling={"gang": {}})
    pods = await_members(gangs, form, "c", dict.fromkeys(("c-worker-0", "c-worker-1"), "c.0"))
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {form.scheduler}

    kubelet.run("c-worker-0")
    pods = await_members(gangs, form, "c", {"c-worker-0": "c.0", "c-worker-1": "c.0", "c-worker-2": ""})
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {form.scheduler}
    kubelet.run(*pods)
    gangs.await_condition("c", "Ready", status="True")
    noted = eventually(
        lambda: gangs.demand(form.groups, "c.0")["metadata"]["annotations"].get("tfcluster.dev/placed"),
        what="the PodGroup is marked",
    )
    assert noted == "true"

    for name in pods:
        gangs.delete(PODS, name)
    kubelet.stop(*pods)
    await_members(gangs, form, "c", dict.fromkeys(pods, ""))


def test_waiting_gang_is_reported_and_scaled(gangs, form):
    """The status has the scheduler's message; scaling changes the PodGroup's count, giving up deletes it."""
    gangs.launch("c", {"worker": {"replicas": 3}}, scheduling=GANG)
    await_members(gangs, form, "c", {f"c-worker-{index}": "c.0" for index in range(3)})
    lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}
    lacking["lastTransitionTime"] = "2026-01-01T10:00:00Z"
    gangs.objects.patch(
        PODS,
        gangs.namespace,
        "c-worker-1",
        {"status": {"conditions": [lacking]}},
        subresource="status",
        content=STRATEGIC,
    )
    told = gangs.await_condition("c", "Ready", status="False", reason="WaitingForGang")["message"]
    assert told == f"gang c.0 (scheduler {form.scheduler}) waits until 3 tasks can be scheduled together: {NO_ROOM}"

    gangs.scale("c", replicas=2)
    eventually(lambda: groups(gangs, form), lambda found: found == {"c.0": 2}, what="two are waited for")
    gangs.edit("c", {"scheduling": None})
    await_members(gangs, form, "c", {"c-worker-0": "", "c-worker-1": ""})
    eventually(lambda: groups(gangs, form), lambda found: not found, what="the PodGroup is gone")


@pytest.fixture
def audit_of_the_ended(server: ControlPlane, everything: Objects, running: OperatorProcess) -> AuditLog:
    """The audit log after the operator's end: a watch is logged when it ends."""
    running.kill()
    return AuditLog(Path(server.audit_log), everything)


def test_rights_on_pod_groups_are_all_used(audit_of_the_ended, user):
    """The tests above used each permission on the PodGroups of this scheduler, and no other was requested."""
    audit = audit_of_the_ended

    def requests() -> list[Request]:
        return [one for one in audit.since(0, user=user) if one.resource == "podgroups"]

    wanted = set(GANG_VERBS)
    eventually(lambda: {one.verb for one in requests()}, lambda used: used == wanted, what="each right was used")
    assert [str(one) for one in requests() if one.code == 403] == []
