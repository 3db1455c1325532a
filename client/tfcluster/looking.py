"""Looking at TFClusters: the few requests that a picture is made of, once or as changes come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tfcluster.client import Client
from tfcluster.errors import RefusedError
from tfcluster.kubernetes_api import CONFIG_MAPS, PODS, TFCLUSTERS, Object
from tfcluster.picture import Picture, picture_of
from tfcluster.snapshots import Found, Selection, Snapshots
from tfcluster_operator.declaration import naming


def look(client: Client, name: str) -> Picture:
    """Look at one cluster, by three requests.

    Raises:
        NoClusterError: there is none of that name.
        RefusedError: this user may not read it.
        UnreachableError: no API server answers.
    """
    return look_closely(client, name)[1]


def look_closely(client: Client, name: str) -> tuple[Object, Picture]:
    """Look at one cluster as ``look`` does, and give the object, too."""
    body = client.get(name)
    pods, config_maps = (_listed(client, selection) for selection in _parts(name))
    return body, _picture(body, pods, config_maps)


def look_at_all(client: Client, namespace: str | None) -> list[Picture]:
    """Look at all clusters of a namespace, by one request.

    Raises:
        RefusedError: this user may not list them, or the kind is not installed.
        UnreachableError: no API server answers.
    """
    return sorted((picture_of(one, now=time.time()) for one in client.list(namespace)), key=_order)


def watch(client: Client, name: str, *, tick: float | None) -> Iterator[Picture | None]:
    """Look at one cluster, and again whenever something of it changes.

    Args:
        client: whose namespace is meant.
        name: the cluster.
        tick: look again after so many seconds at the latest, without a request; None waits for a change.

    Raises:
        NoClusterError: there is none of that name.
        RefusedError: this user may not read it, or not watch it.
        UnreachableError: no API server answers at the beginning; later ones are told as a gap, and tried again.
    """
    uid = client.get(name)["metadata"]["uid"]
    selections = [Selection(TFCLUSTERS, fields=f"metadata.name={name}"), *_parts(name)]
    for cluster, pods, config_maps in Snapshots(client.api, selections).each(tick=tick):
        if cluster.refused is not None:
            raise cluster.refused
        body = next(iter(cluster.objects), None)
        if body is None or body["metadata"]["uid"] != uid:
            yield None
            return
        yield _picture(body, pods, config_maps, *_old(cluster))


def watch_all(client: Client, namespace: str | None, *, tick: float | None) -> Iterator[tuple[list[Picture], str]]:
    """Look at all clusters of a namespace, and again whenever one changes.

    Raises:
        RefusedError: this user may not list or watch them.
        UnreachableError: no API server answers at the beginning.
    """
    client.list(namespace)  # NB: what does not work at all is an error, what stops working is tried again
    for (found,) in Snapshots(client.api, [Selection(TFCLUSTERS, namespace)]).each(tick=tick):
        if found.refused is not None:
            raise found.refused
        pictures = (picture_of(one, now=time.time()) for one in found.objects)
        yield sorted(pictures, key=_order), "".join(_old(found))


def _order(picture: Picture) -> tuple[str, str]:
    return picture.namespace, picture.name


def _parts(name: str) -> tuple[Selection, Selection]:
    """Select a cluster's pods, and the ConfigMaps with its views."""
    labels = f"{naming.LABEL_CLUSTER}={name}"
    return Selection(PODS, labels=labels), Selection(CONFIG_MAPS, labels=f"{labels},{naming.LABEL_JOB}")


def _listed(client: Client, selection: Selection) -> Found:
    try:
        return Found(client.api.list(selection.resource, labels=selection.labels).items)
    except RefusedError as error:
        return Found(refused=error)


def _old(found: Found) -> tuple[str, ...]:
    if found.trouble is None:
        return ()
    return (f"what is shown may be old: {found.trouble}; trying again",)


def _picture(body: Object, pods: Found, config_maps: Found, *gaps: str) -> Picture:
    told = [*gaps]
    for what, found in (("pods", pods), ("ConfigMaps with the views", config_maps)):
        if found.refused is not None:
            told.append(f"the {what} cannot be listed: {found.refused}")
        told += _old(found)
    return picture_of(body, _objects(pods), _objects(config_maps), now=time.time(), gaps=dict.fromkeys(told))


def _objects(found: Found) -> Sequence[Object] | None:
    return None if found.refused is not None else found.objects
