"""From the operator of an older version to this one: what it made is adopted, and what it knew is known.

Both run as they are, on a control plane of their own.  The life of the cluster has left something in every field that
the operator keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kubernetes import client, config
from support import older_version
from support.audit import AuditLog
from support.lives import await_all_replaced, await_another_pass, await_asked_to_go, launch_running, uids_of
from support.objects import CRDS, NAMESPACES, PODS, SERVICE_ACCOUNTS, Object, Objects
from support.operator_process import OperatorProcess
from support.pods import StandInKubelet
from support.rbac import OPERATOR_USER, grant_operator_rights
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
CRD = "tfclusters.tfcluster.dev"
NAMESPACE = "upgrade"
JOBS = {
    "chief": {},
    "worker": {"replicas": 2, "restartScope": "Job"},
    "ps": {"replicas": 2},
    "reader": {"replicas": 2},
}


@dataclass(frozen=True)
class Stage:
    """A control plane with the older definition, the two operators, and a kubelet."""

    world: World
    kubelet: StandInKubelet
    audit: AuditLog
    older: OperatorProcess
    newer: OperatorProcess

    @property
    def objects(self) -> Objects:
        return self.world.objects

    def writes(self, position: int) -> list[tuple[str, str, str]]:
        """Tell what the operator has created and deleted since, by verb, resource and name."""
        made = self.audit.writes(position, user=OPERATOR_USER, namespace=NAMESPACE)
        return [(w.verb, w.resource, w.name) for w in made if w.verb in {"create", "delete"} and w.resource != "events"]


@pytest.fixture(scope="module")
def older_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The older operator, its resolver and its definition, out of the repository's history."""
    return older_version.unpack(tmp_path_factory.mktemp("older"), "operator", "resolver", "crds/tfcluster.yaml")


@pytest.fixture
def stage(tmp_path: Path, older_sources: Path) -> Iterator[Stage]:
    """The world before the upgrade, with the older operator at work."""
    from local_kubernetes.control_plane import start

    with start(tmp_path / "server") as plane:
        configuration = client.Configuration()
        config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
        objects = Objects(client.ApiClient(configuration))
        objects.create(CRDS, "", definition(older_sources))
        objects.create(NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        eventually(lambda: objects.get(SERVICE_ACCOUNTS, NAMESPACE, "default"), what="it can hold pods")
        grant_operator_rights(objects)
        kubeconfig = Path(plane.kubeconfig_for(OPERATOR_USER))
        older = OperatorProcess(kubeconfig=kubeconfig, log=tmp_path / "older.log", older=older_sources)
        newer = OperatorProcess(kubeconfig=kubeconfig, log=tmp_path / "newer.log")
        eventually(lambda: established(objects), what="the definition is established")
        older.start()
        kubelet = StandInKubelet(objects, NAMESPACE)
        try:
            yield Stage(World(objects, NAMESPACE), kubelet, AuditLog(Path(plane.audit_log), objects), older, newer)
        finally:
            older.kill()
            newer.kill()


def definition(sources: Path) -> Object:
    return yaml.safe_load((sources / "crds" / "tfcluster.yaml").read_text(encoding="utf-8"))


def established(objects: Objects) -> bool:
    conditions = (objects.get(CRDS, "", CRD) or {}).get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def bring_the_definition_up_to_date(objects: Objects) -> None:
    """Replace the definition, as `kubectl replace` does."""
    found = objects.get(CRDS, "", CRD)
    assert found is not None
    version = found["metadata"]["resourceVersion"]
    new = definition(ROOT)
    objects.replace(CRDS, "", {**new, "metadata": {**new["metadata"], "resourceVersion": version}})


def live(stage: Stage) -> dict[str, str]:
    """Let a cluster run for a while under the older operator.

    All workers were restarted once, ps-1 has failed, reader-0 has succeeded and its pod is gone, reader-1's was taken
    away.

    Returns:
        The UIDs of its pods.
    """
    world, kubelet = stage.world, stage.kubelet
    old = launch_running(world, kubelet, "c", JOBS, backoffLimit=9)
    kubelet.fail("c-worker-0", exit_code=137)
    await_asked_to_go(world, "c-worker-1")
    kubelet.run(*await_all_replaced(world, kubelet, "c", {name: old[name] for name in task_names("c", worker=2)}))
    kubelet.fail("c-ps-1", exit_code=137)
    world.await_replaced("c-ps-1", old["c-ps-1"])
    world.delete(PODS, "c-reader-1")
    await_all_replaced(world, kubelet, "c", {"c-reader-1": old["c-reader-1"]})
    kubelet.run("c-ps-1", "c-reader-1")
    kubelet.succeed("c-reader-0")
    world.await_status("c", lambda s: s["jobs"]["reader"]["succeeded"] == 1, what="one is complete")
    world.delete(PODS, "c-reader-0")
    world.await_condition("c", "Ready", status="True")
    assert await_counted(world, restarts=2, replaced=1)["startTime"]
    return uids_of(world, "c")


def await_counted(world: World, *, restarts: int, replaced: int) -> Object:
    return world.await_status(
        "c",
        lambda s: (s["restarts"], sum(job["replaced"] for job in s["jobs"].values())) == (restarts, replaced),
        what=f"{restarts} restarts and {replaced} replaced pods are counted",
    )


def check_what_is_known(stage: Stage, pods: dict[str, str | None], *, restarts: int = 2) -> None:
    """Check that the newer operator has replaced no pod, runs nothing again that is complete, and counts on."""
    world, kubelet = stage.world, stage.kubelet
    await_another_pass(world, "c")
    world.await_condition("c", "Ready", status="True")
    assert uids_of(world, "c") == pods
    status = await_counted(world, restarts=restarts, replaced=1)
    remembered = status["internal"]["jobs"]
    assert remembered["worker"]["incarnation"] == 1
    assert remembered["reader"]["completedIndexes"] == "0"
    assert remembered["ps"]["failing"]["1"]["inRow"] == 1
    assert not any({"incarnation", "startedIndexes", "failing"} & job.keys() for job in status["jobs"].values())

    # NB: the older definition does not know how many failed pods are kept, and has dropped what was said of it.
    kubelet.fail("c-ps-1", exit_code=9)
    status = await_counted(world, restarts=restarts + 1, replaced=1)
    assert status["internal"]["jobs"]["ps"]["failing"]["1"]["inRow"] == 2
    after = world.await_pods_of("c", [*pods, "c-ps-1-r1"])
    assert {name: after[name]["metadata"]["uid"] for name in pods} == pods


def test_upgrade_of_the_definition_first(stage):
    """The documented order: the older operator works with the newer definition, the newer one adopts what it made."""
    pods = live(stage)
    bring_the_definition_up_to_date(stage.objects)
    await_another_pass(stage.world, "c")
    stage.older.stop()
    position = stage.audit.await_quiet(OPERATOR_USER, namespace=NAMESPACE)

    stage.newer.start()
    await_another_pass(stage.world, "c")

    assert stage.writes(position) == []
    check_what_is_known(stage, pods)


def test_upgrade_of_the_operator_first(stage):
    """Under the older definition the operator says so, counts and destroys nothing; under the newer it knows all."""
    pods = live(stage)
    stage.older.stop()
    position = stage.audit.await_quiet(OPERATOR_USER, namespace=NAMESPACE)

    stage.newer.start()
    told = stage.world.await_condition("c", "UpToDate", status="False", reason="OutdatedDefinition")
    assert "apply the CRD" in told["message"]
    stage.kubelet.fail("c-chief-0", exit_code=3)
    for _ in range(3):
        await_another_pass(stage.world, "c")
    assert stage.world.status("c")["restarts"] == 2, "what cannot be kept is not counted"
    assert stage.writes(position) == []
    stage.world.launch("late", {"worker": {}})
    stage.world.await_condition("late", "Ready", status="False", reason="OutdatedDefinition")

    bring_the_definition_up_to_date(stage.objects)
    eventually(
        lambda: stage.world.condition("c", "Ready"),
        lambda ready: ready.get("reason") != "OutdatedDefinition",
        what="it notices that the definition is up to date",
    )
    stage.world.await_pods_of("late", task_names("late", worker=1))
    stage.kubelet.run("late-worker-0")
    stage.world.await_condition("late", "Ready", status="True")
    stage.world.await_pods_of("c", [*pods, "c-chief-0-r1"])
    stage.kubelet.run("c-chief-0-r1")
    check_what_is_known(stage, {**pods, "c-chief-0-r1": stage.world.uid("c-chief-0-r1")}, restarts=3)


def test_the_way_back_counts_nothing_twice(stage):
    """An older operator knows no kept pods: it deletes them and starts their tasks again, but counts no failure."""
    world, kubelet = stage.world, stage.kubelet
    bring_the_definition_up_to_date(stage.objects)
    stage.older.stop()
    stage.newer.start()
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2}}, failedPodsHistoryLimit=1, backoffLimit=1)
    kubelet.fail("c-worker-0")
    world.await_pods_of("c", [*task_names("c", worker=2), "c-worker-0-r1"])
    kubelet.run("c-worker-0-r1")
    world.await_condition("c", "Ready", status="True")
    stage.newer.stop()
    kept, runs_on = world.uid("c-worker-0"), world.uid("c-worker-1")

    stage.older.start()
    await_asked_to_go(world, "c-worker-0-r1")
    kubelet.stop("c-worker-0-r1")
    world.await_replaced("c-worker-0", kept)
    world.await_pods_of("c", task_names("c", worker=2))
    kubelet.run("c-worker-0")

    world.await_condition("c", "Ready", status="True")
    await_another_pass(world, "c")
    assert (world.status("c")["restarts"], world.uid("c-worker-1")) == (1, runs_on)
    assert world.condition("c", "Failed")["status"] == "False"


def test_downgrade_forgets_what_only_the_newer_operator_keeps(stage):
    """Back under the older operator, a restarted job is restarted once more, a complete task runs again: no more."""
    live(stage)
    bring_the_definition_up_to_date(stage.objects)
    await_another_pass(stage.world, "c")
    stage.older.stop()
    stage.newer.start()
    await_another_pass(stage.world, "c")
    stage.newer.stop()
    position = stage.audit.await_quiet(OPERATOR_USER, namespace=NAMESPACE)

    stage.older.start()
    await_another_pass(stage.world, "c")
    stage.audit.await_quiet(OPERATOR_USER, namespace=NAMESPACE)

    assert sorted(stage.writes(position)) == [
        ("create", "pods", "c-reader-0"),
        ("delete", "pods", "c-worker-0"),
        ("delete", "pods", "c-worker-1"),
    ]
