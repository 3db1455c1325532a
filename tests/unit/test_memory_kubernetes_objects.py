"""The API server in memory: writes, rejections, and deletions."""

from __future__ import annotations

import pytest
from support.memory_kubernetes import (
    DEFAULT_RESOURCES,
    MemoryKubernetes,
    Refusal,
    resource_of_definition,
)
from unit.memory_world import make_kube, named, pod, refusal_of


@pytest.fixture
def kube() -> MemoryKubernetes:
    return make_kube()


def cluster(name: str = "c", **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": {"jobs": {"worker": {"replicas": 2}}, **spec}}


def test_memory_kubernetes_gives_private_copies(kube):
    """Changes to arguments and results do not reach the stored object."""
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


def test_memory_kubernetes_a_schema_shapes_custom_objects():
    """Defaults of the CRD are added, also after a patch removed them, and unknown fields are dropped."""
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


def test_memory_kubernetes_a_put_replaces_the_whole(kube):
    """A put removes missing fields; a lease needs its version, and a put creates a missing one."""
    made = kube.create("configmaps", "default", {**named("m", labels={"a": "b"}), "data": {"a": "1"}})
    lease = kube.update("leases", "default", {**named("l"), "spec": {"holderIdentity": "one"}})
    assert "data" not in kube.update("configmaps", "default", {key: made[key] for key in ("metadata", "kind")})
    assert refusal_of(kube.update, "leases", "default", {**named("l"), "spec": {}}).status == 422
    taken = kube.update("leases", "default", {**lease, "spec": {"holderIdentity": "two"}})
    assert taken["spec"] == {"holderIdentity": "two"}
    assert refusal_of(kube.update, "leases", "default", {**lease, "spec": {}}).reason == "Conflict"


def test_memory_kubernetes_a_namespace_goes_with_its_last_object(kube):
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
    """A pod that ended frees its quota, a terminating one does not; the message is the real server's."""
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


def test_memory_kubernetes_hooks_see_change_and_reject_requests(kube):
    """A hook gets user and verb, can change a copy of the object, and can reject; reads do not reach it."""
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


def test_memory_kubernetes_hooks_can_revert_and_rejected_changes_are_not_stored(kube):
    """Its changes before the rejection are not in the stored object, nor in the history."""
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
