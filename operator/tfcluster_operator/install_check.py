"""``python -m tfcluster_operator.install_check`` checks that an installed operator works; ``helm test`` runs it.

It waits until the release's Lease is renewed: the operator of another release can run in the same namespaces.  Then, in
each namespace, it creates a suspended TFCluster, which does not start pods, waits until an operator has reconciled it,
and deletes it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec

from tfcluster_operator.declaration import naming
from tfcluster_operator.kube import clock, clusters, connection, errors
from tfcluster_operator.kube.client import Client

_NAME: Final = "tfcluster-install-check"
_LABELS: Final = {naming.LABEL_MANAGED_BY: _NAME}
_POD: Final = {"spec": {"containers": [{"name": "none", "image": "none.invalid/none"}]}}
_BODY: Final = {
    "apiVersion": naming.API_VERSION,
    "kind": naming.KIND,
    "metadata": {"name": _NAME, "labels": _LABELS},
    "spec": {"suspend": True, "jobs": {"worker": {"template": _POD}}},
}


class CheckFailedError(Exception):
    """The installation does not work."""


async def check(access: connection.Access, namespaces: Iterable[str], lease: str, *, seconds: float = 60.0) -> None:
    """Check a release, and raise an error if it does not work; each step is repeated for some seconds."""
    async with connection.open_session(access) as session:
        client = Client.once(session, access.server)
        if lease:
            print(f"operator {await _await_leader(client, lease, seconds)} leads")  # noqa: T201 - the command's output
        for namespace in namespaces:
            await _check_namespace(client, namespace, seconds)
            print(f"an operator works in namespace {namespace}")  # noqa: T201 - the command's output


async def _await_leader(client: Client, lease: str, seconds: float) -> object:
    """Wait until the holder of a Lease renews it.  The clocks of the operator and this pod can differ."""
    namespace, _, name = lease.partition("/")
    renewals = set()

    async def holder() -> str:
        spec = (await _get(client, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"))["spec"]
        renewals.add(spec.get("renewTime"))
        return str(spec.get("holderIdentity", "")) if len(renewals) > 1 else ""

    where = f"nobody renews Lease {name} in namespace {namespace}"
    return await _repeat(holder, seconds, f"no operator of this release leads: {where}; look at the release's pods")


async def _check_namespace(client: Client, namespace: str, seconds: float) -> None:
    path = f"{clusters.path_of(namespace)}/{_NAME}"

    async def delete_own() -> None:
        with contextlib.suppress(errors.NotFoundError):
            if not (await _get(client, path))["metadata"].get("labels", {}).items() >= _LABELS.items():
                raise CheckFailedError(f"TFCluster {_NAME} in namespace {namespace} was not created by this check")
            await client.request("DELETE", path)

    async def create() -> bytes:
        await delete_own()  # that of an earlier check
        return await client.request("POST", clusters.path_of(namespace), body=_BODY)

    async def is_reconciled() -> bool:
        return bool((await _get(client, path)).get("status", {}).get("observedGeneration"))

    await _repeat(create, seconds, f"no TFCluster can be created in namespace {namespace}")
    try:
        await _repeat(is_reconciled, seconds, f"no operator has looked at TFCluster {namespace}/{_NAME}: see its log")
    finally:
        await delete_own()


async def _get(client: Client, path: str) -> dict[str, Any]:
    return msgspec.json.decode(await client.request("GET", path), type=dict)


async def _repeat(step: Callable[[], Awaitable[object]], seconds: float, trouble: str) -> object:
    """Repeat a step until it returns something, or raise an error with the last one's message."""
    give_up = clock.SYSTEM.elapsed() + seconds
    while True:
        last = ""
        try:
            if found := await step():
                return found
        except errors.KubeError as error:
            last = f": {error}"
        if clock.SYSTEM.elapsed() > give_up:
            raise CheckFailedError(trouble + last)
        await asyncio.sleep(0.5)


def main() -> None:
    """Run the check with the permissions of the pod's service account."""
    parser = argparse.ArgumentParser(prog="python -m tfcluster_operator.install_check", description=__doc__)
    parser.add_argument("--lease", required=True, help="NAMESPACE/NAME of the Lease that the release's leader renews")
    parser.add_argument("--namespace", required=True, action="append", help="a namespace to check; can be repeated")
    options = parser.parse_args()
    # The session reads the certificate authorities from the account's folder.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    access = connection.Access("https://kubernetes.default.svc", context, account=connection.SERVICE_ACCOUNT)
    try:
        asyncio.run(check(access, options.namespace, options.lease))
    except (CheckFailedError, errors.KubeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
