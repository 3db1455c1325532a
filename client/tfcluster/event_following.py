"""The events of a TFCluster as they come."""

from __future__ import annotations

from collections.abc import Iterator

from tfcluster.event_log import Event, events_of, news
from tfcluster.kubernetes_api import EVENTS, TFCLUSTERS, KubernetesApi
from tfcluster.snapshots import Selection, Snapshots


def follow_events(api: KubernetesApi, name: str, namespace: str | None, *, uid: str) -> Iterator[Event]:
    """Give the events that there are, and those to come, until the TFCluster is gone.

    Raises:
        RefusedError: this user may not watch them.
    """
    known: dict[str, Event] = {}
    selections = [Selection(TFCLUSTERS, namespace, fields=f"metadata.name={name}"), Selection(EVENTS, namespace)]
    for clusters, events in Snapshots(api, selections).each():
        for found in (clusters, events):
            if found.refused is not None:
                raise found.refused
        body = next((one for one in clusters.objects if one["metadata"]["uid"] == uid), None)
        fresh = list(news(known, events_of(name, body, events.objects)))
        yield from fresh
        known.update((one.uid, one) for one in fresh)
        if body is None:
            return
