"""The rights of the operator, as a literal list, and the binding of them to a user."""

from __future__ import annotations

from typing import Final

from kubernetes.client.exceptions import ApiException

from .objects import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, Objects

OPERATOR_USER: Final = "tfcluster-operator"

#: What it may do with PodGroups.
GANG_VERBS: Final = ("create", "delete", "list", "patch", "watch")
#: API group, resource, verbs: all that the operator may do, and all that it needs.
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

#: What it reads besides that is in no namespace, where TFClusters wait in queues.
QUEUE_RULES: Final = (
    ("kueue.x-k8s.io", "resourceflavors", ("list", "watch")),
    ("kueue.x-k8s.io", "workloadpriorityclasses", ("get",)),
    ("scheduling.k8s.io", "priorityclasses", ("get",)),
)

#: All that the check of ``helm test`` needs.
INSTALL_CHECK_RULES: Final = (
    {"apiGroups": ["tfcluster.dev"], "resources": ["tfclusters"], "verbs": ["create"]},
    {
        "apiGroups": ["tfcluster.dev"],
        "resources": ["tfclusters"],
        "resourceNames": ["tfcluster-install-check"],
        "verbs": ["get", "delete"],
    },
)


def grant_operator_rights(objects: Objects, *, user: str = OPERATOR_USER, gangs: str = "scheduling.k8s.io") -> None:
    """Bind the operator's rules to a user in all namespaces; repeating it changes nothing.

    Args:
        objects: an administrator's access.
        user: who gets the rights.
        gangs: the API group of the PodGroups.
    """
    meta = {"metadata": {"name": user}}
    rules = [
        {"apiGroups": [gangs if kind == "podgroups" else group], "resources": [kind], "verbs": list(verbs)}
        for group, kind, verbs in (*OPERATOR_RULES, *QUEUE_RULES)
    ]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    for kind, body in (
        (CLUSTER_ROLES, {**meta, "rules": rules}),
        (CLUSTER_ROLE_BINDINGS, {**meta, "roleRef": reference, "subjects": [subject]}),
    ):
        try:
            objects.create(kind, "", body)
        except ApiException as error:
            if error.status != 409:
                raise
