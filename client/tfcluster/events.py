"""The events of a TFCluster and of its pods, in order of time, existing ones and new ones."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tfcluster.kube.api import EVENTS, TFCLUSTERS, KubernetesApi, Selection, seconds_of
from tfcluster.kube.watch import snapshots
from tfcluster.terminal import clean
from tfcluster_operator.declaration import naming

#: The pod of a task: its cluster, job and index, and the number of a later pod.
_POD: Final = re.compile(r"(?P<stem>.+)-(?P<index>\d+)(-r\d+)?")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a TFCluster or to one of its pods.

    Attributes:
        time: when it happened last, in seconds since the epoch.
        type: "Normal" or "Warning".
        reason: in one word; of a TFCluster, docs/reference/conditions.md explains it.
        about: the task, such as "worker-0", or "" where it is about the TFCluster.
        object: the name of the object that it is about.
        message: what happened.
        count: how often.
        source: the component that reported it, such as "kubelet".
        uid: the UID of the Event object.
    """

    time: float
    type: str
    reason: str
    about: str
    object: str
    message: str
    count: int
    source: str
    uid: str


def events_of(name: str, cluster: Mapping[str, Any] | None, events: Iterable[Mapping[str, Any]]) -> list[Event]:
    # The declared jobs, and those that are still in the status.
    parts = ((cluster or {}).get(part) or {} for part in ("spec", "status"))
    jobs = {naming.dns_job(job) for part in parts for job in part.get("jobs") or {}}
    uid = "" if cluster is None else str(cluster["metadata"].get("uid"))
    since = 0.0 if cluster is None else seconds_of(cluster["metadata"].get("creationTimestamp"))
    found = []
    for one in events:
        about = one.get("involvedObject") or {}
        if about.get("kind") == naming.KIND and about.get("name") == name:
            if uid in {"", about.get("uid")}:
                found.append(_event(one, ""))
        elif about.get("kind") == "Pod" and (task := _task(name, jobs, str(about.get("name")), gone=cluster is None)):
            event = _event(one, task)
            # An Event has whole seconds, and a pod of the cluster is younger than it.
            found += [event] if event.time >= since else []
    return sorted(found, key=lambda one: (one.time, one.about, one.uid))


def news(before: Mapping[str, Event], after: Iterable[Event]) -> Iterator[Event]:
    """Return the events that are new, or happened again."""
    for one in after:
        known = before.get(one.uid)
        if known is None or (known.count, known.time) != (one.count, one.time):
            yield one


def _task(name: str, jobs: set[str], pod: str, *, gone: bool) -> str:
    """Return the task that a pod of this name runs; "" if the pod does not belong to this cluster."""
    parts = _POD.fullmatch(pod)
    if parts is None or not parts["stem"].startswith(f"{name}-"):
        return ""
    job = parts["stem"].removeprefix(f"{name}-")
    return f"{job}-{parts['index']}" if job in jobs or gone else ""


def _event(body: Mapping[str, Any], about: str) -> Event:
    series: Mapping[str, Any] = body.get("series") or {}
    times = (series.get("lastObservedTime"), body.get("lastTimestamp"), body.get("eventTime"))
    time = next((found for found in map(seconds_of, times) if found), 0.0)
    return Event(
        time=time or seconds_of(body["metadata"].get("creationTimestamp")),
        type=str(body.get("type") or "Normal"),
        reason=clean(body.get("reason") or ""),
        about=about,
        object=str((body.get("involvedObject") or {}).get("name") or ""),
        message=clean(body.get("message") or ""),
        count=int(series.get("count") or body.get("count") or 1),
        source=str(body.get("reportingComponent") or (body.get("source") or {}).get("component") or ""),
        uid=str(body["metadata"].get("uid") or body["metadata"]["name"]),
    )


def _follow(api: KubernetesApi, name: str, namespace: str | None, uid: str) -> Iterator[Event]:
    known: dict[str, Event] = {}
    selections = [Selection(TFCLUSTERS, namespace, fields=f"metadata.name={name}"), Selection(EVENTS, namespace)]
    for clusters, events in snapshots(api, selections):
        if (refused := clusters.refused or events.refused) is not None:
            raise refused
        body = next((one for one in clusters.objects if one["metadata"]["uid"] == uid), None)
        fresh = list(news(known, events_of(name, body, events.objects)))
        yield from fresh
        known.update((one.uid, one) for one in fresh)
        if body is None:
            return


def cluster_events(api: KubernetesApi, name: str, namespace: str | None, *, follow: bool) -> Iterator[Event]:
    """Return the events of a TFCluster; see Client.events."""
    body = api.find(TFCLUSTERS, name, namespace)
    if body is not None and follow:
        yield from _follow(api, name, namespace, body["metadata"]["uid"])
        return
    found = events_of(name, body, api.list(EVENTS, namespace))
    if body is None and not found:
        api.cluster(name, namespace)
    yield from found
