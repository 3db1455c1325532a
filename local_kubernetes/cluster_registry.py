"""A small registry for a cluster without one.

Nodes pull from a NodePort on their loopback, where container runtimes use plain HTTP. Pushes use the API server
(`kubectl port-forward`), so the ports of a node do not have to be reachable from here. The images last as long as the
registry's pod.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from local_kubernetes import checkout
from local_kubernetes.progress import LocalKubernetesError, tell

NAMESPACE = "tfcluster-registry"
IMAGE_VARIABLE = "TFCLUSTER_REGISTRY_IMAGE"
IMAGE = "docker.io/library/registry:3"
"""Any image of github.com/distribution/distribution with `registry` on its PATH."""

PORT = 5000
NAME = {"name": "registry", "namespace": NAMESPACE}
LABELS = {"app.kubernetes.io/name": "registry", "app.kubernetes.io/part-of": "tfcluster"}
HARMLESS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def start() -> str:
    """Start or find the registry, and return its name for the nodes' runtimes.

    Raises:
        LocalKubernetesError: The cluster rejected it, or its pod does not become ready.
    """
    manifests = _manifests(os.environ.get(IMAGE_VARIABLE) or IMAGE)
    tell(f"starting a registry in namespace {NAMESPACE}; to use one that you have, set TFCLUSTER_REGISTRY")
    _run("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    _run("rollout", "status", "deployment/registry", f"--namespace={NAMESPACE}", "--timeout=3m")
    service = json.loads(_run("get", "service", "registry", f"--namespace={NAMESPACE}", "--output=json"))
    return f"127.0.0.1:{service['spec']['ports'][0]['nodePort']}"


def remove() -> None:
    """Remove the registry if it exists."""
    _run("delete", "namespace", NAMESPACE, "--ignore-not-found")


@contextmanager
def forwarded() -> Iterator[str]:
    """Make the registry reachable from here for the time of a with block.

    Raises:
        LocalKubernetesError: kubectl cannot forward.
    """
    command = checkout.kubectl("port-forward", f"--namespace={NAMESPACE}", "service/registry", f":{PORT}")
    forward = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert forward.stdout is not None  # noqa: S101 - a pipe was asked for
    assert forward.stderr is not None  # noqa: S101 - likewise
    try:
        found = re.search(r"127\.0\.0\.1:(\d+)", forward.stdout.readline())
        if not found:
            raise LocalKubernetesError(f"kubectl does not forward to the registry: {forward.stderr.read().strip()}")
        yield found[0]
    finally:
        forward.kill()
        forward.communicate()


def _manifests(image: str) -> list[dict[str, Any]]:
    configuration = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": "/images"}},
        "http": {"addr": f":{PORT}"},
    }
    container = {
        "name": "registry",
        "image": image,
        "command": ["registry", "serve", "/configuration/config.yml"],
        "env": [{"name": "OTEL_TRACES_EXPORTER", "value": "none"}],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/v2/", "port": PORT}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": HARMLESS,
        "volumeMounts": [
            {"name": "images", "mountPath": "/images"},
            {"name": "configuration", "mountPath": "/configuration"},
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "images", "emptyDir": {}},
            {"name": "configuration", "configMap": {"name": "registry"}},
        ],
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    strategy = {"type": "Recreate"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": LABELS}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": NAME, "data": {"config.yml": json.dumps(configuration)}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": NAME,
            "spec": {"selector": {"matchLabels": LABELS}, "strategy": strategy, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": NAME,
            "spec": {"type": "NodePort", "selector": LABELS, "ports": [{"port": PORT, "targetPort": PORT}]},
        },
    ]


def _run(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(checkout.kubectl(*arguments), input=stdin, check=False, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(arguments[:2])
        raise LocalKubernetesError(f"`kubectl {words}` failed for the registry: {done.stderr.strip()}")
    return done.stdout
