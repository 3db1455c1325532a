"""One ConfigMap delivers the resolver to all clusters of a namespace, on a real API server."""

import pytest
from support.lives import await_another_pass
from support.objects import PODS
from support.rbac import OPERATOR_USER

pytestmark = pytest.mark.usefixtures("operator")


def mounted(world, pod):
    volumes = {volume["name"]: volume for volume in world.demand(PODS, pod)["spec"]["volumes"]}
    return volumes["tfcluster-resolver"]["configMap"]["name"]


@pytest.mark.usefixtures("garbage_collector")
def test_one_copy_serves_all_clusters(world, audit):
    names = [f"c{number}" for number in range(10)]
    position = audit.position()
    for name in names:
        world.launch(name, {"worker": {}})
    for name in names:
        world.await_settled(name)
    (copy,) = world.resolver_copies()

    assert {mounted(world, f"{name}-worker-0") for name in names} == {copy}
    made = [w for w in audit.writes(position, user=OPERATOR_USER, namespace=world.namespace) if w.name == copy]
    assert [(w.verb, w.code) for w in made] == [("create", 201)]

    for name in names[1:]:
        world.remove(name)
    world.await_pods(["c0-worker-0"])
    await_another_pass(world, "c0")
    assert [*world.resolver_copies()] == [copy]
