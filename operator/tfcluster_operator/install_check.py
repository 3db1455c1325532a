"""``python -m tfcluster_operator.install_check``: does an installed operator work?  What ``helm test`` runs in a pod.

It waits until somebody renews the release's Lease: the operator of another release may work in the same namespaces.
Then, in each namespace, it declares a suspended TFCluster, for which no pod is started, waits until an operator has
looked at it, and deletes it.  So it proves that the kind is served, that admission takes a good manifest, and that an
operator leads and has its rights.  It needs the rights to read the Lease, and to create, get and delete TFClusters in
each namespace.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tfcluster_operator.declaration import naming

#: Where the kubelet puts a pod's credentials.
CREDENTIALS: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: How often it looks, in seconds.
_PAUSE: Final = 0.5
_NOT_FOUND: Final = 404
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
#: The kind may be unknown for a moment after its definition came, and its storage takes a moment more.
_NOT_SERVED_YET: Final = frozenset({_NOT_FOUND, 429, 503})
_TAKEN: Final = 409
#: By what a check knows its own TFCluster.
_MARK: Final = {naming.LABEL_MANAGED_BY: "tfcluster-install-check"}


class CheckFailedError(Exception):
    """The installation does not work; the message says what was seen."""


class _RefusedError(Exception):
    """The API server refused a request, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """The API server, as a pod sees it.

    Args:
        url: where it is.
        credentials: the folder with the files ``token`` and ``ca.crt``.
    """

    def __init__(self, url: str, credentials: Path) -> None:
        self._url = url
        self._context = ssl.create_default_context(cafile=str(credentials / "ca.crt"))
        self._token = (credentials / "token").read_text(encoding="ascii").strip()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and give the answer; what is refused raises an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=headers, method=method)  # noqa: S310 - the API server's URL
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:  # noqa: S310 - as above
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise _RefusedError(error.code, _message(text)) from error
        except OSError as error:
            raise _RefusedError(0, str(error)) from error
        return found


class Clusters:
    """The TFClusters of a namespace.

    Args:
        server: the API server.
        namespace: where.
    """

    def __init__(self, server: Server, namespace: str) -> None:
        self._server = server
        self._path = f"/apis/{naming.API_VERSION}/namespaces/{namespace}/{naming.PLURAL}"

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create a TFCluster."""
        return self._server.request("POST", self._path, body)

    def get(self, name: str) -> dict[str, Any]:
        """Read one."""
        return self._server.request("GET", f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        """Delete one; that there is none is no error."""
        try:
            self._server.request("DELETE", f"{self._path}/{name}")
        except _RefusedError as error:
            if error.status != _NOT_FOUND:
                raise


def check_leader(server: Server, namespace: str, name: str, *, seconds: float) -> str:
    """Wait until somebody who holds a Lease renews it.  That needs no clock in common with the operator.

    Raises:
        CheckFailedError: nobody has renewed it in time.
    """
    give_up = time.monotonic() + seconds
    first: object = None
    seen: object = "nothing"
    while time.monotonic() < give_up:
        try:
            seen = spec = server.request("GET", f"{_LEASES.format(namespace=namespace)}/{name}").get("spec", {})
        except _RefusedError as error:
            seen = error
        else:
            holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
            first = first or renewed
            if holder and renewed != first:
                return str(holder)
        time.sleep(_PAUSE)
    raise CheckFailedError(
        f"no operator of this release leads: nobody renews Lease {name} in namespace {namespace} (seen: {seen}): "
        "look at the release's pods"
    )


def check(clusters: Clusters, name: str, *, seconds: float) -> None:
    """Declare a suspended TFCluster, wait until an operator has looked at it, and delete it.

    Args:
        clusters: where.
        name: the name of the TFCluster; one that an earlier check has left is deleted first, and no other.
        seconds: how long it may take.

    Raises:
        CheckFailedError: it was refused, or no operator has looked at it in time.
    """
    give_up = time.monotonic() + seconds
    generation = _declare(clusters, name, give_up)
    try:
        _await_operator(clusters, name, generation, give_up)
    finally:
        clusters.delete(name)


def _declare(clusters: Clusters, name: str, give_up: float) -> int:
    container = {"name": "none", "image": "none.invalid/none"}
    job = {"template": {"spec": {"containers": [container]}}}
    body = {
        "apiVersion": naming.API_VERSION,
        "kind": "TFCluster",
        "metadata": {"name": name, "labels": _MARK},
        "spec": {"suspend": True, "jobs": {"worker": job}},
    }
    while True:
        try:
            return int(clusters.create(body)["metadata"]["generation"])
        except _RefusedError as error:
            if error.status == _TAKEN:
                _delete_own(clusters, name)
            elif error.status not in {0, *_NOT_SERVED_YET}:
                raise CheckFailedError(f"a TFCluster was refused ({error.status}): {error}") from error
            if time.monotonic() > give_up:
                raise CheckFailedError(f"no TFCluster can be created ({error.status}): {error}") from error
        time.sleep(_PAUSE)


def _delete_own(clusters: Clusters, name: str) -> None:
    """Delete what an earlier check has left."""
    try:
        found = clusters.get(name)["metadata"]
    except _RefusedError:
        return  # it may be gone by now
    if not found.get("labels", {}).items() >= _MARK.items():
        raise CheckFailedError(
            f"there is a TFCluster {name} that no check has made: choose another name for the check's"
        )
    clusters.delete(name)


def _await_operator(clusters: Clusters, name: str, generation: int, give_up: float) -> None:
    seen: object = "nothing"
    while time.monotonic() < give_up:
        try:
            status = clusters.get(name).get("status", {})
        except _RefusedError as error:
            seen = error
        else:
            # NB: the definition's own default of observedGeneration is 0, and no condition.
            if status.get("observedGeneration") == generation and status.get("conditions"):
                return
            seen = status
        time.sleep(_PAUSE)
    raise CheckFailedError(
        f"no operator has looked at TFCluster {name}; its status is {seen}: look at the operator's log"
    )


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(prog="python -m tfcluster_operator.install_check", description=__doc__)
    parser.add_argument(
        "--namespace",
        required=True,
        action="append",
        dest="namespaces",
        help="a namespace that the operator works in; may be repeated",
    )
    parser.add_argument("--lease", metavar="NAMESPACE/NAME", help="the Lease that the release's leader renews")
    parser.add_argument("--name", default="tfcluster-install-check", help="the TFCluster's name (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long each look may take (default %(default)s)")
    parser.add_argument("--server", default="https://kubernetes.default.svc", help="the API server's URL")
    parser.add_argument("--credentials", type=Path, default=CREDENTIALS, help="the folder of token and ca.crt")
    options = parser.parse_args(arguments)
    try:
        server = Server(options.server, options.credentials)
        if options.lease:
            namespace, _, name = options.lease.partition("/")
            leader = check_leader(server, namespace, name, seconds=options.seconds)
            print(f"operator {leader} leads")  # noqa: T201 - the answer of a command
        for namespace in options.namespaces:
            check(Clusters(server, namespace), options.name, seconds=options.seconds)
            print(f"an operator works in namespace {namespace}")  # noqa: T201 - the answer of a command
    except (CheckFailedError, _RefusedError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the answer of a command
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
