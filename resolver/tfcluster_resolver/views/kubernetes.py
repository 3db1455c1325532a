"""The view of a TFCluster from outside its pods, through the API server.

It decides which ConfigMaps are a cluster's views, and what each refusal of the API server means to the user.  The
official client is imported only here, and only when it is used.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tfcluster_resolver import _arguments, contract
from tfcluster_resolver.errors import (
    ArgumentValueError,
    KubernetesClientNotFoundError,
    KubernetesConfigurationError,
    KubernetesError,
    KubernetesRightsError,
    KubernetesUnreachableError,
    MalformedViewError,
    NoSuchClusterError,
    NotPublishedError,
    UnsupportedViewError,
    ViewError,
)
from tfcluster_resolver.views.fullest import fullest
from tfcluster_resolver.views.watch import PollingNotice

_GROUP: Final = "tfcluster.dev"
_VERSION: Final = "v1alpha1"
_PLURAL: Final = "tfclusters"
#: Seconds to reach the API server and, separately, to wait for its answer.
_REQUEST_TIMEOUT: Final = (5.0, 15.0)
#: Seconds between two looks of a watch.
_POLL: Final = 1.0
#: What the API server allows as a name.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: Where a pod finds the namespace that it is in.
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesViews:
    """The views of one TFCluster, read at each call.

    Args:
        name: the TFCluster's name.
        namespace: its namespace; by default the pod's own, or that of the kubeconfig's context.
        kubeconfig: a kubeconfig file; by default the pod's service account, else ``KUBECONFIG`` or ``~/.kube/config``.
        context: a context of the kubeconfig; its current one by default.

    Raises:
        KubernetesClientNotFoundError: the package ``kubernetes`` is not installed.
        KubernetesConfigurationError: there is no usable configuration.
        ArgumentError: an argument is of another type, or no name that Kubernetes allows.
    """

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
        """Read the cluster's views and merge them to the fullest one.

        Raises:
            NoSuchClusterError: there is no such TFCluster.
            NotPublishedError: the operator has not published its views yet.
            KubernetesRightsError: the API server refuses this user.
            KubernetesUnreachableError: it does not answer.
            MalformedViewError: a view is none.
            UnsupportedViewError: a newer operator wrote it.
        """
        client = _client()
        if self._api is None:
            self._api, _ = self._connect()
        selector = f"{_GROUP}/cluster={self._name},{_GROUP}/job"
        found = self._ask(
            lambda: client.CoreV1Api(self._api).list_namespaced_config_map(
                self._namespace, label_selector=selector, _request_timeout=_REQUEST_TIMEOUT
            ),
            f"list ConfigMaps in namespace {self._namespace}",
        )
        try:
            # A cluster that was deleted and made again under its name has other views; the old ones are collected soon.
            ours = sorted((one for one in found.items if self._is_ours(one)), key=_age)
            uid = _owner(ours[-1]).uid if ours else None
            views = [view for one in ours if _owner(one).uid == uid for view in self._views_in(one)]
        except (AttributeError, TypeError, ValueError) as error:
            if isinstance(error, ViewError):
                raise
            raise self._misunderstood(error) from error
        if not views:
            raise self._no_views()
        return fullest(views)

    def notice(self) -> PollingNotice:
        """Look once a second: a notebook needs no more, and the API server no less rest."""
        return PollingNotice(_POLL)

    def _is_ours(self, config_map: Any) -> bool:
        owner = _owner(config_map)
        return owner is not None and (owner.kind, owner.name) == ("TFCluster", self._name)

    def _views_in(self, config_map: Any) -> Iterable[contract.View]:
        for file, text in sorted((config_map.data or {}).items()):
            where = f"{file} of ConfigMap {self._namespace}/{config_map.metadata.name}"
            try:
                yield contract.load(text)
            except contract.UnsupportedVersionError as error:
                raise UnsupportedViewError(f"{where}: {error}") from error
            except contract.ContractError as error:
                raise MalformedViewError(
                    f"{where} is not a view: {error}. The operator writes it, so look who else edits that ConfigMap"
                ) from error

    def _no_views(self) -> KubernetesError:
        """Find out why there are no views: that takes the right to get the TFCluster, and without it both are named."""
        client = _client()
        what = f"TFCluster {self._namespace}/{self._name}"
        try:
            self._ask(
                lambda: client.CustomObjectsApi(self._api).get_namespaced_custom_object(
                    _GROUP, _VERSION, self._namespace, _PLURAL, self._name, _request_timeout=_REQUEST_TIMEOUT
                ),
                f"get {what}",
            )
        except NoSuchClusterError as error:
            return error
        except KubernetesRightsError:
            return NoSuchClusterError(
                f"no views of {what}: either there is no such TFCluster, or the operator has not published it yet; "
                "this user may not get TFClusters, so which of the two it is cannot be told"
            )
        return NotPublishedError(
            f"{what} exists and its views are not published yet: see its conditions with "
            f"`kubectl -n {self._namespace} describe tfcluster {self._name}`, and whether the operator runs"
        )

    def _ask(self, request: Callable[[], Any], what: str) -> Any:
        try:
            return request()
        except _exceptions().ApiException as error:
            raise self._refused(error, what) from error
        except (OSError, importlib.import_module("urllib3").exceptions.HTTPError) as error:
            raise KubernetesUnreachableError(
                f"cannot {what}: the API server {self._api.configuration.host} does not answer ({error}); "
                "is this the right kubeconfig and context, and is the network up?"
            ) from error
        except Exception as error:  # the client raises whatever its reading of an odd answer meets
            raise self._misunderstood(error) from error

    def _misunderstood(self, error: Exception) -> KubernetesUnreachableError:
        return KubernetesUnreachableError(
            f"{self._api.configuration.host} answers what no API server of Kubernetes does ({type(error).__name__}: "
            f"{str(error)[:200]}): is it one, and is nothing between that changes its answers?"
        )

    def _refused(self, error: Any, what: str) -> KubernetesError:
        if error.status in (401, 403):
            return KubernetesRightsError(
                f"may not {what}: {error.status} {error.reason}. This needs the verb list on configmaps in that "
                "namespace; `kubectl auth can-i list configmaps` tells whether a user has it"
            )
        if error.status == 404:
            return NoSuchClusterError(
                f"cannot {what}: there is none. `kubectl get tfclusters -A` lists those that there are"
            )
        return KubernetesUnreachableError(f"cannot {what}: the API server answers {error.status} {error.reason}")

    def _connect(self) -> tuple[Any, str]:
        """Make a client, and tell the namespace that goes with its configuration."""
        client, config = _client(), importlib.import_module("kubernetes.config")
        configuration = client.Configuration()
        try:
            if self._kubeconfig is None and self._context is None and _in_cluster():
                config.load_incluster_config(client_configuration=configuration)
                namespace = _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
            else:
                config.load_kube_config(self._kubeconfig, self._context, client_configuration=configuration)
                namespace = _namespace_of(config, self._kubeconfig, self._context)
        except Exception as error:  # the client has no class of its own for a malformed kubeconfig
            raise KubernetesConfigurationError(
                f"no usable configuration of a Kubernetes client: {error}. Pass kubeconfig= and context=, set "
                "KUBECONFIG, or run in a pod with a service account"
            ) from error
        configuration.retries = 0  # an unreachable server is told at once; whoever asks may ask again
        return client.ApiClient(configuration), namespace

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the client, which holds locks and connections."""
        return {name: value for name, value in self.__dict__.items() if name != "_api"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._api = None  # made at the next call: a snapshot is of use where no API server is, too


def _owner(config_map: Any) -> Any:
    owners = config_map.metadata.owner_references or []
    return next((one for one in owners if one.controller and one.api_version.startswith(f"{_GROUP}/")), None)


def _age(config_map: Any) -> Any:
    return config_map.metadata.creation_timestamp


def _in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and _OWN_NAMESPACE.exists()


def _namespace_of(config: Any, kubeconfig: str | None, context: str | None) -> str:
    contexts, current = config.list_kube_config_contexts(kubeconfig)
    chosen = current if context is None else next(one for one in contexts if one["name"] == context)
    return str(chosen["context"].get("namespace") or "default")


def _client() -> Any:
    try:
        return importlib.import_module("kubernetes.client")
    except ModuleNotFoundError as error:
        raise KubernetesClientNotFoundError(
            "from_kubernetes() needs the official Kubernetes client: `pip install kubernetes`. In a TFCluster's pod it "
            "is not needed: TFClusterResolver() reads the mounted view"
        ) from error


def _name(value: Any, argument: str) -> str:
    """Take a name as Kubernetes has them: nothing else may become a part of a path or of a label selector."""
    if not _NAME.fullmatch(text := _arguments.text(value, argument)):
        raise ArgumentValueError(
            f"{argument} must be a name of Kubernetes (small letters, digits, - and .), not {text[:100]!r}"
        )
    return text


def _exceptions() -> Any:
    return importlib.import_module("kubernetes.client.exceptions")
