"""The effect of a template edit on running pods: all together, one after the other, or none yet."""

import pytest
from support.lives import (
    await_all_replaced,
    await_another_pass,
    await_asked_to_go,
    await_pods_left,
    confirm_ends,
    launch_running,
    note_failures_in_a_row,
    remembered,
    uids_of,
)
from support.manifests import IMAGE, RECREATE, pod_template
from support.objects import PODS, TFCLUSTERS, Object
from support.rbac import OPERATOR_USER
from support.waiting import eventually
from support.world import World, task_names

pytestmark = pytest.mark.usefixtures("operator")

NEW = "registry.test/train:2"
ROLLING = {"updateStrategy": {"type": "RollingUpdate"}}


def edit_template(world: World, name: str, job: str = "worker", **container: object) -> int:
    return world.edit(name, {"jobs": {job: {"template": pod_template(**container)}}})


def images(world: World, name: str) -> dict[str, str]:
    found = world.pods_of(name)
    return {
        pod: one["spec"]["containers"][0]["image"]
        for pod, one in found.items()
        if not one["metadata"].get("deletionTimestamp")
    }


def going(world: World, name: str) -> list[str]:
    return sorted(pod for pod, one in world.pods_of(name).items() if one["metadata"].get("deletionTimestamp"))


def await_new(world: World, pod: str, image: str) -> Object:
    def probe() -> str:
        found = world.get(PODS, pod)
        return "" if found is None else found["spec"]["containers"][0]["image"]

    eventually(probe, lambda found: found == image, what=f"{pod} has the image {image}")
    return world.demand(PODS, pod)


def test_recreate_replaces_the_changed_jobs_pods_together(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 3}, "ps": {"replicas": 2}}, **RECREATE)
    world.await_condition("c", "Ready", status="True")

    edit_template(world, "c", image=NEW)
    await_asked_to_go(world, *task_names("c", worker=3))
    assert going(world, "c") == task_names("c", worker=3)
    told = world.await_condition("c", "UpToDate", status="False", reason="RollingOut")["message"]
    assert "3 of 3 pods of job worker have an older template" in told
    new = await_all_replaced(world, kubelet, "c", {n: u for n, u in uids.items() if "worker" in n})
    kubelet.run(*new)

    world.await_condition("c", "UpToDate", status="True", reason="AllCurrent")
    world.await_condition("c", "Ready", status="True")
    assert images(world, "c") == {n: NEW if "worker" in n else IMAGE for n in uids}
    assert {n: u for n, u in uids_of(world, "c").items() if "ps" in n} == {n: u for n, u in uids.items() if "ps" in n}
    status = world.status("c")
    assert (status["restarts"], status["jobs"]["worker"]["disruptions"], status["epoch"]) == (0, 0, 1)
    world.await_event("c", "TemplateChanged")


def test_rolling_update_goes_from_the_highest_index_one_by_one(world, kubelet, audit):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 4}}, **ROLLING)
    world.await_condition("c", "Ready", status="True")
    position = audit.position()

    edit_template(world, "c", image=NEW)
    for index in (3, 2, 1, 0):
        name = f"c-worker-{index}"
        await_asked_to_go(world, name)
        world.await_condition("c", "UpToDate", status="False", reason="RollingOut")
        assert going(world, "c") == [name]
        kubelet.stop(name)
        await_new(world, name, NEW)
        await_another_pass(world, "c")
        assert going(world, "c") == [], "the next one waits until this one is ready"
        kubelet.run(name)

    world.await_condition("c", "UpToDate", status="True", reason="AllCurrent")
    deleted = [
        w.name
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if (w.verb, w.target) == ("delete", "pods")
    ]
    assert deleted == task_names("c", worker=4)[::-1]


def test_rolling_update_that_stalls_says_so_and_can_be_corrected(world, kubelet):
    uids = launch_running(world, kubelet, "c", {"worker": {"replicas": 3}}, **ROLLING)
    world.await_condition("c", "Ready", status="True")
    edit_template(world, "c", image="registry.test/absent:1")
    await_asked_to_go(world, "c-worker-2")
    kubelet.stop("c-worker-2")
    await_new(world, "c-worker-2", "registry.test/absent:1")
    kubelet.wait("c-worker-2", reason="ImagePullBackOff", message="not found")

    told = world.await_condition("c", "UpToDate", status="False", reason="RolloutStalled")["message"]
    assert "2 of 3 pods of job worker have an older template" in told
    assert "worker-2" in told
    assert "ImagePullBackOff" in told
    world.await_event("c", "RolloutStalled")
    await_another_pass(world, "c")
    assert {n: u for n, u in uids_of(world, "c").items() if n != "c-worker-2"} == {
        n: uids[n] for n in task_names("c", worker=2)
    }

    edit_template(world, "c", image=NEW)
    for index in (2, 1, 0):
        await_asked_to_go_and_confirm(world, kubelet, f"c-worker-{index}", NEW)
        assert [n for n in going(world, "c") if n > f"c-worker-{index}"] == []
        kubelet.run(f"c-worker-{index}")
    world.await_condition("c", "UpToDate", status="True")
    world.await_condition("c", "Ready", status="True")


def await_asked_to_go_and_confirm(world: World, kubelet, pod: str, image: str) -> None:
    def probe() -> str:
        confirm_ends(world, kubelet, "c", [pod])
        found = world.get(PODS, pod)
        return "" if found is None else found["spec"]["containers"][0]["image"]

    eventually(probe, lambda found: found == image, what=f"{pod} is made from the corrected template")


#: Edits that change no pod; each replaces the existing value.
HARMLESS: dict[str, Object] = {
    "scaling": {"jobs": {"worker": {"replicas": 3}}},
    "filters": {"jobs": {"worker": {"deviceFilters": ["/job:ps"]}}},
    "a task's filters": {"jobs": {"worker": {"taskDeviceFilters": {"1": ["/job:ps"]}}}},
    "restart policy": {"jobs": {"worker": {"restartPolicy": "ExitCode", "restartScope": "Job"}}},
    "limits": {"backoffLimit": 3, "activeDeadlineSeconds": 86400, "ttlSecondsAfterFinished": 60},
    "clean up": {"cleanPodPolicy": "None", "forceDeleteAfterSeconds": 30},
    "order": {"jobs": {"worker": {"startAfter": ["ps"]}}},
    "draining": {"jobs": {"worker": {"drainTimeoutSeconds": 5}}},
    "strategy": {"updateStrategy": {"type": "OnDelete"}},
    "success": {"successPolicy": {"jobs": ["ps"], "tasks": "Any"}},
    "a default spelled out": {"jobs": {"worker": {"port": 2222}}},
}


def test_edit_unrelated_to_pods_does_not_start_a_rollout(world, kubelet):
    names = {fact: f"c{number}" for number, fact in enumerate(HARMLESS)}
    jobs = {"worker": {"replicas": 2, "maxReplicas": 4}, "ps": {}}
    uids = {name: launch_running(world, kubelet, name, jobs, **RECREATE) for name in names.values()}
    for name in names.values():
        world.await_condition(name, "Ready", status="True")
    for fact, name in names.items():
        world.edit(name, HARMLESS[fact])
    labelled = {"metadata": {"labels": {"team": "vision"}, "annotations": {"example.test/note": "seen"}}}
    world.patch(TFCLUSTERS, "c0", labelled)

    for fact, name in names.items():
        world.await_status(name, lambda s: s["observedGeneration"] >= 2, what=f"{fact} was seen")
        assert {n: u for n, u in uids_of(world, name).items() if n in uids[name]} == uids[name], fact
        assert world.condition(name, "UpToDate")["status"] == "True", fact
        assert going(world, name) == [], fact


def test_scale_while_rolling(world, kubelet):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 2, "maxReplicas": 4}}, **ROLLING)
    world.await_condition("c", "Ready", status="True")
    edit_template(world, "c", image=NEW)
    await_asked_to_go(world, "c-worker-1")
    world.scale("c", replicas=4)
    await_new(world, "c-worker-3", NEW)
    assert images(world, "c")["c-worker-0"] == IMAGE, "three of four are down already"
    kubelet.stop("c-worker-1")
    await_new(world, "c-worker-1", NEW)
    kubelet.run(*task_names("c", worker=4)[1:])
    await_asked_to_go(world, "c-worker-0")
    world.scale("c", replicas=1)
    kubelet.stop("c-worker-0")
    await_new(world, "c-worker-0", NEW)
    await_pods_left(world, kubelet, "c", ["c-worker-0"])

    world.await_condition("c", "UpToDate", status="True")


def test_scale_while_a_task_fails(world, kubelet):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 3}}, backoffLimit=5)
    world.await_condition("c", "Ready", status="True")
    note_failures_in_a_row(world, "c", 8, index=2)
    kubelet.fail("c-worker-2")
    world.await_condition("c", "Ready", status="False", reason="BackingOff")

    world.scale("c", replicas=2)
    await_pods_left(world, kubelet, "c", task_names("c", worker=2))

    world.await_condition("c", "Ready", status="True")
    assert world.status("c")["restarts"] == 1
    world.scale("c", replicas=3)
    world.await_pods_of("c", task_names("c", worker=3))
    assert "failing" not in remembered(world, "c", "worker")


def test_scale_down_with_drain_tells_first_and_deletes_later(world, kubelet, audit):
    launch_running(world, kubelet, "c", {"worker": {"replicas": 3, "drainTimeoutSeconds": 3}})
    world.await_condition("c", "Ready", status="True")
    position = audit.position()

    world.scale("c", replicas=1)
    world.await_condition("c", "MembershipPublished", status="True")
    eventually(
        lambda: world.demand(PODS, "c-worker-2")["metadata"]["annotations"].get("tfcluster.dev/surplus-since"),
        what="the surplus pod is marked",
    )
    assert (going(world, "c"), len(world.view("c", "worker")["jobs"]["worker"])) == ([], 1)
    marked = int(world.demand(PODS, "c-worker-2")["metadata"]["annotations"]["tfcluster.dev/surplus-since"])
    await_pods_left(world, kubelet, "c", ["c-worker-0"])

    writes = audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
    deletions = {w.name: w for w in writes if (w.verb, w.target) == ("delete", "pods")}
    told = min(w.finished for w in writes if w.resource == "configmaps")  # later writes report that they were deleted
    assert sorted(deletions) == ["c-worker-1", "c-worker-2"]
    assert all(w.received > told and marked + 3 <= w.received.timestamp() < marked + 5 for w in deletions.values())
    world.await_event("c", "Draining")
