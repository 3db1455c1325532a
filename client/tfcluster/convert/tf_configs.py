"""What TF_CONFIG says to each replica: by TFJob's rules, and by the operator's own.

TFJob's rules are in ``pkg/controller.v1/tensorflow/tensorflow.go`` of kubeflow/training-operator, v1.9.4 and v1.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.tfjob import TFJob
from tfcluster.task_names import name_of
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import EVALUATOR, Task
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.life.tf_config import tf_config_of
from tfcluster_operator.life.views import views_of
from tfcluster_operator.objects.observed import Observed
from tfcluster_resolver import contract

_NOBODY: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one replica is told.

    ``cluster`` has the address of each task by job and index; ``task`` is its own job and index.
    """

    cluster: Mapping[str, Mapping[int, str]]
    task: tuple[str, int]


#: By job and index; None for a replica that is told nothing.
Told = dict[tuple[str, int], Seen | None]


def by_tfjob(job: TFJob) -> Told:
    """Work out the TF_CONFIG that TFJob sets for each replica.

    Returns:
        What each replica is told; CUSTOM_CLUSTER_DOMAIN of TFJob's operator is taken to be unset.
    """
    whole = {
        one.job: {i: f"{job.name}-{one.job}-{i}.{job.namespace}.svc:{one.port}" for i in range(one.count)}
        for one in job.replicas
        # NB: the evaluator came into the cluster with the last form of v1.
        if one.job != EVALUATOR or job.api_version == tfjob.CURRENT
    }
    told: Told = {}
    for one in job.replicas:
        for index in range(one.count):
            cluster = _sparse(whole, one.job, index) if job.dynamic else whole
            seen = Seen({name: tasks for name, tasks in cluster.items() if tasks}, (one.job, index))
            told[one.job, index] = seen if job.distributed else None
    return told


def _sparse(whole: Mapping[str, Mapping[int, str]], job: str, index: int) -> dict[str, dict[int, str]]:
    if job == "worker":
        return {"worker": {index: whole[job][index]}, "ps": dict(whole.get("ps", {}))}
    # NB: TFJob lists a ps alone in its cluster, so that it has the index 0 there whatever its own.
    return {"ps": {0: whole[job][index]}} if job == "ps" else {}


def by_tfcluster(document: Mapping[str, Any]) -> Told:
    """Work out what the operator tells each task.

    Raises:
        InvalidSpecError: the operator would refuse it.
    """
    return {task: None if text is None else _read(text) for task, text in texts_of(document).items()}


def texts_of(document: Mapping[str, Any]) -> dict[tuple[str, int], str | None]:
    """Give the TF_CONFIG that the operator sets for each task, by the operator's own code.

    Raises:
        InvalidSpecError: the operator would refuse it.
    """
    metadata = document["metadata"]
    known = {"namespace": "default", "uid": _NOBODY, **metadata, "name": name_of(metadata)}
    cluster = parse({**document, "metadata": known})
    texts: dict[tuple[str, int], str | None] = {}
    for views in views_of(call_roll(cluster, Observed())).of_jobs:
        for index in range(views.job.replicas):
            file = views.files.get(contract.task_view_file(index)) or views.files.get(contract.VIEW_FILE)
            texts[views.job.name, index] = None
            if cluster.sets_tf_config and file is not None:
                texts[views.job.name, index] = tf_config_of(cluster, Task(views.job, index), file.text)
    return texts


def _read(text: str) -> Seen:
    config = json.loads(text)
    return Seen(
        {
            job: dict(enumerate(tasks)) if isinstance(tasks, list) else {int(i): at for i, at in tasks.items()}
            for job, tasks in config["cluster"].items()
        },
        (config["task"]["type"], config["task"]["index"]),
    )
