"""The pod of one task: the user's template with a name, placement rules, a view and the resolver."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.gang_schedulers import KUBERNETES
from tfcluster_operator.declaration.spec import (
    Colocation,
    Job,
    Placement,
    Spread,
    Task,
    TFCluster,
    main_container,
)
from tfcluster_operator.objects import base
from tfcluster_resolver import contract

#: The mount path of the archive.  A mount hides the image's files there, so the name must be unique.
RESOLVER_DIRECTORY: Final = "/opt/tfcluster-resolver"
ARCHIVE_PATH: Final = f"{RESOLVER_DIRECTORY}/{naming.ARCHIVE_FILE}"
#: Holds the user's own value if it does not have a text yet that ours could be appended to.
USER_PYTHONPATH: Final = "TFCLUSTER_USER_PYTHONPATH"
_PYTHONPATH: Final = "PYTHONPATH"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WITHOUT_TOKEN: Final = {"automountServiceAccountToken": False}
#: The maximum weight (Kubernetes, "WeightedPodAffinityTerm").
_WEIGHT: Final = 100


def build(
    cluster: TFCluster,
    task: Task,
    *,
    view_digest: str,
    attempt: int,
    incarnation: int = 0,
    replacement: bool = False,
    resolver: str | None = None,
    tf_config: str | None = None,
    name: str = "",
    group: str = "",
) -> dict[str, Any]:
    """Build the pod of one task: the template's fields are kept; our names, labels and environment win."""
    # A name is given if it is not the task's first pod; the hostname is always that of the first.
    template = task.job.template
    about: Mapping[str, Any] = template.get("metadata") or {}
    place = task.job.placement_of(task.index) or Placement(0, 0)
    spec = _with_places(_placed(template.get("spec") or {}, place), cluster, task.job)
    hostname = naming.pod_name(cluster.name, task.job.name, task.index)
    # In a cluster with a gang, the other pods use its scheduler, too: two schedulers could use the same resources.
    scheduler = KUBERNETES if cluster.gang is None else cluster.gang.scheduler
    chosen = cluster.chosen_scheduler(task.job)
    placed_by = task.job.of_template("schedulerName") or chosen
    labels, annotations, of_group = scheduler.membership(group)
    volumes = [{"name": naming.VIEW_VOLUME, "configMap": {"name": naming.view_name(cluster.name, task.job.name)}}]
    if resolver is not None:
        volumes.append({"name": naming.RESOLVER_VOLUME, "configMap": {"name": resolver}})
    return base.manifest(
        cluster,
        "v1",
        "Pod",
        name or hostname,
        {
            **(about.get("labels") or {}),
            **place.labels,
            **labels,
            **naming.task_labels(cluster.name, task.job.name, task.index),
            **cluster.colocated(task.job),
        },
        {
            **(about.get("annotations") or {}),
            **place.annotations,
            **annotations,
            naming.ANNOTATION_VIEW: view_digest,
            naming.ANNOTATION_TEMPLATE_HASH: task.job.template_hash,
            naming.ANNOTATION_ATTEMPT: str(attempt),
            naming.ANNOTATION_INCARNATION: str(incarnation),
            **({naming.ANNOTATION_SCHEDULER: chosen} if chosen else {}),
            **({naming.ANNOTATION_REPLACEMENT: "true"} if replacement else {}),
            naming.ANNOTATION_MAIN_CONTAINER: main_container(template),
        },
        spec={
            # A template that names a ServiceAccount wants its token; the second field is the older one.
            **({} if spec.get("serviceAccountName") or spec.get("serviceAccount") else _WITHOUT_TOKEN),
            **spec,
            # The operator restarts, with its own delays and counts.
            "restartPolicy": "Never",
            "hostname": hostname,
            "subdomain": cluster.name,
            **({"schedulerName": placed_by} if placed_by else {}),
            **of_group,
            "volumes": [*(spec.get("volumes") or ()), *volumes],
            **_containers(cluster, task, inject=resolver is not None, tf_config=tf_config),
        },
    )


def _placed(spec: Mapping[str, Any], place: Placement) -> Mapping[str, Any]:
    """Return a pod's spec with the node constraints of its queue."""
    placed = dict(spec)
    if place.node_selector:
        placed["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **place.node_selector}
    if place.tolerations:
        known = list(spec.get("tolerations") or ())
        placed["tolerations"] = known + [dict(one) for one in place.tolerations if one not in known]
    if place.gates:
        placed["schedulingGates"] = [*(spec.get("schedulingGates") or ()), *({"name": one} for one in place.gates)]
    return placed


def _containers(
    cluster: TFCluster, task: Task, *, inject: bool, tf_config: str | None
) -> dict[str, list[dict[str, Any]]]:
    spec: Mapping[str, Any] = task.job.template.get("spec") or {}
    groups = {
        group: [_with_variables(_in_the_cluster(container), _place_of(task, cluster)) for container in spec[group]]
        for group in ("initContainers", "containers")
        if spec.get(group)
    }
    if inject:
        groups = {group: [_mount_resolver(one) for one in found] for group, found in groups.items()}
    main = main_container(task.job.template)
    groups["containers"] = [
        _main(container, task, tf_config=tf_config) if container.get("name", "") == main else container
        for container in groups.get("containers", ())
    ]
    return groups


def _main(container: Mapping[str, Any], task: Task, *, tf_config: str | None) -> dict[str, Any]:
    """Make the pod's status report why the task's program failed, and run the task's server if that is requested."""
    told = {"terminationMessagePolicy": "FallbackToLogsOnError", **container}
    if tf_config is not None:
        # Only in the main container, like TFJob: each copy can take 128 KiB, and a pod can have 1.5 MiB in total.
        told = _with_variables(told, {contract.ENV_TF_CONFIG: tf_config})
    return _serving(told, task.job.port) if task.job.task_server else told


def _place_of(task: Task, cluster: TFCluster) -> dict[str, str]:
    return {
        contract.ENV_JOB: task.job.name,
        contract.ENV_TASK_INDEX: str(task.index),
        contract.ENV_ADDRESS: cluster.address_of(task),
    }


def _with_variables(container: Mapping[str, Any], ours: Mapping[str, str]) -> dict[str, Any]:
    others = [entry for entry in container.get("env") or () if entry.get("name") not in ours]
    # Ours come first: Kubernetes expands $(NAME) only from variables above, and the user's can refer to ours.
    return {**container, "env": [*({"name": name, "value": value} for name, value in ours.items()), *others]}


def _in_the_cluster(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **container,
        "volumeMounts": [
            *(container.get("volumeMounts") or ()),
            {"name": naming.VIEW_VOLUME, "mountPath": contract.DEFAULT_DIRECTORY, "readOnly": True},
        ],
    }


def _mount_resolver(container: Mapping[str, Any]) -> dict[str, Any]:
    """Mount the archive into a container and append it to the user's PYTHONPATH."""
    mounts = [
        *(container.get("volumeMounts") or ()),
        {"name": naming.RESOLVER_VOLUME, "mountPath": RESOLVER_DIRECTORY, "readOnly": True},
    ]
    return {**container, "env": _search_path(container), "volumeMounts": mounts}


def _serving(container: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Make a container run the task's server, with a readiness probe of its port."""
    # Without a probe a program counts as ready before TensorFlow is imported.  The kernel accepts connections even if
    # the server is busy, so after three rejections in a row no process listens.
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 2, "failureThreshold": 3}
    return {"readinessProbe": probe, **container, "command": ["python3", "-m", "tfcluster_resolver", "serve"]}


def _search_path(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the container's environment with the archive at the end of PYTHONPATH."""
    env: Sequence[Mapping[str, Any]] = container.get("env") or ()
    at = max((index for index, entry in enumerate(env) if entry.get("name") == _PYTHONPATH), default=None)
    if at is None:
        # envFrom can set one, and a variable of that name in env hides it; $(NAME) still expands to it, or, if envFrom
        # does not set it, to itself, which is not an existing folder (kubelet, makeEnvironmentVariables).
        return [*env, _variable(f"$({_PYTHONPATH})" if container.get("envFrom") else "")]
    entry = env[at]
    if not entry.get("valueFrom"):
        return [*env[:at], _variable(entry.get("value") or ""), *env[at + 1 :]]
    own = {**entry, "name": USER_PYTHONPATH}
    return [*env[:at], own, _variable(f"$({USER_PYTHONPATH})"), *env[at + 1 :]]


def _variable(before: str) -> dict[str, Any]:
    # An empty part of PYTHONPATH would be the working directory.
    return {"name": _PYTHONPATH, "value": f"{before}:{ARCHIVE_PATH}" if before else ARCHIVE_PATH}


def _with_places(spec: Mapping[str, Any], cluster: TFCluster, job: Job) -> dict[str, Any]:
    """Add the rules of a job's colocation and spread to a pod's spec, after those of the template."""
    placed = dict(spec)
    if job.colocation is not None:
        placed["affinity"] = _near(spec.get("affinity") or {}, job.colocation, cluster.colocated(job))
    if job.spread:
        selector = {naming.LABEL_CLUSTER: cluster.name, naming.LABEL_JOB: job.name}
        known = spec.get("topologySpreadConstraints") or ()
        placed["topologySpreadConstraints"] = [*known, *(_apart(one, selector) for one in job.spread)]
    return placed


def _near(affinity: Mapping[str, Any], colocation: Colocation, label: Mapping[str, str]) -> dict[str, Any]:
    # A pod that matches its own rule can start a domain while no other pod matches; the next ones must follow it.
    rule: dict[str, Any] = {"labelSelector": {"matchLabels": dict(label)}, "topologyKey": colocation.topology_key}
    kind = _REQUIRED
    if colocation.may_be_elsewhere:
        kind, rule = _PREFERRED, {"weight": _WEIGHT, "podAffinityTerm": rule}
    known: Mapping[str, Any] = affinity.get("podAffinity") or {}
    return {**affinity, "podAffinity": {**known, kind: [*(known.get(kind) or ()), rule]}}


def _apart(spread: Spread, selector: Mapping[str, str]) -> dict[str, Any]:
    return {
        "topologyKey": spread.topology_key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": spread.when_unsatisfiable,
        "labelSelector": {"matchLabels": dict(selector)},
        # By default Kubernetes counts a tainted node as an empty domain, which would limit all others.
        "nodeTaintsPolicy": "Honor",
    }
