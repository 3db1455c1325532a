"""The checks of ``tfcluster doctor``; what is installed, and whether it works: a rejected request is a fact, too."""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import tfcluster_resolver
from tfcluster.errors import NotFoundError, RefusedError, UnreachableError
from tfcluster.kube.api import DEFINITIONS, DEPLOYMENTS, PODS, TFCLUSTERS, KubernetesApi, Object
from tfcluster.manifest.shaping import nodes
from tfcluster.manifest.validate import definition
from tfcluster.terminal import few
from tfcluster_operator.declaration import naming

Verdict = Literal["ok", "warning", "failed", "unknown"]

#: The most severe first; "unknown" means that this user is not permitted to read it.
GRAVITY: Final[tuple[Verdict, ...]] = ("failed", "warning", "unknown", "ok")


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that could not be read, and why."""

    why: str


def worst(checks: Iterable[Check]) -> Verdict:
    """Return the worst verdict; "unknown" is not a fault."""
    found = {one.verdict for one in checks}
    return next((verdict for verdict in ("failed", "warning") if verdict in found), "ok")


def what_to_do(checks: Sequence[Check]) -> list[str]:
    """Return what to do, the most important first: later checks depend on earlier ones."""
    wrong = [one for verdict in GRAVITY for one in checks if one.verdict == verdict and one.remedy]
    return list(dict.fromkeys(one.remedy for one in wrong))


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


def ask(question: Callable[[], Any]) -> Any:
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


def check_server(api: KubernetesApi) -> Check:
    return judge_server(api.server, ask(partial(version_of, api)))


def check_installation(api: KubernetesApi) -> Iterator[Check]:
    return judge_installation(installation_of(api), definition())


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


def _is_served(api: KubernetesApi) -> bool:
    with contextlib.suppress(NotFoundError):
        return any(one.get("name") == naming.PLURAL for one in api.resources_of(naming.API_VERSION))
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


#: The minors of Kubernetes 1 in docs/reference/versions.md: the oldest supported, the newest tested.
OLDEST_MINOR: Final = 34
NEWEST_MINOR: Final = 37
_INSTALL: Final = "Install the chart: helm install tfcluster charts/tfcluster-operator -n tfcluster-system"
_UPGRADE: Final = "Upgrade the chart; docs/operate/upgrading.md has the steps."
_UPGRADE_CLIENT: Final = "Upgrade this client to the operator's version: pip install --upgrade 'tfcluster[client]'"


def judge_installation(found: Installation, packaged: Mapping[str, Any]) -> Iterator[Check]:
    yield judge_server(found.server, found.version)
    if isinstance(found.version, Unknown) and isinstance(found.served, Unknown):
        return  # the API server does not answer: every other check would report the same
    yield _definition(found, packaged)
    yield from _operator(found)
    yield _rights(found)


def judge_server(server: str, version: Mapping[str, Any] | Unknown) -> Check:
    name = "API server"
    if isinstance(version, Unknown):
        remedy = "Choose the right --context or --kubeconfig, and see that the API server is up."
        return Check(name, "failed", version.why, remedy)
    spelled = str(version.get("gitVersion") or "of an unknown version")
    message = f"{server} answers, {spelled}"
    numbers = re.match(r"v?1\.(\d+)", spelled)
    if numbers is None:
        return Check(name, "warning", f"{message}; its version cannot be read")
    minor = int(numbers[1])
    if minor < OLDEST_MINOR:
        remedy = f"Upgrade Kubernetes to 1.{OLDEST_MINOR} or newer; docs/reference/versions.md says what is missing."
        return Check(name, "warning", f"{message}; supported is 1.{OLDEST_MINOR} and newer", remedy)
    newer = f"; tests ran with 1.{NEWEST_MINOR} at the newest" if minor > NEWEST_MINOR else ""
    return Check(name, "ok", message + newer)


def _definition(found: Installation, packaged: Mapping[str, Any]) -> Check:
    name, installed = "definition", found.definition
    if found.served is False:
        message = f"the kind {naming.KIND} of {naming.API_VERSION} is not served: it is not installed, or not yet"
        return Check(name, "failed", message, _INSTALL)
    if isinstance(installed, Unknown) or installed is None:
        why = f"; whether it is as new as this client cannot be seen: {installed.why}" if installed is not None else ""
        return Check(name, "ok", f"{naming.KIND} of {naming.API_VERSION} is served{why}")
    if lacking := sorted({*_fields(packaged)} - {*_fields(installed)}):
        return Check(name, "failed", f"it is older than this client: it lacks {few(lacking)}", _UPGRADE)
    return Check(name, "ok", f"{naming.KIND} of {naming.API_VERSION} is served, as new as this client")


def _fields(definition: Mapping[str, Any]) -> Iterator[str]:
    """Return the fields of the schema."""
    for version in (definition.get("spec") or {}).get("versions") or ():
        for path, _ in nodes(version) if version.get("name") == naming.VERSION else ():
            if path[-2:-1] == ("properties",):
                yield ".".join(str(step) for step in path[2:] if step != "properties").replace(
                    "additionalProperties", "*"
                )


def _operator(found: Installation) -> Iterator[Check]:
    name = "operator"
    if isinstance(found.operators, Unknown):
        yield Check(name, "unknown", found.operators.why)
        return
    if not found.operators:
        message = "no Deployment has the labels of the operator's chart"
        if not found.everywhere:
            why = "none is in the namespaces that you may look into; ask an administrator where it is"
            yield Check(name, "unknown", why)
        elif found.reported is True:
            yield Check(name, "warning", f"{message}; an operator has reported on TFClusters here", _INSTALL)
        else:
            yield Check(name, "failed", message, _INSTALL)
        return
    for one in found.operators:
        yield _available(one)
        yield from _version(one)
    yield _namespaces(found.operators, found)


def _where(deployment: Object) -> str:
    return f"{deployment['metadata'].get('namespace')}/{deployment['metadata']['name']}"


def _available(deployment: Object) -> Check:
    about, status = deployment["metadata"], deployment.get("status") or {}
    wanted = deployment["spec"].get("replicas", 1)
    available = int(status.get("availableReplicas") or 0)
    message = f"{_where(deployment)}: {available} of {wanted} available"
    if wanted == 0:
        remedy = f"kubectl scale deployment {about['name']} -n {about.get('namespace')} --replicas=2"
        return Check("operator", "failed", f"{message}: it is scaled to 0", remedy)
    if available == 0:
        said = [str(one.get("message")) for one in status.get("conditions") or () if one.get("status") == "False"]
        remedy = f"kubectl describe pods -n {about.get('namespace')} -l {OPERATOR_LABELS}"
        return Check("operator", "failed", "; ".join([message, *said]), remedy)
    return Check("operator", "ok" if available >= wanted else "warning", message)


def _version(deployment: Object) -> Iterator[Check]:
    theirs = (deployment["metadata"].get("labels") or {}).get("app.kubernetes.io/version")
    ours = tfcluster_resolver.__version__
    if not theirs:
        return
    message = f"the operator is {theirs}, this client {ours}"
    if theirs == ours or _minor(theirs) == _minor(ours):
        yield Check("versions", "ok", message)
    else:
        newer = _minor(theirs) > _minor(ours)
        yield Check("versions", "warning", message, _UPGRADE_CLIENT if newer else _UPGRADE)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _namespaces(operators: Sequence[Object], found: Installation) -> Check:
    name, watched = "namespaces", set()
    for one in operators:
        options = options_of(one)
        if "--all-namespaces" in options:
            return Check(name, "ok", f"{_where(one)} works in all namespaces")
        watched |= set(options.get("--namespace", ()))
    listed = ", ".join(sorted(watched)) or "none that can be seen"
    if found.namespace in watched:
        return Check(name, "ok", f"an operator works in {found.namespace}")
    remedy = f"Add {found.namespace} to the chart's watchNamespaces, or use one of these namespaces: {listed}."
    message = f"no operator works in namespace {found.namespace}; they work in {listed}"
    return Check(name, "failed", message, remedy) if found.everywhere and watched else Check(name, "unknown", message)


def _rights(found: Installation) -> Check:
    missing = [number for number, has in found.rights.items() if has is False]
    unseen = next((has for has in found.rights.values() if isinstance(has, Unknown)), None)
    if missing:
        rights = [RIGHTS[number] for number in missing]
        told = [f"{verb} {resource.plural}{sub and f'/{sub}'} (for {why})" for verb, resource, sub, why in rights]
        message = f"missing permissions in namespace {found.namespace}: {', '.join(told)}"
        remedy = "Ask an administrator for the role edit in this namespace; view is enough to look."
        return Check("rights", "warning", message, remedy)
    if unseen is not None:
        return Check("rights", "unknown", unseen.why)
    return Check("rights", "ok", f"you have all required permissions in namespace {found.namespace}")
