"""The pod of one task: the user's template, with a name, a place in the cluster and a view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import naming
from tfcluster_operator.model.spec import Task, TFCluster
from tfcluster_resolver import contract

VIEW_VOLUME: Final = "tfcluster-view"


def build_pod(cluster: TFCluster, task: Task, *, view_digest: str, attempt: int) -> dict[str, Any]:
    """Build the pod of one task.

    Args:
        cluster: the declaration.
        task: which task.
        view_digest: the digest of the view file that is published; the pod starts with it.
        attempt: how often the task failed in a row before.

    Returns:
        The pod.  What the template says stays as it is; our names, labels and environment come last and win.  A task
        needs no API token and no Service environment, so both are off unless the template asks for them.
    """
    template = task.job.template
    about: Mapping[str, Any] = template.get("metadata") or {}
    spec: Mapping[str, Any] = template.get("spec") or {}
    name = naming.pod_name(cluster.name, task.job.name, task.index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata.owned(
            cluster,
            name,
            labels={**(about.get("labels") or {}), **naming.task_labels(cluster.name, task.job.name, task.index)},
            annotations={
                **(about.get("annotations") or {}),
                naming.ANNOTATION_VIEW: view_digest,
                naming.ANNOTATION_TEMPLATE_HASH: task.job.template_hash,
                naming.ANNOTATION_ATTEMPT: str(attempt),
            },
        ),
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **spec,
            "hostname": name,
            "subdomain": naming.service_name(cluster.name),
            "volumes": [
                *(spec.get("volumes") or ()),
                {"name": VIEW_VOLUME, "configMap": {"name": naming.view_name(cluster.name, task.job.name)}},
            ],
            **{
                group: [_in_the_cluster(container, cluster, task) for container in spec[group]]
                for group in ("initContainers", "containers")
                if spec.get(group)
            },
        },
    }


def _in_the_cluster(container: Mapping[str, Any], cluster: TFCluster, task: Task) -> dict[str, Any]:
    environment = {
        contract.ENV_JOB: task.job.name,
        contract.ENV_TASK_INDEX: str(task.index),
        contract.ENV_ADDRESS: cluster.address_of(task),
    }
    own = [entry for entry in container.get("env") or () if entry.get("name") not in environment]
    return {
        **container,
        # Ours come first: Kubernetes expands $(NAME) only from variables above, and the user's may build on ours.
        "env": [*({"name": name, "value": value} for name, value in environment.items()), *own],
        "volumeMounts": [
            *(container.get("volumeMounts") or ()),
            {"name": VIEW_VOLUME, "mountPath": contract.DEFAULT_DIRECTORY, "readOnly": True},
        ],
    }
