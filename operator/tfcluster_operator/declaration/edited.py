"""The first field whose edit changed a job's pods, for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tfcluster_operator.declaration.spec import TFCluster


def edited_field(before: TFCluster | None, after: TFCluster, job: str) -> str:
    """Return the path of the first field whose change makes a job's pods outdated, or "" if nothing changed."""
    old, new = None if before is None else before.job(job), after.job(job)
    if before is None or old is None or new is None or old.template_hash == new.template_hash:
        return ""
    fields = {
        "port": (old.port, new.port),
        "clusterDomain": (before.cluster_domain, after.cluster_domain),
        "resolver.tfConfig": (before.tf_config, after.tf_config),
        "resolver.delivery": (before.inject, after.inject),
        "scheduling.colocate": (old.colocation, new.colocation),
        "scheduling.spread": (old.spread, new.spread),
    }
    changed = (field for field, (was, wanted) in fields.items() if was != wanted)
    return next(changed, "") or next(_differences(old.template, new.template, ""), "template").removeprefix("spec.")


def older_template(job: str, field: str) -> str:
    """Return the message about the field that made the pods of a job outdated, if it is known."""
    return f"pods of job {job} have an older template" + (f" ({field} changed)" if field else "")


_OLDER_TEMPLATE: Final = re.compile(r"pods of job ([^ ]+) have an older template \((.+?) changed\)")


def fields_told(status: Mapping[str, Any]) -> dict[str, str]:
    """Read the fields from the condition UpToDate: after a restart of the operator only the condition has them."""
    told = (one.get("message", "") for one in status.get("conditions") or () if one.get("type") == "UpToDate")
    return {job: field for message in told for job, field in _OLDER_TEMPLATE.findall(message)}


def _differences(was: Any, wanted: Any, path: str) -> Iterator[str]:
    if was == wanted or not (was or wanted):
        return
    if isinstance(was, Mapping) and isinstance(wanted, Mapping):
        for key in {**wanted, **was}:
            yield from _differences(was.get(key), wanted.get(key), f"{path}.{key}" if path else key)
    elif _has_names(was or []) and _has_names(wanted or []):
        old, new = ({one["name"]: one for one in named or ()} for named in (was, wanted))
        for name in {**new, **old}:
            yield from _differences(old.get(name), new.get(name), f"{path}[{name}]")
    yield path


def _has_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) and "name" in one for one in value)
