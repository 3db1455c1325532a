"""Placement of tasks relative to each other: the pods' rules, the cost of an edit, and rejections."""

import copy
from typing import Any

import pytest
from in_memory import InMemoryWorld, make_body, make_cluster

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import Task, TFCluster
from tfcluster_operator.life.queueing import asks_of
from tfcluster_operator.objects.pod_manifest import build as build_pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NEAR = {"colocate": {"topologyKey": ZONE}}
APART = {"spread": [{"jobs": ["ps"], "topologyKey": HOST}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
CONTAINERS = [{"name": "tensorflow", "image": "image:1"}]


def declared(scheduling: object = None, *, uid: str = "", **templates: dict[str, Any]) -> TFCluster:
    jobs = {
        name: {"replicas": 2, "template": {"spec": {"containers": CONTAINERS, **templates.get(name, {})}}}
        for name in ("ps", "worker")
    }
    body = make_body(jobs, **({"scheduling": scheduling} if scheduling else {}))
    if uid:
        body["metadata"]["uid"] = uid
    return parse(body)


def pod_of(cluster: TFCluster, job: str = "worker") -> dict[str, Any]:
    found = cluster.job(job)
    assert found is not None
    return build_pod(cluster, Task(found, 0), view_digest="", attempt=0)


def label_of(cluster: TFCluster, job: str = "worker") -> str | None:
    found: str | None = pod_of(cluster, job)["metadata"]["labels"].get(naming.LABEL_COLOCATED)
    return found


def hashes(cluster: TFCluster) -> dict[str, str]:
    return {job.name: job.template_hash for job in cluster.jobs}


ANYWAY = {"whenUnsatisfiable": "ScheduleAnyway"}


def near(**fields: Any) -> dict[str, Any]:
    return {"colocate": {"topologyKey": ZONE, **fields}}


def spread(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"spread": [{"topologyKey": HOST, **rule} for rule in rules]}


def test_colocated_pods_want_to_be_where_the_others_are():
    """Each pod has the label that its own rule selects, so that the first one can choose a domain."""
    pod, label = pod_of(declared(NEAR)), label_of(declared(NEAR))
    rule = {"labelSelector": {"matchLabels": {naming.LABEL_COLOCATED: label}}, "topologyKey": ZONE}
    assert label
    assert pod["spec"]["affinity"] == {"podAffinity": {REQUIRED: [rule]}}
    assert label_of(declared(NEAR), "ps") == label
    weighed = pod_of(declared(near(**ANYWAY)))["spec"]["affinity"]["podAffinity"]
    assert (weighed.keys(), [one["weight"] for one in weighed[PREFERRED]]) == ({PREFERRED}, [100])


def test_only_named_jobs_are_colocated():
    cluster = declared(near(jobs=["worker"]))
    assert pod_of(cluster, "ps") == pod_of(declared(), "ps")
    assert label_of(cluster)


def test_clusters_of_one_name_do_not_follow_each_other():
    assert label_of(declared(NEAR, uid="a")) != label_of(declared(NEAR, uid="b"))


def test_a_job_is_spread_for_itself():
    """Tainted nodes are not domains: otherwise they would count as empty ones."""
    selected = {"matchLabels": {naming.LABEL_CLUSTER: "demo", naming.LABEL_JOB: "ps"}}
    rule = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selected}
    found = pod_of(declared(APART), "ps")["spec"]["topologySpreadConstraints"]
    assert found == [{**rule, "nodeTaintsPolicy": "Honor"}]
    assert pod_of(declared(APART)) == pod_of(declared())


def test_rules_of_the_template_stay():
    """Ours follow them, in the pod and not in the template."""
    anti = {REQUIRED: [{"topologyKey": HOST, "labelSelector": {}}]}
    preferred = [{"weight": 1, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {}}}]
    others = {"nodeAffinity": {REQUIRED: {}}, "podAntiAffinity": anti}
    own = {**others, "podAffinity": {PREFERRED: preferred}}
    constraint = {"topologyKey": ZONE, "maxSkew": 2, **ANYWAY}
    scheduling, before = {**NEAR, **spread(ANYWAY)}, copy.deepcopy(own)
    spec = pod_of(declared(scheduling, worker={"affinity": own, "topologySpreadConstraints": [constraint]}))["spec"]
    rules = spec["affinity"].pop("podAffinity")
    assert spec["affinity"] == others
    assert (rules[PREFERRED], len(rules[REQUIRED])) == (preferred, 1)
    assert (spec["topologySpreadConstraints"][0], len(spec["topologySpreadConstraints"])) == (constraint, 2)
    assert own == before
    weighed = pod_of(declared(near(**ANYWAY), ps={"affinity": own}), "ps")["spec"]["affinity"]["podAffinity"][PREFERRED]
    assert (weighed[:1], [rule["weight"] for rule in weighed]) == (preferred, [1, 100])


@pytest.mark.parametrize(
    ("scheduling", "replaced"),
    [({"gang": {}}, set()), (NEAR, {"ps", "worker"}), (near(jobs=["worker"]), {"worker"}), (APART, {"ps"})],
)
def test_an_edit_replaces_the_pods_that_it_is_about(scheduling, replaced):
    was, now = hashes(declared()), hashes(declared(scheduling))
    assert {name for name in was if was[name] != now[name]} == replaced


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NEAR, near(jobs=["ps", "worker"], whenUnsatisfiable="DoNotSchedule")),
        (APART, {"spread": [{**APART["spread"][0], "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}),
        (spread({}, {"topologyKey": ZONE}), spread({"topologyKey": ZONE}, {})),
    ],
)
def test_equivalent_rules_do_not_replace_pods(before, after):
    """The API server's defaults, and the order of rules, do not replace pods."""
    assert hashes(declared(before)) == hashes(declared(after))


def test_added_job_does_not_replace_pods_of_others():
    one, both = (declared(near(jobs=jobs)) for jobs in (["worker"], ["ps", "worker"]))
    assert hashes(one)["worker"] == hashes(both)["worker"]
    assert label_of(one) == label_of(both, "ps")


def test_pods_of_an_earlier_edit_draw_no_others():
    """They can be in several domains: with another label the new ones choose their own."""
    labels = {
        label_of(declared(near(topologyKey=key, whenUnsatisfiable=when)))
        for key in (ZONE, HOST)
        for when in ("DoNotSchedule", "ScheduleAnyway")
    }
    assert len(labels) == 4


def test_a_queue_is_not_asked_again():
    plain, placed = (declared(scheduling).jobs[0] for scheduling in (None, {**NEAR, **APART}))
    assert asks_of(plain) == asks_of(placed)


def test_a_stripped_label_is_put_back():
    """Without it, replacements would not be placed near the task."""
    world = InMemoryWorld()
    cluster = declared(NEAR)
    world.settle(cluster)
    world.edit("Pod", "demo-ps-0", {"metadata": {"labels": {naming.LABEL_COLOCATED: None}}})
    world.settle(cluster)
    assert world.objects["Pod", "demo-ps-0"]["metadata"]["labels"][naming.LABEL_COLOCATED] == label_of(cluster)


def test_pods_of_an_older_edit_keep_their_label():
    """Those that OnDelete keeps must not match the rule of the current edit."""
    world = InMemoryWorld()
    world.settle(make_cluster({"worker": 2}, updateStrategy={"type": "OnDelete"}))
    world.settle(make_cluster({"worker": 2}, updateStrategy={"type": "OnDelete"}, scheduling=NEAR, generation=2))
    assert naming.LABEL_COLOCATED not in world.objects["Pod", "demo-worker-0"]["metadata"]["labels"]


@pytest.mark.parametrize(
    ("scheduling", "words"),
    [
        ({"colocate": {}}, "spec.scheduling.colocate"),
        (spread({"maxSkew": 0}), "spec.scheduling.spread[0].maxSkew: "),
        ({"spread": {}}, "spec.scheduling.spread: "),
    ],
)
def test_invalid_scheduling_is_reported(scheduling, words):
    with pytest.raises(InvalidSpecError) as refused:
        declared(scheduling)
    assert words in str(refused.value)
