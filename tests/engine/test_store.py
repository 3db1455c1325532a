"""The operator's caches: their state after old, late and repeated events, and which clusters are notified."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube.store import ChildStore
from tfcluster_operator.objects.base import Child
from tfcluster_operator.objects.kinds import KINDS

NAME = ("ns", "a")
Act = Callable[[ChildStore], None]


def child(
    version: int,
    *,
    uid: str = "u1",
    owner: str = "demo",
    name: str = "a",
    namespace: str = "ns",
    label: str = "demo",
    **fields: Any,
) -> Child:
    """Read a pod of this version; ``fields`` are more of its metadata, or its status."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    status = fields.pop("status", {})
    metadata.update(fields)
    metadata["ownerReferences"] = [{"uid": f"uid-of-{owner}", "kind": "TFCluster", "name": owner, "controller": True}]
    metadata["labels"] = {naming.LABEL_CLUSTER: label} if label else {}
    return KINDS["Pod"].read(msgspec.json.encode({"metadata": metadata, "status": status}))


def make_store(*children: Child) -> tuple[ChildStore, list[tuple[str, str]]]:
    """Create a store with these children, and the list of its later notifications."""
    told: list[tuple[str, str]] = []
    store = ChildStore(lambda owner, _: told.append(owner), lambda: 0.0)
    for one in children:
        store.put(one)
    told.clear()
    return store, told


def test_every_change_is_reported_with_owner_and_deletion():
    told: list[tuple[tuple[str, str], bool]] = []
    store = ChildStore(lambda *one: told.append(one), lambda: 0.0)
    store.put(child(1))
    store.put(child(2, status={"phase": "Running"}))
    store.remove(child(3))
    assert told == [(("ns", "demo"), left) for left in (False, False, True)]


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
    """Process the event of a deletion, as an informer does."""

    def act(store: ChildStore) -> None:
        store.remove(child(version, **fields))
        store.reached[None] = version

    return act


def listed(*children: Child, at: int, namespace: str | None = "ns") -> Act:
    return lambda store: store.replace(list(children), version=at, namespace=namespace)


SUCCESSOR = child(6, uid="u2")
#: The known child, the events, the child afterwards, and how often the owner is notified.
NEWS = {
    "an old event after a newer one is dropped": ([child(5)], [put(4), put(5)], child(5), 0),
    "a late answer brings no deleted child back": ([child(5)], [removed(7), put(6)], None, 1),
    "one that was created since is another": ([child(5)], [removed(7), put(8, uid="u2")], child(8, uid="u2"), 2),
    "a deletion seen before its object stays": ([], [removed(7), put(6)], None, 0),
    "nor does it take the successor": ([child(9, uid="u2")], [removed(7)], child(9, uid="u2"), 0),
    "a deletion older than what is known is dropped": ([child(9)], [removed(7)], child(9), 0),
    "a list removes what it does not hold": (
        [child(1), child(2, name="b")],
        [listed(child(2, name="b"), at=9, namespace=None)],
        None,
        1,
    ),
    "a list keeps what was made after it": ([child(8)], [listed(at=7, namespace=None)], child(8), 0),
    "a list replaces an incarnation": ([child(3)], [listed(SUCCESSOR, at=7, namespace=None), put(3)], SUCCESSOR, 2),
    "a late answer brings none back that a list lacks": ([child(5)], [listed(at=9), put(6)], None, 1),
    "also if it was created and deleted unseen": ([], [listed(at=9, namespace=None), put(6)], None, 0),
    "a list of another namespace says nothing": ([], [listed(at=9, namespace="else"), put(6)], child(6), 1),
    "a list of one namespace leaves the others": ([child(2)], [listed(at=9, namespace="else")], child(2), 0),
}


@pytest.mark.parametrize("case", NEWS)
def test_what_is_believed_after_old_late_and_repeated_news(case):
    known, acts, believed, tells = NEWS[case]
    store, told = make_store(*known)
    for act in acts:
        act(store)
    assert store.get(NAME) == believed
    assert told == [("ns", "demo")] * tells


def test_child_with_a_new_owner_is_reported_to_both():
    store, told = make_store(child(1))
    store.put(child(2, owner="other"))
    assert told == [("ns", "demo"), ("ns", "other")]
    assert store.group("owner", "uid-of-demo") == []
    assert [one.meta.name for one in store.group("owner", "uid-of-other")] == ["a"]


def test_forgetting_takes_out_one_incarnation():
    """A request has shown that it does not exist: for any version, and only for this UID."""
    store, told = make_store(child(5))
    store.forget(NAME, "u2")
    assert child(5) == store.get(NAME)
    store.forget(NAME, "u1")
    store.forget(NAME, "u1")
    assert None is store.get(NAME)
    assert told == [("ns", "demo")]


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
