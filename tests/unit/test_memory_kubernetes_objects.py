"""The API server in memory: what is written, what is refused, and what a deletion does."""

from __future__ import annotations

import pytest
from support.memory_kubernetes import (
    DEFAULT_RESOURCES,
    TFCLUSTERS,
    Change,
    MemoryKubernetes,
    Refusal,
    resource_of_definition,
)
from unit.memory_world import EPOCH, make_kube, named, pod, refusal_of


@pytest.fixture
def kube() -> MemoryKubernetes:
    return make_kube()


def cluster(name: str = "c", **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": {"jobs": {"worker": {"replicas": 2}}, **spec}}


def test_memory_kubernetes_counts_revisions_and_uids(kube):
    """The first object (the namespace) is revision 1001; each write counts one more, and UIDs are counted too."""
    made = [kube.create("pods", "default", pod(name)) for name in "ab"]
    assert [one["metadata"]["resourceVersion"] for one in made] == ["1002", "1003"]
    assert made[1]["metadata"]["uid"] == "00000000-0000-4000-8000-000000000003"
    assert kube.revision == 1003


def test_memory_kubernetes_history_tells_every_write(kube):
    told = []
    kube.subscribers.append(told.append)
    kube.create("configmaps", "default", {**named("m"), "data": {"a": "1"}})
    kube.patch("configmaps", "default", "m", {"data": {"a": "2"}})
    kube.delete("configmaps", "default", "m")
    assert kube.history[1:] == told
    assert [(one.revision, one.type, one.resource, one.object["data"]) for one in told] == [
        (1002, "ADDED", "configmaps", {"a": "1"}),
        (1003, "MODIFIED", "configmaps", {"a": "2"}),
        (1004, "DELETED", "configmaps", {"a": "2"}),
    ]
    assert isinstance(told[0], Change)


def test_memory_kubernetes_gives_private_copies(kube):
    """Neither what was handed in nor what was given out reaches the stored object."""
    handed_in = pod()
    kube.create("pods", "default", handed_in)["spec"]["containers"].clear()
    handed_in["spec"]["containers"].clear()
    kube.get("pods", "default", "p")["spec"].clear()
    kube.list("pods")[0]["spec"].clear()
    assert [one["name"] for one in kube.get("pods", "default", "p")["spec"]["containers"]] == ["main"]


def test_memory_kubernetes_takes_null_as_absent_in_a_pod(kube):
    containers = [{"name": "main", "image": "image:1", "env": None, "resources": None}]
    made = kube.create("pods", "default", pod(initContainers=None, volumes=None, containers=containers))
    assert not {"initContainers", "volumes"} & made["spec"].keys()
    assert made["spec"]["containers"][0]["resources"] == {}
    assert "env" not in made["spec"]["containers"][0]


def test_memory_kubernetes_generates_names(kube):
    names = {
        kube.create("configmaps", "default", {"metadata": {"generateName": "m-"}})["metadata"]["name"] for _ in "ab"
    }
    assert len(names) == 2
    assert all(name.startswith("m-") and len(name) == 7 for name in names)


@pytest.mark.parametrize(
    ("plural", "namespace", "body", "refused"),
    [
        ("pods", "default", pod("A"), (422, 'Pod "A" is invalid: metadata.name: Invalid value: "A": a lowercase RFC')),
        ("pods", "default", pod(""), (422, "name or generateName is required")),
        ("pods", "default", {**named("q"), "spec": {}}, (422, "spec.containers: Required value")),
        ("pods", "nowhere", pod(), (404, 'namespaces "nowhere" not found')),
        ("services", "default", named("s" * 64), (422, "must be no more than 63 characters")),
        ("tfclusters", "default", cluster("A"), (422, 'TFCluster.tfcluster.dev "A" is invalid')),
        ("pods", "default", pod(labels={"a": "b" * 64}), (422, "must be no more than 63 characters")),
    ],
)
def test_memory_kubernetes_refuses_to_create(kube, plural, namespace, body, refused):
    refusal = refusal_of(kube.create, plural, namespace, body)
    assert refusal.status == refused[0]
    assert refused[1] in refusal.message
    assert kube.revision == 1001


def test_memory_kubernetes_a_dry_run_checks_and_writes_nothing(kube):
    """A trial is refused as the write would be, and leaves nothing."""
    assert kube.create("pods", "default", pod(), dry_run=True)["status"]["phase"] == "Pending"
    assert kube.get("pods", "default", "p") is None
    assert refusal_of(kube.create, "pods", "default", pod("A"), dry_run=True).status == 422


def test_memory_kubernetes_a_patch_merges_and_null_removes(kube):
    """RFC 7386: objects merge, null removes, lists are replaced; one that changes nothing leaves the version."""
    made = kube.create("pods", "default", pod(labels={"a": "b"}))
    assert kube.patch("pods", "default", "p", {"metadata": {"labels": {"a": "b"}}}) == made
    assert kube.patch("pods", "default", "p", {"spec": {"containers": pod()["spec"]["containers"]}}) == made
    kube.create("configmaps", "default", {**named("m", finalizers=["a/b", "c/d"]), "data": {"a": "1", "b": "2"}})
    change = {"metadata": {"finalizers": ["e/f"]}, "data": {"a": None, "c": "3"}}
    patched = kube.patch("configmaps", "default", "m", change)
    assert patched["data"] == {"b": "2", "c": "3"}
    assert patched["metadata"]["finalizers"] == ["e/f"]


def test_memory_kubernetes_a_schema_shapes_custom_objects():
    """Defaults of the CRD come in, also after a patch took them out, and unknown fields fall out."""
    fields = {
        "port": {"type": "integer", "default": 2222},
        "jobs": {"additionalProperties": {"properties": {"n": {"default": 1}}}},
        "free": {"x-kubernetes-preserve-unknown-fields": True},
    }
    schema = {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}
    version = {"name": "v1", "storage": True, "subresources": {"status": {}}, "schema": schema}
    names = {"kind": "Thing", "plural": "things"}
    definition = {"spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}}
    kube = make_kube(resources=[*DEFAULT_RESOURCES, resource_of_definition(definition)])
    spec = {"jobs": {"a": {"odd": 1}}, "odd": 1, "free": {"odd": 1}, "port": None}
    made = kube.create("things", "default", {**named("t"), "spec": spec})
    assert made["spec"] == {"jobs": {"a": {"n": 1}}, "free": {"odd": 1}, "port": 2222}
    assert kube.patch("things", "default", "t", {"spec": {"port": None, "odd": 2}}) == made


def test_memory_kubernetes_versions_are_preconditions(kube):
    """An old resourceVersion in a patch or a put is a conflict; another UID is one in a put and a deletion."""
    made = kube.create("pods", "default", pod())
    kube.patch("pods", "default", "p", {"metadata": {"labels": {"a": "b"}}})
    stranger = {**made, "metadata": {**made["metadata"], "uid": "other", "resourceVersion": None}}
    assert refusal_of(kube.update, "pods", "default", made).reason == "Conflict"
    assert refusal_of(kube.update, "pods", "default", stranger).reason == "Conflict"
    assert refusal_of(kube.patch, "pods", "default", "p", {"metadata": {"resourceVersion": "1"}}).reason == "Conflict"
    assert refusal_of(kube.delete, "pods", "default", "p", uid="other").reason == "Conflict"


def test_memory_kubernetes_another_uid_in_a_patch_is_invalid(kube):
    """The real server takes it for a change of an immutable field: 422, and only the status of a CR ignores it."""
    kube.create("pods", "default", pod())
    kube.create("tfclusters", "default", cluster())
    change = {"metadata": {"uid": "other"}, "status": {"phase": "x"}}
    assert refusal_of(kube.patch, "pods", "default", "p", change).status == 422
    assert refusal_of(kube.patch, "pods", "default", "p", change, "status").status == 422
    assert refusal_of(kube.patch, "tfclusters", "default", "c", change).status == 422
    assert kube.patch("tfclusters", "default", "c", change, "status")["status"] == {"phase": "x"}


def test_memory_kubernetes_a_put_replaces_the_whole(kube):
    """What a put leaves out is gone; a lease needs its version, and a put makes one that is not there."""
    made = kube.create("configmaps", "default", {**named("m", labels={"a": "b"}), "data": {"a": "1"}})
    lease = kube.update("leases", "default", {**named("l"), "spec": {"holderIdentity": "one"}})
    assert "data" not in kube.update("configmaps", "default", {key: made[key] for key in ("metadata", "kind")})
    assert refusal_of(kube.update, "leases", "default", {**named("l"), "spec": {}}).status == 422
    taken = kube.update("leases", "default", {**lease, "spec": {"holderIdentity": "two"}})
    assert taken["spec"] == {"holderIdentity": "two"}
    assert refusal_of(kube.update, "leases", "default", {**lease, "spec": {}}).reason == "Conflict"


def test_memory_kubernetes_status_and_spec_are_written_apart(kube):
    """Through /status only the status changes, through the object everything but it."""
    kube.create("tfclusters", "default", {**cluster(), "status": {"readyTasks": 9}})
    both = {"spec": {"suspend": True}, "status": {"readyTasks": 1}}
    assert "status" not in kube.get("tfclusters", "default", "c")
    through_status = kube.patch("tfclusters", "default", "c", both, "status")
    assert (through_status["status"], "suspend" in through_status["spec"]) == ({"readyTasks": 1}, False)
    through_object = kube.patch("tfclusters", "default", "c", {"spec": {"suspend": True}, "status": {"readyTasks": 2}})
    assert (through_object["status"], through_object["spec"]["suspend"]) == ({"readyTasks": 1}, True)


def test_memory_kubernetes_generation_counts_what_is_wanted(kube):
    """A spec counts, a status and a label do not; a pod's graceful deletion counts too."""
    kube.create("tfclusters", "default", cluster())
    kube.patch("tfclusters", "default", "c", {"status": {"a": 1}}, "status")
    kube.patch("tfclusters", "default", "c", {"metadata": {"labels": {"a": "b"}}})
    kube.create("pods", "default", pod())
    assert kube.get("tfclusters", "default", "c")["metadata"]["generation"] == 1
    assert kube.patch("tfclusters", "default", "c", {"spec": {"port": 1}})["metadata"]["generation"] == 2
    # The scale is a view of the workers.
    kube.patch("tfclusters", "default", "c", {"spec": {"replicas": 5}}, "scale")
    scaled = kube.get("tfclusters", "default", "c")
    assert (scaled["spec"]["jobs"]["worker"]["replicas"], scaled["metadata"]["generation"]) == (5, 3)
    assert refusal_of(kube.patch, "configmaps", "default", "x", {}, "scale").status == 404
    assert kube.bind("default", "p", "node")["metadata"]["generation"] == 1
    assert kube.delete("pods", "default", "p")["metadata"]["generation"] == 2


def test_memory_kubernetes_immutable_fields_stay(kube):
    """A pod's spec but for images, an immutable ConfigMap's data and a Service's address cannot change."""
    kube.create("pods", "default", pod())
    kube.create("configmaps", "default", {**named("m"), "data": {}, "immutable": True})
    kube.create("services", "default", {**named("s"), "spec": {"clusterIP": "None"}})
    for plural, name, change, words in (
        ("pods", "p", {"spec": {"nodeName": "n"}}, "pod updates may not change fields"),
        ("configmaps", "m", {"data": {"a": "1"}}, "immutable"),
        ("services", "s", {"spec": {"clusterIP": "10.0.0.1"}}, "may not change once set"),
    ):
        assert words in refusal_of(kube.patch, plural, "default", name, change).message
    changed = kube.patch("pods", "default", "p", {"spec": {"activeDeadlineSeconds": 5}})
    assert changed["spec"]["activeDeadlineSeconds"] == 5


def test_memory_kubernetes_a_running_pod_gets_grace_once(kube):
    """A pod on a node is marked; a second deletion may only shorten; grace 0 removes it."""
    kube.create("pods", "default", pod(terminationGracePeriodSeconds=60))
    kube.bind("default", "p", "node")

    def grace(**arguments):
        left = kube.delete("pods", "default", "p", **arguments)
        return left and left["metadata"]["deletionGracePeriodSeconds"]

    assert [grace(), grace(), grace(grace=90)] == [60, 60, 60]
    assert [grace(grace=7), grace(grace=8), grace(grace=0)] == [7, 7, None]
    assert kube.get("pods", "default", "p") is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", None])
def test_memory_kubernetes_an_ended_or_unscheduled_pod_goes_at_once(kube, phase):
    """Nobody has to stop it; its watchers see it marked and then gone."""
    kube.create("pods", "default", pod())
    if phase:
        kube.bind("default", "p", "node")
        kube.patch("pods", "default", "p", {"status": {"phase": phase}}, "status")
    assert kube.delete("pods", "default", "p") is None
    assert [one.type for one in kube.history[-2:]] == ["MODIFIED", "DELETED"]


def test_memory_kubernetes_finalizers_hold_an_object(kube):
    """It is marked, gets no new finalizer, counts a generation once, and goes with the last finalizer."""
    kube.create("tfclusters", "default", {**cluster(), "metadata": {"name": "c", "finalizers": ["a/b"]}})
    marked = kube.delete("tfclusters", "default", "c")
    assert (marked["metadata"]["generation"], marked["metadata"]["deletionGracePeriodSeconds"]) == (2, 0)
    assert kube.delete("tfclusters", "default", "c") == marked
    more = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    assert "no new finalizers" in refusal_of(kube.patch, "tfclusters", "default", "c", more).message
    assert "deleted: tfclusters" in refusal_of(kube.create, "tfclusters", "default", cluster()).message
    kube.patch("tfclusters", "default", "c", {"metadata": {"finalizers": None}})
    assert kube.get("tfclusters", "default", "c") is None


def test_memory_kubernetes_an_evicted_pod_says_so(kube):
    kube.create("pods", "default", pod())
    kube.bind("default", "p", "node")
    kube.evict("default", "p")
    left = kube.get("pods", "default", "p")
    assert [one["type"] for one in left["status"]["conditions"]] == ["PodScheduled", "DisruptionTarget"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30


def test_memory_kubernetes_a_namespace_goes_with_its_last_object(kube):
    """Until then nothing can be created in it; afterwards it does not exist."""
    kube.create("namespaces", "", named("n"))
    kube.create("configmaps", "n", named("m"))
    kube.create("pods", "n", pod())
    kube.bind("n", "p", "node")
    kube.delete_namespace("n")
    assert kube.get("configmaps", "n", "m") is None
    assert kube.get("namespaces", "", "n")["status"] == {"phase": "Terminating"}
    refusal = refusal_of(kube.create, "pods", "n", pod("q"))
    assert refusal.message == (
        'pods "q" is forbidden: unable to create new content in namespace n because it is being terminated'
    )
    assert kube.patch("pods", "n", "p", {"status": {"phase": "Running"}}, "status")["status"]["phase"] == "Running"
    kube.delete("pods", "n", "p", grace=0)
    assert kube.get("namespaces", "", "n") is None


def test_memory_kubernetes_quota_counts_what_is_alive(kube):
    """A pod that ended frees its place, one that terminates does not; the words are the real server's."""
    kube.quota["default"] = {"pods": 2, "count/tfclusters.tfcluster.dev": 1}
    for name in "ab":
        kube.create("pods", "default", pod(name))
        kube.bind("default", name, "node")
    kube.create("tfclusters", "default", cluster())
    kube.delete("pods", "default", "a")
    assert refusal_of(kube.create, "pods", "default", pod("c")).message == (
        'pods "c" is forbidden: exceeded quota: quota, requested: pods=1, used: pods=2, limited: pods=2'
    )
    assert refusal_of(kube.create, "tfclusters", "default", cluster("d")).status == 403
    kube.patch("pods", "default", "b", {"status": {"phase": "Failed"}}, "status")
    kube.create("pods", "default", pod("c"))


def test_memory_kubernetes_hooks_see_change_and_refuse(kube):
    """A hook sees who does what, may change a copy of the object, and may refuse; reads do not reach it."""
    seen = []

    def hook(admission):
        seen.append((admission.verb, admission.resource, admission.subresource, admission.user, admission.old is None))
        if admission.verb == "create" and admission.resource == "pods":
            admission.object["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})
        if admission.verb == "delete":
            raise Refusal(500, "InternalError", 'failed calling webhook "x"')

    kube.admission.append(hook)
    made = kube.create("pods", "default", pod(), user="one")
    kube.patch("pods", "default", "p", {"status": {"phase": "Running"}}, "status", user="two")
    kube.get("pods", "default", "p")
    assert [one["name"] for one in made["spec"]["containers"]] == ["proxy", "main"]
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert refusal_of(kube.delete, "pods", "default", "p", user="three").status == 500
    assert seen == [
        ("create", "pods", "", "one", True),
        ("update", "pods", "status", "two", False),
        ("delete", "pods", "", "three", False),
    ]


def test_memory_kubernetes_a_hook_may_undo_a_change_and_one_that_refuses_leaves_no_trace(kube):
    """What it changed before it refused is not in the stored object, nor in the history."""
    made = kube.create("configmaps", "default", {**named("m"), "data": {"a": "1"}})
    kube.admission.append(lambda admission: admission.object["data"].update(a="1"))
    assert kube.patch("configmaps", "default", "m", {"data": {"a": "2"}}) == made

    def hook(admission):
        admission.object["data"]["a"] = "2"
        raise Refusal(403, "Forbidden", "no")

    kube.admission.append(hook)
    assert refusal_of(kube.patch, "configmaps", "default", "m", {"metadata": {"labels": {"a": "b"}}}).status == 403
    assert kube.get("configmaps", "default", "m") == made
    assert kube.history[-1].object["data"] == {"a": "1"}


def test_memory_kubernetes_a_kind_comes_and_goes(kube):
    """An uninstalled kind takes its objects with it and is not served; installed again it is empty."""
    kube.create("tfclusters", "default", cluster())
    kube.uninstall("tfclusters")
    assert (kube.history[-1].type, kube.history[-1].resource) == ("DELETED", "tfclusters")
    assert refusal_of(kube.list, "tfclusters").status == 404
    kube.install(TFCLUSTERS)
    assert kube.list("tfclusters") == []


def test_memory_kubernetes_deletes_collections(kube):
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        kube.create("configmaps", "default", named(name, labels=labels))
    assert kube.delete_collection("configmaps", "default", "x") == 2
    assert [one["metadata"]["name"] for one in kube.list("configmaps")] == ["c"]


def test_memory_kubernetes_tells_the_time_of_the_given_clock():
    now = [EPOCH]
    kube = MemoryKubernetes(lambda: now[0], DEFAULT_RESOURCES)
    kube.create("pods", "default", pod("a"))
    now[0] -= 3600
    later = kube.create("pods", "default", pod("b"))
    kube.bind("default", "b", "node")
    assert kube.get("pods", "default", "a")["metadata"]["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert later["metadata"]["creationTimestamp"] == "2027-01-15T07:00:00Z"
    assert kube.delete("pods", "default", "b", grace=90)["metadata"]["deletionTimestamp"] == "2027-01-15T07:01:30Z"
