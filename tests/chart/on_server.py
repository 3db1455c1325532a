"""Releases on a real API server, and their users."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kubernetes import client, config
from support import rbac
from support.objects import CRDS, Kind, Objects
from support.waiting import eventually

#: The namespace of the releases, one that they watch, and an unrelated one.
HOME, WATCHED, FOREIGN = "home", "watched", "foreign"
CRD: Final = "tfclusters.tfcluster.dev"
DEPLOYMENTS: Final = Kind("apps/v1", "deployments")
RESTRICTED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}

OnServer = Callable[..., Any]
#: Verbs by group and resource, as in ("tfcluster.dev", "tfclusters"): ["create"].
Rights = Mapping[tuple[str, str], Sequence[str]]


def access(kubeconfig: Path) -> Objects:
    configuration = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    return Objects(client.ApiClient(configuration))


def forget_definition(server: Objects) -> None:
    """Delete the CRD that the release of an earlier test has left."""
    server.delete(CRDS, "", CRD)
    eventually(lambda: server.get(CRDS, "", CRD), lambda found: found is None, what="the definition is gone")
    # For a moment the server still lists the group, and helm fails to find a kind in it.
    eventually(
        lambda: {group["name"] for group in server.request("GET", "/apis")["groups"]},
        lambda names: "tfcluster.dev" not in names,
        what="the kind is unknown",
    )


def grant(server: Objects, user: str, namespace: str, rights: Rights, *, names: Sequence[str] = ()) -> None:
    """Grant a user permissions in a namespace, by default on all objects, and wait until they are in effect."""
    limit = {"resourceNames": list(names)} if names else {}
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **limit}
        for (group, resource), verbs in rights.items()
    ]
    rbac.grant(server, user, namespace, rules)
