"""Common first steps of life tests: they drive the simulated kubelet and wait for the operator's reaction."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubernetes.client.exceptions import ApiException

from . import clock
from .objects import PODS, SERVICES, TFCLUSTERS, Object
from .pods import StandInKubelet
from .waiting import eventually
from .world import World, task_names


def pods_of_jobs(cluster: str, jobs: Mapping[str, Object]) -> list[str]:
    return task_names(cluster, **{job: fields.get("replicas", 1) for job, fields in jobs.items()})


def launch_running(
    world: World, kubelet: StandInKubelet, name: str, jobs: Mapping[str, Object], **spec: Any
) -> dict[str, str]:
    """Create a cluster and run all its pods; return their UIDs by name."""
    world.launch(name, dict(jobs), **spec)
    pods = world.await_pods_of(name, pods_of_jobs(name, jobs))
    kubelet.run(*pods)
    return {pod: found["metadata"]["uid"] for pod, found in pods.items()}


def await_all_replaced(world: World, kubelet: StandInKubelet, cluster: str, old: Mapping[str, str]) -> dict[str, str]:
    """Confirm the end of each terminating pod until each name has a new pod; return the new UIDs by name."""

    def probe() -> dict[str, str]:
        confirm_ends(world, kubelet, cluster, old)
        return {name: uid for name, uid in uids_of(world, cluster).items() if name in old}

    return eventually(
        probe,
        lambda new: sorted(new) == sorted(old) and all(new[name] != old[name] for name in old),
        what=f"{', '.join(old)} are replaced",
    )


def confirm_ends(world: World, kubelet: StandInKubelet, cluster: str, names: Iterable[str] | None = None) -> None:
    for name, pod in world.pods_of(cluster).items():
        if pod["metadata"].get("deletionTimestamp") and (names is None or name in names):
            # By UID: in the meantime, the operator can have created the next pod with the same name.
            kubelet.confirm_end(pod)


def await_pods_left(world: World, kubelet: StandInKubelet, cluster: str, left: Iterable[str]) -> None:
    """Confirm the end of each terminating pod, until exactly these pods are left and none terminates."""
    wanted = sorted(left)

    def probe() -> list[str]:
        confirm_ends(world, kubelet, cluster)
        return sorted(world.pods_of(cluster))

    eventually(probe, lambda found: found == wanted, what=f"the pods of {cluster} are {wanted}")


def uids_of(world: World, cluster: str) -> dict[str, str]:
    found = world.pods_of(cluster)
    return {n: p["metadata"]["uid"] for n, p in found.items() if not p["metadata"].get("deletionTimestamp")}


def await_asked_to_go(world: World, *names: str) -> None:
    """Wait until each of the pods terminates or was deleted."""

    def staying() -> list[str]:
        found = {name: world.get(PODS, name) for name in names}
        return [n for n, pod in found.items() if pod is not None and not pod["metadata"].get("deletionTimestamp")]

    eventually(staying, lambda left: not left, what=f"{', '.join(names)} are asked to go")


def give_the_service_an_ip(world: World) -> None:
    """Replace the Service of cluster c with one that has a cluster IP, which an edit cannot remove."""
    service = world.demand(SERVICES, "c")
    kept = {key: service["metadata"][key] for key in ("name", "labels", "ownerReferences")}

    def attempt() -> bool:
        world.delete(SERVICES, "c")
        try:
            world.objects.create(SERVICES, world.namespace, {"metadata": kept, "spec": {"ports": [{"port": 2222}]}})
        except ApiException as error:
            if error.status != 409:  # the operator was faster
                raise
            return False
        return True

    eventually(attempt, what="the Service with a cluster IP is in place")


def note_failures_in_a_row(world: World, cluster: str, count: int, *, index: int | None = None) -> None:
    """Write consecutive failures of the workers, the last one just now, into the status: they set the next back-off."""
    now = clock.now().timestamp()
    alone = {"failing": {str(index): {"in_row": count, "retry_at": now}}}
    job = {"in_row": count, "restart_at": now} if index is None else alone
    body = {"status": {"internal": {"jobs": {"worker": job}}}}
    world.objects.patch(TFCLUSTERS, world.namespace, cluster, body, subresource="status")


def remembered(world: World, cluster: str, job: str) -> Object:
    """Return the operator's record of a job between two reconciles."""
    return world.status(cluster)["internal"]["jobs"].get(job, {})


def await_another_pass(world: World, *clusters: str) -> None:
    """Wait until each was reconciled after every earlier event: the status has seen an edit without effect."""
    edited = {name: world.edit(name, {"ttlSecondsAfterFinished": _another_ttl(world, name)}) for name in clusters}
    for name, generation in edited.items():
        world.await_status(
            name, lambda s, g=generation: s.get("observedGeneration") == g, what=f"{name} was looked at once more"
        )


def _another_ttl(world: World, cluster: str) -> int:
    """Return another TTL than the current one, and a practically infinite one if it was not set."""
    return world.cluster(cluster)["spec"].get("ttlSecondsAfterFinished", 10_000_000) + 1


def await_time(moment: datetime) -> None:
    """Wait until the clock of the tests is past a moment."""
    eventually(clock.now, lambda now: now > moment, what=f"it is later than {moment}")
