"""TF_CONFIG that the operator sets: its containers, its maximal size, and its cost."""

import json
from typing import Any

import pytest
from decisions.in_memory import make_body, make_cluster, views_for

from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import Task
from tfcluster_operator.life.views import tf_config_of

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
