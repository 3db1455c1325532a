"""Releases on a real API server, and the people who use what they install."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from support import rbac
from support.objects import Objects

#: The namespace of the releases, one that they watch, and one that is none of their business.
HOME, WATCHED, FOREIGN = "home", "watched", "foreign"
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}

OnServer = Callable[..., Any]
#: Verbs by group and resource, as in ("tfcluster.dev", "tfclusters"): ["create"].
Rights = Mapping[tuple[str, str], Sequence[str]]


def access(kubeconfig: Path) -> Objects:
    """Open the access of whoever a kubeconfig belongs to."""
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return Objects(client.ApiClient(configuration))


def grant(server: Objects, user: str, namespace: str, rights: Rights, *, name: str = "") -> None:
    """Give a user rights in a namespace, and return when they count.

    Args:
        server: the administrator's access.
        user: who gets them.
        namespace: where.
        rights: the rights.
        name: the one object that they are for, if they are not for all.
    """
    limit = {"resourceNames": [name]} if name else {}
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **limit}
        for (group, resource), verbs in rights.items()
    ]
    rbac.grant(server, user, namespace, rules)
