"""The shapes of measurements: the numbers of TFClusters and of their tasks, as in parameter-server training."""

from dataclasses import dataclass, replace
from typing import Any

from tests.support.manifests import pod_template, tfcluster

#: The label of a TFCluster's objects that names it.
CLUSTER_LABEL = "tfcluster.dev/cluster"


@dataclass(frozen=True, slots=True)
class Shape:
    """A number of clusters with the same number of tasks."""

    clusters: int
    tasks: int
    scheduled: bool = True
    """False: its pods name a scheduler that is not there, so that nobody else works on them."""

    def __str__(self) -> str:
        return f"{self.clusters}x{self.tasks}"

    @property
    def name(self) -> str:
        return f"shape-{self.clusters}-{self.tasks}"

    @property
    def jobs(self) -> dict[str, int]:
        """Tasks by job: a chief, a tenth parameter servers, and workers; a small cluster has workers only."""
        if self.tasks < 10:
            return {"worker": self.tasks}
        servers = self.tasks // 10
        return {"chief": 1, "ps": servers, "worker": self.tasks - servers - 1}

    def scaled(self, scale: float) -> "Shape":
        """Return a shape with ``scale`` times the tasks: with fewer clusters, or with a smaller one if it is single."""
        if self.clusters == 1:
            return replace(self, tasks=max(2, round(self.tasks * scale)))
        return replace(self, clusters=max(2, round(self.clusters * scale)))

    @property
    def total_tasks(self) -> int:
        return self.clusters * self.tasks

    def manifests(self, namespace: str) -> list[dict[str, Any]]:
        """Build the TFClusters."""
        sees: dict[str, list[str]] = {"worker": ["/job:ps", "/job:chief"], "ps": ["/job:worker", "/job:chief"]}
        template = pod_template(
            command=["python", "-m", "train", "--steps=1000"], resources={"limits": {"cpu": "1", "memory": "1Gi"}}
        )
        if not self.scheduled:
            template["spec"]["schedulerName"] = "nobody"
        made = []
        for i in range(self.clusters):
            cluster = tfcluster(cluster_name(i)).metadata(namespace=namespace)
            for job, replicas in self.jobs.items():
                filters = sees.get(job) if "chief" in self.jobs else None
                cluster.job(job, replicas=replicas, filters=filters, template=template)
            made.append(cluster.build())
        return made


def cluster_name(number: int) -> str:
    """Return the name of a shape's TFCluster by its number, from 0 on."""
    return f"train-{number:04}"
