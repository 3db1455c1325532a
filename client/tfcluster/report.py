"""``tfcluster report``: all that helps to find a bug, in files, and nothing that is secret as far as one can tell."""

from __future__ import annotations

import gzip
import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Final

import tfcluster_resolver
from tfcluster.client import Client
from tfcluster.doctor.checks import Check, Unknown
from tfcluster.doctor.checks import document_of as checks_of
from tfcluster.doctor.diagnosis import diagnose
from tfcluster.doctor.facts import OPERATOR_LABELS, ask, ask_all, operators_of
from tfcluster.kube.api import (
    CONFIG_MAPS,
    DEFINITIONS,
    DISRUPTION_BUDGETS,
    EVENTS,
    LEASES,
    NETWORK_POLICIES,
    NODES,
    POD_GROUPS,
    POD_GROUPS_OF_PLUGINS,
    POD_GROUPS_OF_VOLCANO,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    WORKLOADS,
    KubernetesApi,
    Object,
)
from tfcluster.manifest.yaml import write
from tfcluster.redaction import Redaction, secrets_in
from tfcluster.status.document import document_of as status_of
from tfcluster.status.load import look
from tfcluster.status.picture import GOOD, Picture
from tfcluster.status.text import Paper, draw
from tfcluster_operator.declaration import naming

#: Of so many pods there are the objects, of so many the logs; those that are not well go first.
MOST_PODS: Final = 300
MOST_LOGS: Final = 40
#: The end of each log: so many lines, and of these so many bytes.
_LINES: Final = 5_000
_BYTES: Final = 512 * 1024
_METRICS_PORT: Final = 8081
_OF_THE_CLUSTER: Final = {
    "pods": PODS,
    "services": SERVICES,
    "networkpolicies": NETWORK_POLICIES,
    "poddisruptionbudgets": DISRUPTION_BUDGETS,
    "podgroups": POD_GROUPS,
    "podgroups of scheduler-plugins": POD_GROUPS_OF_PLUGINS,
    "podgroups of Volcano": POD_GROUPS_OF_VOLCANO,
    "workloads": WORKLOADS,
}
_AROUND: Final = {"events": EVENTS, "quotas": RESOURCE_QUOTAS, "nodes": NODES}
_OF_NODES: Final = ("capacity", "allocatable", "conditions")
_OF_SYSTEMS: Final = ("kubeletVersion", "osImage", "kernelVersion", "containerRuntimeVersion", "architecture")
_README: Final = """\
A report of `tfcluster report`, version {version}, of TFCluster {namespace}/{name}, made at {time}.

What is in it
  status.txt, status.json      what `tfcluster status` says
  doctor.txt, doctor.json      what `tfcluster doctor` says
  cluster/                     the TFCluster, its pods, Service, views, NetworkPolicies,
                               PodDisruptionBudgets, PodGroups, Workloads, events, and its quotas
  logs/                        the ends of the logs of its tasks, of failed pods that are kept, too
  operator/                    the operator's Deployment, pods, Lease, logs and metrics
  nodes.yaml                   what nodes there are: sizes, versions, conditions
  versions.json                what this client and the API server are
  gaps.txt                     what could not be read, and why; what there was too much of

What is left out
  The values of environment variables; Secrets, and ConfigMaps that are not the operator's, were not read at all.
  The values of HTTP headers, of volume drivers' attributes, and of annotations that neither Kubernetes nor TFCluster
  defines; copies of whole objects in annotations and managedFields.
  In commands, arguments, messages and logs: what follows a name such as password, token, secret or key; credentials in
  URLs; the values of variables that have such a name; tokens and private keys of well-known forms.

What may still be in it
  Names of images, namespaces, nodes and buckets, addresses, and whatever a program wrote to its log or was given as an
  argument under a harmless name. Look through it before you give it away; --no-logs leaves the logs out.
"""


class Report:
    """The files of one report."""

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        logs: bool,
        say: Callable[[str], None],
        local: bool = False,
        now: float | None = None,
    ) -> None:
        self._client = client
        self._api: KubernetesApi = client.api
        self._name = name
        self._with_logs = logs
        self._local = local
        self._say = say
        self._now = time.time() if now is None else now
        self._redaction = Redaction()
        self._files: dict[str, bytes] = {}
        self._gaps: list[str] = []

    def files(self, checks: Iterable[Check] | None = None) -> dict[str, bytes]:
        self._say("reading the cluster")
        body, picture = look(self._api, self._name)
        found = self._ask_for_objects()
        pods = self._known("pods", found["pods"])
        # NB: what is secret is known before the first text is written.
        self._redaction = Redaction(secrets_in([body, *pods]))
        self._cluster(body, picture, found, pods)
        self._say("asking the doctor")
        self._doctor(diagnose(self._api, self._name, local=self._local) if checks is None else checks)
        self._say("reading the operator")
        self._operator(found)
        if self._with_logs:
            self._say("reading logs")
            self._logs(_worst_first(pods, picture))
        else:
            self._gaps.append("logs: left out by --no-logs")
        self._about(found)
        return dict(self._files)

    def _ask_for_objects(self) -> dict[str, Any]:
        labels = f"{naming.LABEL_CLUSTER}={self._name}"
        api = self._api
        return ask_all(
            {
                **{name: partial(api.list, resource, labels=labels) for name, resource in _OF_THE_CLUSTER.items()},
                **{name: partial(api.list, resource) for name, resource in _AROUND.items()},
                "views": partial(api.list, CONFIG_MAPS, labels=f"{labels},{naming.LABEL_JOB}"),
                "version": partial(api.read, "/version"),
                "definition": partial(api.find, DEFINITIONS, f"{naming.PLURAL}.{naming.GROUP}"),
                "deployments": lambda: operators_of(api)[0],
            }
        )

    # --- the parts

    def _cluster(self, body: Object, picture: Picture, found: Mapping[str, Any], pods: Sequence[Object]) -> None:
        chosen = _worst_first(pods, picture)[:MOST_PODS]
        if len(chosen) < len(pods):
            self._gaps.append(f"pods: {len(chosen)} of {len(pods)}, those that are not well first")
        self._objects("cluster/tfcluster.yaml", [body])
        self._objects("cluster/pods.yaml", sorted(chosen, key=_name_of))
        for name in ("services", "networkpolicies", "poddisruptionbudgets", "quotas"):
            self._objects(f"cluster/{name}.yaml", self._known(name, found[name]))
        self._objects("cluster/views.yaml", self._known("views", found["views"]), files=True)
        if (body["spec"].get("scheduling") or {}).get("gang") is not None:
            # NB: a server that has no PodGroups lacks nothing where nobody asks for them.
            others = (found[f"podgroups of {scheduler}"] for scheduler in ("scheduler-plugins", "Volcano"))
            groups = [group for answer in others if not isinstance(answer, Unknown) for group in answer]
            self._objects("cluster/podgroups.yaml", groups or self._known("podgroups", found["podgroups"]))
        if naming.LABEL_QUEUE in (body["metadata"].get("labels") or {}):
            self._objects("cluster/workloads.yaml", self._known("workloads", found["workloads"]))
        names = {self._name, *map(_name_of, pods)}
        events = [one for one in self._known("events", found["events"]) if _about(one) in names]
        self._objects("cluster/events.yaml", sorted(events, key=_time_of))
        self._text("status.txt", "\n".join(line.plain for line in draw(picture, Paper(), now=self._now)))
        self._json("status.json", status_of(picture))

    def _doctor(self, checks: Iterable[Check]) -> None:
        told = list(checks)
        lines = [f"{one.verdict:10}{one.name}: {one.message}. {one.remedy}".rstrip(". ") for one in told]
        self._text("doctor.txt", "\n".join(lines))
        self._json("doctor.json", checks_of(told))

    def _operator(self, found: Mapping[str, Any]) -> None:
        deployments = self._known("operator", found["deployments"])
        self._objects("operator/deployments.yaml", deployments)
        for namespace in sorted({one["metadata"]["namespace"] for one in deployments}):
            answers = ask_all(
                {
                    "pods": partial(self._api.list, PODS, namespace, labels=OPERATOR_LABELS),
                    "leases": partial(self._api.list, LEASES, namespace),
                }
            )
            pods = self._known(f"operator pods in {namespace}", answers["pods"])
            self._objects(f"operator/{namespace}/pods.yaml", pods)
            names = {one["metadata"]["name"] for one in deployments}
            leases = [one for one in self._known(f"leases in {namespace}", answers["leases"]) if _name_of(one) in names]
            self._objects(f"operator/{namespace}/leases.yaml", leases)
            self._operator_pods(namespace, pods)

    def _operator_pods(self, namespace: str, pods: Sequence[Object]) -> None:
        for pod in pods:
            name = _name_of(pod)
            if self._with_logs:
                self._log(f"operator/{namespace}/{name}.log", name, namespace)
            path = f"/api/v1/namespaces/{namespace}/pods/{name}:{_METRICS_PORT}/proxy/metrics"
            metrics = ask(partial(self._api.read, path))
            if isinstance(metrics, Unknown):
                self._gaps.append(f"metrics of {name}: {metrics.why}")
            else:
                self._text(f"operator/{namespace}/{name}.metrics.txt", metrics.decode("utf-8", "replace"))

    def _logs(self, pods: Sequence[Object]) -> None:
        for pod in pods[:MOST_LOGS]:
            name, status = _name_of(pod), pod.get("status") or {}
            told = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
            for container in told:
                if "waiting" in (container.get("state") or {}) and not container.get("restartCount"):
                    continue  # it has never run
                self._log(f"logs/{name}/{container['name']}.log", name, None, container["name"])
                if container.get("restartCount"):
                    self._log(
                        f"logs/{name}/{container['name']}.previous.log", name, None, container["name"], previous=True
                    )
        if len(pods) > MOST_LOGS:
            self._gaps.append(f"logs: of {MOST_LOGS} of {len(pods)} pods, those that are not well first")

    def _log(self, path: str, pod: str, namespace: str | None, container: str = "", *, previous: bool = False) -> None:
        lines = ask(lambda: list(self._api.log(pod, namespace, container=container, previous=previous, tail=_LINES)))
        if isinstance(lines, Unknown):
            self._gaps.append(f"{path}: {lines.why}")
            return
        # NB: what is left out is found before the text is cut: half a secret is none that one recognises.
        text = self._redaction.text("\n".join(lines)).encode()
        if len(text) > _BYTES:
            self._gaps.append(f"{path}: the last {_BYTES} of {len(text)} bytes")
        self._files[path] = text[-_BYTES:] + b"\n"

    def _about(self, found: Mapping[str, Any]) -> None:
        nodes = self._known("nodes", found["nodes"])
        self._objects("nodes.yaml", [_node(one) for one in nodes])
        server = found["version"]
        definition = found["definition"]
        self._json(
            "versions.json",
            {
                "client": tfcluster_resolver.__version__,
                "python": sys.version.split()[0],
                "platform": platform.platform(),
                "libraries": {name: _version(name) for name in ("kubernetes", "click", "rich", "urllib3")},
                "server": {"unknown": server.why} if isinstance(server, Unknown) else json.loads(server),
                "definition": _definition(definition),
            },
        )
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now))
        about = {"version": tfcluster_resolver.__version__, "name": self._name, "namespace": self._client.namespace}
        self._text("README.txt", _README.format(time=when, **about).rstrip())
        self._text("gaps.txt", "\n".join(self._gaps) or "Everything could be read.")

    # --- writing

    def _known(self, what: str, answer: Any) -> list[Object]:
        if isinstance(answer, Unknown):
            self._gaps.append(f"{what}: {answer.why}")
            return []
        return list(answer)

    def _objects(self, path: str, bodies: Sequence[Object], *, files: bool = False) -> None:
        if bodies:
            redacted = [self._redaction.object(one, files=files) for one in bodies]
            self._files[path] = write(*redacted).encode()

    def _json(self, path: str, document: Any) -> None:
        # NB: by its values, not as a text: what looks like a secret must not end a string too early.
        redacted = self._redaction.object({"all": document})["all"]
        self._files[path] = (json.dumps(redacted, indent=2, ensure_ascii=False) + "\n").encode()

    def _text(self, path: str, text: str) -> None:
        self._files[path] = (self._redaction.text(text) + "\n").encode()


def _worst_first(pods: Sequence[Object], picture: Picture) -> list[Object]:
    """Order pods: those that failed and are kept, those of tasks that are not well, the others."""
    well = {task.pod for task in picture.tasks() if task.state in GOOD}
    kept = {name for task in picture.tasks() for name in task.kept}

    def order(pod: Object) -> tuple[int, str]:
        name = _name_of(pod)
        return (0 if name in kept else 1 if name not in well else 2), name

    return sorted(pods, key=order)


def _name_of(body: Object) -> str:
    return str(body["metadata"]["name"])


def _about(event: Object) -> str:
    return str((event.get("involvedObject") or event.get("regarding") or {}).get("name", ""))


def _time_of(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _node(node: Object) -> Object:
    status, spec = node.get("status") or {}, node.get("spec") or {}
    return {
        "metadata": {"name": _name_of(node)},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {
            **{key: status[key] for key in _OF_NODES if key in status},
            "nodeInfo": {key: (status.get("nodeInfo") or {}).get(key) for key in _OF_SYSTEMS},
        },
    }


def _definition(found: Any) -> Any:
    if isinstance(found, Unknown):
        return {"unknown": found.why}
    return found and {
        "created": found["metadata"].get("creationTimestamp"),
        "generation": found["metadata"].get("generation"),
        "conditions": (found.get("status") or {}).get("conditions"),
        "versions": [one.get("name") for one in (found.get("spec") or {}).get("versions") or ()],
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def pack(folder: str, files: Mapping[str, bytes], *, time: int) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(files):
            about = tarfile.TarInfo(f"{folder}/{path}")
            about.size, about.mtime, about.mode = len(files[path]), time, 0o644
            archive.addfile(about, io.BytesIO(files[path]))
    return packed.getvalue()
