"""Run the real engine over generated TFClusters in virtual time, on the API server in memory, and judge its actions.

Each batch has its own namespace, no kubelet, and a healthy neighbour that was created before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from simulation.operator_process import Operator
from support.memory_kubernetes import Interceptor, MemoryKubernetes, Refusal
from support.virtual_time import run_in_virtual_time

from .generated_clusters import Generated
from .manifests import tfcluster
from .objects import Object

_EPOCH: Final = 1_800_000_000.0
_NAMESPACE: Final = "default"
_NEIGHBOUR: Final = "neighbour"
#: Seconds of virtual time until every TFCluster must have a status.
WITHIN: Final = 60.0
#: Seconds of virtual time after that, for late actions of the engine.
_AFTERWARDS: Final = 5.0
#: Reasons of the Ready condition of a valid TFCluster.
_USUAL: Final = frozenset({"AllTasksReady", "TasksNotReady", "WaitingForJob", "Suspended", "Succeeded"})


@dataclass(frozen=True, slots=True)
class Case:
    """One stored TFCluster; ``accepted`` is whether an API server with our CRD would store it."""

    generated: Generated
    stored: Object
    accepted: bool


@dataclass(slots=True)
class Findings:
    """The errors, and how many TFClusters the engine reconciled."""

    wrong: list[str] = field(default_factory=list)
    met: int = 0
    invalid: int = 0
    #: No API server stores these, with any CRD.
    never_stored: int = 0
    #: One pod of each accepted TFCluster that has pods, as the engine requested it.
    pods: list[Object] = field(default_factory=list)


def names_the_field(text: str, fault: str) -> bool:
    """Return whether a text names a field or its parent, down to the second part of the path.

    Args:
        text: a message; keys of maps and indices of lists can be in brackets, as the API server writes them.
        fault: the field's path, with dots.
    """
    text = text.replace("ObjectMeta.", "metadata.")  # the name in Go's decoder
    plain = re.sub(r"""\[["']?([^\]"']*)["']?\]""", r".\1", text)
    parts = fault.split(".")
    paths = [".".join(parts[:count]) for count in range(len(parts), min(len(parts), 2) - 1, -1)]
    return any(re.search(re.escape(path) + r"(?![\w-])", plain) for path in paths)


def run(cases: Sequence[Case], findings: Findings) -> None:
    """Reconcile all TFClusters concurrently."""
    errors = _Errors()
    logger = logging.getLogger("tfcluster_operator")
    logger.addHandler(errors)
    try:
        run_in_virtual_time(_run(cases, findings))
    finally:
        logger.removeHandler(errors)
    findings.wrong += errors.told


class _Errors(logging.Handler):
    """A log handler that keeps errors, with the exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(f"log: {self.format(record)[-1500:]}")


async def _run(cases: Sequence[Case], findings: Findings) -> None:
    loop = asyncio.get_running_loop()

    def wall() -> float:
        return _EPOCH + loop.time()

    kube = MemoryKubernetes(wall)
    operator = Operator(kube, Interceptor(), wall=wall)
    declared = tfcluster(_NEIGHBOUR).job("ps", replicas=1).job("worker", replicas=3).spec(suspend=False).build()
    neighbour = kube.create("tfclusters", _NAMESPACE, declared)
    half = len(cases) // 2
    stored = _store(kube, cases[:half], findings)  # the engine gets these from its list
    operator.start()
    await asyncio.sleep(1.0)
    stored += _store(kube, cases[half:], findings)  # the engine gets these as watch events
    until = loop.time() + WITHIN
    while loop.time() < until and any(  # noqa: ASYNC110 - virtual time passes at once
        _waits(kube, case) for case in stored
    ):
        await asyncio.sleep(1.0)
    await asyncio.sleep(_AFTERWARDS)
    findings.met += len(stored)
    children = _children(kube)
    for case in stored:
        found = kube.get("tfclusters", _NAMESPACE, case.generated.name)
        findings.invalid += found is not None and _ready(found).get("reason") == "InvalidSpec"
        findings.wrong += [
            f"{wrong}\n  {case.generated.faults} {json.dumps(case.stored['spec'])[:700]}"
            for wrong in _judge(case, found, children)
        ]
    findings.pods += _one_pod_each(stored, kube)
    if missing := _wanted(_NEIGHBOUR, neighbour["spec"]) - children:
        findings.wrong.append(f"the neighbour lacks {missing}")
    findings.wrong += [f"the engine died of {death!r}" for death in operator.deaths]
    operator.stop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others, timeout=1.0)


def _store(kube: MemoryKubernetes, cases: Sequence[Case], findings: Findings) -> list[Case]:
    stored = []
    for case in cases:
        try:
            kube.create("tfclusters", _NAMESPACE, case.stored)
        except (Refusal, AttributeError, TypeError, ValueError) as error:
            if case.accepted:
                findings.wrong.append(f"{case.generated.name} was accepted and cannot be stored: {error!r}")
            findings.never_stored += 1
        else:
            stored.append(case)
    return stored


def _waits(kube: MemoryKubernetes, case: Case) -> bool:
    found = kube.get("tfclusters", _NAMESPACE, case.generated.name)
    return found is not None and _is_ours(found) and not _is_reported(found)


def _is_ours(found: Object) -> bool:
    spec = found.get("spec")
    manager = spec.get("managedBy") if isinstance(spec, dict) else None
    return manager in (None, "tfcluster.dev/tfcluster-operator")


def _is_reported(found: Object) -> bool:
    return bool((found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"])


def _ready(found: Object) -> Object:
    told = (found.get("status") or {}).get("conditions") or ()
    return next((one for one in told if one["type"] == "Ready"), {})


def _children(kube: MemoryKubernetes) -> set[tuple[str, str]]:
    return {
        (kind, one["metadata"]["name"])
        for kind in ("pods", "services", "configmaps")
        for one in kube.list(kind, _NAMESPACE)
    }


def _one_pod_each(stored: Sequence[Case], kube: MemoryKubernetes) -> Iterator[Object]:
    """Return one pod of each accepted TFCluster, as it was requested."""
    accepted = {case.generated.name for case in stored if case.accepted}
    for pod in kube.list("pods", _NAMESPACE):
        owner = pod["metadata"]["ownerReferences"][0]["name"]
        if owner in accepted:
            accepted.remove(owner)
            kept = ("name", "labels", "annotations", "ownerReferences")
            metadata = {key: pod["metadata"][key] for key in kept}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def _judge(case: Case, found: Object | None, children: set[tuple[str, str]]) -> Iterator[str]:
    """Return what is wrong with the outcome of a TFCluster."""
    name, spec = case.generated.name, case.stored.get("spec")
    if found is None:
        if not (_ends_at_once(spec) and spec.get("ttlSecondsAfterFinished") is not None):
            yield f"{name} is gone"
    elif not _is_ours(found):
        if found.get("status"):
            yield f"{name} is another controller's and has a status"
    elif not _is_reported(found):
        yield f"{name} has no report of its generation: {found.get('status')}"
    elif case.accepted:
        yield from _judge_accepted(case, _ready(found), children)
    else:
        message = _ready(found)["message"]
        told = any(names_the_field(message, fault) for fault in case.generated.faults)
        if _ready(found)["reason"] == "InvalidSpec" and not told:
            yield f"{name}: the condition names none of the fields: {message}"


def _judge_accepted(case: Case, ready: Object, children: set[tuple[str, str]]) -> Iterator[str]:
    name, spec, reason = case.generated.name, case.stored["spec"], ready["reason"]
    if reason in {"DeadlineExceeded", "Deleting"} and _ends_at_once(spec):  # the second because of its TTL
        pass
    elif reason not in _USUAL:
        yield f"{name} was accepted and says {reason}: {ready['message']}"
    else:
        yield from (f"{name} has no {kind} {child}" for kind, child in sorted(_wanted(name, spec) - children))


def _ends_at_once(spec: Any) -> bool:
    deadline = spec.get("activeDeadlineSeconds") if isinstance(spec, dict) else None
    return isinstance(deadline, int) and deadline < WITHIN


def _wanted(name: str, spec: Any) -> set[tuple[str, str]]:
    """Return the objects that must exist for an accepted TFCluster while none of its tasks runs."""
    jobs = spec["jobs"]
    wanted = {("services", name), *(("configmaps", f"{name}-{job.replace('_', '-')}") for job in jobs)}
    if not spec["suspend"]:
        for job, of_job in jobs.items():
            if not any(jobs[other]["replicas"] for other in of_job.get("startAfter") or ()):
                wanted |= {("pods", f"{name}-{job.replace('_', '-')}-{index}") for index in range(of_job["replicas"])}
    return wanted
