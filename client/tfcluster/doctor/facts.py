"""Facts for ``tfcluster doctor``: requests made beside each other, whose refusal is a fact, too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from tfcluster.doctor.checks import Unknown
from tfcluster.errors import NotFoundError, RefusedError, UnreachableError
from tfcluster.kube.api import (
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    NETWORK_POLICIES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    TFCLUSTERS,
    KubernetesApi,
    Object,
    Resource,
)
from tfcluster_operator.declaration import naming


class Reference(NamedTuple):
    """An object of the cluster's namespace that a template names, and the job whose template does."""

    kind: str
    name: str
    job: str


def references_of(job: str, template: Mapping[str, Any]) -> set[Reference]:
    """Give what a template cannot do without; what it calls optional is left out."""
    spec = template.get("spec") or {}
    found = {*_of_pod(spec), *_of_volumes(spec)}
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            found.update(_of_container(container))
    return {Reference(kind, name, job) for kind, name in found if name}


def _of_pod(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "")
    for secret in spec.get("imagePullSecrets") or ():
        yield "Secret", str(secret.get("name", ""))


def _of_volumes(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in spec.get("volumes") or ():
        claim, projected = volume.get("persistentVolumeClaim") or {}, volume.get("projected") or {}
        yield "PersistentVolumeClaim", str(claim.get("claimName", ""))
        for source in (volume, *(projected.get("sources") or ())):
            secret, config_map = source.get("secret") or {}, source.get("configMap") or {}
            if not secret.get("optional"):
                yield "Secret", str(secret.get("secretName") or secret.get("name") or "")
            if not config_map.get("optional"):
                yield "ConfigMap", str(config_map.get("name", ""))


def _of_container(container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    sources = [one.get("valueFrom") or {} for one in container.get("env") or ()]
    named = {"Secret": ("secretKeyRef", "secretRef"), "ConfigMap": ("configMapKeyRef", "configMapRef")}
    for source in (*sources, *(container.get("envFrom") or ())):
        for kind, keys in named.items():
            for key in keys:
                reference = source.get(key) or {}
                if not reference.get("optional"):
                    yield kind, str(reference.get("name", ""))


_T = TypeVar("_T")

#: By this label of its chart, and of install.yaml, the operator is found.
OPERATOR_LABELS: Final = "app.kubernetes.io/name=tfcluster-operator"
#: Where the docs install it: looked into if this user may not look everywhere.
USUAL_NAMESPACE: Final = "tfcluster-system"
DAEMON_SETS: Final = Resource("apps/v1", "daemonsets")
KINDS: Final = {
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "ConfigMap": Resource("v1", "configmaps"),
    "Secret": Resource("v1", "secrets"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
}
RIGHTS: Final = (
    ("get", TFCLUSTERS, "", "status"),
    ("list", TFCLUSTERS, "", "status"),
    ("create", TFCLUSTERS, "", "create"),
    ("patch", TFCLUSTERS, "", "scale, suspend, restart"),
    ("delete", TFCLUSTERS, "", "delete"),
    ("list", PODS, "", "status"),
    ("get", PODS, "log", "logs"),
    ("create", PODS, "exec", "doctor from inside"),
    ("create", PODS, "portforward", "session"),
)
_BESIDE_EACH_OTHER: Final = 8
#: A leader renews every 2 s and loses its claim after 15 s; a clock that is off is told from a dead leader by another
#: look.
_RENEWED_WITHIN, _LOOKS_AGAIN, _PAUSE = 15.0, 6.0, 0.5


@dataclass(frozen=True, slots=True)
class Leader:
    """A Lease: who holds it, and whether it is renewed; ``skew`` is how far its clock is behind ours, in seconds."""

    name: str
    holder: str
    renewed: bool
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class Installation:
    """What was found of the server and of the operator; Unknown where it could not be looked at, None where it is not.

    ``operators`` are the Deployments; ``leaders`` has a Lease for each of them that elects, by namespace and name of
    the Deployment.  ``rights`` tells for each of RIGHTS whether this user has it, ``reported`` whether a TFCluster of
    the namespace was ever reported on.
    """

    namespace: str
    server: str
    version: Mapping[str, Any] | Unknown
    served: bool | Unknown
    definition: Object | Unknown | None
    operators: Sequence[Object] | Unknown
    everywhere: bool
    leaders: Mapping[tuple[str, str], Leader | Unknown | None]
    rights: Mapping[int, bool | Unknown]
    reported: bool | Unknown


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found around one cluster; Unknown where it could not be looked at.

    ``missing`` names what templates name and is not there; ``unseen`` what could not be looked for.
    """

    service: Object | Unknown | None
    policies: Sequence[Object] | Unknown
    quotas: Sequence[Object] | Unknown
    nodes: Sequence[Object] | Unknown
    networks: Sequence[Object] | Unknown
    missing: Sequence[Reference]
    unseen: Sequence[Reference]


def ask(question: Callable[[], _T]) -> _T | Unknown:
    """Give the answer to a request, or why there is none; that there is nothing is an answer, too, where it is None."""
    try:
        return question()
    except (RefusedError, UnreachableError) as error:
        return Unknown(str(error))


def ask_all(questions: Mapping[Any, Callable[[], Any]]) -> dict[Any, Any]:
    """Ask several at once, and give each answer, or Unknown, by its name."""
    with ThreadPoolExecutor(_BESIDE_EACH_OTHER) as pool:
        answers = {name: pool.submit(ask, question) for name, question in questions.items()}
        return {name: answer.result() for name, answer in answers.items()}


def installation_of(api: KubernetesApi) -> Installation:
    """Look at the server, the definition, the operator and this user's rights."""
    found = ask_all(
        {
            "version": partial(version_of, api),
            "served": partial(_is_served, api),
            "definition": partial(api.find, DEFINITIONS, f"{naming.PLURAL}.{naming.GROUP}"),
            "operators": partial(operators_of, api),
            "reported": lambda: any((one.get("status") or {}).get("conditions") for one in api.list(TFCLUSTERS)),
        }
    )
    operators, everywhere = found["operators"]
    rights = {number: partial(api.may, *right[:3]) for number, right in enumerate(RIGHTS)}
    return Installation(
        namespace=api.namespace,
        server=api.server,
        version=found["version"],
        served=found["served"],
        definition=found["definition"],
        operators=operators,
        everywhere=everywhere,
        leaders={} if isinstance(operators, Unknown) else _leaders(api, operators),
        rights=ask_all(rights),
        reported=found["reported"],
    )


def version_of(api: KubernetesApi) -> Any:
    """Ask the API server for its version."""
    return json.loads(api.read("/version"))


def surroundings_of(api: KubernetesApi, name: str, templates: Mapping[str, Mapping[str, Any]]) -> Surroundings:
    named = sorted({one for job, template in templates.items() for one in references_of(job, template)})
    found = ask_all(
        {
            "service": lambda: api.find(SERVICES, naming.service_name(name)),
            "policies": lambda: list(api.list(NETWORK_POLICIES, labels=f"{naming.LABEL_CLUSTER}={name}")),
            "quotas": lambda: list(api.list(RESOURCE_QUOTAS)),
            "nodes": lambda: list(api.list(NODES)),
            "networks": lambda: list(api.list(DAEMON_SETS, "")),
            **{one: partial(api.exists, KINDS[one.kind], one.name) for one in named},
        }
    )
    return Surroundings(
        **{part: found[part] for part in ("service", "policies", "quotas", "nodes", "networks")},
        missing=[one for one in named if found[one] is False],
        unseen=[one for one in named if isinstance(found[one], Unknown)],
    )


def _is_served(api: KubernetesApi) -> bool:
    try:
        return any(one.get("name") == naming.PLURAL for one in api.resources_of(naming.API_VERSION))
    except NotFoundError:
        return False


def operators_of(api: KubernetesApi) -> tuple[Sequence[Object] | Unknown, bool]:
    """Find the Deployments of operators, and say whether all namespaces were looked into.

    A user who may not look everywhere looks where the operator usually is, and into the own namespace.
    """
    everywhere = ask(partial(api.list, DEPLOYMENTS, "", labels=OPERATOR_LABELS))
    if not isinstance(everywhere, Unknown):
        return everywhere, True
    nearby = dict.fromkeys([USUAL_NAMESPACE, api.namespace])
    answers = ask_all({one: partial(api.list, DEPLOYMENTS, one, labels=OPERATOR_LABELS) for one in nearby})
    known = [answer for answer in answers.values() if not isinstance(answer, Unknown)]
    return [one for of_namespace in known for one in of_namespace] if known else everywhere, False


def options_of(deployment: Object) -> dict[str, list[str]]:
    """Give the options that an operator is started with, each with its values; [] of a flag.

    The chart gives each option and its value as two words.
    """
    containers = deployment["spec"]["template"]["spec"].get("containers") or [{}]
    operator = next((one for one in containers if one.get("name") == "operator"), containers[0])
    options: dict[str, list[str]] = {}
    name = ""
    for word in operator.get("args") or ():
        if word.startswith("--"):
            name, _, value = word.partition("=")
            options.setdefault(name, []).extend([value] if value else [])
        elif name:
            options[name].append(word)
    return options


def _leaders(api: KubernetesApi, operators: Sequence[Object]) -> dict[tuple[str, str], Leader | Unknown | None]:
    questions: dict[Any, Callable[[], Any]] = {}
    for one in operators:
        options, metadata = options_of(one), one["metadata"]
        if "--leader-election" in options:
            name = (options.get("--lease-name") or ["tfcluster-operator"])[-1]
            namespace = (options.get("--lease-namespace") or [metadata["namespace"]])[-1]
            questions[metadata["namespace"], metadata["name"]] = partial(_leader, api, name, namespace)
    return ask_all(questions)


def _leader(api: KubernetesApi, name: str, namespace: str) -> Leader | None:
    from tfcluster.kube.api import seconds_of  # noqa: PLC0415 - msgspec is imported where a pod or a time is read

    give_up = time.monotonic() + _LOOKS_AGAIN
    first: Any = None
    while True:
        lease = api.find(LEASES, name, namespace)
        if lease is None:
            return None
        spec = lease.get("spec") or {}
        holder, renewed = str(spec.get("holderIdentity") or ""), spec.get("renewTime")
        skew = time.time() - seconds_of(renewed)
        if holder and (0 <= skew < _RENEWED_WITHIN or (first and renewed != first)):
            return Leader(name, holder, renewed=True, skew=skew)
        if time.monotonic() > give_up:
            return Leader(name, holder, renewed=False, skew=skew)
        first = first or renewed
        time.sleep(_PAUSE)
