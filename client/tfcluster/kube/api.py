"""The Kubernetes API as the client uses it: dicts in, dicts out, rejections as exceptions with a next step.

Credentials, TLS and proxies are the official client's; its models are left out, so that a field which is newer than
they are is never lost.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import urllib3
import yaml

import tfcluster_resolver
from tfcluster.errors import NotFoundError, TFClusterError, UnreachableError, no_cluster
from tfcluster.kube import connection
from tfcluster_operator.declaration import naming

# The import takes a third of a second: `--help`, and what sends no request, does without.
if TYPE_CHECKING:
    from kubernetes import client

Object = dict[str, Any]

FIELD_MANAGER: Final = "tfcluster-client"
#: Time-outs in seconds: for the connection, and for a part of the answer.
_CONNECT, _READ = 10.0, 60.0
_PAGE: Final = 500
_CREATED: Final = 201
_POD: Final = "the pod"
#: These names would change the path of a request (kubernetes.io, "Object Names and IDs": path segment names).
_NO_NAMES: Final = frozenset({"", ".", ".."})
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class Resource(NamedTuple):
    """A kind of object: its API group and version, its plural, and whether it lives in a namespace."""

    group_version: str
    plural: str
    namespaced: bool = True


class Selection(NamedTuple):
    """Objects of a kind: their namespace, None for the default one, and selectors of labels and fields."""

    resource: Resource
    namespace: str | None = None
    labels: str = ""
    fields: str = ""


TFCLUSTERS: Final = Resource(naming.API_VERSION, naming.PLURAL)
PODS: Final = Resource("v1", "pods")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
EVENTS: Final = Resource("v1", "events")
DEPLOYMENTS: Final = Resource("apps/v1", "deployments")
NETWORK_POLICIES: Final = Resource("networking.k8s.io/v1", "networkpolicies")
WORKLOADS: Final = Resource("kueue.x-k8s.io/v1beta2", "workloads")
DEFINITIONS: Final = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)
TFJOBS: Final = Resource("kubeflow.org/v1", "tfjobs")


class KubernetesApi:
    """One API server, as one user, with a default namespace."""

    def __init__(
        self, configuration: client.Configuration, namespace: str, source: str = "", context: str | None = None
    ) -> None:
        from kubernetes import client

        self.namespace = namespace
        self.source = source
        self.context = context
        self.configuration = configuration
        self._client = client.ApiClient(configuration)
        self._client.user_agent = f"tfcluster/{tfcluster_resolver.__version__}"

    @classmethod
    def connect(
        cls, *, kubeconfig: str | Path | None = None, context: str | None = None, namespace: str | None = None
    ) -> KubernetesApi:
        """Find credentials as kubectl does, or those of the pod that this process is in."""
        from kubernetes import client
        from kubernetes.config.config_exception import ConfigException

        configuration = client.Configuration()
        own = None if kubeconfig is None else str(kubeconfig)
        # The official client reads KUBECONFIG when it is imported, and a notebook sets it later.
        file = own or os.environ.get("KUBECONFIG") or None
        try:
            of_context = connection.load_kubeconfig(configuration, file, context)
        except ConfigException as error:
            if own is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                return cls._in_pod(configuration, namespace)
            raise UnreachableError(
                f"no credentials for a Kubernetes cluster: {error}",
                hint="Name a file with --kubeconfig or KUBECONFIG, or run on this machine: tfcluster local run -f FILE",
            ) from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            raise UnreachableError(
                f"the kubeconfig cannot be read: {connection.brief_of_kubeconfig(error)}",
                hint=f"It is {file or '~/.kube/config'}; name another one with --kubeconfig or KUBECONFIG.",
            ) from error
        return cls(configuration, namespace or of_context or "default", file or "~/.kube/config", context)

    @classmethod
    def _in_pod(cls, configuration: client.Configuration, namespace: str | None) -> KubernetesApi:
        from kubernetes import config

        try:
            config.load_incluster_config(client_configuration=configuration)
            folder = Path("/var/run/secrets/kubernetes.io/serviceaccount")
            return cls(configuration, namespace or (folder / "namespace").read_text(encoding="utf-8"), _POD)
        except (config.ConfigException, OSError) as error:
            raise UnreachableError(
                f"no credentials: {error}",
                hint="This process is in a pod without a service account token. Give the pod "
                "automountServiceAccountToken: true and a ServiceAccount with rights on tfclusters, or a kubeconfig.",
            ) from error

    @property
    def server(self) -> str:
        """The API server, for messages, without its path, which can be a secret."""
        found = urlsplit(str(self.configuration.host))
        return f"{found.scheme}://{found.netloc}"

    @property
    def kubectl_options(self) -> list[str]:
        """The options that point kubectl at the same API server."""
        file = [] if self.source in ("", _POD) else ["--kubeconfig", str(Path(self.source).expanduser())]
        return [*file, *(["--context", self.context] if self.context else [])]

    # --- reading

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return an object; raises NotFoundError and RefusedError."""
        return self._json("GET", self._path(resource, namespace, name))

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        """Return an object, or None if it does not exist; raises RefusedError, also if the kind does not exist."""
        try:
            return self.get(resource, name, namespace)
        except NotFoundError as error:
            if error.reason == connection.UNKNOWN_PATH:
                raise
            return None

    def cluster(self, name: str, namespace: str | None = None) -> Object:
        """Return a TFCluster; raises NoClusterError, and RefusedError."""
        found = self.find(TFCLUSTERS, name, namespace)
        if found is None:
            raise no_cluster(name, namespace or self.namespace)
        return found

    def list(self, resource: Resource, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Listed:
        query = _query(labelSelector=labels, fieldSelector=fields, limit=_PAGE)
        found = Listed()
        while True:
            page = self._json("GET", self._path(resource, namespace), query=query)
            found += page["items"]
            again = page["metadata"].get("continue")
            if not again:
                found.version = page["metadata"]["resourceVersion"]
                return found
            query = {**query, "continue": again}

    def watch(self, selection: Selection, *, since: str, seconds: float = 300.0) -> Iterator[tuple[str, Object]]:
        """Return changes as they happen, such as ("ADDED", object), until the server or ``seconds`` ends it."""
        resource, namespace, labels, fields = selection
        query = _query(watch="true", labelSelector=labels, fieldSelector=fields, resourceVersion=since)
        query["timeoutSeconds"] = str(int(seconds) + 1)
        response = self._open("GET", self._path(resource, namespace), query=query, read=seconds)
        for line in _lines(response):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise connection.error_of_status(event["object"])
            yield event["type"], event["object"]

    # --- writing

    def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None) -> Object:
        """Create an object; raises ConflictError if one of that name exists, and RefusedError."""
        return self._json("POST", self._path(resource, namespace), body=body, query=_query(fieldValidation="Strict"))

    def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> tuple[Object, bool]:
        """Apply an object server-side, as ``kubectl apply --server-side`` does."""
        query = {**_writing(dry_run=dry_run), **({"force": "true"} if force else {})}
        path = self._path(resource, namespace, body["metadata"]["name"])
        response = self._open("PATCH", path, body=body, query=query, content="application/apply-patch+yaml")
        return json.loads(response.read()), response.status == _CREATED

    def patch(
        self,
        resource: Resource,
        name: str,
        change: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Change an object with a merge patch; raises NotFoundError, ConflictError and RefusedError."""
        path, query = self._path(resource, namespace, name), _writing(dry_run=dry_run)
        return self._json("PATCH", path, body=change, query=query, content="application/merge-patch+json")

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> None:
        """Delete an object; raises NotFoundError, ConflictError (another object has the name now) and RefusedError."""
        options = {
            "preconditions": {"uid": uid} if uid else None,
            "propagationPolicy": propagation or None,
            "dryRun": ["All"] if dry_run else None,
        }
        query = _query(dryRun="All" if dry_run else "")
        self._json("DELETE", self._path(resource, namespace, name), body=options, query=query)

    # --- pods

    def open_log(
        self, pod: str, namespace: str | None = None, *, follow: bool = False, **query: str | int | None
    ) -> urllib3.BaseHTTPResponse:
        """Open a container's log; read it with ``read1()``; ``shutdown()`` in another thread ends that."""
        asked = _query(follow="true" if follow else "", **query)
        return self._open("GET", self._path(PODS, namespace, pod, "log"), query=asked)

    def may(self, verb: str, resource: Resource, subresource: str = "") -> bool:
        """Return whether this user is allowed to do something; raises RefusedError."""
        group, plural = resource.group_version.rpartition("/")[0], resource.plural
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": plural}
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": {**asked, "subresource": subresource}}}
        answer = self._json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    def resources_of(self, group_version: str) -> Sequence[Object]:
        """Return what an API group and version serves, as APIResources; raises NotFoundError and RefusedError."""
        base = "apis" if "/" in group_version else "api"
        resources: Sequence[Object] = self._json("GET", f"/{base}/{group_version}").get("resources") or ()
        return resources

    def read(self, path: str) -> bytes:
        """Return the answer to a GET of any path, such as /version; raises NotFoundError and RefusedError."""
        return bytes(self._open("GET", path).read())

    def close(self) -> None:
        self._client.close()

    def _path(
        self, resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str = ""
    ) -> str:
        """Return the path of an object, or of all objects without a name."""
        base = f"/apis/{resource.group_version}" if "/" in resource.group_version else f"/api/{resource.group_version}"
        inside = self.namespace if namespace is None else namespace
        if name is not None and (not isinstance(name, str) or name in _NO_NAMES):
            raise TFClusterError(f'"{name}" is not a name: give one')
        if resource.namespaced and inside and not _NAMESPACE.fullmatch(inside):
            raise TFClusterError(f'"{inside}" can name no namespace', hint="Choose another one with -n.")
        around = ("namespaces", inside) if resource.namespaced and inside else ()
        steps = (*around, resource.plural, name, subresource)
        return "/".join([base, *(quote(step, safe="") for step in steps if step)])

    def _json(self, method: str, path: str, **request: Any) -> Object:
        answer: Object = json.loads(self._open(method, path, **request).read())
        return answer

    def _open(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        read: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Make a request; the body of the answer is not read yet."""
        headers = {"Accept": "application/json", "User-Agent": self._client.user_agent}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        if body is not None:
            headers["Content-Type"] = content
        url = f"{self.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response: urllib3.BaseHTTPResponse = self._client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=_CONNECT, read=read or _READ),
                retries=urllib3.Retry(connect=2, read=0, redirect=0, status=0, other=0),
            )
            if response.status >= 400:
                raise connection.error_of_response(response.status, response.read(), server=self.server)
        except ValueError:
            # The messages of http.client contain the header, and so the token: never show or chain them.
            raise UnreachableError(
                "the credentials hold a character that no request can carry, such as the end of a line",
                hint=f"They are from {self.source or 'the caller'}. Log in again, or correct the token there.",
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(
                f"the API server {self.server} does not answer: {_brief(error)}",
                hint=f"Is this the right cluster? The credentials are from {self.source or 'the caller'}.",
            ) from error
        return response


class Listed(list[Object]):
    """The objects of a list, with the version where a watch continues."""

    version = ""


def _query(**parameters: str | int | None) -> dict[str, str]:
    return {key: str(value) for key, value in parameters.items() if value not in ("", None)}


def _writing(*, dry_run: bool) -> dict[str, str]:
    return _query(fieldManager=FIELD_MANAGER, dryRun="All" if dry_run else "", fieldValidation="Strict")


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Return the lines of an answer as they come; the last line can be incomplete."""
    rest = b""
    try:
        # stream() would wait until a whole block is there; read1() gives what has come.
        while chunk := response.read1():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
    except urllib3.exceptions.ReadTimeoutError:
        pass
    except urllib3.exceptions.HTTPError as error:
        raise UnreachableError("the connection to the API server was lost") from error
    finally:
        response.close()
    if rest:
        yield rest


def _brief(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection was lost"
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2] or type(error).__name__


def seconds_of(text: Any) -> float:
    """Parse a timestamp of Kubernetes; 0.0 if it is missing or invalid."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (TypeError, ValueError):
        return 0.0
