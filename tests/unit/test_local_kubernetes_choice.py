"""Which cluster is chosen, what is said about a machine that lacks something, and what kind is asked to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from local_kubernetes import checkout, choice, doctor, kind
from local_kubernetes.progress import LocalKubernetesError

RECORDER = """#!/bin/sh
printf '%s\\n' "${0##*/} $*" >>"$RECORD"
case "$*" in
  *"get clusters"*) printf '%s' "$KIND_CLUSTERS" ;;
  *" test -e "*|*" pgrep "*) exit 1 ;;
  info*) exit "$DOCKER_STATUS" ;;
  *"images import"*) cat >>"$RECORD" ;;
esac
"""

#: It looks for kubectl on the PATH and fails without it; what it skips are tests that a cluster has no devices for.
E2E = Path(__file__).resolve().parents[1] / "e2e" / "conftest.py"


@pytest.fixture
def local(tmp_path, monkeypatch) -> Path:
    """A checkout without a cluster, for a user who has chosen nothing."""
    monkeypatch.delenv(choice.VARIABLE, raising=False)
    folder = tmp_path / ".local"
    folder.mkdir()
    monkeypatch.setattr(checkout, "LOCAL", folder)
    monkeypatch.setattr(checkout, "KUBECONFIG", folder / "kubeconfig")
    monkeypatch.setattr(choice, "CHOSEN", folder / "cluster")
    return folder


@pytest.fixture
def record(tmp_path, monkeypatch) -> Path:
    """Commands `docker` and `kind` that write down what they are asked; Docker answers, no cluster exists."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("docker", "kind"):
        (commands / name).write_text(RECORDER)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.setenv("RECORD", str(tmp_path / "record"))
    monkeypatch.setenv("KIND_CLUSTERS", "")
    monkeypatch.setenv("DOCKER_STATUS", "0")
    monkeypatch.setattr(kind.binaries, "hyperkube", lambda: Path("/cache/hyperkube"))
    return tmp_path / "record"


@pytest.mark.parametrize(
    ("said", "docker", "name"),
    [
        pytest.param("", "0", "kind", id="kind where Docker answers"),
        pytest.param("", "1", "node", id="our node where it does not: a command without a daemon is no Docker"),
        *(pytest.param(name, "0", name, id=f"{name}, as the user says") for name in ("current", "node", "kind")),
    ],
)
def test_choice_is_the_users_or_follows_docker(local, record, monkeypatch, said, docker, name):  # noqa: ARG001, PLR0917 - the fixtures make the machine
    if said:
        monkeypatch.setenv(choice.VARIABLE, said)
    monkeypatch.setenv("DOCKER_STATUS", docker)
    assert choice.choose().name == name


def test_user_choice_is_checked_and_an_earlier_one_is_remembered(local, record, monkeypatch):  # noqa: ARG001 - likewise
    """After an `up` with our node, later commands mean our node, even if Docker has come up since."""
    (local / "cluster").write_text("node")
    assert choice.chosen().name == "node"
    monkeypatch.setenv(choice.VARIABLE, "minikube")
    with pytest.raises(LocalKubernetesError, match="node, kind, current"):
        choice.choose()


def test_current_kubeconfig_is_copied_whole(local):
    (local / "bin").mkdir()
    kubectl = local / "bin" / "kubectl"
    kubectl.write_text('#!/bin/sh\n[ "$1" = config ] && printf \'{"flags": "%s"}\' "$*"\nexit 0\n')
    kubectl.chmod(0o755)
    choice.CurrentCluster().up()
    assert json.loads((local / "kubeconfig").read_text()) == {"flags": "config view --raw --flatten --minify"}
    assert sorted(path.name for path in local.iterdir()) == ["bin", "kubeconfig"]


@pytest.mark.parametrize(("version", "built"), [("v4.3.0+gabc", False), ("v3.18.4+gabc", True)])
def test_current_cluster_takes_the_tools_of_the_user(local, tmp_path, monkeypatch, version, built):
    """The kubectl is that of PATH, also where .local/bin comes first in it, and so is helm unless it is too old."""
    theirs = tmp_path / "theirs"
    for folder in (theirs, local / "bin"):
        folder.mkdir()
        for name in ("kubectl", "helm"):
            (folder / name).write_text(f"#!/bin/sh\necho {version}\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{local / 'bin'}:{theirs}")
    monkeypatch.setattr(checkout.binaries, "hyperkube", lambda: pytest.fail("Kubernetes is built"))
    monkeypatch.setattr(checkout.binaries, "helm", lambda: Path("/built/helm"))
    checkout.link_users_tools()
    assert {path.name: path.readlink() for path in (local / "bin").iterdir()} == {
        "kubectl": theirs / "kubectl",
        "helm": Path("/built/helm") if built else theirs / "helm",
    }


def test_current_cluster_without_kubectl_is_an_error_that_says_what_to_do(local, tmp_path, monkeypatch):  # noqa: ARG001
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalKubernetesError, match="kubectl is not on PATH: install it"):
        checkout.link_users_tools()


def test_what_only_tests_need_is_installed_with_the_rest(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}")
    (tmp_path / "apt-get").touch(mode=0o755)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "examine", lambda *, node: [doctor._command("ctr")])  # noqa: ARG005 - likewise
    installed = []
    monkeypatch.setattr(doctor, "_apt_install", installed.extend)
    with pytest.raises(LocalKubernetesError, match="MISSING command iptables"):
        doctor.install_missing(node=True, commands=("iptables", "buildah"))
    assert installed == ["buildah", "containerd", "iptables"]


def test_no_test_is_skipped_for_want_of_a_command():
    """A test that lacks a program fails: a skip would hide that the set-up forgot it."""
    tests = Path(__file__).resolve().parents[1]
    found = [path for path in tests.rglob("*.py") if re.search(r"(?<!importor)skip(if)?\(", path.read_text())]
    assert [path.name for path in found if re.search(r"\bwhich\(", path.read_text()) and path != E2E] == []


def test_doctor_reports_requirements_that_packages_cannot_install(monkeypatch):
    """Something that apt-get cannot bring is an error that says what to do, and nothing is installed."""
    lacking = [
        doctor.Check("root", present=False, remedy="run as root"),
        doctor.Check("Linux", present=True, remedy=""),
    ]
    monkeypatch.setattr(doctor, "examine", lambda *, node: lacking)  # noqa: ARG005 - the real one's argument
    monkeypatch.setattr(doctor, "_apt_install", lambda packages: pytest.fail(f"installed {packages}"))
    with pytest.raises(LocalKubernetesError, match="MISSING root: run as root"):
        doctor.install_missing(node=True)
