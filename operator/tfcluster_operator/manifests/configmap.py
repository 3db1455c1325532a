"""The ConfigMap of a job: the views of its tasks, one file each distinct view."""

from __future__ import annotations

from typing import Any

from tfcluster_operator.manifests import metadata
from tfcluster_operator.model import naming, views
from tfcluster_operator.model.spec import TFCluster


def build_config_map(cluster: TFCluster, wanted: views.JobViews) -> dict[str, Any]:
    """Build the ConfigMap with one job's views.

    Returns:
        The ConfigMap; its epochs stand in an annotation too, so that an edited file is told from a published one.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata.owned(
            cluster,
            wanted.name,
            labels=naming.job_labels(cluster.name, wanted.job.name),
            annotations={naming.ANNOTATION_EPOCHS: views.epochs_annotation(wanted.files)},
        ),
        "data": {name: file.text for name, file in wanted.files.items()},
    }
