"""The fake GPUs of our own one-node cluster: their health can be changed, unlike that of real ones."""

import subprocess
import sys
from pathlib import Path


class FakeDevices:
    """The devices that ``python -m local_kubernetes`` of a checkout simulates."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._unhealthy: list[str] = []

    def obstacle(self, kubeconfig: Path) -> str:
        """Return why the devices of a cluster cannot be changed; empty if they can."""
        local = self._checkout / ".local"
        ours = kubeconfig == (local / "kubeconfig").resolve() and (local / "cluster").exists()
        if not ours or (local / "cluster").read_text(encoding="utf-8").strip() == "current":
            return "only a cluster that `make cluster` raised itself has devices whose health can be flipped"
        return ""

    def sicken(self, device: str) -> None:
        self._unhealthy.append(device)
        self._tell("unhealthy", device)

    def heal(self) -> None:
        while self._unhealthy:
            self._tell("healthy", self._unhealthy.pop())

    def _tell(self, health: str, device: str) -> None:
        command = [sys.executable, "-m", "local_kubernetes", "device", health, device]
        result = subprocess.run(command, cwd=self._checkout, capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr
