"""Which field of a template changed is asked of the API server once for each edit, and never makes a pass fail."""

from __future__ import annotations

import asyncio
import json

import pytest
from in_memory import TEMPLATE, make_cluster, merge_patch, settled

from tfcluster_operator.engine.revisions import Revisions
from tfcluster_operator.kube import errors
from tfcluster_operator.model.ledger import JobRecord, Ledger, Verdict
from tfcluster_operator.model.roster import call_roll


class PodsOf:
    """The requests for pods, answered from a world."""

    def __init__(self, world):
        self.world = world
        self.asked = []
        self.refusal = None
        self.hidden = False

    async def request(self, method, path, *, params, **_):
        name = params["fieldSelector"].removeprefix("metadata.name=")
        self.asked.append((method, path.rpartition("/")[2], name))
        if self.refusal is not None:
            raise self.refusal
        found = self.world.objects.get(("Pod", name))
        return json.dumps({"metadata": {}, "items": [found] if found and not self.hidden else []}).encode()


SET = {"resolver": {"tfConfig": "Environment"}}
OTHER = merge_patch(TEMPLATE, {"spec": {"containers": [{"name": "task", "image": "image:2"}]}})


@pytest.fixture
def world():
    """A cluster that runs."""
    return settled(make_cluster({"ps": 1, "worker": 3}))


def _template(container):
    return {"spec": {"containers": [container]}}


def ask(revisions, world, cluster, known=None):
    """Ask which fields changed."""
    known = known or Ledger()
    roster = call_roll(cluster, world.observe(cluster)).completed_by(known)
    return asyncio.run(revisions.changed_fields(roster, known))


def edited(**spec):
    """Declare the cluster with another image for its workers."""
    return make_cluster({"ps": 1, "worker": {"replicas": 3, "template": OTHER}}, **spec)


def test_changed_field_of_each_outdated_job_is_named(world):
    """Only jobs with outdated pods have one."""
    assert ask(Revisions(PodsOf(world)), world, edited()) == {"worker": "containers[task].image"}
    assert ask(Revisions(PodsOf(world)), world, make_cluster({"ps": 1, "worker": 3})) == {}


def test_server_is_asked_once_for_an_edit(world):
    """Three pods and many passes cost one request; another edit costs another."""
    client = PodsOf(world)
    revisions = Revisions(client)
    for _ in range(3):
        ask(revisions, world, edited())
    assert client.asked == [("GET", "pods", "demo-worker-0")]

    ported = make_cluster({"ps": 1, "worker": {"replicas": 3, "port": 3000}})
    assert ask(revisions, world, ported)["worker"]
    assert len(client.asked) == 2


@pytest.mark.parametrize(
    ("spec", "image", "field"),
    [
        (SET, 2, "containers[task].image"),
        ({}, 1, "containers[task].env[TF_CONFIG]"),
    ],
    ids=["another image, after a resize", "none any more"],
)
def test_what_tf_config_says_is_no_change(spec, image, field):
    """It is fixed when the pod is created; that it is set is what an edit changes."""
    container = {"name": "task", "env": [], "image": "image:1"}
    world = settled(make_cluster({"worker": {"replicas": 2, "template": _template(container)}}, **SET))
    newer = {**container, "image": f"image:{image}"}

    cluster = make_cluster({"worker": {"replicas": 3, "template": _template(newer)}}, **spec)
    assert ask(Revisions(PodsOf(world)), world, cluster) == {"worker": field}


def test_tf_config_that_was_not_set_is_a_change():
    """An edit of the field is named by the variable."""
    world = settled(make_cluster({"worker": 2}))
    assert ask(Revisions(PodsOf(world)), world, make_cluster({"worker": 2}, **SET)) == {
        "worker": "containers[task].env[TF_CONFIG]"
    }


@pytest.mark.parametrize("changes", [{"refusal": errors.UnreachableError("no answer")}, {"hidden": True}])
def test_pod_that_cannot_be_read_is_asked_for_again(world, changes):
    """The report lacks a field then; the next pass asks again."""
    client = PodsOf(world)
    revisions = Revisions(client)
    for name, value in changes.items():
        setattr(client, name, value)
    assert ask(revisions, world, edited()) == {}

    client.refusal, client.hidden = None, False
    assert ask(revisions, world, edited()) == {"worker": "containers[task].image"}


@pytest.mark.parametrize("how", ["suspended", "finished", "completed"])
def test_nothing_is_asked_where_nothing_is_rolled(world, how):
    """A suspended or finished cluster, and completed tasks, are left alone."""
    client = PodsOf(world)
    known = {
        "suspended": Ledger(),
        "finished": Ledger(verdict=Verdict("Failed", "R", "M")),
        "completed": Ledger(jobs={"worker": JobRecord(completed=frozenset({0, 1, 2}))}),
    }[how]

    assert ask(Revisions(client), world, edited(suspend=how == "suspended"), known) == {}
    assert client.asked == []
