"""A life without faults causes the same writes and the same status on the in-memory API server and on a real one."""

from __future__ import annotations

from collections import Counter

import pytest
from simulation import snapshot
from simulation.plans import Plan, stable
from simulation.real_world import RealWorld
from simulation.running import run
from simulation.workloads import WORKLOADS
from support.rbac import OPERATOR_USER

#: The number of these writes depends on timing; their final content is compared.
_TIMED = frozenset({"events", "tfclusters/status", "leases"})


@pytest.mark.usefixtures("operator", "garbage_collector")
@pytest.mark.parametrize(
    "workload", ["create", "scale", "filters", "recreate", "exit code", "job scope", "success", "suspend", "again"]
)
def test_a_real_api_server_sees_the_same_writes(workload, objects, namespace, kubelet, audit):
    simulated = run(Plan(workload))
    assert simulated.error == ""
    world, begin = RealWorld(objects, namespace, kubelet), audit.position()
    world.walk(WORKLOADS[workload])
    requests = audit.writes(begin, user=OPERATOR_USER, namespace=namespace)
    real = Counter(
        f"{one.verb} {one.target}/{stable(one.resource, one.name)}" for one in requests if one.target not in _TIMED
    )
    wanted = Counter(f"{one.verb} {one.resource}/{one.name}" for one in simulated.writes if one.resource not in _TIMED)
    assert wanted == real
    assert _status(simulated.steps[WORKLOADS[workload].steps[-1].name]) == _status(snapshot.snapshot(world.kube))


def _status(told):
    return told.get("tfclusters/c", {}).get("status")
