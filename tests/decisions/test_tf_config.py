"""TF_CONFIG that the operator sets: its containers, its maximal size, and its cost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from decisions.in_memory import make_body, make_cluster, settled, views_for
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_operator.declaration import reasons
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.views import LARGEST_TF_CONFIG, tf_config_of
from tfcluster_operator.plan import objects
from tfcluster_operator.plan.actions import Create, Delete, Patch

SET = {"resolver": {"tfConfig": "Environment"}}


def problems(jobs: dict[str, Any], **spec: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidSpecError) as caught:
        parse(make_body(jobs, **spec))
    return caught.value.problems


# --- the declaration


def test_evaluators_are_in_every_cluster_in_the_layout_of_tfjob():
    jobs = {"chief": 1, "worker": 2, "evaluator": 2}

    def told(layout: str) -> dict[str, Any]:
        cluster = make_cluster(jobs, resolver={"tfConfig": layout})
        tasks = [(views, Task(views.job, i)) for views in views_for(cluster) for i in range(views.job.replicas)]
        texts = {str(task): tf_config_of(cluster, task, views.text_for(task.index)) for views, task in tasks}
        return {task: json.loads(text)["cluster"].get("evaluator") for task, text in texts.items()}

    first, second = (f"demo-evaluator-{index}.demo.default.svc:2222" for index in range(2))
    of_others = dict.fromkeys(["chief-0", "worker-0", "worker-1"])
    assert told("Environment") == {**of_others, "evaluator-0": [first], "evaluator-1": {"1": second}}
    assert set(map(str, told("TFJob").values())) == {str([first, second])}


# --- the pod


# --- its size
@given(
    replicas=st.integers(1, 12),
    others=st.integers(0, 2),
    shown=st.lists(st.integers(0, 11), max_size=3),
    own=st.dictionaries(st.integers(0, 11), st.lists(st.integers(0, 11), min_size=1, max_size=3), max_size=2),
)
def test_size_is_that_of_the_longest(replicas, others, shown, own):
    filters = [f"/job:worker/task:{index}" for index in shown]
    of_tasks = {str(index): [f"/job:worker/task:{one}" for one in seen] for index, seen in own.items()}
    worker = {"replicas": replicas, "maxReplicas": 12, "deviceFilters": filters, "taskDeviceFilters": of_tasks}
    cluster = make_cluster({"ps": others, "worker": worker}, **SET)
    views = next(one for one in views_for(cluster) if one.job.name == "worker")
    sizes = [len(tf_config_of(cluster, Task(views.job, i), views.text_for(i))) for i in range(replicas)]
    assert views.tf_config_size == max(sizes)


@pytest.mark.skipif(sys.platform != "linux", reason="the bound is Linux's")
def test_bound_is_what_a_program_can_be_started_with():
    subprocess.run(["/bin/true"], env={"TF_CONFIG": "x" * LARGEST_TF_CONFIG}, check=True)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"TF_CONFIG": "x" * (LARGEST_TF_CONFIG + 1)}, check=True)


JOBS = {"ps": {"replicas": 1, "deviceFilters": ["/job:ps"]}, "worker": {"replicas": 2}}


def bounded(monkeypatch: pytest.MonkeyPatch, less: int) -> int:
    """Set the limit this far below the size of the workers' TF_CONFIG; return the size."""
    cluster = make_cluster(JOBS, **SET)
    size = next(one.tf_config_size for one in views_for(cluster) if one.job.name == "worker")
    monkeypatch.setattr(objects, "LARGEST_TF_CONFIG", size - less)
    return size


def test_running_tasks_are_notified_when_tf_config_is_too_large(monkeypatch):
    world = settled(make_cluster(JOBS, **SET))
    bounded(monkeypatch, 0)
    planned = world.plan(make_cluster({**JOBS, "worker": {"replicas": 3}}, generation=2, **SET))
    patched = {one.name for one in planned.actions if isinstance(one, Patch)}
    assert patched == {"demo-worker", "demo-worker-0", "demo-worker-1"}
    assert not any(isinstance(one, Create | Delete) for one in planned.actions)
    assert [one.reason for one in planned.findings] == [reasons.TF_CONFIG_TOO_LARGE]
