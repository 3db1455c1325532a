"""The proof that a TFJob and the TFCluster made of it tell each replica the same.

Addresses are compared by the name of the pod and the port: TFJob has a Service for each replica, a TFCluster one, so
that the domain after the pod's name differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert import tf_configs, tfjob
from tfcluster.convert.tf_configs import Seen
from tfcluster.convert.tfjob import TFJob
from tfcluster_operator.declaration.spec import EVALUATOR

#: Why a difference is wanted: the defects as docs/tfjob.md numbers them.
D5: Final = "D5: with dynamic workers TFJob gives it an empty or wrong cluster"
D6: Final = "D6: TFJob puts the evaluator in everybody's cluster"
ITSELF: Final = "an evaluator finds itself alone, which TensorFlow's strategies need"


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs for one replica; ``wanted`` names the defect of TFJob that explains it, "" where none does."""

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
        """Whether every replica is told the same, but for what is wanted."""
        return all(one.wanted for one in self.differences)


def compare(job: TFJob, cluster: Mapping[str, Any]) -> Comparison:
    """Compare what both tell each replica.

    Raises:
        InvalidSpecError: the operator would refuse the TFCluster.
    """
    theirs, ours = tf_configs.by_tfjob(job), tf_configs.by_tfcluster(cluster)
    differences = [
        difference
        for task in sorted(theirs.keys() & ours.keys())
        for difference in _of_task(job, task, theirs[task], ours[task])
    ]
    missing = sorted(theirs.keys() ^ ours.keys())
    differences += [Difference(_name(task), "only one of both has this task") for task in missing]
    return Comparison(len(theirs), any(theirs.values()), tuple(differences))


def _of_task(job: TFJob, task: tuple[str, int], theirs: Seen | None, ours: Seen | None) -> Iterator[Difference]:
    if theirs is None or ours is None:
        if theirs is not None or ours is not None:
            only = "TFJob" if theirs is not None else "the TFCluster"
            yield Difference(_name(task), f"{only} sets TF_CONFIG, and the other does not")
        return
    if theirs.task != ours.task:
        yield Difference(_name(task), f"TFJob calls it {_name(theirs.task)}, the TFCluster {_name(ours.task)}")
    for name in sorted(theirs.cluster.keys() | ours.cluster.keys()):
        before, after = _plain(theirs.cluster.get(name, {})), _plain(ours.cluster.get(name, {}))
        if before != after:
            words = f"job {name}: {_listed(before)} with TFJob, {_listed(after)} here"
            yield Difference(_name(task), words, _defect(job, task[0], name, theirs, after))


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
    """Leave of each address the pod's name and the port."""
    plain = {}
    for index, address in tasks.items():
        host, _, port = address.rpartition(":")
        plain[index] = f"{host.partition('.')[0]}:{port}"
    return plain


def _listed(tasks: Mapping[int, str]) -> str:
    if not tasks:
        return "nothing"
    first = ", ".join(f"{index} at {address}" for index, address in sorted(tasks.items())[:3])
    return f"{first}, … ({len(tasks)} tasks)" if len(tasks) > 3 else first


def _name(task: tuple[str, int]) -> str:
    return f"{task[0]}-{task[1]}"
