"""The Python client: TFClusters from notebooks and pipelines; the commands call it, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tfcluster.errors import NoClusterError
from tfcluster.kubernetes_api import TFCLUSTERS, KubernetesApi, Object


class Client:
    """TFClusters of one Kubernetes cluster, in one namespace where none is named.

    Args:
        api: the connection; by default what kubectl would use, or the service account of the pod.

    Raises:
        UnreachableError: there are no credentials.
    """

    def __init__(self, api: KubernetesApi | None = None) -> None:
        self.api = api or KubernetesApi.connect()

    @classmethod
    def connect(
        cls, *, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str | None = None
    ) -> Self:
        """Connect as kubectl does; see KubernetesApi.connect."""
        return cls(KubernetesApi.connect(kubeconfig=kubeconfig, context=context, namespace=namespace))

    @property
    def namespace(self) -> str:
        """The namespace that is meant where none is named."""
        return self.api.namespace

    def get(self, name: str, namespace: str | None = None) -> Object:
        """Give a TFCluster as the API server has it.

        Args:
            name: its name.
            namespace: its namespace, if not the client's.

        Raises:
            NoClusterError: there is none of that name.
            RefusedError: the API server said no.
        """
        found = self.api.find(TFCLUSTERS, name, namespace)
        if found is None:
            inside = self.namespace if namespace is None else namespace
            raise NoClusterError(
                f"there is no TFCluster {name} in namespace {inside}",
                hint="List what is there with `tfcluster status`, in all namespaces with -A.",
            )
        return found

    def list(self, namespace: str | None = None, *, labels: str = "") -> list[Object]:
        """Give all TFClusters.

        Args:
            namespace: their namespace; None is the client's, "" all of them.
            labels: a label selector.

        Raises:
            RefusedError: the API server said no.
        """
        return list(self.api.list(TFCLUSTERS, namespace, labels=labels))

    def apply(self, manifest: Mapping[str, Any], *, force: bool = False, dry_run: bool = False) -> Object:
        """Create a TFCluster, or change it into what the manifest says, by server-side apply.

        Args:
            manifest: the TFCluster.
            force: take over fields that somebody else set to something else.
            dry_run: change nothing; only say what would come of it.

        Returns:
            The TFCluster after it.

        Raises:
            ConflictError: somebody else set a field to something else, and ``force`` is not given.
            RefusedError: the API server said no; the words name the field.
        """
        namespace = (manifest.get("metadata") or {}).get("namespace")
        return self.api.apply(TFCLUSTERS, manifest, namespace, force=force, dry_run=dry_run)

    def close(self) -> None:
        """Close the connections."""
        self.api.close()

    def __enter__(self) -> Self:
        """Enter; the connections are closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()
