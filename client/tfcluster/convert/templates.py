"""The pod template of a replica: it is carried whole, but for what is named here."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tfcluster.convert.tfjob import Findings, Outcome, Path, Replicas, TFJob, containers
from tfcluster.manifest.shaping import nodes
from tfcluster.terminal import brief
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.quantities import whole
from tfcluster_operator.declaration.spec import choose_main

TF_CONFIG: Final = "TF_CONFIG"
#: Labels that the operator sets, beside those of its own domain.
_OUR_LABELS: Final = tuple(f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "managed-by"))
#: The labels of a TFJob's pods, in all versions, with the TFCluster label that has the same value.
LABELS: Final = {
    "training.kubeflow.org/job-name": naming.LABEL_CLUSTER,
    "training.kubeflow.org/replica-type": naming.LABEL_JOB,
    "training.kubeflow.org/replica-index": naming.LABEL_TASK_INDEX,
    "training.kubeflow.org/operator-name": f"{naming.LABEL_MANAGED_BY}={naming.FIELD_MANAGER}",
    "training.kubeflow.org/job-role": "",
    "tf-job-name": naming.LABEL_CLUSTER,
    "tf-replica-type": naming.LABEL_JOB,
    "tf-replica-index": naming.LABEL_TASK_INDEX,
    "tf_job_name": naming.LABEL_CLUSTER,
    "job-name": naming.LABEL_CLUSTER,
    "replica-type": naming.LABEL_JOB,
    "replica-index": naming.LABEL_TASK_INDEX,
    "job-role": "",
}
_LABEL_PREFIX: Final = "training.kubeflow.org/"
#: How a text reads a label: the downward API, the name itself.
_BY_DOWNWARD_API: Final = re.compile(r"metadata\.labels\['([^']+)'\]")
_BY_NAME: Final = re.compile(rf"{re.escape(_LABEL_PREFIX)}[-a-z]+")
#: Schedulers that use a PodGroup of TFJob's operator, and the annotations or labels that name it in a pod.
_SCHEDULERS: Final = ("volcano", "scheduler-plugins-scheduler")
_POD_GROUPS: Final = (
    "scheduling.k8s.io/group-name",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io/name",
)
_QUANTITIES: Final = ("sizeLimit", "divisor")
_OF_QUANTITIES: Final = ("limits", "requests", "overhead")
_SERVERS: Final = ("creationTimestamp", "name", "namespace", "generateName")


def tidy(template: dict[str, Any], path: Path, job: TFJob, replicas: Replicas, findings: Findings) -> None:
    """Remove the fields of a template that a TFCluster does not permit, and report them."""
    for key in [key for key in template if key not in ("metadata", "spec")]:
        del template[key]
        findings.say(Outcome.LOSSY, (*path, key), "a template does not have this field: move it or remove it")
    _tidy_metadata(template, (*path, "metadata"), findings)
    spec = template.get("spec")
    if isinstance(spec, dict):
        _leave_out_pod_groups(template, path, job, replicas, findings)
        _tidy_spec(spec, (*path, "spec"), replicas, findings)
        _tidy_variables(spec, (*path, "spec"), job, replicas, findings)
        for where, words in (*labels_in(spec, (*path, "spec")), *addresses_in(spec, (*path, "spec"), job)):
            findings.say(Outcome.LOSSY, where, words)
    findings.say(Outcome.SAME, path, target=f"spec.jobs.{replicas.job}.template")


def _tidy_metadata(template: dict[str, Any], path: Path, findings: Findings) -> None:
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        if template.pop("metadata", None) is not None:
            findings.say(Outcome.REJECTED, path, "it must be an object with labels and annotations")
        return
    for key in [key for key in metadata if key not in ("labels", "annotations")]:
        del metadata[key]
        if key in _SERVERS:
            findings.say(Outcome.LEFT_OUT, (*path, key), "TFJob does not look at it either")
        else:
            words = "a TFCluster's template has labels and annotations only: add it to the pods by other means"
            findings.say(Outcome.LOSSY, (*path, key), words)
    for group in ("labels", "annotations"):
        held = metadata.get(group)
        if not isinstance(held, dict):
            continue
        # A YAML alias can make this the same object as a selector.
        held = metadata[group] = copy.copy(held)
        ours = _OUR_LABELS if group == "labels" else ()
        for key in [key for key in held if str(key).startswith(f"{naming.GROUP}/") or key in ours]:
            value = held.pop(key)
            words = f"the operator sets it itself: choose pods by {naming.LABEL_CLUSTER}, or give yours another name"
            findings.say(Outcome.LOSSY, (*path, group, key), f"{words} (it was {value})")
        if not held:
            del metadata[group]
    if not metadata:
        del template["metadata"]


def _tidy_spec(spec: dict[str, Any], path: Path, replicas: Replicas, findings: Findings) -> None:
    own = spec.pop("restartPolicy", None)
    if own is not None:
        applied = "Never" if replicas.policy == "ExitCode" else replicas.policy
        words, outcome = "restartPolicy of the job decides", Outcome.LEFT_OUT
        if own != applied:
            outcome = Outcome.NOTED
            default = "" if replicas.restart_policy else " by default"
            words = (
                f"TFJob overwrites it with the restartPolicy beside template, which is {replicas.policy}{default}, and "
                f"so it is left out. If you want {own}, set spec.jobs.{replicas.job}.restartPolicy"
            )
        findings.say(outcome, (*path, "restartPolicy"), words)
    for key in ("hostname", "subdomain"):
        if spec.pop(key, None) is not None:
            words = "the operator sets it, so that each task has its DNS name: use TFCLUSTER_ADDRESS in the program"
            findings.say(Outcome.LOSSY, (*path, key), words)
    named = any(spec.get(key) for key in ("serviceAccountName", "serviceAccount"))
    if not named and spec.get("automountServiceAccountToken") is None:
        words = (
            "TFJob's pods have the token of the ServiceAccount default, but a TFCluster's pods do not: write true "
            "here if the program calls the API server"
        )
        findings.say(Outcome.NOTED, (*path, "automountServiceAccountToken"), words)
    if spec.pop("ephemeralContainers", None):
        findings.say(Outcome.LOSSY, (*path, "ephemeralContainers"), "they are added to running pods: use kubectl debug")
    if replicas.policy in ("OnFailure", "Always"):
        _tell_of_folders(spec, path, findings)
    _write_quantities(spec, path, findings)


def _write_quantities(spec: Mapping[str, Any], path: Path, findings: Findings) -> None:
    """Write decimal quantities as strings, because the CRD requires strings."""
    for at, holder in nodes(spec, path):
        for key, value in holder.items() if isinstance(holder, dict) else ():
            if isinstance(value, float) and (key in _QUANTITIES or at[-1] in _OF_QUANTITIES):
                holder[key] = str(value).removesuffix(".0")
            if at[-1] == "limits" and "/" in str(key) and whole(value) is None:
                words = "a device is granted whole: ask for 1, or for a resource that is a share"
                findings.say(Outcome.REJECTED, (*at, key), f"it is {brief(value)}, and {words}")


def is_gang(template: Mapping[str, Any], name: str) -> bool:
    """Return whether the pods of a template wait for the PodGroup that TFJob's operator makes for a job."""
    return bool(_pod_group_keys(template, name)) or _scheduler(template) in _SCHEDULERS


def _scheduler(template: Mapping[str, Any]) -> Any:
    spec = template.get("spec")
    return spec.get("schedulerName") if isinstance(spec, Mapping) else None


def _pod_group_keys(template: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    metadata = template.get("metadata")
    groups = metadata if isinstance(metadata, Mapping) else {}
    held = [(group, groups[group]) for group in ("labels", "annotations") if isinstance(groups.get(group), Mapping)]
    return [(group, key) for group, named in held for key in _POD_GROUPS if named.get(key) == name]


def _leave_out_pod_groups(
    template: dict[str, Any], path: Path, job: TFJob, replicas: Replicas, findings: Findings
) -> None:
    for group, key in _pod_group_keys(template, job.name):
        template["metadata"][group] = {k: v for k, v in template["metadata"][group].items() if k != key}
        findings.say(Outcome.LEFT_OUT, (*path, "metadata", group, key), "spec.scheduling.gang makes the PodGroups")
    if _scheduler(template) in _SCHEDULERS:
        words = "the operator must be set up for this scheduler: see the chart's gangs.scheduler"
        target = ("spec", "jobs", replicas.job, "template", "spec", "schedulerName")
        findings.move((*path, "spec", "schedulerName"), target, words, outcome=Outcome.NOTED)


def _tell_of_folders(spec: Mapping[str, Any], path: Path, findings: Findings) -> None:
    """Report what a restart loses: with TFJob the kubelet restarts containers of the same pod."""
    keep = "keep what must survive on a PersistentVolumeClaim"
    for index, volume in _objects(spec, "volumes"):
        folder = volume.get("emptyDir", False)
        on_disk = folder is None or (isinstance(folder, Mapping) and folder.get("medium") != "Memory")
        if kind := "ephemeral" if "ephemeral" in volume else "emptyDir" if on_disk else "":
            words = f"it is empty after a restart, since the task gets a new pod and not only new containers: {keep}"
            findings.say(Outcome.LOSSY, (*path, "volumes", index, kind), words)
        if "hostPath" in volume:
            words = f"a restarted task gets a new pod, which can be on another node: {keep}"
            findings.say(Outcome.NOTED, (*path, "volumes", index, "hostPath"), words)


def _tidy_variables(spec: dict[str, Any], path: Path, job: TFJob, replicas: Replicas, findings: Findings) -> None:
    """Remove the TF_CONFIG that TFJob's own overrides: a container can have only one."""
    main = choose_main([str(one.get("name", "")) for one in containers({"spec": spec})])
    for index, container in _objects(spec, "containers"):
        if not job.distributed or container.get("name") != main or not isinstance(container.get("env"), list):
            continue
        where: Path = (*path, "containers", index, "env")
        target: Path = ("spec", "jobs", replicas.job, *where[3:])
        # A new list: a YAML alias can make this the list of another container too, whose variable is kept.
        kept: list[Any] = []
        for position, variable in enumerate(container["env"]):
            if isinstance(variable, Mapping) and variable.get("name") == TF_CONFIG:
                findings.say(Outcome.LEFT_OUT, (*where, position), "TFJob's own hides it, as the operator's would")
                continue
            if len(kept) != position:
                findings.moved[*where, position] = (*target, len(kept))
            kept.append(variable)
        container["env"] = kept
        if not kept:
            del container["env"]


def labels_in(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Find the labels of TFJob that a selector or another field reads."""
    found: dict[tuple[Path, str], None] = {}
    for where, value in nodes(node, path):
        holder, key = where[-3:-2], where[-1] if where else ""
        labels: set[str] = set()
        if isinstance(value, Mapping) and key == "matchLabels":
            found |= {((*where, label), label): None for label in value if label in LABELS}
        elif isinstance(value, str):
            labels = {*_BY_DOWNWARD_API.findall(value), *_BY_NAME.findall(value)}
            if where[-2:-1] == ("matchLabelKeys",) or (holder == ("matchExpressions",) and key == "key"):
                labels = {value}
        found |= {(where, label): None for label in sorted(labels & LABELS.keys())}
    for where, label in found:
        ours = f"use {LABELS[label]}, which has the same values" if LABELS[label] else "no label here says who leads"
        yield where, f"a TFCluster's pods do not have the label {label}: {ours}"


def addresses_in(node: Any, path: Path, job: TFJob) -> Iterator[tuple[Path, str]]:
    """Find texts with the address of a replica, by the Service that TFJob created for it."""
    types = "|".join(re.escape(one.job) for one in job.replicas)
    service = re.compile(rf"(?<![-.\w])({re.escape(job.name)}-(?:{types})-\d+)((?:[.][-\w]+)*)(?=:\d|/|[.\s,\"']|$)")
    for where, value in nodes(node, path):
        if not isinstance(value, str) or (found := service.search(value)) is None:
            continue
        host, domain = found[1], found[2]
        wanted = f"{host}.{job.name}{domain or f'.{job.namespace}.svc'}"
        if not domain.startswith(f".{job.name}."):
            yield where, f"TFJob has a Service {host}; the address of that task is {wanted} here: write that one"


def _objects(holder: Mapping[str, Any], key: str) -> Iterator[tuple[int, Any]]:
    values = holder.get(key)
    for index, value in enumerate(values) if isinstance(values, list) else ():
        if isinstance(value, Mapping):
            yield index, value
