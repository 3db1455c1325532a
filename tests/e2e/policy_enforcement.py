"""Enforcement of NetworkPolicies: by the node of ``make cluster`` on request, elsewhere by the cluster's network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: For other clusters: declares that the network enforces NetworkPolicies.
VARIABLE = "TFCLUSTER_E2E_NETWORK_POLICIES"


@contextmanager
def enforced(checkout: Path, kubeconfig: Path) -> Iterator[str]:
    """Make the cluster enforce NetworkPolicies; yield why they are not enforced, empty if they are."""
    local = checkout / ".local"
    ours = kubeconfig == (local / "kubeconfig").resolve() and (local / "cluster").exists()
    if not ours or (local / "cluster").read_text(encoding="utf-8").strip() != "node":
        enforcing = os.environ.get(VARIABLE) == "enforced"
        yield "" if enforcing else f"if the cluster's network enforces network policies, set {VARIABLE}=enforced"
        return
    _tell(checkout, "enforce")
    try:
        yield ""
    finally:
        _tell(checkout, "ignore")


def _tell(checkout: Path, action: str) -> None:
    command = [sys.executable, "-m", "local_kubernetes", "network-policies", action]
    # On first use it is built.
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=900)
    assert result.returncode == 0, result.stdout + result.stderr
