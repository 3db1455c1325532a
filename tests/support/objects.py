"""Kubernetes objects as plain dicts, the JSON as the API server sent it, through the official client's transport."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Kind:
    """The API path of a kind."""

    group_version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        root = "api" if "/" not in self.group_version else "apis"
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        return "/" + "/".join(filter(None, (root, self.group_version, *scope, self.plural, name, subresource)))


TFCLUSTERS = Kind("tfcluster.dev/v1alpha1", "tfclusters")
PODS = Kind("v1", "pods")
SERVICES = Kind("v1", "services")
CONFIG_MAPS = Kind("v1", "configmaps")
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "networkpolicies")
DISRUPTION_BUDGETS = Kind("policy/v1", "poddisruptionbudgets")
POD_GROUPS = Kind("scheduling.k8s.io/v1beta1", "podgroups")
POD_GROUPS_OF_PLUGINS = Kind("scheduling.x-k8s.io/v1alpha1", "podgroups")
PRIORITY_CLASSES = Kind("scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
WORKLOADS = Kind("kueue.x-k8s.io/v1beta2", "workloads")
LOCAL_QUEUES = Kind("kueue.x-k8s.io/v1beta2", "localqueues")
CLUSTER_QUEUES = Kind("kueue.x-k8s.io/v1beta2", "clusterqueues", namespaced=False)
FLAVORS = Kind("kueue.x-k8s.io/v1beta2", "resourceflavors", namespaced=False)
TOPOLOGIES = Kind("kueue.x-k8s.io/v1beta2", "topologies", namespaced=False)
WORKLOAD_PRIORITIES = Kind("kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", namespaced=False)
EVENTS = Kind("v1", "events")
LEASES = Kind("coordination.k8s.io/v1", "leases")
RESOURCE_QUOTAS = Kind("v1", "resourcequotas")
SERVICE_ACCOUNTS = Kind("v1", "serviceaccounts")
NAMESPACES = Kind("v1", "namespaces", namespaced=False)
NODES = Kind("v1", "nodes", namespaced=False)
CLUSTER_ROLES = Kind("rbac.authorization.k8s.io/v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Kind("rbac.authorization.k8s.io/v1", "clusterrolebindings", namespaced=False)
ROLES = Kind("rbac.authorization.k8s.io/v1", "roles")
ROLE_BINDINGS = Kind("rbac.authorization.k8s.io/v1", "rolebindings")
ACCESS_REVIEWS = Kind("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "networkpolicies")
CRDS = Kind("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False)


class Objects:
    """Access to objects; every error of the API server is an ApiException."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def request(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Any:
        """Send one request; return the decoded JSON, or raise an ApiException if the status is not 2xx."""
        return json.loads(self._send(method, path, body, content=content))

    def text(self, path: str) -> str:
        """GET a response that is not JSON, such as a pod's log."""
        return self._send("GET", path, None, content="*/*").decode(errors="replace")

    def _send(self, method: str, path: str, body: Any, *, content: str) -> bytes:
        headers = {"Accept": "*/*", "Content-Type": content}
        answer = self._api.call_api(
            *self._api.param_serialize(method, path, header_params=headers, body=body, auth_settings=["BearerToken"])
        )
        data = answer.read()
        if not 200 <= answer.status <= 299:
            raise ApiException(http_resp=answer, body=data.decode(errors="replace"), data=None)
        return data

    def get(self, kind: Kind, namespace: str, name: str, subresource: str = "") -> Object | None:
        try:
            return self.request("GET", kind.path(namespace, name, subresource))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str = "", *, selector: str = "") -> list[Object]:
        """List the objects of a namespace (all namespaces if empty) with a label selector."""
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        return self.request("GET", kind.path(namespace) + query)["items"]

    def create(self, kind: Kind, namespace: str, body: Object) -> Object:
        return self.request("POST", kind.path(namespace), body)

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Any, *, subresource: str = "", content: str = MERGE
    ) -> Object:
        return self.request("PATCH", kind.path(namespace, name, subresource), body, content=content)

    def replace(self, kind: Kind, namespace: str, body: Object) -> Object:
        return self.request("PUT", kind.path(namespace, body["metadata"]["name"]), body)

    def delete(self, kind: Kind, namespace: str, name: str, *, grace_seconds: int | None = None, uid: str = "") -> None:
        """DELETE one object, with ``uid`` only if it has that UID; a missing object is not an error."""
        # The server reads the query only if the request does not have a body.
        query = "" if grace_seconds is None or uid else f"?gracePeriodSeconds={grace_seconds}"
        body = {"preconditions": {"uid": uid}, "gracePeriodSeconds": grace_seconds} if uid else None
        try:
            self.request("DELETE", kind.path(namespace, name) + query, body)
        except ApiException as error:
            if error.status != 404 and not (uid and error.status == 409):
                raise
