"""Command lines, ports and versions of the test cluster."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from local_kubernetes import binaries, components, ports
from local_kubernetes.progress import LocalKubernetesError

ROOT = Path(__file__).resolve().parent.parent.parent


def test_apiserver_enforces_what_careful_clusters_enforce(tmp_path):
    """RBAC and the node authorizer decide, and owner references need the right to finalizers."""
    command = components.apiserver_command(Path("hyperkube"), tmp_path, ports.loopback_addresses())

    assert "--authorization-mode=Node,RBAC" in command
    assert "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement" in command
    assert f"--audit-log-path={tmp_path}/audit.log" in command


def test_ports_are_free_and_different(monkeypatch):
    """A port that a program listens on is not chosen, and none is chosen twice, by this process or by another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(taken, taken + 1))
        with pytest.raises(LocalKubernetesError, match="fewer than 1 free ports"):
            ports.free_ports(1)
    monkeypatch.undo()

    chosen = ports.free_ports(50)

    assert len(set(chosen)) == 50
    monkeypatch.setattr(ports, "PORTS", chosen[:5])
    with pytest.raises(LocalKubernetesError):
        ports.free_ports(1)
    program = f"from local_kubernetes import ports; ports.PORTS = {chosen[:5]}; ports.free_ports(1)"
    other = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "LocalKubernetesError" in other.stderr


def test_staging_modules_follow_the_version_of_kubernetes():
    """Every module of Kubernetes' own tree is pinned to the release that goes with k8s.io/kubernetes."""
    text = (binaries.HYPERKUBE_SOURCE / "go.mod").read_text()
    wanted = "v0." + binaries.kubernetes_version().removeprefix("v1.")
    replaced = [line.split() for line in text.splitlines() if " => " in line]

    assert len(replaced) >= 33
    assert {(words[0] == words[2], words[3]) for words in replaced} == {(True, wanted)}
