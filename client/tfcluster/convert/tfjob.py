"""A TFJob as values, and the verdicts on its fields: the outcome of each, with a message for its owner.

The source is kubeflow/training-operator: ``pkg/apis/kubeflow.org/v1/tensorflow_{types,defaults}.go`` of v1.9.4, and
``pkg/apis/tensorflow`` of the branches v0.3 (v1alpha2), v0.5 (v1beta1) and v1.0 (v1beta2, and v1 in its first form).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from tfcluster.manifest.shaping import nodes
from tfcluster.tasks import name_of
from tfcluster.terminal import brief, spelled
from tfcluster_operator.declaration.quantities import is_whole

Path = tuple[str | int, ...]


class Outcome(StrEnum):
    """The outcome of one field, the most severe first."""

    #: A TFCluster cannot express it.
    REJECTED = "rejected"
    #: Something is lost; the message says what to do.
    LOSSY = "lossy"
    #: Nothing is lost, but the owner should read the message.
    NOTED = "noted"
    #: It was left out of the TFJob; its default is written out, because ours is another.
    EXPLICIT = "explicit"
    #: It is left out: TFJob ignored it, or only the API server used it.
    LEFT_OUT = "left out"
    #: It is carried over and means the same.
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one field.

    ``path`` is its place in the TFJob, empty for something that TFJob does not have; ``target`` is its place in the
    TFCluster, or ""; ``words`` say why, and what to do if something has to be done.
    """

    outcome: Outcome
    path: Path
    target: str = ""
    words: str = ""


@dataclass(slots=True)
class Findings:
    """The verdicts so far, and the new places of the TFJob's nodes."""

    verdicts: list[Verdict] = field(default_factory=list)
    moved: dict[Path, Path] = field(default_factory=dict)
    _judged: set[Path] = field(default_factory=set)

    def say(self, outcome: Outcome, path: Path, words: str = "", *, target: str = "") -> None:
        self._judged.add(path)
        self.verdicts.append(Verdict(outcome, path, target, words))

    def remark(self, outcome: Outcome, path: Path, words: str, *, target: str = "") -> None:
        """Add a remark about a node, whose parts have their own verdicts."""
        self.verdicts.append(Verdict(outcome, path, target, words))

    def move(self, path: Path, target: Path, words: str = "", *, outcome: Outcome = Outcome.SAME) -> None:
        """Add the verdict for a node that moved with all its contents."""
        self.moved[path] = target
        self.say(outcome, path, words, target=spelled(target))

    @property
    def refused(self) -> bool:
        return any(one.outcome is Outcome.REJECTED for one in self.verdicts)

    def judged(self, path: Path) -> bool:
        return any(path[:length] in self._judged for length in range(1, len(path) + 1))


def leaves(node: Any) -> Iterator[tuple[Path, Any]]:
    """Return every scalar and every empty mapping or list, with its path."""
    return ((path, value) for path, value in nodes(node) if not (value and isinstance(value, Mapping | list)))


KIND: Final = "TFJob"
CURRENT: Final = "kubeflow.org/v1"
#: The versions before the first v1. Their cleanPodPolicy defaults to Running, and to None in v1.
OLDER: Final = ("kubeflow.org/v1beta2", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha2")
VERSIONS: Final = (CURRENT, *OLDER)
#: The types of replicas as TFJob spells them; it takes any case.
TYPES: Final = ("Chief", "Master", "Worker", "PS", "Evaluator")
KNOWN_JOBS: Final = frozenset(name.lower() for name in TYPES)
DEFAULT_RESTART_POLICY: Final = "Never"
DEFAULT_PORT: Final = 2222
PORT_NAME: Final = "tfjob-port"
#: The container whose port and exit code count; only this one gets TF_CONFIG.
CONTAINER: Final = "tensorflow"


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one type.

    ``key`` is the type as the manifest spells it, ``job`` as TF_CONFIG does; ``replicas`` is what it says, whatever
    that is, and ``count`` how many there are; ``restart_policy`` is "" where it is left out.
    """

    key: str
    job: str
    replicas: Any
    count: int
    restart_policy: str
    port: int
    template: Mapping[str, Any]

    @property
    def policy(self) -> str:
        return self.restart_policy or DEFAULT_RESTART_POLICY


@dataclass(frozen=True, slots=True)
class TFJob:
    """The parts of a TFJob that decide its TF_CONFIG and when it ends."""

    api_version: str
    name: str
    namespace: str
    replicas: tuple[Replicas, ...]
    dynamic: bool

    def of(self, job: str) -> Replicas | None:
        """Return the replicas of one type, by its name in TF_CONFIG."""
        return next((one for one in self.replicas if one.job == job), None)

    @property
    def leader(self) -> Replicas | None:
        """The chief or master, whose end is the job's end."""
        return self.of("chief") or self.of("master")

    @property
    def distributed(self) -> bool:
        """Whether its pods have TF_CONFIG: TFJob does not set it for a single replica."""
        return sum(one.count for one in self.replicas if one.job in KNOWN_JOBS) != 1


def is_tfjob(document: Any) -> bool:
    return isinstance(document, Mapping) and document.get("kind") in (KIND, "TfJob")


def read(manifest: Mapping[str, Any], findings: Findings) -> TFJob:
    metadata, spec = (
        part if isinstance(part, Mapping) else {} for part in (manifest.get("metadata"), manifest.get("spec"))
    )
    dynamic = spec.get("enableDynamicWorker")
    if dynamic is not None and not isinstance(dynamic, bool):
        findings.say(Outcome.REJECTED, ("spec", "enableDynamicWorker"), f"it is {brief(dynamic)}: write true or false")
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
        words = "the replicas are missing: write at least Worker and its template"
        findings.say(Outcome.REJECTED, path, words if not specs else f"it is {brief(specs)}, and must be an object")
        return ()
    found: dict[str, Replicas] = {}
    for key, raw in specs.items():
        job, where = str(key).lower(), (*path, key)
        if not isinstance(raw, Mapping):
            words = "it is empty: write its template, or remove it"
            words = words if raw is None else f"it is {brief(raw)}, and must be an object"
            findings.say(Outcome.REJECTED, where, words)
        elif job in found:
            words = f"it is {found[job].key} once more: TFJob takes any case, and only one of them counts. Keep one"
            findings.say(Outcome.REJECTED, where, words)
        else:
            found[job] = _replicas(str(key), job, raw, where, findings)
    if {"chief", "master"} <= found.keys():
        words = "there are both Chief and Master, which TFJob rejects: keep one"
        findings.say(Outcome.REJECTED, (*path, found["master"].key), words)
    return tuple(found.values())


def _replicas(key: str, job: str, raw: Mapping[str, Any], where: Path, findings: Findings) -> Replicas:
    replicas: Any = raw.get("replicas")
    policy, template = raw.get("restartPolicy"), raw.get("template")
    if is_whole(replicas):
        replicas = int(replicas)
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        findings.say(Outcome.REJECTED, (*where, "template"), "its spec is missing: write the pod's containers there")
        template = {}
    count = replicas if isinstance(replicas, int) else 1
    return Replicas(key, job, replicas, count, str(policy or ""), _port(template), template)


def containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the containers of a template that are objects, in their order."""
    spec = template.get("spec")
    found = spec.get("containers") if isinstance(spec, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _port(template: Mapping[str, Any]) -> int:
    """Find the port as TFJob does: the port named tfjob-port of the container tensorflow."""
    for container in containers(template):
        ports = container.get("ports")
        for port in ports if container.get("name") == CONTAINER and isinstance(ports, list) else ():
            number = port.get("containerPort") if isinstance(port, Mapping) else None
            if isinstance(port, Mapping) and port.get("name") == PORT_NAME and is_whole(number):
                return int(str(number))
    return DEFAULT_PORT
