"""The operator's permissions as a literal list, and functions that grant permissions to users.

The authorizer learns about a Role a moment after its creation, so each function returns when the permissions are in
effect.
"""

from collections.abc import Sequence
from typing import Final

from kubernetes.client.exceptions import ApiException

from .objects import ACCESS_REVIEWS, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Object, Objects
from .waiting import eventually

_GROUP: Final = "rbac.authorization.k8s.io"

OPERATOR_USER: Final = "tfcluster-operator"

#: The verbs for PodGroups.
GANG_VERBS: Final = ("create", "delete", "list", "patch", "watch")
#: API group, resource, verbs: all permissions that the operator has and needs.
OPERATOR_RULES: Final = (
    ("tfcluster.dev", "tfclusters", ("delete", "get", "list", "watch")),
    ("tfcluster.dev", "tfclusters/status", ("patch",)),
    ("tfcluster.dev", "tfclusters/finalizers", ("update",)),
    ("", "pods", ("create", "delete", "list", "patch", "watch")),
    ("", "services", ("create", "delete", "list", "patch", "watch")),
    ("", "configmaps", ("create", "delete", "list", "patch", "watch")),
    ("networking.k8s.io", "networkpolicies", ("create", "delete", "list", "patch", "watch")),
    ("policy", "poddisruptionbudgets", ("create", "delete", "list", "patch", "watch")),
    ("scheduling.k8s.io", "podgroups", GANG_VERBS),
    ("kueue.x-k8s.io", "workloads", ("create", "delete", "list", "patch", "watch")),
    ("kueue.x-k8s.io", "workloads/status", ("patch",)),
    ("", "events", ("create",)),
)

#: It also reads these, which are cluster-scoped, if TFClusters wait in queues.
QUEUE_RULES: Final = (
    ("kueue.x-k8s.io", "resourceflavors", ("list", "watch")),
    ("kueue.x-k8s.io", "workloadpriorityclasses", ("get",)),
    ("scheduling.k8s.io", "priorityclasses", ("get",)),
)


def grant_operator_rights(objects: Objects, *, user: str = OPERATOR_USER, gangs: str = "scheduling.k8s.io") -> None:
    """Bind the operator's rules to a user in all namespaces; idempotent."""
    meta = {"metadata": {"name": user}}
    rules = [
        {"apiGroups": [gangs if kind == "podgroups" else group], "resources": [kind], "verbs": list(verbs)}
        for group, kind, verbs in (*OPERATOR_RULES, *QUEUE_RULES)
    ]
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": _GROUP, "kind": "User", "name": user}
    for kind, body in (
        (CLUSTER_ROLES, {**meta, "rules": rules}),
        (CLUSTER_ROLE_BINDINGS, {**meta, "roleRef": reference, "subjects": [subject]}),
    ):
        try:
            objects.create(kind, "", body)
        except ApiException as error:
            if error.status != 409:
                raise
    _await_rights(objects, user, "", rules)


def grant(objects: Objects, user: str, namespace: str, rules: Sequence[Object]) -> None:
    role = f"{user}-{len(objects.list(ROLES, namespace))}"
    objects.create(ROLES, namespace, {"metadata": {"name": role}, "rules": list(rules)})
    bind(objects, user, namespace, "Role", role)


def bind(objects: Objects, user: str, namespace: str, kind: str, role: str) -> None:
    subject = {"apiGroup": _GROUP, "kind": "User", "name": user}
    reference = {"apiGroup": _GROUP, "kind": kind, "name": role}
    body = {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": [subject]}
    objects.create(ROLE_BINDINGS, namespace, body)
    found = objects.get(ROLES, namespace, role) if kind == "Role" else objects.get(CLUSTER_ROLES, "", role)
    _await_rights(objects, user, namespace, found["rules"])


def may(objects: Objects, user: str, namespace: str, right: tuple[str, str, str], *, name: str = "") -> bool:
    """Return whether the API server's authorizer allows a user's request."""
    group, resource, verb = right
    resource, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace}
    spec = {"user": user, "resourceAttributes": {**asked, "name": name}}
    return objects.create(ACCESS_REVIEWS, "", {"spec": spec})["status"]["allowed"]


def _await_rights(objects: Objects, user: str, namespace: str, rules: Sequence[Object]) -> None:
    """Wait until the first permission of each rule is in effect: a Role becomes effective as a whole."""
    for rule in rules:
        right = rule["apiGroups"][0], rule["resources"][0], rule["verbs"][0]
        name = rule.get("resourceNames", [""])[0]
        eventually(lambda r=right, n=name: may(objects, user, namespace, r, name=n), what=f"{user} may {right}")
