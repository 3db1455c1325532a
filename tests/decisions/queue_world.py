"""A world with one cluster that waits in a queue."""

from collections.abc import Mapping
from typing import Any

from decisions.in_memory import InMemoryWorld, make_body

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import parse
from tfcluster_operator.declaration.spec import TFCluster
from tfcluster_operator.life.views import views_of
from tfcluster_operator.plan.actions import Finding
from tfcluster_operator.report.status import status_of

KIND = "Workload"
FIRST, SECOND = "tfcluster-demo.0", "tfcluster-demo.1"


def queued(jobs: Mapping[str, Any] | None = None, *, queue: str = "team", priority: str = "", **spec: Any) -> TFCluster:
    body = make_body(jobs, **spec)
    labels = {naming.LABEL_QUEUE: queue, naming.LABEL_PRIORITY: priority}
    body["metadata"]["labels"] = {key: value for key, value in labels.items() if value}
    return parse(body)


class Queue(InMemoryWorld):
    """A world with one cluster that waits in a queue, and Kueue; after each method the operator runs."""

    def __init__(self, jobs: Mapping[str, Any] | None = None, **spec: Any) -> None:
        super().__init__()
        self.generation = 0
        self.declare(jobs, **spec)

    def declare(self, jobs: Mapping[str, Any] | None = None, *, settles: bool = True, **spec: Any) -> None:
        self.generation += 1
        self.cluster = queued(jobs, generation=self.generation, **spec)
        if settles:
            self.settle(self.cluster)

    def grant(self, claim: int | str = 0, flavor: str = "", **counts: int) -> None:
        self.quota_is_granted(naming.claim_name("demo", int(claim)), flavor, **counts)
        self.all_run()

    def all_run(self) -> None:
        self.settle(self.cluster)
        self.all_pods_run()
        self.settle(self.cluster)

    def place(self, claim: int | str) -> None:
        name = naming.claim_name("demo", int(claim))
        self.quota_is_granted(name)
        assigned = self.claim(name)["status"]["admission"]["podSetAssignments"]
        placed = [{**one, "topologyAssignment": {"levels": ["rack"], "slices": []}} for one in assigned]
        self.edit(KIND, name, {"status": {"admission": {"podSetAssignments": placed}}})
        self.all_run()

    def evict(self, claim: int | str = 0, reason: str = "Preempted") -> None:
        self.quota_is_taken_back(naming.claim_name("demo", int(claim)), reason)
        self.settle(self.cluster)

    def end(self, pod: str) -> None:
        self.pod_ends(f"demo-{pod}", "Succeeded")
        self.settle(self.cluster)

    def lose(self, claim: int | str = 0) -> None:
        self.delete(KIND, naming.claim_name("demo", int(claim)))
        self.settle(self.cluster)

    def finish(self, _: str) -> None:
        finished = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "by hand"}
        self.edit_claim({"status": {"conditions": [finished, *self.claim()["status"]["conditions"]]}})
        self.settle(self.cluster)

    def short(self, words: str) -> None:
        self.quota_is_short(FIRST, words)

    def suspend(self, _: str) -> None:
        self.declare(suspend=True)

    def queue(self, name: str) -> None:
        self.declare(queue=name)
        self.all_run()

    def step(self) -> None:
        self.apply_all(self.plan(self.cluster).actions, self.cluster)

    def play(self, *steps: str | Mapping[str, Any]) -> "Queue":
        """Declare jobs (a mapping), or call a method of this class for a claim (by its number) or a pod."""
        for step in steps:
            if isinstance(step, Mapping):
                self.declare(step)
            else:
                verb, _, about = step.partition(" ")
                getattr(self, verb)(about)
        return self

    def claim(self, name: str = FIRST) -> dict[str, Any]:
        return self.objects[KIND, name]

    def edit_claim(self, change: Mapping[str, Any]) -> None:
        self.edit(KIND, FIRST, change)

    def asked(self) -> dict[int, dict[str, int]]:
        found = {name: body["spec"]["podSets"] for (kind, name), body in self.objects.items() if kind == KIND}
        return {int(name[-1]): {one["name"]: one["count"] for one in sets} for name, sets in found.items()}

    def tasks(self) -> str:
        return " ".join(sorted(name.removeprefix("demo-") for name in self.names("Pod")))

    def condition(self, kind: str, *more: Finding) -> tuple[str, str, str]:
        planned, roster = self.plan(self.cluster), self.roster(self.cluster)
        status = status_of(roster, self.ledger, planned.views, (*planned.findings, *more), self.now)
        self.desired = {name: job["replicas"] for name, job in status["jobs"].items()}
        return next((c["status"], c["reason"], c["message"]) for c in status["conditions"] if c["type"] == kind)

    def epoch(self) -> int:
        views = views_of(self.roster(self.cluster)).of_jobs
        return max(file.says.epoch for job in views for file in job.files.values())
