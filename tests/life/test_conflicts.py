"""Objects of other owners with the operator's names: reported, left alone, without effect on other objects."""

import pytest
from support.manifests import pod_template
from support.objects import CONFIG_MAPS, PODS, SERVICES, Kind, Object
from support.rbac import OPERATOR_USER
from support.world import task_names

pytestmark = pytest.mark.usefixtures("operator")

OURS_BY_LABEL = {"tfcluster.dev/cluster": "c", "app.kubernetes.io/managed-by": "tfcluster-operator"}


def foreign(kind: Kind, name: str, labels: dict[str, str]) -> Object:
    bodies: dict[str, Object] = {
        "services": {"spec": {"ports": [{"port": 80}], "selector": {"app": "web"}}},
        "configmaps": {"data": {"settings": "mine"}},
        "pods": pod_template(),
    }
    return {"metadata": {"name": name, "labels": labels}, **bodies[kind.plural]}


def essence(found: Object | None) -> Object:
    """Return what an operator could change: everything except the pod status that a scheduler writes."""
    assert found is not None
    metadata = {
        key: value for key, value in found["metadata"].items() if key not in {"resourceVersion", "managedFields"}
    }
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": metadata}


@pytest.mark.parametrize("labels", [{}, OURS_BY_LABEL], ids=["without our labels", "with our labels"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(SERVICES, "c"), (CONFIG_MAPS, "c-worker"), (PODS, "c-worker-1")],
    ids=["a Service", "a ConfigMap", "a pod"],
)
def test_conflict_is_reported_left_alone_and_resolves_by_itself(world, audit, kind, name, labels):
    before = essence(world.objects.create(kind, world.namespace, foreign(kind, name, labels)))
    position = audit.position()
    world.launch("c", {"worker": {"replicas": 3}})

    condition = world.await_condition("c", "NameConflict", status="True", reason="NameTaken")
    assert name in condition["message"]
    assert world.condition("c", "Ready")["status"] == "False"
    assert essence(world.get(kind, name)) == before
    if kind is PODS:
        world.await_pods(task_names("c", worker=3))  # the others exist as well
    world.delete(kind, name)
    world.await_pods(task_names("c", worker=3))
    world.await_condition("c", "NameConflict", status="False", reason="NoConflict")

    written = [
        w
        for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace)
        if (w.resource, w.name) == (kind.plural, name)
    ]
    assert {w.verb for w in written} == {"create"}
    assert [w.code for w in written if w.code != 409] == [201]


@pytest.mark.usefixtures("garbage_collector")
def test_conflict_of_two_clusters_for_one_pod_name(world):
    """Job b_c of cluster a and job c of cluster a-b need the same pod name: the later one waits for the first."""
    world.launch("a", {"b_c": {}})
    world.await_settled("a")
    world.launch("a-b", {"c": {}})
    world.await_condition("a-b", "NameConflict", status="True", reason="NameTaken")
    assert world.pods()["a-b-c-0"]["metadata"]["ownerReferences"][0]["name"] == "a"

    world.remove("a")

    world.await_condition("a-b", "NameConflict", status="False")
    assert world.await_pods(["a-b-c-0"])["a-b-c-0"]["metadata"]["ownerReferences"][0]["name"] == "a-b"


def test_foreign_pod_at_an_undeclared_index_is_not_a_conflict(world):
    pod = foreign(PODS, "c-worker-2", OURS_BY_LABEL)
    before = essence(world.objects.create(PODS, world.namespace, pod))
    world.launch("c", {"worker": {"replicas": 2}})
    world.await_settled("c")

    world.scale("c", replicas=1)
    world.await_settled("c")

    assert world.condition("c", "NameConflict")["status"] == "False"
    assert essence(world.get(PODS, "c-worker-2")) == before
