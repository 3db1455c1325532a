"""Passes that come again at once though there is nothing that they can do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.virtual_time import run_in_virtual_time
from unit.http_world import HttpWorld, Request
from unit.in_memory import make_cluster, settled
from unit.test_execute import Operator, declared, ready

from tfcluster_operator.model import actions, story, tasks


class _OldDefinition(HttpWorld):
    """The definition of TFClusters is older than the operator: what is internal in the status is dropped."""

    def _of_clusters(self, request: Request) -> Any:
        if request.method == "PATCH":
            request.body.get("status", {}).pop("internal", None)
        return super()._of_clusters(request)


def test_large_cluster_under_an_old_definition_is_not_passed_over_without_end(monkeypatch: pytest.MonkeyPatch):
    """While nothing can be written down, the next look is when the definition is looked at: in 20 s."""
    for module in (actions, story, tasks):
        monkeypatch.setattr(module, "MOST_STEPS", 3)
    plain = declared()
    session = _OldDefinition(plain.world)
    session.clusters = plain.clusters
    session.clusters["demo"]["spec"]["jobs"]["worker"]["replicas"] = 12

    async def scenario() -> tuple[list[Any], str]:
        operator, after = Operator(session), []
        for _ in range(4):
            await operator.one_pass()
            await asyncio.sleep(0.5)  # the first report is due in the middle of the creation
        for _ in range(6):
            after.append(await operator.one_pass())
            await asyncio.sleep(1.0)
        return after, ready(session)[1]

    after, reason = run_in_virtual_time(scenario())
    assert reason == "OutdatedDefinition"
    assert all(isinstance(one, float) and one > 1.0 for one in after), after


@pytest.mark.parametrize("edit", ["none", "ephemeral container", "resize"])
def test_pod_that_was_deleted_and_then_edited_has_not_failed(edit: str):
    """It ended by the SIGTERM of its deletion, and the operator saw it terminate while its program ran.

    A finalizer, or a slow neighbour of its main container, keeps it while somebody debugs or resizes it: that counts
    its generation up, and the kubelet's word of its end is of the generation before.
    """
    cluster = make_cluster({"worker": {"replicas": 2, "restartPolicy": "Never"}}, resolver={"delivery": "None"})
    world = settled(cluster)
    world.plan(cluster)
    world.delete("Pod", "demo-worker-1")
    world.plan(cluster)  # the operator sees it terminate, and its program runs
    assert world.objects["Pod", "demo-worker-1"]["metadata"]["generation"] == 2
    ended = {"name": "task", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    neighbour = {"name": "proxy", "state": {"running": {}}}
    told = {"phase": "Running", "observedGeneration": 2, "containerStatuses": [ended, neighbour]}
    world.edit("Pod", "demo-worker-1", {"status": told})
    world.plan(cluster)
    assert world.ledger.verdict is None
    if edit != "none":
        change = {"spec": {"ephemeralContainers": [{"name": "debug"}]}} if edit.startswith("eph") else {"spec": {}}
        world.edit("Pod", "demo-worker-1", {"metadata": {"generation": 3}, **change})

    world.plan(cluster)

    assert world.ledger.verdict is None
