"""Access to a task's port in each mode of isolation, on a network that enforces NetworkPolicies."""

from collections.abc import Callable, Iterator

import pytest
from live_world import LiveWorld, who_reaches
from support.objects import NAMESPACES, Object, Objects
from support.waiting import eventually
from support.world import task_names
from task_programs import LISTEN_ON, PORT, listener, pod_template

# The former starts the enforcement before the pods of a module; the latter skips a test without it.
pytestmark = [pytest.mark.usefixtures("network_policies", "enforced_policies"), pytest.mark.alone]

OTHER_PORT = 8080
PORTS = (PORT, OTHER_PORT)
STRANGER, NOTEBOOK, OUTSIDER, INVITED = "stranger", "notebook", "outsider", "invited"
CLOSED, FILTERED, SEALED, OPEN = "closed", "filtered", "sealed", "open"
TASKS = {
    *task_names(CLOSED, worker=2),
    *task_names(FILTERED, ps=1, worker=2),
    *task_names(SEALED, worker=1),
    *task_names(OPEN, worker=1),
}
EVERYBODY = {*TASKS, STRANGER, NOTEBOOK, OUTSIDER, INVITED}


@pytest.fixture(scope="module")
def outside(
    live_world: Callable[[str], LiveWorld], new_namespace: Callable[[], str], objects: Objects
) -> Iterator[LiveWorld]:
    """Another namespace with two pods: one of them is permitted."""
    world = live_world(new_namespace())
    world.start(*(listener(world.image, name, PORTS, role=name) for name in (OUTSIDER, INVITED)))
    yield world
    objects.delete(NAMESPACES, "", world.namespace)


@pytest.fixture(scope="module")
def neighbours(shared_world: LiveWorld, outside: LiveWorld) -> dict[str, LiveWorld]:
    """Clusters of four kinds in one namespace, with two pods outside of clusters: all pods, with their addresses."""
    world = shared_world
    template = pod_template(world.image, command=["python3", "-c", LISTEN_ON, *map(str, PORTS)])

    def job(replicas: int, **fields: object) -> Object:
        return {"replicas": replicas, "template": template, **fields}

    notebook = {"podSelector": {"matchLabels": {"role": NOTEBOOK}}}
    invited = {
        "podSelector": {"matchLabels": {"role": INVITED}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": outside.namespace}},
    }
    world.launch(OPEN, {"worker": job(1)}, isolation={"mode": "None"})
    world.launch(CLOSED, {"worker": job(2)}, isolation={"mode": "Cluster"})
    world.launch(
        FILTERED,
        {"ps": job(1, filters=["/job:worker/task:0"]), "worker": job(2, filters=["/job:ps"])},
        isolation={"mode": "DeviceFilters", "allowFrom": [notebook, invited]},
    )
    world.launch(SEALED, {"worker": job(1)}, isolation={"mode": "Cluster", "portScope": "All", "allowFrom": [notebook]})
    world.start(*(listener(world.image, name, PORTS, role=name) for name in (STRANGER, NOTEBOOK)))
    for name in (OPEN, CLOSED, FILTERED, SEALED):
        world.await_ready(name)
    return {name: outside if name in {OUTSIDER, INVITED} else world for name in EVERYBODY}


def reached(neighbours: dict[str, LiveWorld], targets: tuple[str, ...], port: int) -> dict[str, set[str]]:
    """The pods that reach a port of tasks, without the task itself."""
    addresses = {f"{neighbours[name].ip(name)}:{port}": name for name in targets}
    found = who_reaches(addresses, neighbours)
    return {name: found[address] - {name} for address, name in addresses.items()}


def test_task_is_reached_by_those_that_its_isolation_names(neighbours):
    """A filter in one direction is enough: a task connects back to its callers. The workers do not see each other."""
    workers = task_names(FILTERED, worker=2)
    guests = {NOTEBOOK, INVITED}
    expected = {
        f"{OPEN}-worker-0": EVERYBODY,
        f"{CLOSED}-worker-0": {*task_names(CLOSED, worker=2)},
        f"{SEALED}-worker-0": {NOTEBOOK},
        f"{FILTERED}-ps-0": {*workers, *guests},
        **{worker: {f"{FILTERED}-ps-0", *guests} for worker in workers},
    }
    expected = {name: callers - {name} for name, callers in expected.items()}

    # Ready means that the policies exist; their enforcement follows.
    eventually(
        lambda: reached(neighbours, tuple(expected), PORT),
        lambda found: found == expected,
        what=f"the callers are {expected}",
    )


def test_other_ports_stay_open_unless_all_are_closed(neighbours):
    """Another port of a task is open in every mode, except with the ports All, which admit only guests."""
    targets = (f"{CLOSED}-worker-0", f"{FILTERED}-ps-0", f"{FILTERED}-worker-0")

    found = reached(neighbours, (*targets, f"{SEALED}-worker-0"), OTHER_PORT)

    assert found == {f"{SEALED}-worker-0": {NOTEBOOK}, **{name: EVERYBODY - {name} for name in targets}}


def test_edited_filters_reach_the_network(neighbours, shared_world):
    first, second = task_names(FILTERED, worker=2)
    uids = shared_world.uids()
    address = f"{shared_world.ip(second)}:{PORT}"
    for filters, callers in ((["/job:ps", "/job:worker"], {first}), (["/job:ps"], set())):
        shared_world.edit(FILTERED, {"jobs": {"worker": {"deviceFilters": filters}}})

        eventually(
            lambda: who_reaches([address], {first: neighbours[first]})[address],
            lambda found, callers=callers: found == callers,
            what=f"{second} is reached by {callers} with the filters {filters}",
        )

    assert shared_world.uids() == uids
