"""``helm test``: it distinguishes a working installation from a broken one, and leaves no objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.manifests import tfcluster
from support.objects import NAMESPACES, SERVICE_ACCOUNTS, TFCLUSTERS, Kind, Object
from support.operator_process import OperatorProcess
from support.rbac import INSTALL_CHECK_RULES, grant
from support.world import World

from tfcluster_operator import install_check

NAME = "tfcluster-install-check"
LEASES = Kind("coordination.k8s.io/v1", "leases")
READ_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
Check = Callable[..., int]


@pytest.fixture
def check(world: World, control_plane, tmp_path: Path) -> Check:
    """Runs the check with the credentials of a ServiceAccount that has the permissions of the chart's test."""
    world.objects.create(SERVICE_ACCOUNTS, world.namespace, {"metadata": {"name": "tester"}})
    token = world.objects.request("POST", SERVICE_ACCOUNTS.path(world.namespace, "tester", "token"), {"spec": {}})
    (tmp_path / "token").write_text(token["status"]["token"], encoding="ascii")
    (tmp_path / "ca.crt").write_bytes(control_plane.authority.certificate.read_bytes())

    def run(rules: Sequence[Object] = (), *, seconds: int = 30, lease: str = "", also: str = "") -> int:
        tester = f"system:serviceaccount:{world.namespace}:tester"
        grant(world.objects, tester, world.namespace, rules or INSTALL_CHECK_RULES)
        place = ["--namespace", world.namespace, "--server", control_plane.api.server]
        place += ["--lease", f"{world.namespace}/{lease}"] if lease else []
        place += ["--namespace", also] if also else []
        return install_check.main([*place, "--credentials", str(tmp_path), "--seconds", str(seconds)])

    return run


def test_check_reports_if_an_operator_runs_and_cleans_up(check: Check, operator, world: World, capsys):
    """Objects of a killed check do not block it; a forbidden create fails it with the server's message."""
    mark = {"app.kubernetes.io/managed-by": "tfcluster-install-check"}
    world.apply(tfcluster(NAME).metadata(labels=mark).spec(suspend=True).job("worker").build())
    for _ in range(2):
        assert check() == 0
        assert "an operator works" in capsys.readouterr().out
        assert (world.pods(), world.get(TFCLUSTERS, NAME)) == ({}, None)
    operator.stop()
    assert check(seconds=2) == 1
    assert "no operator has looked" in capsys.readouterr().err
    assert world.get(TFCLUSTERS, NAME) is None


def test_check_fails_without_permission_to_create_a_cluster(check: Check, operator, capsys):  # noqa: ARG001 - it must run
    assert check(INSTALL_CHECK_RULES[1:]) == 1
    assert "cannot create resource" in capsys.readouterr().err


def test_cluster_of_that_name_is_left_alone(check: Check, operator, world: World, capsys):  # noqa: ARG001 - it must run
    world.launch(NAME, {"worker": {}}, suspend=True)
    uid = world.cluster(NAME)["metadata"]["uid"]
    assert check() == 1
    assert "no check has made" in capsys.readouterr().err
    assert world.cluster(NAME)["metadata"]["uid"] == uid


def test_leader_of_the_release_passes(check: Check, control_plane, world: World, tmp_path: Path, capsys):
    process = OperatorProcess(kubeconfig=control_plane.kubeconfig, log=tmp_path / "own.log")
    election = ("--leader-election", "--lease-namespace", world.namespace, "--lease-name", "own")
    process.start(arguments=("--namespace", world.namespace, *election))
    try:
        assert check([*INSTALL_CHECK_RULES, READ_LEASES], lease="own") == 0
        holder = world.objects.get(LEASES, world.namespace, "own")["spec"]["holderIdentity"]
    finally:
        process.kill()
    assert f"operator {holder} leads" in capsys.readouterr().out


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": "dead", "renewTime": "2199-01-01T00:00:00.000000Z"}])
def test_operator_of_another_release_does_not_pass_for_ours(check: Check, operator, world: World, capsys, spec):  # noqa: ARG001 - another release's
    """Without a holder that renews the release's Lease, the check fails, although another operator responds."""
    world.objects.create(LEASES, world.namespace, {"metadata": {"name": "own"}, "spec": spec})
    assert check([*INSTALL_CHECK_RULES, READ_LEASES], seconds=4, lease="own") == 1
    assert "no operator of this release leads" in capsys.readouterr().err


def test_every_namespace_is_looked_at(check: Check, control_plane, world: World, tmp_path: Path, capsys):
    """An operator that works only in the first of two namespaces fails the check."""
    process = OperatorProcess(kubeconfig=control_plane.kubeconfig, log=tmp_path / "own.log")
    process.start(arguments=("--namespace", world.namespace))
    other = f"{world.namespace}-other"
    world.objects.create(NAMESPACES, "", {"metadata": {"name": other}})
    try:
        assert check(seconds=4, also=other) == 1
    finally:
        process.kill()
        world.objects.delete(NAMESPACES, "", other)
    answer = capsys.readouterr()
    assert f"works in namespace {world.namespace}\n" in answer.out
    assert "a TFCluster was rejected" in answer.err
    assert other in answer.err
