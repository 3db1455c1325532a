"""Facts for ``tfcluster doctor``: requests made beside each other, whose rejection is a fact, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from tfcluster.doctor.checks import Unknown
from tfcluster.errors import NotFoundError, RefusedError, UnreachableError
from tfcluster.kube.api import (
    DEFINITIONS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    PODS,
    TFCLUSTERS,
    KubernetesApi,
    Object,
)
from tfcluster_operator.declaration import naming

_T = TypeVar("_T")
#: The label of the operator in its chart and in install.yaml; the doctor finds the operator with it.
OPERATOR_LABELS: Final = "app.kubernetes.io/name=tfcluster-operator"
#: The namespace that the docs install into: searched if this user cannot search all namespaces.
USUAL_NAMESPACE: Final = "tfcluster-system"
RIGHTS: Final = (
    ("get", TFCLUSTERS, "", "status"),
    ("list", TFCLUSTERS, "", "status"),
    ("create", TFCLUSTERS, "", "create"),
    ("patch", TFCLUSTERS, "", "scale, suspend, restart"),
    ("delete", TFCLUSTERS, "", "delete"),
    ("list", PODS, "", "status"),
    ("get", PODS, "log", "logs"),
    ("create", PODS, "portforward", "port-forward"),
)
_BESIDE_EACH_OTHER: Final = 8


@dataclass(frozen=True, slots=True)
class Installation:
    """The state of the API server and the operator; Unknown if it could not be read, None if it does not exist.

    ``operators`` are the Deployments. ``rights`` says for each of RIGHTS whether this user has it, ``reported`` whether
    an operator ever reported on a TFCluster of the namespace.
    """

    namespace: str
    server: str
    version: Mapping[str, Any] | Unknown
    served: bool | Unknown
    definition: Object | Unknown | None
    operators: Sequence[Object] | Unknown
    everywhere: bool
    rights: Mapping[int, bool | Unknown]
    reported: bool | Unknown


def ask(question: Callable[[], _T]) -> _T | Unknown:
    """Return the answer to a request (None if the object does not exist), or Unknown with the reason of the error."""
    try:
        return question()
    except (RefusedError, UnreachableError) as error:
        return Unknown(str(error))


def ask_all(questions: Mapping[Any, Callable[[], Any]]) -> dict[Any, Any]:
    """Ask several questions in parallel, and return each answer, or Unknown, by its name."""
    with ThreadPoolExecutor(_BESIDE_EACH_OTHER) as pool:
        answers = {name: pool.submit(ask, question) for name, question in questions.items()}
        return {name: answer.result() for name, answer in answers.items()}


def installation_of(api: KubernetesApi) -> Installation:
    """Read the server's version, the CRD, the operator and this user's permissions."""
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
    found |= {"operators": operators, "everywhere": everywhere, "rights": ask_all(rights)}
    return Installation(namespace=api.namespace, server=api.server, **found)


def version_of(api: KubernetesApi) -> Any:
    return json.loads(api.read("/version"))


def policies_of(api: KubernetesApi, name: str) -> Sequence[Object] | Unknown:
    return ask(partial(api.list, NETWORK_POLICIES, labels=f"{naming.LABEL_CLUSTER}={name}"))


def _is_served(api: KubernetesApi) -> bool:
    try:
        return any(one.get("name") == naming.PLURAL for one in api.resources_of(naming.API_VERSION))
    except NotFoundError:
        return False


def operators_of(api: KubernetesApi) -> tuple[Sequence[Object] | Unknown, bool]:
    """Find the Deployments of operators, and return whether all namespaces were searched."""
    everywhere = ask(partial(api.list, DEPLOYMENTS, "", labels=OPERATOR_LABELS))
    if not isinstance(everywhere, Unknown):
        return everywhere, True
    nearby = dict.fromkeys([USUAL_NAMESPACE, api.namespace])
    answers = ask_all({one: partial(api.list, DEPLOYMENTS, one, labels=OPERATOR_LABELS) for one in nearby})
    known = [answer for answer in answers.values() if not isinstance(answer, Unknown)]
    return [one for of_namespace in known for one in of_namespace] if known else everywhere, False


def options_of(deployment: Object) -> dict[str, list[str]]:
    """Return the options that an operator is started with, each with its values; [] for a flag."""
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
