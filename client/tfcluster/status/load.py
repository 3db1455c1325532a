"""Read TFClusters with a few requests, once or at each change."""

import time
from collections.abc import Iterator, Sequence

from tfcluster.errors import RefusedError
from tfcluster.kube.api import CONFIG_MAPS, PODS, TFCLUSTERS, KubernetesApi, Object, Selection
from tfcluster.kube.watch import Found, snapshots
from tfcluster.status.picture import Picture, picture_of
from tfcluster_operator.declaration import naming


def look(api: KubernetesApi, name: str, namespace: str | None = None) -> tuple[Object, Picture]:
    """Read one cluster with three requests; raises NoClusterError and RefusedError."""
    body = api.cluster(name, namespace)
    pods, config_maps = (_listed(api, selection) for selection in _parts(name, body["metadata"]["namespace"]))
    return body, _picture(body, pods, config_maps)


def watch(api: KubernetesApi, name: str, *, tick: float | None) -> Iterator[Picture | None]:
    """Read one cluster, and again at each change."""
    uid = api.cluster(name)["metadata"]["uid"]
    selections = [Selection(TFCLUSTERS, fields=f"metadata.name={name}"), *_parts(name)]
    for cluster, pods, config_maps in snapshots(api, selections, tick=tick):
        if cluster.refused is not None:
            raise cluster.refused
        body = next(iter(cluster.objects), None)
        if body is None or body["metadata"]["uid"] != uid:
            yield None
            return
        yield _picture(body, pods, config_maps, *_old(cluster))


def watch_all(api: KubernetesApi, namespace: str | None, *, tick: float | None) -> Iterator[tuple[list[Picture], str]]:
    """Read all clusters of a namespace, and again at each change."""
    api.list(TFCLUSTERS, namespace)  # The first error is raised; later ones are retried
    for (found,) in snapshots(api, [Selection(TFCLUSTERS, namespace)], tick=tick):
        if found.refused is not None:
            raise found.refused
        yield pictures_of(found.objects), "".join(_old(found))


def pictures_of(bodies: Sequence[Object]) -> list[Picture]:
    return sorted((picture_of(one, now=time.time()) for one in bodies), key=lambda one: (one.namespace, one.name))


def _parts(name: str, namespace: str | None = None) -> tuple[Selection, Selection]:
    """Select a cluster's pods, and the ConfigMaps with its views."""
    labels = f"{naming.LABEL_CLUSTER}={name}"
    return Selection(PODS, namespace, labels), Selection(CONFIG_MAPS, namespace, f"{labels},{naming.LABEL_JOB}")


def _listed(api: KubernetesApi, selection: Selection) -> Found:
    try:
        return Found(api.list(selection.resource, selection.namespace, labels=selection.labels))
    except RefusedError as error:
        return Found(refused=error)


def _old(found: Found) -> tuple[str, ...]:
    if found.trouble is None:
        return ()
    return (f"the output can be old: {found.trouble}; trying again",)


def _picture(body: Object, pods: Found, config_maps: Found, *gaps: str) -> Picture:
    told = [*gaps]
    for what, found in (("pods", pods), ("ConfigMaps with the views", config_maps)):
        if found.refused is not None:
            told.append(f"the {what} cannot be listed: {found.refused}")
        told += _old(found)
    of_pods, of_maps = (None if one.refused is not None else one.objects for one in (pods, config_maps))
    return picture_of(body, of_pods, of_maps, now=time.time(), gaps=dict.fromkeys(told))
