"""The view of a TFCluster from outside its pods, through the API server.

The official client is imported only here, and only when it is used.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tfcluster_resolver import _arguments, contract, errors
from tfcluster_resolver.views.file import parse

_GROUP: Final = "tfcluster.dev"
_VERSION: Final = "v1alpha1"
_PLURAL: Final = "tfclusters"
#: Seconds to reach the API server and, separately, to wait for its answer.
_REQUEST_TIMEOUT: Final = (5.0, 15.0)
#: The API server allows these names.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: A pod finds its namespace here.
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesViews:
    """The views of one TFCluster, read at each call; the arguments are those of ``from_kubernetes``."""

    #: Seconds: that is enough for a notebook, and easy for the API server.
    interval: Final = 1.0

    _api: Any

    def __init__(
        self, name: str, namespace: str | None, *, kubeconfig: str | os.PathLike[str] | None, context: str | None
    ) -> None:
        self._name = _name(name, "name")
        self._kubeconfig = None if kubeconfig is None else _arguments.path(kubeconfig, "kubeconfig")
        self._context = _arguments.text_or_none(context, "context")
        given = None if namespace is None else _name(namespace, "namespace")
        self._api, default = self._connect()
        self._namespace = given or default

    def view(self) -> contract.View:
        if self._api is None:
            self._api, _ = self._connect()
        views = self._ask(self._published, f"list ConfigMaps in namespace {self._namespace}")
        if not views:
            raise self._no_views()
        return fullest(views)

    def _published(self) -> list[contract.View]:
        selector = f"{_GROUP}/cluster={self._name},{_GROUP}/job"
        api = _client().CoreV1Api(self._api)
        found = api.list_namespaced_config_map(
            self._namespace, label_selector=selector, _request_timeout=_REQUEST_TIMEOUT
        )
        # A cluster that was deleted and created again under its name has other views; the old ones go soon.
        by_age = sorted(found.items, key=lambda one: one.metadata.creation_timestamp)
        ours = [(owner.uid, one) for one in by_age if (owner := self._owner(one)) is not None]
        return [view for uid, one in ours if uid == ours[-1][0] for view in self._views_in(one)]

    def _owner(self, config_map: Any) -> Any:
        owners = config_map.metadata.owner_references or []
        one = next((one for one in owners if one.controller and one.api_version.startswith(f"{_GROUP}/")), None)
        return one if one is not None and (one.kind, one.name) == ("TFCluster", self._name) else None

    def _views_in(self, config_map: Any) -> Iterable[contract.View]:
        for file, text in sorted((config_map.data or {}).items()):
            yield parse(text, f"{file} of ConfigMap {self._namespace}/{config_map.metadata.name}")

    def _no_views(self) -> errors.KubernetesError:
        """Find out why views are missing; without the permission to get the TFCluster both causes are named."""
        client = _client()
        what = f"TFCluster {self._namespace}/{self._name}"
        try:
            self._ask(
                lambda: client.CustomObjectsApi(self._api).get_namespaced_custom_object(
                    _GROUP, _VERSION, self._namespace, _PLURAL, self._name, _request_timeout=_REQUEST_TIMEOUT
                ),
                f"get {what}",
            )
        except errors.NoSuchClusterError as error:
            return error
        except errors.KubernetesRightsError:
            return errors.NoSuchClusterError(
                f"no views of {what}: either the TFCluster does not exist, or the operator has not published it yet; "
                "this user is not allowed to get TFClusters, so the cause is unknown"
            )
        return errors.NotPublishedError(
            f"{what} exists and its views are not published yet: see its conditions with "
            f"`kubectl -n {self._namespace} describe tfcluster {self._name}`, and whether the operator runs"
        )

    def _ask(self, request: Callable[[], Any], what: str) -> Any:
        try:
            return request()
        except errors.ViewError:
            raise
        except importlib.import_module("kubernetes.client.exceptions").ApiException as error:
            raise self._refused(error, what) from error
        except (OSError, importlib.import_module("urllib3").exceptions.HTTPError) as error:
            raise errors.KubernetesUnreachableError(
                f"cannot {what}: the API server {self._api.configuration.host} does not answer ({error}); "
                "is this the right kubeconfig and context, and is the network up?"
            ) from error
        except Exception as error:  # the client raises whatever its reading of an odd answer meets
            raise errors.KubernetesUnreachableError(
                f"{self._api.configuration.host} answers what no API server of Kubernetes does "
                f"({type(error).__name__}: {str(error)[:200]}): is it one, or does a proxy change its answers?"
            ) from error

    def _refused(self, error: Any, what: str) -> errors.KubernetesError:
        if error.status in (401, 403):
            return errors.KubernetesRightsError(
                f"cannot {what}: {error.status} {error.reason}. This needs the verb list on configmaps in that "
                "namespace; `kubectl auth can-i list configmaps` says whether a user has it"
            )
        if error.status == 404:
            return errors.NoSuchClusterError(
                f"cannot {what}: it does not exist. `kubectl get tfclusters -A` lists those that there are"
            )
        return errors.KubernetesUnreachableError(f"cannot {what}: the API server answers {error.status} {error.reason}")

    def _connect(self) -> tuple[Any, str]:
        """Make a client, and return the namespace that belongs to its configuration."""
        client, config = _client(), importlib.import_module("kubernetes.config")
        configuration = client.Configuration()
        try:
            in_cluster = os.environ.get("KUBERNETES_SERVICE_HOST") and _OWN_NAMESPACE.exists()
            if self._kubeconfig is None and self._context is None and in_cluster:
                config.load_incluster_config(client_configuration=configuration)
                namespace = _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
            else:
                config.load_kube_config(self._kubeconfig, self._context, client_configuration=configuration)
                contexts, current = config.list_kube_config_contexts(self._kubeconfig)
                named = [one for one in contexts if self._context is not None and one["name"] == self._context]
                namespace = str((named or [current])[0]["context"].get("namespace") or "default")
        except Exception as error:  # the client lacks a class of its own for a malformed kubeconfig
            raise errors.KubernetesConfigurationError(
                f"no usable configuration of a Kubernetes client: {error}. Pass kubeconfig= and context=, set "
                "KUBECONFIG, or run in a pod with a service account"
            ) from error
        configuration.retries = 0  # an unreachable server is an error immediately; the caller can ask again
        return client.ApiClient(configuration), namespace

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the client, which holds locks and connections."""
        return {name: value for name, value in self.__dict__.items() if name != "_api"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._api = None  # created at the next call: a snapshot is also useful without an API server


def _client() -> Any:
    try:
        return importlib.import_module("kubernetes.client")
    except ModuleNotFoundError as error:
        raise errors.KubernetesClientNotFoundError(
            "from_kubernetes() needs the official Kubernetes client: `pip install kubernetes`. In a TFCluster's pod it "
            "is not needed: TFClusterResolver() reads the mounted view"
        ) from error


def _name(value: Any, argument: str) -> str:
    """Check for a name of Kubernetes: it becomes a part of a path or of a label selector."""
    if not _NAME.fullmatch(text := _arguments.text(value, argument)):
        raise errors.ArgumentValueError(
            f"{argument} must be a name of Kubernetes (small letters, digits, - and .), not {text[:100]!r}"
        )
    return text


def fullest(views: Iterable[contract.View]) -> contract.View:
    """Merge the views of a cluster's tasks to that of a task without device filters, at the newest epoch."""
    # A view has a job as a list only if it shows all of its tasks, so the newest list is the whole job.  If no view
    # shows the whole job, it is the union of its tasks in all views.
    by_age = sorted(views, key=lambda view: view.epoch)
    newest = by_age[-1]
    jobs: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    accelerators: dict[str, contract.JobAccelerators] = {}
    for job in sorted({job for view in by_age for job in view.jobs}):
        showing = [view for view in by_age if job in view.jobs]
        whole = [view for view in showing if not isinstance(view.jobs[job], Mapping)][-1:]
        parts = [part for view in showing if isinstance(part := view.jobs[job], Mapping)]
        union = {index: address for part in parts for index, address in part.items()}
        jobs[job] = whole[0].jobs[job] if whole else dict(sorted(union.items()))
        if ranges := _filters_in(whole or showing, job):
            filters[job] = ranges
    for view in by_age:
        accelerators.update(view.accelerators)
    # Only the chief's view has the pods.
    incarnations = next((view.incarnations for view in reversed(by_age) if view.incarnations), {})
    return replace(
        newest,
        jobs=jobs,
        device_filters=filters,
        accelerators=accelerators,
        isolation="",
        incarnations=incarnations,
    )


def _filters_in(views: Iterable[contract.View], job: str) -> tuple[contract.FilterRange, ...]:
    by_task: dict[int, tuple[str, ...]] = {}
    for one in (one for view in views for one in view.device_filters.get(job, ())):
        by_task.update(dict.fromkeys(range(one.start, one.stop), one.filters))
        if len(by_task) > contract.MOST_RANGED:
            limit = contract.MOST_RANGED
            raise errors.MalformedViewError(f"the views have filters of over {limit} tasks of job {job!r}")
    return tuple(contract.FilterRange(index, index + 1, texts) for index, texts in sorted(by_task.items()))
