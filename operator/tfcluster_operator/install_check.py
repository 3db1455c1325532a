"""``python -m tfcluster_operator.install_check`` checks that an installed operator works; ``helm test`` runs it.

It waits until the release's Lease is renewed: the operator of another release can run in the same namespaces.  Then, in
each namespace, it creates a suspended TFCluster, which does not start pods, waits until an operator has reconciled it,
and deletes it.  So it proves that the CRD is served, that admission accepts a valid manifest, and that an operator
leads and has its permissions.  It needs the permission to read the Lease, and to create, get and delete TFClusters in
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tfcluster_operator.declaration import naming

#: The folder of a pod's service account credentials.
CREDENTIALS: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: The time between two checks, in seconds.
_PAUSE: Final = 0.5
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
_CLUSTERS: Final = f"/apis/{naming.API_VERSION}/namespaces/{{namespace}}/{naming.PLURAL}"
_NOT_FOUND: Final = 404
_TAKEN: Final = 409
#: No answer; or the kind is not served yet: a new CRD takes a moment, and its storage a moment more.
_NOT_SERVED_YET: Final = frozenset({0, _NOT_FOUND, 429, 503})
#: The label of this check's own TFCluster.
_MARK: Final = {naming.LABEL_MANAGED_BY: "tfcluster-install-check"}

#: Sends a request (method, path, body) and returns the answer.
_Ask = Callable[..., dict[str, Any]]


class CheckFailedError(Exception):
    """The installation does not work; the message has what was found."""


class _RefusedError(Exception):
    """The API server rejected a request, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _asking(url: str, credentials: Path) -> _Ask:
    """Return a function for requests to the API server; ``credentials`` is the folder of ``token`` and ``ca.crt``."""
    context = ssl.create_default_context(cafile=str(credentials / "ca.crt"))
    token = (credentials / "token").read_text(encoding="ascii").strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url + path, data=data, headers=headers, method=method)  # noqa: S310 - the API server's URL
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310 - as above
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise _RefusedError(error.code, _message(error.read().decode(errors="replace"))) from error
        except OSError as error:
            raise _RefusedError(0, str(error)) from error
        return found

    return ask


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def _await(look: Callable[[], tuple[Any, Any]], seconds: float, why: str) -> Any:
    """Call ``look`` until its first value is set; after a timeout, raise an error with its second value."""
    give_up, seen = time.monotonic() + seconds, None
    while time.monotonic() < give_up:
        try:
            found, seen = look()
        except _RefusedError as error:
            found, seen = None, error
        if found:
            return found
        time.sleep(_PAUSE)
    raise CheckFailedError(f"{why} (seen: {seen})")


def _check_leader(ask: _Ask, namespace: str, name: str, seconds: float) -> str:
    """Wait until the holder of a Lease renews it.  The clocks of the operator and this pod can differ."""
    first: list[object] = []

    def look() -> tuple[Any, Any]:
        spec = ask("GET", _LEASE.format(namespace=namespace, name=name)).get("spec", {})
        if renewed := spec.get("renewTime"):
            first.append(renewed)
        return (spec.get("holderIdentity") if first and renewed != first[0] else None), spec

    where = f"nobody renews Lease {name} in namespace {namespace}"
    return str(_await(look, seconds, f"no operator of this release leads: {where}; look at the release's pods"))


def _check_namespace(ask: _Ask, namespace: str, name: str, seconds: float) -> None:
    """Create a suspended TFCluster, wait until an operator has reconciled it, and delete it."""
    path = _CLUSTERS.format(namespace=namespace)
    container = {"name": "none", "image": "none.invalid/none"}
    body = {
        "apiVersion": naming.API_VERSION,
        "kind": naming.KIND,
        "metadata": {"name": name, "labels": _MARK},
        "spec": {"suspend": True, "jobs": {"worker": {"template": {"spec": {"containers": [container]}}}}},
    }

    def declare() -> tuple[Any, Any]:
        try:
            return ask("POST", path, body)["metadata"]["generation"], None
        except _RefusedError as error:
            if error.status == _TAKEN:
                _delete_own(ask, path, name)
            elif error.status not in _NOT_SERVED_YET:
                raise CheckFailedError(f"a TFCluster was rejected ({error.status}): {error}") from error
            raise

    def look() -> tuple[Any, Any]:
        status = ask("GET", f"{path}/{name}").get("status", {})
        # The CRD's default of observedGeneration is 0, without conditions.
        return status.get("observedGeneration") == generation and bool(status.get("conditions")), status

    generation = _await(declare, seconds, "no TFCluster can be created")
    try:
        _await(look, seconds, f"no operator has looked at TFCluster {name}: look at the operator's log")
    finally:
        _delete(ask, path, name)


def _delete_own(ask: _Ask, path: str, name: str) -> None:
    """Delete the TFCluster of an earlier check."""
    found = ask("GET", f"{path}/{name}")["metadata"]
    if not found.get("labels", {}).items() >= _MARK.items():
        words = f"there is a TFCluster {name} that no check has made: choose another name for the check's"
        raise CheckFailedError(words)
    _delete(ask, path, name)


def _delete(ask: _Ask, path: str, name: str) -> None:
    try:
        ask("DELETE", f"{path}/{name}")
    except _RefusedError as error:
        if error.status != _NOT_FOUND:
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(prog="python -m tfcluster_operator.install_check", description=__doc__)
    several: dict[str, Any] = {"required": True, "action": "append", "dest": "namespaces"}
    parser.add_argument("--namespace", **several, help="a namespace of the operator; repeat the option for several")
    parser.add_argument("--lease", metavar="NAMESPACE/NAME", help="the Lease that the release's leader renews")
    parser.add_argument("--name", default="tfcluster-install-check", help="the TFCluster's name (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="how long each look may take (default %(default)s)")
    parser.add_argument("--server", default="https://kubernetes.default.svc", help="the API server's URL")
    parser.add_argument("--credentials", type=Path, default=CREDENTIALS, help="the folder of token and ca.crt")
    options = parser.parse_args(arguments)
    try:
        ask = _asking(options.server, options.credentials)
        if options.lease:
            namespace, _, name = options.lease.partition("/")
            leader = _check_leader(ask, namespace, name, options.seconds)
            print(f"operator {leader} leads")  # noqa: T201 - the answer of a command
        for namespace in options.namespaces:
            _check_namespace(ask, namespace, options.name, options.seconds)
            print(f"an operator works in namespace {namespace}")  # noqa: T201 - the answer of a command
    except (CheckFailedError, _RefusedError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the answer of a command
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
