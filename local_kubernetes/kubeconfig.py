"""Files that tell a client where the API server is and who the client is.

Written as JSON, which is YAML; the certificates are inside, so that a file can be copied anywhere.
"""

import base64
import json
import os
from pathlib import Path

from local_kubernetes.certificates import Certificate


def write_kubeconfig(path: Path, *, server: str, authority: Path, client: Certificate) -> Path:
    """Write a kubeconfig that only its owner can read."""
    name = "tfcluster"
    credentials = {"client-certificate-data": _encoded(client.certificate), "client-key-data": _encoded(client.key)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}],
        "users": [{"name": name, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    write_private(path, json.dumps(content, indent=2))
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    partial.rename(path)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
