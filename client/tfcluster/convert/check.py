"""Check that a TFJob and its converted TFCluster give each replica the same TF_CONFIG.

TFJob's rules are in ``pkg/controller.v1/tensorflow/tensorflow.go`` of kubeflow/training-operator, v1.9.4 and v1.0.
Addresses are compared by the name of the pod and the port: TFJob has a Service for each replica, a TFCluster one, so
that the domain after the pod's name differs.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import tfjob
from tfcluster.convert.tfjob import TFJob
from tfcluster.manifest.validate import complete
from tfcluster.tasks import spell
from tfcluster.terminal import few
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import EVALUATOR, Task
from tfcluster_operator.life.roster import call_roll
from tfcluster_operator.life.views import tf_config_of, views_of
from tfcluster_operator.objects.kinds import Observed
from tfcluster_resolver import contract


@dataclass(frozen=True, slots=True)
class Seen:
    """The TF_CONFIG of one replica.

    ``cluster`` has the address of each task by job and index; ``task`` is its own job and index.
    """

    cluster: Mapping[str, Mapping[int, str]]
    task: tuple[str, int]


#: By job and index; None for a replica without TF_CONFIG.
Told = dict[tuple[str, int], Seen | None]


def by_tfjob(job: TFJob) -> Told:
    """Work out the TF_CONFIG that TFJob sets for each replica."""
    whole = {
        one.job: {i: f"{job.name}-{one.job}-{i}.{job.namespace}.svc:{one.port}" for i in range(one.count)}
        for one in job.replicas
        # The evaluator came into the cluster with the last form of v1.
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
    # TFJob lists a ps alone in its cluster, so that its index there is 0 whatever its own index is.
    return {"ps": {0: whole[job][index]}} if job == "ps" else {}


def by_tfcluster(document: Mapping[str, Any]) -> Told:
    """Work out the TF_CONFIG that the operator sets for each task, by its own code."""
    cluster = parse(complete(document, "default"))
    told: Told = {}
    for views in views_of(call_roll(cluster, Observed())).of_jobs:
        for index in range(views.job.replicas):
            file = views.files.get(contract.task_view_file(index)) or views.files.get(contract.VIEW_FILE)
            sets = file if cluster.sets_tf_config else None
            text = None if sets is None else tf_config_of(cluster, Task(views.job, index), sets.text)
            told[views.job.name, index] = None if text is None else _read(text)
    return told


def _read(text: str) -> Seen:
    config = json.loads(text)
    return Seen(
        {
            job: dict(enumerate(tasks)) if isinstance(tasks, list) else {int(i): at for i, at in tasks.items()}
            for job, tasks in config["cluster"].items()
        },
        (config["task"]["type"], config["task"]["index"]),
    )


#: Defects of TFJob that explain an intended difference.
D5: Final = "with dynamic workers TFJob gives it an empty or wrong cluster"
D6: Final = "TFJob lists the evaluator in the cluster of every replica"
ITSELF: Final = "an evaluator finds itself alone, which TensorFlow's strategies need"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one replica; ``wanted`` names the defect of TFJob that explains it, or is ""."""

    task: str
    words: str
    wanted: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many replicas were compared, and what differs."""

    replicas: int
    told: bool
    differences: tuple[Difference, ...]

    @property
    def proves(self) -> bool:
        """Whether every replica gets the same TF_CONFIG, except for intended differences."""
        return all(one.wanted for one in self.differences)


def compare(job: TFJob, cluster: Mapping[str, Any]) -> Comparison:
    theirs, ours = by_tfjob(job), by_tfcluster(cluster)
    differences = [
        difference
        for task in sorted(theirs.keys() & ours.keys())
        for difference in _of_task(job, task, theirs[task], ours[task])
    ]
    missing = sorted(theirs.keys() ^ ours.keys())
    differences += [Difference(spell(*task), "only one of both has this task") for task in missing]
    return Comparison(len(theirs), any(theirs.values()), tuple(differences))


def _of_task(job: TFJob, task: tuple[str, int], theirs: Seen | None, ours: Seen | None) -> Iterator[Difference]:
    if theirs is None or ours is None:
        if theirs is not None or ours is not None:
            only = "TFJob" if theirs is not None else "the TFCluster"
            yield Difference(spell(*task), f"{only} sets TF_CONFIG, and the other does not")
        return
    if theirs.task != ours.task:
        yield Difference(spell(*task), f"TFJob calls it {spell(*theirs.task)}, the TFCluster {spell(*ours.task)}")
    for name in sorted(theirs.cluster.keys() | ours.cluster.keys()):
        before, after = _plain(theirs.cluster.get(name, {})), _plain(ours.cluster.get(name, {}))
        if before != after:
            words = f"job {name}: {_listed(before)} with TFJob, {_listed(after)} here"
            yield Difference(spell(*task), words, _defect(job, task[0], name, theirs, after))


def _defect(job: TFJob, own: str, other: str, theirs: Seen, after: Mapping[int, str]) -> str:
    if own == other == EVALUATOR and after.keys() == {theirs.task[1]} and not job.dynamic:
        return ITSELF
    if other == EVALUATOR and not after and job.api_version == tfjob.CURRENT and not job.dynamic:
        return D6
    if not job.dynamic:
        return ""
    if own == "ps" and other == "ps":
        index = theirs.task[1]
        # Its own address, and nothing else, at the index that it has.
        right = _plain({index: theirs.cluster["ps"][0]})
        return D5 if after == right else ""
    return D5 if own not in ("worker", "ps") and not theirs.cluster else ""


def _plain(tasks: Mapping[int, str]) -> dict[int, str]:
    """Reduce each address to the pod's name and the port."""
    plain = {}
    for index, address in tasks.items():
        host, _, port = address.rpartition(":")
        plain[index] = f"{host.partition('.')[0]}:{port}"
    return plain


def _listed(tasks: Mapping[int, str]) -> str:
    return few([f"{index} at {address}" for index, address in sorted(tasks.items())]) or "nothing"
