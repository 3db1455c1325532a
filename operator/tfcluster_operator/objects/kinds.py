"""The table of the kinds of objects that the operator creates or reads, and what is observed of them for a cluster.

Each row is in the module of its kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from tfcluster_operator.declaration.gang_schedulers import GangScheduler
from tfcluster_operator.objects import (
    config_map,
    disruption_budget,
    network_policy,
    pod,
    pod_group,
    service,
    workload,
)
from tfcluster_operator.objects.base import Child, Kind, Meta
from tfcluster_operator.objects.network_policy import NetworkPolicy
from tfcluster_operator.objects.pod import Pod
from tfcluster_operator.objects.workload import Flavor

KINDS: Final[Mapping[str, Kind]] = {
    one.name: one
    for one in (
        service.KIND,
        config_map.KIND,
        network_policy.KIND,
        disruption_budget.KIND,
        pod_group.KIND,
        workload.KIND,
        workload.FLAVORS,
        pod.KIND,
    )
}


def kinds_for(scheduler: GangScheduler) -> Mapping[str, Kind]:
    """Return the kinds for one of the gang schedulers."""
    return {**KINDS, **{one.name: one for one in (pod_group.kind_for(scheduler), pod.kind_for(scheduler))}}


_Kind = TypeVar("_Kind", bound=Child)


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that exists, by kind and name; ``lacking`` has the reason why a kind is not available."""

    objects: Mapping[str, Mapping[str, Child]] = field(default_factory=dict)
    pods: Mapping[str, Pod] = field(default_factory=dict)
    other_policies: tuple[NetworkPolicy, ...] = ()
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    lacking: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: type[_Kind]) -> Mapping[str, _Kind]:
        """Return the objects of a kind by their names."""
        return cast("Mapping[str, _Kind]", self.objects.get(kind.KIND, {}))


_about_each: Final = attrgetter(*(one.name for one in fields(Meta) if one.name != "version"))


def differ_in_version_alone(one: Child, other: Child) -> bool:
    """Return whether two states of an object are equal in all fields that a decision reads."""
    if type(one) is not type(other) or _about_each(one.meta) != _about_each(other.meta):
        return False
    values = _values_of(type(one))
    same: bool = values(one) == values(other)
    return same


@lru_cache
def _values_of(kind: type[Any]) -> "attrgetter[Any]":
    return attrgetter(*(one.name for one in fields(kind) if one.name != "meta"))
