"""Releases on a real API server, and the people who use what they install."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from support.objects import ROLE_BINDINGS, Kind, Objects
from support.waiting import eventually

#: The namespace of the releases, one that they watch, and one that is none of their business.
HOME, WATCHED, FOREIGN = "home", "watched", "foreign"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}

ACCESS_REVIEWS: Final = Kind("authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False)
ROLES: Final = Kind("rbac.authorization.k8s.io/v1", "roles")

OnServer = Callable[..., Any]
#: Verbs by group and resource, as in ("tfcluster.dev", "tfclusters"): ["create"].
Rights = Mapping[tuple[str, str], Sequence[str]]


def access(kubeconfig: Path) -> Objects:
    """Open the access of whoever a kubeconfig belongs to."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return Objects(client.ApiClient(configuration))


def may(server: Objects, user: str, namespace: str, right: tuple[str, str, str], *, name: str = "") -> bool:
    """Ask the server's authorizer whether a user has a right.

    Args:
        server: the administrator's access.
        user: whose right.
        namespace: where; "" means in all.
        right: group, resource and verb.
        name: the object, where it is for one.
    """
    group, resource, verb = right
    resource, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace}
    review = server.create(ACCESS_REVIEWS, "", {"spec": {"user": user, "resourceAttributes": {**asked, "name": name}}})
    return review["status"]["allowed"]


def grant(server: Objects, user: str, namespace: str, rights: Rights, *, name: str = "") -> None:
    """Give a user rights in a namespace, and return when they count.

    Args:
        server: the administrator's access.
        user: who gets them.
        namespace: where.
        rights: the rights.
        name: the one object that they are for, if they are not for all.
    """
    title = f"{user}-{len(server.list(ROLES, namespace))}"
    limit = {"resourceNames": [name]} if name else {}
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **limit}
        for (group, resource), verbs in rights.items()
    ]
    server.create(ROLES, namespace, {"metadata": {"name": title}, "rules": rules})
    bind(server, user, namespace, "Role", title)
    for (group, resource), verbs in rights.items():
        for verb in verbs:
            right = (group, resource, verb)
            eventually(lambda r=right: may(server, user, namespace, r, name=name), what=f"{user} may {right}")


def bind(server: Objects, user: str, namespace: str, kind: str, role: str) -> None:
    """Bind a user to a role."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
    body = {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": [subject]}
    server.create(ROLE_BINDINGS, namespace, body)
