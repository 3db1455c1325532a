"""Facts for ``tfcluster doctor``: requests made beside each other, whose refusal is a fact, too."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from tfcluster.checks import Unknown
from tfcluster.errors import NotFoundError, RefusedError, UnreachableError
from tfcluster.kubernetes_api import (
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
from tfcluster.references import Reference, references_of
from tfcluster_operator.declaration import naming

_T = TypeVar("_T")

#: By this label of its chart, and of install.yaml, the operator is found.
OPERATOR_LABELS: Final = "app.kubernetes.io/name=tfcluster-operator"
#: Where the docs install it: looked into if this user may not look everywhere.
USUAL_NAMESPACE: Final = "tfcluster-system"
ADMISSION_POLICIES: Final = Resource("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False)
WEBHOOKS: Final = tuple(
    Resource("admissionregistration.k8s.io/v1", f"{kind}webhookconfigurations", namespaced=False)
    for kind in ("validating", "mutating")
)
DAEMON_SETS: Final = Resource("apps/v1", "daemonsets")
KINDS: Final = {
    "PersistentVolumeClaim": Resource("v1", "persistentvolumeclaims"),
    "ConfigMap": Resource("v1", "configmaps"),
    "Secret": Resource("v1", "secrets"),
    "ServiceAccount": Resource("v1", "serviceaccounts"),
}
#: What a user of TFClusters needs: the verb, the kind, the subresource, and what for.
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
    the namespace was ever reported on.  ``webhooks`` are those that judge
    pods or TFClusters and whose Service does not exist.
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
    policies: Sequence[Object] | Unknown
    webhooks: Sequence[tuple[str, str]] | Unknown


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


def installation_of(api: KubernetesApi, *, local: bool = False) -> Installation:
    """Look at the server, the definition, the operator and this user's rights."""
    rights = {
        number: partial(api.may, verb, resource, subresource=subresource)
        for number, (verb, resource, subresource, _) in enumerate(RIGHTS)
    }
    found = ask_all(
        {
            "version": lambda: json.loads(api.read("/version")),
            "served": lambda: _is_served(api),
            **({} if local else _of_the_operator(api)),
        }
    )
    everywhere = not isinstance(found.get("operators"), Unknown)
    operators = found.get("operators", ())
    if not everywhere:
        operators = _operators_nearby(api, operators)
    return Installation(
        namespace=api.namespace,
        server=api.server,
        version=found["version"],
        served=found["served"],
        definition=found.get("definition"),
        operators=operators,
        everywhere=everywhere,
        leaders={} if isinstance(operators, Unknown) else _leaders(api, operators),
        rights={} if local else ask_all(rights),
        reported=found.get("reported", False),
        policies=found.get("policies", ()),
        webhooks=found.get("webhooks", ()),
    )


def _of_the_operator(api: KubernetesApi) -> dict[str, Callable[[], Any]]:
    return {
        "definition": lambda: api.find(DEFINITIONS, f"{naming.PLURAL}.{naming.GROUP}"),
        "operators": lambda: list(api.list(DEPLOYMENTS, "", labels=OPERATOR_LABELS)),
        "reported": lambda: any((one.get("status") or {}).get("conditions") for one in api.list(TFCLUSTERS)),
        "policies": lambda: list(api.list(ADMISSION_POLICIES, labels=OPERATOR_LABELS)),
        "webhooks": lambda: _webhooks_without_a_service(api),
    }


def surroundings_of(api: KubernetesApi, name: str, templates: Mapping[str, Mapping[str, Any]]) -> Surroundings:
    """Look at what surrounds a cluster."""
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
        served = json.loads(api.read(f"/apis/{naming.API_VERSION}"))
    except NotFoundError:
        return False
    return any(one.get("name") == naming.PLURAL for one in served.get("resources") or ())


def _operators_nearby(api: KubernetesApi, refused: Unknown) -> Sequence[Object] | Unknown:
    """Look where the operator usually is, and in this user's own namespace."""
    answers = ask_all(
        {
            namespace: partial(api.list, DEPLOYMENTS, namespace, labels=OPERATOR_LABELS)
            for namespace in dict.fromkeys([USUAL_NAMESPACE, api.namespace])
        }
    )
    known = [answer for answer in answers.values() if not isinstance(answer, Unknown)]
    return [one for of_namespace in known for one in of_namespace] if known else refused


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
    from tfcluster.observed import seconds_of  # noqa: PLC0415 - msgspec is imported where a pod or a time is read

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


def _webhooks_without_a_service(api: KubernetesApi) -> list[tuple[str, str]]:
    """Give the webhooks that may refuse pods or TFClusters because nobody is there to answer."""
    dangling = []
    for resource in WEBHOOKS:
        for configuration in api.list(resource):
            for hook in configuration.get("webhooks") or ():
                service = (hook.get("clientConfig") or {}).get("service")
                if service is None or hook.get("failurePolicy") == "Ignore" or not _concerns_us(hook):
                    continue
                if not api.exists(SERVICES, service["name"], service["namespace"]):
                    name = f"{configuration['metadata']['name']}/{hook['name']}"
                    dangling.append((name, f"{service['namespace']}/{service['name']}"))
    return dangling


def _concerns_us(hook: Mapping[str, Any]) -> bool:
    for rule in hook.get("rules") or ():
        groups, plurals = set(rule.get("apiGroups") or ()), set(rule.get("resources") or ())
        if groups & {"*", naming.GROUP} and plurals & {"*", "*/*", naming.PLURAL}:
            return True
        if groups & {"*", ""} and plurals & {"*", "*/*", "pods", "services", "configmaps"}:
            return True
    return False
