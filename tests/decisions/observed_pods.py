"""Pods as the operator observes them."""

from dataclasses import replace

from in_memory import CLUSTER_UID, NOW

from tfcluster_operator.declaration.ledger import Ledger
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.objects.base import Meta
from tfcluster_operator.objects.kinds import Observed
from tfcluster_operator.objects.pod import Exit, Noted, Pod


def pod(name="demo-worker-0", *, uid="uid-1", owner=CLUSTER_UID, annotations=None, leaving=0.0, grace=30.0, **fields):
    """Build a running and ready pod; ``leaving`` is when its deletion was first observed."""
    meta = Meta(name, "default", uid, 1, owner, "demo", {}, annotations or {}, terminating=leaving > 0)
    meta = replace(meta, grace=grace if leaving else 0.0, asked_to_go_at=leaving)
    noted = Noted(since=NOW - 10, leaving_since=leaving)
    state = {"phase": "Running", "ready": True, "node": "node", "noted": noted}
    unknown = {"disrupted": False, "reason": "", "devices": None, "trouble": ""}
    return Pod(meta=meta, **{**state, **unknown, **fields})


def ended(code=1, *, reason="Error", message="", **fields):
    end = {"exit": Exit(code, reason, message), "ready": False}
    return pod(**{**end, "phase": "Succeeded" if code == 0 else "Failed", "at_rest": True, **fields})


def roster(cluster, *pods, known=None):
    return call_roll(cluster, Observed(pods={one.meta.name: one for one in pods})).completed_by(known or Ledger())
