"""The commands that our clusters get are of the versions that we name, wherever they come from."""

from __future__ import annotations

import json
import subprocess

from rendering import Helm

from local_kubernetes import binaries


def test_helm_is_of_the_version_that_we_name(helm: Helm):
    """What is tested is what the documents say is tested."""
    assert helm.run("version", "--template", "{{.Version}}").stdout == binaries.HELM.rpartition("@")[2]


def test_kubectl_is_of_the_clusters_version():
    """The kubectl of .local/bin speaks to a server of its own version."""
    program = binaries.kubectl()
    called = [program, "kubectl"] if program.name == "hyperkube" else [program]
    command = [*called, "version", "--client", "--output", "json"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert told["clientVersion"]["gitVersion"] == binaries.kubernetes_version()
