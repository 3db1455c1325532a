"""A TFCluster that is restored from a backup: with its status it continues, without it starts again."""

from typing import Any

from support.lives import await_another_pass, launch_running
from support.objects import PODS, TFCLUSTERS, Object
from support.world import World, task_names

JOBS = {"chief": {}, "worker": {"replicas": 2, "restartPolicy": "Never"}}


def backup_of(world: World, name: str) -> Object:
    """Return the content of a backup: everything except what the API server sets."""
    found = world.cluster(name)
    kept = ("name", "namespace", "labels", "annotations", "finalizers")
    return {**found, "metadata": {key: value for key, value in found["metadata"].items() if key in kept}}


def restore(world: World, backup: Object, *, status: bool) -> None:
    world.objects.create(TFCLUSTERS, world.namespace, {k: v for k, v in backup.items() if k != "status"})
    if status:
        path = TFCLUSTERS.path(world.namespace, backup["metadata"]["name"], "status")
        body: dict[str, Any] = {"status": backup["status"]}
        world.objects.request("PATCH", path, body, content="application/merge-patch+json")


def test_finished_training_stays_finished(operator, world, kubelet):
    launch_running(world, kubelet, "c", JOBS)
    kubelet.succeed("c-chief-0")
    ended = world.await_ended("c", "Succeeded")
    backup = backup_of(world, "c")
    lose(world, kubelet, "c", JOBS)

    operator.kill()
    restore(world, backup, status=True)
    operator.start()
    await_another_pass(world, "c")

    assert world.pods_of("c") == {}
    status = world.status("c")
    assert world.condition("c", "Succeeded")["status"] == "True"
    assert status["completionTime"] == ended["completionTime"]


def test_restored_status_lets_training_continue(operator, world, kubelet):
    launch_running(world, kubelet, "c", JOBS)
    kubelet.succeed("c-worker-1")
    world.await_status("c", lambda s: s["jobs"]["worker"]["succeeded"] == 1, what="one is complete")
    world.await_status("c", lambda s: s["internal"]["jobs"]["worker"].get("completed"), what="it is kept")
    backup = backup_of(world, "c")
    lose(world, kubelet, "c", JOBS)

    operator.kill()
    restore(world, backup, status=True)
    operator.start()

    world.await_pods_of("c", task_names("c", chief=1, worker=1))
    await_another_pass(world, "c")
    world.await_pods_of("c", task_names("c", chief=1, worker=1))


def test_without_status_everything_runs_again(operator, world, kubelet):  # noqa: ARG001 - the operator works
    """Restored without its status, the default of backup tools, a finished cluster runs all its tasks."""
    launch_running(world, kubelet, "c", JOBS)
    kubelet.succeed("c-chief-0")
    world.await_ended("c", "Succeeded")
    backup = backup_of(world, "c")
    lose(world, kubelet, "c", JOBS)

    restore(world, backup, status=False)

    world.await_pods_of("c", task_names("c", chief=1, worker=2))


def lose(world: World, kubelet: Any, name: str, jobs: dict[str, Object]) -> None:
    world.delete(TFCLUSTERS, name)
    world.await_removed(name)
    for pod in task_names(name, **{job: fields.get("replicas", 1) for job, fields in jobs.items()}):
        if world.get(PODS, pod):
            world.delete(PODS, pod)
            kubelet.stop(pod)
