"""Which field of a template changed: a report, found by comparing one outdated pod with what it would be now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tfcluster_operator.kube import errors
from tfcluster_operator.kube.client import Client
from tfcluster_operator.kube.raw import read_pod
from tfcluster_operator.manifests.difference import first_difference
from tfcluster_operator.manifests.pod import build_pod, tf_config_in
from tfcluster_operator.model import naming
from tfcluster_operator.model.ledger import Ledger
from tfcluster_operator.model.policies.rollout import rollout_of
from tfcluster_operator.model.roster import Roster

#: Answers that are kept: one for each job and edit.
_KEPT: Final = 1_000


class Revisions:
    """Names the first field that differs, asking the API server once for each edit of a job.

    Args:
        client: the requests.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str, str, str], str] = {}

    async def changed_fields(self, roster: Roster, ledger: Ledger) -> Mapping[str, str]:
        """Name the first changed field of each job that has outdated pods.

        Args:
            roster: what is declared and what exists.
            ledger: whether the cluster has ended, so that its pods are left alone.

        Returns:
            A field such as ``containers[tensorflow].image`` by job; a job without outdated pods is left out.
        """
        cluster = roster.cluster
        changed: dict[str, str] = {}
        for job in cluster.jobs if ledger.verdict is None and not cluster.suspend else ():
            outdated = rollout_of(roster, job).old
            if not outdated:
                continue
            task, pod = outdated[0].task, outdated[0].pod
            if pod is None:
                continue
            old = pod.meta.annotations.get(naming.ANNOTATION_TEMPLATE_HASH, "")
            key = (cluster.uid, job.name, old, job.template_hash)
            if key not in self._known:
                try:
                    live = await read_pod(self._client, cluster.namespace, pod.meta.name)
                except errors.KubeError:
                    continue
                if live is None:
                    continue
                wanted = build_pod(
                    cluster,
                    task,
                    view_digest="",
                    attempt=0,
                    incarnation=0,
                    resolver=pod.resolver or None,
                    # What it says is fixed when a pod is created: whether it is set is what an edit changes.
                    tf_config=tf_config_in(live) if cluster.sets_tf_config else None,
                )
                if len(self._known) >= _KEPT:
                    self._known.clear()
                self._known[key] = first_difference(wanted, live)
            changed[job.name] = self._known[key]
        return changed
