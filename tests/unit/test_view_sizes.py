"""A cluster whose views fit into no ConfigMap is refused in words, and the largest sensible cluster is not."""

from __future__ import annotations

from unit.in_memory import InMemoryWorld, make_cluster, views_for

from tfcluster_operator.model import reasons, views
from tfcluster_operator.model.actions import CreateConfigMap, CreatePod


def test_a_view_that_fits_no_config_map_is_refused_with_its_size(monkeypatch):
    """A job whose views are too large is told so, by name and size; it has no pod, and every other job has."""
    cluster = make_cluster({"chief": 1, "worker": {"replicas": 2, "deviceFilters": ["/job:chief"]}})
    size = views_for(cluster)[0].size
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size - 1)

    planned = InMemoryWorld().plan(cluster)

    assert {action.name for action in planned.actions if isinstance(action, CreatePod)} == {
        "demo-worker-0",
        "demo-worker-1",
    }
    assert [action.views.name for action in planned.actions if isinstance(action, CreateConfigMap)] == ["demo-worker"]
    assert [finding.reason for finding in planned.findings] == [reasons.VIEW_TOO_LARGE]
    assert f"the views of job chief take {size} bytes, more than the {size - 1}" in planned.findings[0].message


def test_a_view_of_exactly_the_largest_size_is_published(monkeypatch):
    """The bound itself still fits."""
    cluster = make_cluster({"chief": 1})
    size = views_for(cluster)[0].size
    monkeypatch.setattr(views, "LARGEST_CONFIG_MAP", size)

    assert InMemoryWorld().plan(cluster).findings == ()


def test_five_thousand_tasks_with_filters_fit():
    """The largest sensible cluster fits: only the chief and the ps see all workers."""
    seen = {"deviceFilters": ["/job:ps", "/job:chief"]}
    cluster = make_cluster({"chief": 1, "ps": 50, "worker": {"replicas": 5000, **seen}})

    assert InMemoryWorld().plan(cluster).findings == ()
