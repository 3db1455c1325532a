"""The planner in generated worlds: from any state, through any interruption, to the declared state."""

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from decisions.in_memory import InMemoryWorld, make_cluster, settled, views_for
from decisions.strategies import (
    FOREIGN_UID,
    POD_FATES,
    TAMPERINGS,
    Spoiling,
    clusters,
    edits,
    make_child,
    spoil,
    spoilings,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfcluster_operator.declaration import naming, reasons
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.objects.config_map import membership_digest, read_file
from tfcluster_operator.plan.actions import Delete
from tfcluster_resolver import contract

MANY = settings(max_examples=120, deadline=None)
SOME = settings(max_examples=70, deadline=None)

_SERVERS_OWN = ("uid", "resourceVersion", "deletionTimestamp")
_MAY_DIFFER = (
    naming.ANNOTATION_ATTEMPT,
    naming.ANNOTATION_VIEW,
    naming.ANNOTATION_EPOCHS,
    naming.ANNOTATION_REPLACEMENT,
)


def masked(world: InMemoryWorld, *, epochs: bool) -> dict[str, Any]:
    """Return the objects by hostname, without server's fields, attempts and kept pods; epochs are optional."""
    kept, tasks = world.kept(), {name: task for task, name in world.by_task().items()}
    return {
        f"{kind}/{tasks.get(name, name) if kind == 'Pod' else name}": _mask(kind, found, epochs=epochs)
        for (kind, name), found in sorted(world.objects.items())
        if kind != "Pod" or name not in kept
    }


def _mask(kind: str, found: dict[str, Any], *, epochs: bool) -> dict[str, Any]:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _SERVERS_OWN}
    metadata["annotations"] = {k: v for k, v in metadata.get("annotations", {}).items() if k not in _MAY_DIFFER}
    rest = {key: value for key, value in found.items() if key not in {"metadata", "status", "binaryData", "immutable"}}
    if kind == "Pod":
        metadata["name"] = found["spec"].get("hostname")
        rest["spec"] = {key: value for key, value in found["spec"].items() if key != "nodeName"}
    if kind == "ConfigMap":
        rest["data"] = {name: _mask_view(text, epochs=epochs) for name, text in found["data"].items()}
        rest["binaryData"] = found.get("binaryData") or {}
    return {"metadata": metadata, **rest}


def _mask_view(text: str, *, epochs: bool) -> str:
    view = replace(contract.load(text), incarnations={})
    if epochs:
        return contract.dump(view)
    accelerators = {job: replace(held, tasks={}) for job, held in view.accelerators.items()}
    return contract.dump(replace(view, epoch=0, accelerators=accelerators))


def from_nothing(cluster: TFCluster) -> InMemoryWorld:
    world = InMemoryWorld()
    world.settle(cluster)
    return world


def spoiled(cluster: TFCluster, spoils: list[Spoiling]) -> InMemoryWorld:
    world = settled(cluster)
    for one in spoils:
        spoil(world, one)
    return world


def assert_told(world: InMemoryWorld, cluster: TFCluster) -> None:
    """Every pod that can read its view was notified of the published file."""
    for job in cluster.jobs:
        for index in range(0 if cluster.suspend else job.replicas):
            pod = world.read("Pod", world.by_task()[naming.pod_name(cluster.name, job.name, index)])
            files = world.objects["ConfigMap", naming.view_name(cluster.name, job.name)]["data"]
            text = files.get(contract.task_view_file(index), files[contract.VIEW_FILE])
            assert not pod.listening or pod.told == read_file(text).told
            if job.name == "chief":
                assert_pods_listed(world, cluster, contract.load(text))


def assert_pods_listed(world: InMemoryWorld, cluster: TFCluster, view: contract.View) -> None:
    """A chief's view lists the pods that replaced others, so that it reconnects to their tasks."""
    for job, tasks in view.jobs.items():
        listed = view.incarnations.get(job, {})
        for index in tasks if isinstance(tasks, Mapping) else range(len(tasks)):
            pod = world.read("Pod", world.by_task()[naming.pod_name(cluster.name, job, index)])
            if pod.is_replacement and job != "chief":
                assert listed[index] == digest(pod.meta.uid)[:6]
            else:
                assert index not in listed


def assert_history(world: InMemoryWorld, cluster: TFCluster) -> None:
    """At most the configured number of failed pods is kept, of declared tasks only; labels find them all."""
    limits = {naming.pod_name(cluster.name, t.job.name, t.index): t.job.history_limit for t in cluster.tasks()}
    kept = [world.read("Pod", name) for name in world.kept()]
    of_tasks = Counter(naming.first_pod_name(pod.meta.name)[0] for pod in kept)
    assert all(number <= limits.get(task, 0) for task, number in of_tasks.items())
    assert all(naming.LABEL_JOB in pod.meta.labels and naming.LABEL_CLUSTER in pod.meta.labels for pod in kept)


@MANY
@given(cluster=clusters)
def test_a_plan_carried_out_leaves_nothing_to_plan(cluster):
    """One plan creates the whole cluster, and the next is empty."""
    world = InMemoryWorld()
    world.apply_all(world.plan(cluster).actions, cluster)

    after = world.plan(cluster)

    assert after.actions == ()
    assert after.findings == ()
    declared = set() if cluster.suspend else {naming.pod_name("demo", t.job.name, t.index) for t in cluster.tasks()}
    assert declared == world.names("Pod")
    assert {naming.view_name("demo", job.name) for job in cluster.jobs} == world.names("ConfigMap")
    assert {"demo"} == world.names("Service")
    assert_told(world, cluster)


@MANY
@given(edit=edits, spoils=spoilings(*TAMPERINGS, *POD_FATES))
def test_every_spoiled_world_converges_to_a_fresh_one(edit, spoils):
    """After any deletion, edit, relabelling, addition or failure, and any change of the spec, the end is the same."""
    before, after = edit
    world = settled(before)
    # An undeclared object without our label has neither a watched label nor an expected name.
    wanted = from_nothing(after)
    shrunk = any(world.names(kind) - wanted.names(kind) for kind in ("Pod", "ConfigMap", "NetworkPolicy"))
    for one in spoils:
        if not (one.what == "drop our labels" and (shrunk or _holds_surplus(world))):
            spoil(world, one)

    rounds = world.settle(after)

    assert rounds <= 6
    assert masked(from_nothing(after), epochs=False) == masked(world, epochs=False)
    assert_told(world, after)
    assert_history(world, after)


def _holds_surplus(world: InMemoryWorld) -> bool:
    return any(name.startswith(("demo-old", "demo-worker-7")) or name[12:].isdigit() for _, name in world.objects)


@MANY
@given(
    edit=edits,
    spoils=spoilings(*POD_FATES, *TAMPERINGS, most=3),
    foreign=st.lists(
        st.tuples(
            st.sampled_from(["Service", "ConfigMap", "Pod"]), st.integers(0, 20), st.sampled_from(["", FOREIGN_UID])
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_what_the_cluster_does_not_control_is_never_touched(edit, spoils, foreign):
    """Objects of other owners with our names stay byte for byte, and NameTaken reports each kind."""
    before, after = edit
    world = spoiled(before, [one for one in spoils if one.what != "drop our labels"])
    wanted = from_nothing(after)
    taken = {}
    for kind, pick, owner in foreign:
        # A suspended cluster declares no pods, but must not delete those of others with its names.
        tasks = [naming.pod_name("demo", task.job.name, task.index) for task in after.tasks()]
        names = (tasks if kind == "Pod" else sorted(wanted.names(kind))) or ["demo-unrelated-0"]
        name = names[pick % len(names)]
        world.objects.pop((kind, name), None)
        taken[kind, name] = world.create(kind, make_child(kind, name, owner=owner))

    for _ in range(6):
        planned = world.plan(after)
        world.now += planned.wake_after or 0.0
        world.apply_all(planned.actions, after)
        world.end_graceful_deletions()

    planned = world.plan(after)
    assert planned.actions == ()
    assert taken == {key: world.objects[key] for key in taken}
    told = {finding.message.split()[1] for finding in planned.findings if finding.reason == reasons.NAME_TAKEN}
    foundations = {name for kind, name in taken if kind != "Pod" and name != "demo-unrelated-0"}
    pods = {name for kind, name in taken if kind == "Pod" and name in wanted.names("Pod")}
    assert foundations <= told
    assert foundations or pods == told


@MANY
@given(edit=edits, spoils=spoilings("runs", "give a cluster IP", "delete", "loses a GPU", most=3))
def test_remaining_pods_are_notified_before_a_surplus_pod_is_deleted(edit, spoils):
    """Each was notified of its view; if a view cannot be published, the deletion does not wait for it."""
    before, after = edit
    assume(not after.suspend)
    world = spoiled(before, spoils)
    surplus = world.names("Pod") - from_nothing(after).names("Pod")
    for _ in range(6):
        actions = world.plan(after).actions
        # Pods that the same reconcile replaces are not notified.
        going = {one.name for one in actions if isinstance(one, Delete) or getattr(one, "replaces", "")}
        for action in actions:
            if isinstance(action, Delete) and action.name in surplus:
                _assert_survivors_know(world, after, going)
            world.apply(action, after)
        world.end_graceful_deletions()


def _assert_survivors_know(world: InMemoryWorld, cluster: TFCluster, going: set[str]) -> None:
    for job_views in views_for(cluster, world.observe(cluster)):
        for index in range(job_views.job.replicas):
            name = world.by_task().get(naming.pod_name(cluster.name, job_views.job.name, index), "")
            if name in going or not name:
                continue
            if (pod := world.read("Pod", name)).listening:
                assert job_views.told_for(index) == pod.told, f"{name} was not told"


@SOME
@given(edit=edits)
def test_edit_that_keeps_a_view_does_not_write_it(edit):
    """A view's text changes exactly when its membership, filters or accelerators do, and only then its epoch."""
    before, after = edit
    world = settled(before)
    was = {name: dict(world.objects["ConfigMap", name]["data"]) for name in world.names("ConfigMap")}

    world.settle(after)

    for name in world.names("ConfigMap"):
        for file, text in world.objects["ConfigMap", name]["data"].items():
            old = was.get(name, {}).get(file)
            view = contract.load(text)
            same = old is not None and (membership_digest(contract.load(old)) == membership_digest(view))
            assert (1 if same else 2) == view.epoch


def test_planning_leaves_no_cycle_behind() -> None:
    """A cycle through an action keeps the whole plan in memory until a full garbage collection."""
    world, cluster = InMemoryWorld(), make_cluster({"chief": {}, "worker": {"replicas": 3}})
    gc.collect()
    gc.disable()
    try:
        world.settle(cluster)
        world.pod_ends(naming.pod_name(cluster.name, "worker", 1), "Failed")
        world.settle(cluster)
        assert gc.collect() == 0
    finally:
        gc.enable()
