"""Which tasks run in one topology domain: the label that their pods share.

The label's value is unique for each TFCluster, by its UID, and for each edit of the colocation.  So a cluster does not
follow the pods of an earlier one of its name, and pods that were placed before the edit, perhaps in several domains, do
not attract later ones.  A job that joins later gets the same label, and the other pods are not replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.naming import digest
from tfcluster_operator.declaration.spec import Colocation, Job, Spread, TFCluster


def colocated(cluster: TFCluster, job: Job) -> dict[str, str]:
    """Return the label that the pods of a job share with those of colocated jobs; empty without a colocation."""
    if job.colocation is None:
        return {}
    made_of = [cluster.uid, job.colocation.topology_key, job.colocation.when_unsatisfiable]
    return {naming.LABEL_COLOCATED: digest(json.dumps(made_of))}


def made_from(colocation: Colocation | None, spread: tuple[Spread, ...]) -> list[dict[str, Any]]:
    """Return the part of a job's places that its pods are created from, as JSON; an edit of it replaces the pods."""
    added: list[dict[str, Any]] = []
    if colocation is not None:
        added.append({"colocate": [colocation.topology_key, colocation.when_unsatisfiable]})
    if spread:
        added.append({"spread": [[one.topology_key, one.max_skew, one.when_unsatisfiable] for one in spread]})
    return added


def problems(job: Job) -> Iterator[str]:
    """Report the rules of a job's template that conflict with its places."""
    spec: Mapping[str, Any] = job.template.get("spec") or {}
    where = f"spec.jobs.{job.name}.template.spec"
    near = (spec.get("affinity") or {}).get("podAffinity") or {}
    strict = job.colocation is not None and job.colocation.when_unsatisfiable == "DoNotSchedule"
    # The scheduler looks for a pod that matches all of these rules together.
    if strict and near.get("requiredDuringSchedulingIgnoredDuringExecution"):
        yield (
            f"{where}.affinity.podAffinity: spec.scheduling.colocate requires to be near its tasks, and no pod would "
            "match both rules: remove one of the two, or set whenUnsatisfiable: ScheduleAnyway"
        )
    own = {
        (one.get("topologyKey"), one.get("whenUnsatisfiable")) for one in spec.get("topologySpreadConstraints") or ()
    }
    for one in job.spread:
        if (one.topology_key, one.when_unsatisfiable) in own:
            yield (
                f"{where}.topologySpreadConstraints: spec.scheduling.spread has a rule with the same topologyKey "
                f"{one.topology_key} and whenUnsatisfiable {one.when_unsatisfiable}: remove one of the two"
            )
        if job.colocation is not None and job.colocation.topology_key == one.topology_key:
            yield (
                f"spec.scheduling.spread: job {job.name} cannot be spread over {one.topology_key}, because "
                "spec.scheduling.colocate keeps it in one of them: remove one of the two"
            )
