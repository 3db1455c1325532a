"""The steps that most stories of a cluster's life begin with: it runs, a pod ends, a pod is taken away, others follow.

They drive the stand-in kubelet and wait for what the operator makes of it; what that should be is the tests' matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from . import clock
from .objects import PODS, TFCLUSTERS, Object
from .pods import StandInKubelet
from .waiting import eventually
from .world import World, task_names


def pods_of_jobs(cluster: str, jobs: Mapping[str, Object]) -> list[str]:
    """Name the pods of a cluster that is declared with these jobs."""
    return task_names(cluster, **{job: fields.get("replicas", 1) for job, fields in jobs.items()})


def launch_running(
    world: World, kubelet: StandInKubelet, name: str, jobs: Mapping[str, Object], **spec: Any
) -> dict[str, str]:
    """Create a cluster and let all its pods run.

    Returns:
        The UIDs of the pods by name.
    """
    world.launch(name, dict(jobs), **spec)
    pods = world.await_pods_of(name, pods_of_jobs(name, jobs))
    kubelet.run(*pods)
    return {pod: found["metadata"]["uid"] for pod, found in pods.items()}


def await_all_replaced(world: World, kubelet: StandInKubelet, cluster: str, old: Mapping[str, str]) -> dict[str, str]:
    """Confirm the end of each pod that is asked to go, until a new pod stands at every name.

    Returns:
        The new UIDs by name.
    """

    def probe() -> dict[str, str]:
        confirm_ends(world, kubelet, cluster, old)
        return {name: uid for name, uid in uids_of(world, cluster).items() if name in old}

    return eventually(
        probe,
        lambda new: sorted(new) == sorted(old) and all(new[name] != old[name] for name in old),
        what=f"{', '.join(old)} are replaced",
    )


def confirm_ends(world: World, kubelet: StandInKubelet, cluster: str, names: Iterable[str] | None = None) -> None:
    """Let the kubelet confirm the end of the pods that are asked to go."""
    for name, pod in world.pods_of(cluster).items():
        if pod["metadata"].get("deletionTimestamp") and (names is None or name in names):
            # NB: by its UID: while this one goes, the operator may have made the next under the same name.
            kubelet.confirm_end(pod)


def await_pods_left(world: World, kubelet: StandInKubelet, cluster: str, left: Iterable[str]) -> None:
    """Confirm the end of each pod that is asked to go, until exactly these pods are left and none of them goes."""
    wanted = sorted(left)

    def probe() -> list[str]:
        confirm_ends(world, kubelet, cluster)
        return sorted(world.pods_of(cluster))

    eventually(probe, lambda found: found == wanted, what=f"the pods of {cluster} are {wanted}")


def uids_of(world: World, cluster: str) -> dict[str, str]:
    """Give the UIDs of a cluster's pods that stay, by name."""
    found = world.pods_of(cluster)
    return {n: p["metadata"]["uid"] for n, p in found.items() if not p["metadata"].get("deletionTimestamp")}


def await_asked_to_go(world: World, *names: str) -> None:
    """Return when each of the pods terminates or is gone."""

    def staying() -> list[str]:
        found = {name: world.get(PODS, name) for name in names}
        return [n for n, pod in found.items() if pod is not None and not pod["metadata"].get("deletionTimestamp")]

    eventually(staying, lambda left: not left, what=f"{', '.join(names)} are asked to go")


def note_failures_in_a_row(world: World, cluster: str, count: int, *, index: int | None = None) -> None:
    """Write into the status that the workers have failed so often in a row: the next pause is as long as after them.

    Their last try was just now.
    """
    now = clock.now().timestamp()
    alone = {"failing": {str(index): {"in_row": count, "retry_at": now}}}
    job = {"in_row": count, "restart_at": now} if index is None else alone
    body = {"status": {"internal": {"jobs": {"worker": job}}}}
    world.objects.patch(TFCLUSTERS, world.namespace, cluster, body, subresource="status")


def remembered(world: World, cluster: str, job: str) -> Object:
    """Give what the operator remembers of a job between its passes."""
    return world.status(cluster)["internal"]["jobs"].get(job, {})


def await_another_pass(world: World, *clusters: str) -> None:
    """Return when the operator has looked at each of these clusters after everything that was done before.

    An edit that asks for nothing is the proof: its generation reaches the status at the end of a pass, in one write.
    So what the operator meant to do about what came before is done, and what is not done it does not want.
    """
    edited = {name: world.edit(name, {"ttlSecondsAfterFinished": _another_ttl(world, name)}) for name in clusters}
    for name, generation in edited.items():
        world.await_status(
            name, lambda s, g=generation: s.get("observedGeneration") == g, what=f"{name} was looked at once more"
        )


def _another_ttl(world: World, cluster: str) -> int:
    """Give a TTL that is not the present one, and as good as none where there was none."""
    return world.cluster(cluster)["spec"].get("ttlSecondsAfterFinished", 10_000_000) + 1
