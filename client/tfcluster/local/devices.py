"""The accelerators of this machine, granted to containers as a device plugin grants them: whole, to one each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, Final

GPU: Final = "nvidia.com/gpu"
_LIST: Final = ("nvidia-smi", "-L")


def detect() -> int:
    """Count the GPUs that NVIDIA's driver tells of; 0 where there is none."""
    program = shutil.which(_LIST[0])
    if program is None:
        return 0
    try:
        told = subprocess.run([program, *_LIST[1:]], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - the driver's own tool
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in told.stdout.splitlines()) if told.returncode == 0 else 0


class Devices:
    """The GPUs that are there, and who has which."""

    def __init__(self, gpus: int) -> None:
        self._free: dict[str, list[int]] = {GPU: list(range(gpus))}
        self._granted: dict[str, dict[str, dict[str, list[int]]]] = {}

    def lacking(self, pod: Mapping[str, Any]) -> str:
        """Say in the scheduler's words what a pod asks for and is not free; "" if nothing."""
        wanted: dict[str, int] = {}
        for _, resource, count in _asked(pod):
            wanted[resource] = wanted.get(resource, 0) + count
        missing = [name for name, count in sorted(wanted.items()) if count > len(self._free.get(name, ()))]
        return ", ".join(f"Insufficient {name}" for name in missing)

    def grant(self, pod: Mapping[str, Any]) -> None:
        """Grant a pod what it asks for; it must be free."""
        granted: dict[str, dict[str, list[int]]] = {}
        for container, resource, count in _asked(pod):
            taken = [self._free[resource].pop(0) for _ in range(count)]
            granted.setdefault(container, {})[resource] = taken
        if granted:
            self._granted[pod["metadata"]["uid"]] = granted

    def release(self, uid: str) -> bool:
        """Take back what a pod has; tell whether that is anything."""
        held = self._granted.pop(uid, {})
        for resources in held.values():
            for resource, indices in resources.items():
                self._free[resource] = sorted([*self._free[resource], *indices])
        return bool(held)

    def of(self, uid: str, container: str) -> Mapping[str, list[int]]:
        """Give the indices that a container has, by resource."""
        return self._granted.get(uid, {}).get(container, {})

    def variables(self, uid: str, container: str) -> dict[str, str]:
        """Give what makes a program see its own GPUs alone, as NVIDIA's CUDA reads it."""
        indices = self.of(uid, container).get(GPU, [])
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, indices)) if indices else "-1"}

    def reported(self, uid: str, container: str) -> dict[str, Any]:
        """Give what a container's status says of its devices (KEP-4680)."""
        held = self.of(uid, container)
        if not held:
            return {}
        return {
            "allocatedResources": {resource: str(len(indices)) for resource, indices in held.items()},
            "allocatedResourcesStatus": [
                {"name": resource, "resources": [{"resourceID": str(one), "health": "Healthy"} for one in indices]}
                for resource, indices in held.items()
            ],
        }


def _asked(pod: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Give container, extended resource and count of all that a pod asks for."""
    for group in ("initContainers", "containers"):
        for container in pod["spec"].get(group) or ():
            for resource, text in ((container.get("resources") or {}).get("limits") or {}).items():
                if is_extended(resource) and str(text).isdecimal() and int(text):
                    yield container["name"], resource, int(text)


def is_extended(resource: str) -> bool:
    """Tell whether a resource is one of a device plugin's, and none that Kubernetes itself knows."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")
