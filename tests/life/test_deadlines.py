"""activeDeadlineSeconds and ttlSecondsAfterFinished; times are those of the objects and of the audit log."""

from datetime import datetime, timedelta

import pytest
from support import clock
from support.lives import await_another_pass, await_pods_left, await_time, launch_running
from support.objects import TFCLUSTERS, Object
from support.rbac import OPERATOR_USER
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ran_for(status: Object) -> float:
    return (at(status["completionTime"]) - at(status["startTime"])).total_seconds()


def deletion(audit, world, position: int, name: str):
    (found,) = (
        w
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if (w.verb, w.target, w.name, w.code) == ("delete", "tfclusters", name, 200)
    )
    return found


def set_deadline(world, *names: str, spare: int = 3) -> dict[str, int]:
    """Set a deadline this number of seconds from now on running clusters; return the deadlines by name."""
    limits = {}
    for name in names:
        ran = clock.now() - at(world.status(name)["startTime"])
        limits[name] = int(ran.total_seconds()) + spare
        world.edit(name, {"activeDeadlineSeconds": limits[name]})
    return limits


def test_deadline_fires_by_itself(world, kubelet):
    """Not before the deadline; test_work_queue checks in virtual time how late the timer fires."""
    world.launch("pends", {"worker": {}}, activeDeadlineSeconds=2)
    world.launch("waits", {"worker": {"startAfter": ["ps"]}, "ps": {}}, activeDeadlineSeconds=3)
    launch_running(world, kubelet, "runs", {"worker": {"replicas": 2}})
    launch_running(world, kubelet, "fails", {"worker": {}})
    uid = world.uid("fails-worker-0")
    kubelet.fail("fails-worker-0")
    world.await_replaced("fails-worker-0", uid)
    kubelet.fail("fails-worker-0")
    world.await_settled("runs")

    for name, limit in {"pends": 2, "waits": 3, **set_deadline(world, "runs", "fails")}.items():
        status = world.await_ended(name, "Failed", "DeadlineExceeded")
        assert limit <= ran_for(status), name
        assert f"{limit} s" in world.condition(name, "Failed")["message"]
    await_pods_left(world, kubelet, "runs", [])
    await_pods_left(world, kubelet, "pends", [])
    assert world.condition("fails", "Succeeded")["status"] == "False"


def test_deadline_that_passes_without_an_operator_fires_at_its_start(world, operator, kubelet):
    """The next operator enforces a deadline that passed without one; a success during that time has priority."""
    began = {}
    for name in ("late", "done"):
        launch_running(world, kubelet, name, {"worker": {}})
        began[name] = at(world.await_settled(name)["status"]["startTime"])
    operator.kill()
    kubelet.succeed("done-worker-0")
    limits = set_deadline(world, *began)
    for name, moment in began.items():
        await_time(moment + timedelta(seconds=limits[name]))
    operator.start()

    assert ran_for(world.await_ended("late", "Failed", "DeadlineExceeded")) >= limits["late"]
    world.await_ended("done", "Succeeded")


def test_deadline_edited_while_it_runs(world):
    """A longer deadline replaces a shorter one; a deadline in the past ends the cluster immediately."""
    world.launch("longer", {"worker": {}})
    world.launch("shorter", {"worker": {}}, activeDeadlineSeconds=600)
    world.launch("added", {"worker": {}})
    world.await_settled("longer")
    limit = set_deadline(world, "longer", spare=10)["longer"]
    world.await_settled("longer")
    world.edit("longer", {"activeDeadlineSeconds": 600})
    started = [at(world.await_settled(name)["status"]["startTime"]) for name in ("longer", "shorter", "added")]
    await_time(max(started) + timedelta(seconds=limit))
    world.edit("shorter", {"activeDeadlineSeconds": 1})
    world.edit("added", {"activeDeadlineSeconds": 1})

    for name in ("shorter", "added"):
        world.await_ended(name, "Failed", "DeadlineExceeded")
    assert world.condition("longer", "Failed")["status"] == "False"


def test_ttl_deletes_the_cluster(world, kubelet, audit):
    """The operator deletes a finished cluster its TTL after completionTime: immediately for 0, also after a failure."""
    position = audit.position()
    launch_running(world, kubelet, "good", {"worker": {}}, ttlSecondsAfterFinished=3)
    launch_running(world, kubelet, "bad", {"worker": {"restartPolicy": "Never"}}, ttlSecondsAfterFinished=3)
    launch_running(world, kubelet, "at-once", {"worker": {}}, ttlSecondsAfterFinished=0)
    world.launch("overdue", {"worker": {}}, ttlSecondsAfterFinished=3)
    for name in ("good", "bad", "overdue"):  # a late read of its status must still succeed
        world.patch(TFCLUSTERS, name, {"metadata": {"finalizers": ["example.test/kept"]}})
    world.edit("overdue", {"activeDeadlineSeconds": 1})
    launch_running(world, kubelet, "kept", {"worker": {}})
    launch_running(world, kubelet, "running", {"worker": {}}, ttlSecondsAfterFinished=0)
    kubelet.succeed("good-worker-0", "at-once-worker-0", "kept-worker-0")
    kubelet.fail("bad-worker-0")
    ended = {
        "good": world.await_ended("good", "Succeeded"),
        "bad": world.await_ended("bad", "Failed"),
        "overdue": world.await_ended("overdue", "Failed"),
    }

    for name in ended:
        eventually(lambda name=name: world.cluster(name)["metadata"].get("deletionTimestamp"), what=f"{name} goes")
        world.patch(TFCLUSTERS, name, {"metadata": {"finalizers": None}})
    for name in ("good", "bad", "at-once", "overdue"):
        world.await_removed(name)
    for name, status in ended.items():
        asked = deletion(audit, world, position, name).received
        assert (asked - at(status["completionTime"])).total_seconds() >= 3, name
    assert world.condition("kept", "Succeeded")["status"] == "True"
    assert world.condition("running", "Succeeded")["status"] == "False"


def test_ttl_that_passes_without_an_operator_fires_at_its_start(world, kubelet, operator):
    """The next operator deletes a cluster whose TTL expired without one, and waits for any other TTL."""
    launch_running(world, kubelet, "over", {"worker": {}})
    launch_running(world, kubelet, "not-over", {"worker": {}}, ttlSecondsAfterFinished=600)
    kubelet.succeed("over-worker-0", "not-over-worker-0")
    done = at(world.await_ended("over", "Succeeded")["completionTime"])
    world.await_ended("not-over", "Succeeded")
    operator.kill()
    world.edit("over", {"ttlSecondsAfterFinished": 2})
    await_time(done + timedelta(seconds=2))
    assert world.condition("over", "Succeeded")["status"] == "True"
    operator.start()

    world.await_removed("over")
    await_another_pass(world, "not-over")
    assert world.condition("not-over", "Succeeded")["status"] == "True"
