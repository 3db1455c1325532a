"""A TFJob as values: which versions there are, what is left out means, and what makes no sense.

The source is kubeflow/training-operator: ``pkg/apis/kubeflow.org/v1/tensorflow_{types,defaults}.go`` of v1.9.4, and
``pkg/apis/tensorflow`` of the branches v0.3 (v1alpha2), v0.5 (v1beta1) and v1.0 (v1beta2, and v1 in its first form).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.convert.verdicts import Findings, Outcome, Path, said
from tfcluster.task_names import name_of
from tfcluster_operator.declaration.fields import is_whole

KIND: Final = "TFJob"
CURRENT: Final = "kubeflow.org/v1"
#: The versions before the first v1.  NB: their cleanPodPolicy is Running where nothing is said, and None in v1.
OLDER: Final = ("kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2")
VERSIONS: Final = (CURRENT, *OLDER)
#: The types of replicas as TFJob spells them; it takes any case.
TYPES: Final = ("Chief", "Master", "Worker", "PS", "Evaluator")
KNOWN_JOBS: Final = frozenset(name.lower() for name in TYPES)
RESTART_POLICIES: Final = ("Never", "OnFailure", "Always", "ExitCode")
DEFAULT_RESTART_POLICY: Final = "Never"
DEFAULT_PORT: Final = 2222
PORT_NAME: Final = "tfjob-port"
#: The container whose port and exit code count, and the only one with TF_CONFIG.
CONTAINER: Final = "tensorflow"
#: The most tasks of one job, as the definition of TFCluster has it.
_MOST: Final = 10_000
_JOB: Final = re.compile("[a-z]([a-z0-9_]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one type.

    ``key`` is the type as the manifest spells it, ``job`` as TF_CONFIG does; ``restart_policy`` is "" where it is left
    out.
    """

    key: str
    job: str
    count: int
    restart_policy: str
    port: int
    template: Mapping[str, Any]
    counted: bool = True

    @property
    def policy(self) -> str:
        """The policy that TFJob applies."""
        return self.restart_policy or DEFAULT_RESTART_POLICY


@dataclass(frozen=True, slots=True)
class TFJob:
    """What of a TFJob decides its TF_CONFIG and its end."""

    api_version: str
    name: str
    namespace: str
    replicas: tuple[Replicas, ...]
    dynamic: bool

    def of(self, job: str) -> Replicas | None:
        """Give the replicas of one type, by its name in TF_CONFIG."""
        return next((one for one in self.replicas if one.job == job), None)

    @property
    def leader(self) -> Replicas | None:
        """The chief or master, whose end is the job's."""
        return self.of("chief") or self.of("master")

    @property
    def distributed(self) -> bool:
        """Whether its pods have TF_CONFIG: TFJob sets none for a single replica."""
        return sum(one.count for one in self.replicas if one.job in KNOWN_JOBS) != 1


def is_tfjob(document: Any) -> bool:
    """Tell whether an object is a TFJob, of any version."""
    return isinstance(document, Mapping) and document.get("kind") in (KIND, "TfJob")


def read(manifest: Mapping[str, Any], findings: Findings) -> TFJob:
    """Read a TFJob."""
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    spec = manifest.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    dynamic = spec.get("enableDynamicWorker")
    if dynamic is not None and not isinstance(dynamic, bool):
        findings.say(Outcome.REFUSED, ("spec", "enableDynamicWorker"), f"it is {said(dynamic)}: write true or false")
    return TFJob(
        api_version=str(manifest.get("apiVersion")),
        name=str(metadata.get("name") or name_of(metadata) or "xxxxx"),
        namespace=str(metadata.get("namespace") or "default"),
        replicas=_all_replicas(spec.get("tfReplicaSpecs"), findings),
        dynamic=dynamic is True,
    )


def _all_replicas(specs: Any, findings: Findings) -> tuple[Replicas, ...]:
    path = ("spec", "tfReplicaSpecs")
    if not isinstance(specs, Mapping) or not specs:
        words = "there are no replicas: name Worker and its template at the least"
        findings.say(Outcome.REFUSED, path, words if not specs else f"it is {said(specs)}, and must be an object")
        return ()
    found: dict[str, Replicas] = {}
    for key, raw in specs.items():
        job, where = str(key).lower(), (*path, key)
        if not isinstance(raw, Mapping):
            words = "there is nothing in it: write its template, or remove it"
            findings.say(Outcome.REFUSED, where, words if raw is None else f"it is {said(raw)}, and must be an object")
        elif job in found:
            words = f"it is {found[job].key} once more: TFJob takes any case, and only one of them counts. Keep one"
            findings.say(Outcome.REFUSED, where, words)
        elif not _JOB.fullmatch(job):
            words = "it cannot name a job of TensorFlow: use letters, digits and underscores, with a letter first"
            findings.say(Outcome.REFUSED, where, words)
        else:
            found[job] = _replicas(str(key), job, raw, where, findings)
    if {"chief", "master"} <= found.keys():
        words = "there are both Chief and Master, which TFJob refuses: keep one"
        findings.say(Outcome.REFUSED, (*path, found["master"].key), words)
    return tuple(found.values())


def _replicas(key: str, job: str, raw: Mapping[str, Any], where: Path, findings: Findings) -> Replicas:
    count, policy, template = raw.get("replicas"), raw.get("restartPolicy"), raw.get("template")
    if count is not None and not (is_whole(count) and 0 <= count <= _MOST):
        findings.say(Outcome.REFUSED, (*where, "replicas"), f"it is {said(count)}: write a number from 0 to {_MOST:,}")
        count = None
    if policy is not None and policy != "" and policy not in RESTART_POLICIES:
        words = f"it is {said(policy)}, with which TFJob creates no pod: write one of {', '.join(RESTART_POLICIES)}"
        findings.say(Outcome.REFUSED, (*where, "restartPolicy"), words)
        policy = None
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        findings.say(Outcome.REFUSED, (*where, "template"), "it has no spec: write the pod's containers there")
        template = {}
    return Replicas(
        key=key,
        job=job,
        count=1 if count is None else int(count),
        restart_policy=str(policy or ""),
        port=_port(template),
        template=template,
        counted=count is not None,
    )


def containers(template: Mapping[str, Any], group: str = "containers") -> list[Mapping[str, Any]]:
    """Give the containers of a template that are objects, in their order."""
    spec = template.get("spec")
    found = spec.get(group) if isinstance(spec, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _port(template: Mapping[str, Any]) -> int:
    """Find the port by TFJob's rule: that of the name tfjob-port in the container tensorflow."""
    for container in containers(template):
        ports = container.get("ports")
        for port in ports if container.get("name") == CONTAINER and isinstance(ports, list) else ():
            number = port.get("containerPort") if isinstance(port, Mapping) else None
            if isinstance(port, Mapping) and port.get("name") == PORT_NAME and is_whole(number):
                return int(str(number))
    return DEFAULT_PORT
