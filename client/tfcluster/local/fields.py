"""What a pod says of itself to its containers: fieldRef and resourceFieldRef, in files and in variables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from tfcluster_operator.declaration.quantities import quantity

Object = Mapping[str, Any]

SINGULAR: Final = {"configmaps": "ConfigMap", "secrets": "Secret"}
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def value_of(pod: Object, source: Object) -> str:
    """Give the value of a fieldRef or a resourceFieldRef."""
    if (field := source.get("fieldRef")) is not None:
        return _field(pod, field["fieldPath"])
    return _resource(pod, source["resourceFieldRef"])


def _field(pod: Object, path: str) -> str:
    if keyed := _KEYED.fullmatch(path):
        return str((pod["metadata"].get(keyed[1]) or {}).get(keyed[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):  # labels and annotations as a whole
        return "\n".join(f'{key}="{_escaped(text)}"' for key, text in sorted(value.items()))
    if isinstance(value, list):
        return ",".join(str(one.get("ip", "")) for one in value)
    return "" if value is None else str(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _resource(pod: Object, reference: Object) -> str:
    kind, _, name = str(reference["resource"]).partition(".")
    containers = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
    wanted = reference.get("containerName") or containers[0]["name"]
    resources = next((one.get("resources") or {} for one in containers if one["name"] == wanted), {})
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    text = (limits if kind == "limits" else {**limits, **requests}).get(name)
    amount = (quantity(text) or Decimal(0)) if text is not None else _of_this_machine(name)
    return str(math.ceil(amount / (quantity(reference.get("divisor")) or 1)))


def _of_this_machine(resource: str) -> Decimal:
    """Give what a container has that names no limit: all of the machine's."""
    if resource == "cpu":
        return Decimal(os.cpu_count() or 1)
    if resource == "memory":
        return Decimal(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Decimal(0)
