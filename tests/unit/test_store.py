"""The operator's caches: their state after old, late and repeated events, and which clusters are notified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from unit.in_memory import make_cluster

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube import store as store_module
from tfcluster_operator.kube.store import ChildStore, Stores
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.kinds import KINDS

NAME = ("ns", "a")
Act = Callable[[ChildStore], None]


def child(
    version: int,
    *,
    uid: str = "u1",
    owner: str = "owner",
    name: str = "a",
    namespace: str = "ns",
    label: str = "demo",
    **fields: Any,
) -> Child:
    """Read a pod of this version; ``fields`` are more of its metadata, or its status."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    status = fields.pop("status", {})
    metadata.update(fields)
    metadata["ownerReferences"] = [{"uid": owner, "kind": "TFCluster", "name": "demo", "controller": True}]
    metadata["labels"] = {naming.LABEL_CLUSTER: label} if label else {}
    return KINDS["Pod"].read(msgspec.json.encode({"metadata": metadata, "status": status}))


def make_store(*children: Child) -> tuple[ChildStore, list[tuple[tuple[str, str], tuple[str, str]]]]:
    """Create a store with these children, and the list of its later notifications."""
    told: list[tuple[tuple[str, str], tuple[str, str]]] = []
    store = ChildStore(lambda owner, name, _: told.append((owner, name)), lambda: 0.0)
    for one in children:
        store.put(one)
    told.clear()
    return store, told


def test_a_child_is_found_by_name_and_by_owner():
    store, _ = make_store(child(1), child(2, name="b"), child(3, name="c", owner="other"))
    assert child(1) == store.get(NAME)
    assert {"a", "b"} == {one.meta.name for one in store.owned_by("owner")}
    assert tuple(store.owned_by("nobody")) == ()
    assert None is store.get(("ns", "d"))


def test_every_change_is_reported_with_owner_label_and_deletion():
    told: list[tuple[tuple[str, str], tuple[str, str], bool]] = []
    store = ChildStore(lambda *one: told.append(one), lambda: 0.0)
    store.put(child(1))
    store.put(child(2, status={"phase": "Running"}))
    store.remove(child(3))
    assert told == [(("ns", "demo"), ("ns", "demo"), left) for left in (False, False, True)]


def test_irrelevant_change_is_stored_without_a_notification():
    """Others' annotations and managedFields cause no reconcile; an older list does not remove the pod."""
    store, told = make_store(child(1))
    store.put(child(5, annotations={"example.com/note": "1"}, managedFields=[{"manager": "other", "fieldsV1": {}}]))
    store.put(child(4, status={"phase": "Running"}))
    store.replace([], version=4, namespace="ns")
    assert told == []
    assert child(5) == store.get(NAME)


@pytest.mark.parametrize(
    "news",
    [
        {"status": {"phase": "Running"}},
        {"status": {"reason": "Evicted"}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"annotations": {naming.ANNOTATION_VIEW: "d"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"finalizers": ["example.com/hold"]},
        {"label": "other"},
        {"uid": "u2"},
        {"owner": "another"},
    ],
    ids=str,
)
def test_relevant_change_is_notified(news):
    store, told = make_store(child(1))
    store.put(child(2, **news))
    assert told
    assert child(2, **news).meta == store.get(NAME).meta


def put(version: int, **fields: Any) -> Act:
    return lambda store: store.put(child(version, **fields))


def removed(version: int, **fields: Any) -> Act:
    return lambda store: store.remove(child(version, **fields))


def listed(*children: Child, at: int, namespace: str | None = "ns") -> Act:
    return lambda store: store.replace(list(children), version=at, namespace=namespace)


@pytest.mark.parametrize(
    ("known", "acts", "believed", "tells"),
    [
        pytest.param([child(5)], [put(4), put(5)], child(5), 0, id="an old event after a newer one is dropped"),
        pytest.param([child(5)], [removed(7), put(6)], None, 1, id="a late answer brings no deleted child back"),
        pytest.param(
            [child(5)], [removed(7), put(8, uid="u2")], child(8, uid="u2"), 2, id="the tombstone is of the UID"
        ),
        pytest.param([], [removed(7), put(6)], None, 0, id="a deletion seen before its object stays"),
        pytest.param([child(9, uid="u2")], [removed(7)], child(9, uid="u2"), 0, id="nor does it take the successor"),
        pytest.param([child(9)], [removed(7)], child(9), 0, id="a deletion older than what is known is dropped"),
        pytest.param(
            [child(1), child(2, name="b")],
            [listed(child(2, name="b"), at=9, namespace=None)],
            None,
            1,
            id="a list removes what it does not hold",
        ),
        pytest.param(
            [child(8)], [listed(at=7, namespace=None)], child(8), 0, id="a list keeps what was made after it was taken"
        ),
        pytest.param(
            [child(3)],
            [listed(child(6, uid="u2"), at=7, namespace=None), put(3)],
            child(6, uid="u2"),
            2,
            id="a list replaces an incarnation of the same name",
        ),
        pytest.param(
            [child(2)], [listed(at=9, namespace="else")], child(2), 0, id="a list of one namespace leaves the others"
        ),
    ],
)
def test_what_is_believed_after_old_late_and_repeated_news(known, acts, believed, tells):
    store, told = make_store(*known)
    for act in acts:
        act(store)
    assert store.get(NAME) == believed
    assert told == [(("ns", "demo"), ("ns", "demo"))] * tells


def test_child_with_a_new_owner_is_reported_to_both():
    store, told = make_store(child(1))
    store.put(child(2, owner="other", label="elsewhere"))
    assert {(("ns", "demo"), ("ns", "demo")), (("ns", "demo"), ("ns", "elsewhere"))} == set(told)
    assert list(store.owned_by("owner")) == []
    assert [one.meta.name for one in store.owned_by("other")] == ["a"]


def test_forgetting_takes_out_one_incarnation():
    """A request has shown that it does not exist: for any version, and only for this UID."""
    store, told = make_store(child(5))
    store.forget(NAME, "u2")
    assert child(5) == store.get(NAME)
    store.forget(NAME, "u1")
    store.forget(NAME, "u1")
    assert None is store.get(NAME)
    assert told == [(("ns", "demo"), ("ns", "demo"))]


def test_tombstones_are_bounded(monkeypatch):
    """The oldest deletions are dropped first; a repeated deletion counts as new."""
    monkeypatch.setattr(store_module, "_TOMBSTONES", 2)
    store, _ = make_store()
    for uid, version in [("u1", 1), ("u2", 2), ("u1", 3), ("u3", 4)]:
        store.remove(child(version, uid=uid))
    assert list(store._gone) == ["u1", "u3"]


# --- the objects of one cluster


def observed_names(stores: Stores, **spec: Any) -> dict[str, set[str]]:
    observed = stores.observe(make_cluster({"worker": 1}, **spec))
    found = {kind: set(of_kind) for kind, of_kind in observed.objects.items() if of_kind}
    return {**found, "Pod": set(observed.pods)}


def test_a_cluster_is_what_it_controls_and_what_has_its_names():
    """Surplus pods that we control and others' objects with our names are observed, and nothing else."""
    stores = Stores(lambda *_: None)
    ours, others = "uid-of-the-cluster", "uid-other"
    for kind, name, owner in [
        ("Service", "demo", others),
        ("Service", "other", others),
        ("ConfigMap", "demo-worker", ours),
        ("Pod", "demo-worker-0", others),
        ("Pod", "demo-worker-7", ours),
        ("Pod", "demo-worker-8", others),
    ]:
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [{"uid": owner, "controller": True}],
        }
        stores.of[kind].put(KINDS[kind].read(msgspec.json.encode({"metadata": metadata})))
    assert {
        "Service": {"demo"},
        "ConfigMap": {"demo-worker"},
        "Pod": {"demo-worker-0", "demo-worker-7"},
    } == observed_names(stores)


def test_an_object_that_holds_a_name_and_that_no_watch_shows_is_observed():
    stores, cluster = Stores(lambda *_: None), make_cluster({"worker": 1})
    unlabelled = child(1, name="demo-worker-0", namespace="default", label="")
    stores.block(cluster.uid, "Pod", unlabelled)
    assert unlabelled == stores.observe(cluster).pods["demo-worker-0"]
    stores.of["Pod"].put(child(2, name="demo-worker-0", namespace="default"))
    assert stores.observe(cluster).pods["demo-worker-0"].meta.version == 2


def test_a_child_that_lost_its_labels_is_known_again_once_it_was_read():
    """The watch reports it as deleted, at its current version."""
    store = Stores(lambda *_: None).of["Pod"]
    store.put(child(1))
    store.remove(child(2))
    store.put(child(2, label=""))
    assert store.get(NAME) is None
    store.put_back(child(2, label=""))
    assert store.get(NAME) is not None


def test_labels_of_a_foreign_policy_do_not_wake_clusters():
    """The clusters of a namespace depend only on the spec of such a policy."""
    told: list[Any] = []
    store = ChildStore(lambda *of: told.append(of), lambda: 0.0)

    def policy(version: int, app: str, **labels: str) -> Child:
        metadata = {"name": "mine", "namespace": "ns", "uid": "u", "resourceVersion": str(version), "labels": labels}
        body = {"metadata": metadata, "spec": {"podSelector": {"matchLabels": {"app": app}}}}
        return KINDS["NetworkPolicy"].read(msgspec.json.encode(body))

    for version, (one, expected) in enumerate(
        [(policy(1, "web"), 1), (policy(2, "web", team="a"), 1), (policy(3, "db", team="a"), 2)]
    ):
        store.put(one)
        assert len(told) == expected, version
