"""``helm test``: it distinguishes a working installation from a broken one, and leaves no objects."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.manifests import tfcluster
from support.objects import NAMESPACES, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Object
from support.operator_process import OperatorProcess
from support.rbac import INSTALL_CHECK_RULES, grant
from support.world import World

from tfcluster_operator import install_check
from tfcluster_operator.install_check import CheckFailedError
from tfcluster_operator.kube import connection

NAME = "tfcluster-install-check"
LEASES = Kind("coordination.k8s.io/v1", "leases")
READ_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
Check = Callable[..., None]


@pytest.fixture
def check(world: World, control_plane, tmp_path: Path) -> Check:
    """Runs the check with the credentials of a ServiceAccount that has the permissions of the chart's test."""
    world.objects.create(SERVICE_ACCOUNTS, world.namespace, {"metadata": {"name": "tester"}})
    token = world.objects.request("POST", SERVICE_ACCOUNTS.path(world.namespace, "tester", "token"), {"spec": {}})
    (tmp_path / "token").write_text(token["status"]["token"], encoding="ascii")
    (tmp_path / "ca.crt").write_bytes(control_plane.authority.certificate.read_bytes())

    def run(rules: Sequence[Object] = (), *, seconds: int = 30, lease: str = "", also: Sequence[str] = ()) -> None:
        tester = f"system:serviceaccount:{world.namespace}:tester"
        grant(world.objects, tester, world.namespace, rules or INSTALL_CHECK_RULES)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        access = connection.Access(control_plane.api.server, context, account=tmp_path)
        lease = f"{world.namespace}/{lease}" if lease else ""
        asyncio.run(install_check.check(access, [world.namespace, *also], lease, seconds=seconds))

    return run


def test_check_reports_if_an_operator_runs_and_cleans_up(check: Check, operator, world: World, capsys):
    """Objects of a killed check do not block it; a forbidden create fails it with the server's message."""
    mark = {"app.kubernetes.io/managed-by": "tfcluster-install-check"}
    world.apply(tfcluster(NAME).metadata(labels=mark).spec(suspend=True).job("worker").build())
    for _ in range(2):
        check()
        assert "an operator works" in capsys.readouterr().out
        assert (world.pods(), world.get(TFCLUSTERS, NAME)) == ({}, None)
    operator.stop()
    with pytest.raises(CheckFailedError, match="no operator has looked"):
        check(seconds=2)
    assert world.get(TFCLUSTERS, NAME) is None


def test_check_fails_without_permission_to_create_a_cluster(check: Check, operator):  # noqa: ARG001 - it must run
    with pytest.raises(CheckFailedError, match="cannot create resource"):
        check(INSTALL_CHECK_RULES[1:], seconds=2)


def test_cluster_of_that_name_is_left_alone(check: Check, operator, world: World):  # noqa: ARG001 - it must run
    world.launch(NAME, {"worker": {}}, suspend=True)
    uid = world.cluster(NAME)["metadata"]["uid"]
    with pytest.raises(CheckFailedError, match="was not created by this check"):
        check()
    assert world.cluster(NAME)["metadata"]["uid"] == uid


def test_leader_of_the_release_passes(check: Check, control_plane, world: World, tmp_path: Path, capsys):
    process = OperatorProcess(kubeconfig=control_plane.kubeconfig, log=tmp_path / "own.log")
    election = ("--leader-election", "--lease-namespace", world.namespace, "--lease-name", "own")
    process.start(arguments=("--namespace", world.namespace, *election))
    try:
        check([*INSTALL_CHECK_RULES, READ_LEASES], lease="own")
        holder = world.objects.get(LEASES, world.namespace, "own")["spec"]["holderIdentity"]
    finally:
        process.kill()
    assert f"operator {holder} leads" in capsys.readouterr().out


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": "dead", "renewTime": "2199-01-01T00:00:00.000000Z"}])
def test_operator_of_another_release_does_not_pass_for_ours(check: Check, operator, world: World, spec):  # noqa: ARG001 - another release's
    """Without a holder that renews the release's Lease, the check fails, although another operator responds."""
    world.objects.create(LEASES, world.namespace, {"metadata": {"name": "own"}, "spec": spec})
    with pytest.raises(CheckFailedError, match="no operator of this release leads"):
        check([*INSTALL_CHECK_RULES, READ_LEASES], seconds=4, lease="own")


def test_every_namespace_is_looked_at(check: Check, control_plane, world: World, tmp_path: Path, capsys):
    """An operator that works only in the first of two namespaces fails the check."""
    process = OperatorProcess(kubeconfig=control_plane.kubeconfig, log=tmp_path / "own.log")
    process.start(arguments=("--namespace", world.namespace))
    other = f"{world.namespace}-other"
    world.objects.create(NAMESPACES, "", {"metadata": {"name": other}})
    try:
        with pytest.raises(CheckFailedError, match=f"no TFCluster can be created in namespace {other}"):
            check(seconds=4, also=[other])
    finally:
        process.kill()
        world.objects.delete(NAMESPACES, "", other)
    assert f"works in namespace {world.namespace}\n" in capsys.readouterr().out
