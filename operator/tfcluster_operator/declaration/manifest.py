"""Reading a manifest by the types of its fields; invalid parts are reported with their paths.

The CRD's validation has rejected them already, unless another CRD is installed.  Kubernetes treats null as absent, and
so does :func:`read`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from tfcluster_operator.declaration.spec import Fields

#: The most characters of a path and of a message that a problem shows: a condition's message has a limit.
_SHOWN: Final = 500


class _Named(Fields, frozen=True):
    name: str = ""


class _Variable(_Named, frozen=True):
    value: str = ""


class _Resources(Fields, frozen=True):
    limits: dict[str, Any] = msgspec.field(default_factory=dict)


class _Container(_Named, frozen=True):
    image: str = ""
    restart_policy: str = ""
    env: tuple[_Variable, ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    resources: _Resources = _Resources()


class _Volume(_Named, frozen=True):
    config_map: _Named = _Named()


class _PodAffinity(msgspec.Struct, frozen=True):
    requiredDuringSchedulingIgnoredDuringExecution: tuple[Any, ...] = ()  # noqa: N815 - Kubernetes' own name
    preferredDuringSchedulingIgnoredDuringExecution: tuple[Any, ...] = ()  # noqa: N815 - Kubernetes' own name


class _Affinity(Fields, frozen=True):
    pod_affinity: _PodAffinity = _PodAffinity()


class _SpreadRule(Fields, frozen=True):
    topology_key: str = ""
    when_unsatisfiable: str = ""


class _PodSpec(Fields, frozen=True):
    affinity: _Affinity = _Affinity()
    topology_spread_constraints: tuple[_SpreadRule, ...] = ()
    volumes: tuple[_Volume, ...] = ()
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _PodMetadata(Fields, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class TemplateFields(Fields, frozen=True):
    """The fields of a job's template that the operator reads or extends; the API server validates the others."""

    metadata: _PodMetadata = _PodMetadata()
    spec: _PodSpec = _PodSpec()


_Read = TypeVar("_Read", bound=msgspec.Struct)


def read(kind: type[_Read], raw: Any, path: str, problems: list[str]) -> _Read | None:
    """Read an object of a manifest; None if a part is invalid, which is added to ``problems`` with its path."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        words, _, where = str(error).rpartition(" - at `$") if " - at `$" in str(error) else (str(error), "", "")
        place = f"{path}{where.removesuffix('`')}"
        problems.append(f"{place[:_SHOWN]}: {words[0].lower()}{words[1:_SHOWN]}")
        return None


def without_nulls(value: Any) -> Any:
    """Remove the fields that are null, in lists too, and convert each whole number to an int."""
    if isinstance(value, Mapping):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
