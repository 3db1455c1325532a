"""Fixtures of the chart's tests: the real helm, and an API server without the CRD."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from on_server import FOREIGN, HOME, RESTRICTED, WATCHED, OnServer, access
from rendering import CHART, Helm, Object
from support.objects import NAMESPACES, Objects


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    from local_kubernetes import binaries

    return Helm(binaries.helm(), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def bare_server(tmp_path_factory: pytest.TempPathFactory):
    """A separate control plane without the CRD; each test file deletes what it installs."""
    from local_kubernetes.control_plane import start

    plane = start(Path(tmp_path_factory.mktemp("bare-server")))
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def server(bare_server) -> Objects:
    """A server with three namespaces that accept only restricted pods."""
    objects = access(bare_server.kubeconfig)
    for name in (HOME, WATCHED, FOREIGN):
        objects.create(NAMESPACES, "", {"metadata": {"name": name, "labels": RESTRICTED}})
    return objects


@pytest.fixture(scope="session")
def on_server(helm: Helm, server: Objects, bare_server) -> OnServer:  # noqa: ARG001 - wants the namespaces
    def run(*arguments: Any, values: Object | None = None, namespace: str = HOME) -> str:
        place = ("--kubeconfig", bare_server.kubeconfig, "--namespace", namespace)
        answer = helm.run(*arguments, *place, values=values)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    return run


@pytest.fixture(scope="session")
def kubectl(bare_server) -> Callable[..., str]:
    from local_kubernetes.binaries import hyperkube

    def run(*arguments: str | Path) -> str:
        command = [hyperkube(), "kubectl", "--kubeconfig", bare_server.kubeconfig, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture
def install(on_server: OnServer, request) -> Iterator[Callable[[Object], str]]:
    """Installs the chart and returns the release's name; it is uninstalled afterwards if it still exists."""
    release = request.node.originalname.replace("_", "-").removeprefix("test-")[:40]

    def run(values: Object) -> str:
        on_server("install", release, CHART, values=values)
        return release

    yield run
    on_server("uninstall", release, "--ignore-not-found")
