"""The table of the kinds of objects that the operator creates or reads; each row is in the module of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
from tfcluster_operator.objects.base import Kind

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
