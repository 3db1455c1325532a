"""Builders of TFCluster manifests, which validate nothing: tests write invalid ones, too."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from .objects import Object

#: Never pulled: most tests do not have a kubelet.
IMAGE = "registry.k8s.io/pause:3.10"


#: Makes an edit of a template replace all pods of a job immediately.
RECREATE = {"updateStrategy": {"type": "Recreate"}}


def pod_template(*, metadata: Object | None = None, spec: Object | None = None, **container: Any) -> Object:
    """Build a pod template with one container named tensorflow."""
    about = {} if metadata is None else {"metadata": metadata}
    return {**about, "spec": {"containers": [{"name": "tensorflow", "image": IMAGE, **container}], **(spec or {})}}


def gpu_tasks(replicas: int, gpus: int = 2, **fields: Any) -> Object:
    """Declare the tasks of a job with this number of GPUs each."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"replicas": replicas, "template": pod_template(**limits), **fields}


class TFClusterBuilder:
    """Builds one TFCluster, fluently: ``tfcluster("mnist").job("worker", replicas=4).build()``."""

    def __init__(self, name: str) -> None:
        self._manifest: Object = {
            "apiVersion": "tfcluster.dev/v1alpha1",
            "kind": "TFCluster",
            "metadata": {"name": name},
            "spec": {"jobs": {}},
        }

    def job(
        self,
        name: str,
        *,
        filters: Sequence[Any] | None = None,
        task_filters: Mapping[Any, Any] | None = None,
        template: Object | None = None,
        **fields: Any,
    ) -> "TFClusterBuilder":
        job: Object = {**fields, "template": pod_template() if template is None else template}
        if filters is not None:
            job["deviceFilters"] = list(filters)
        if task_filters is not None:
            job["taskDeviceFilters"] = {str(index): of_task for index, of_task in task_filters.items()}
        self._manifest["spec"]["jobs"][name] = job
        return self

    def spec(self, **fields: Any) -> "TFClusterBuilder":
        """Set fields of the spec, such as ``suspend=True``."""
        self._manifest["spec"].update(fields)
        return self

    def metadata(self, **fields: Any) -> "TFClusterBuilder":
        """Set fields of the object's own metadata, such as ``labels``."""
        self._manifest["metadata"].update(fields)
        return self

    def build(self) -> Object:
        return copy.deepcopy(self._manifest)


def tfcluster(name: str) -> TFClusterBuilder:
    return TFClusterBuilder(name)


def kueue_object(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **fields}
