"""From a manifest to what the operator will read: defaults filled in, every problem told with its file and line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from memory_kubernetes.shaping import shape
from tfcluster.definition import schema
from tfcluster.errors import ManifestError
from tfcluster.manifest_files import Manifest
from tfcluster.task_names import name_of
from tfcluster.validation import Problem, problems, read_path, without_nulls
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.parse import InvalidSpecError, parse
from tfcluster_operator.declaration.spec import TFCluster

Object = dict[str, Any]

#: How the chart, and the operator by itself, are set up for clusters that say nothing of it.
#: What stands where only the API server can give a value.
UNKNOWN_UID: Final = "<uid>"


@dataclass(frozen=True, slots=True)
class Declared:
    """A TFCluster as it is declared.

    Attributes:
        manifest: the object as the file has it.
        body: the object as the API server would keep it, with its defaults.
        cluster: the same as the operator's values.
    """

    manifest: Manifest
    body: Object
    cluster: TFCluster


def declare(
    manifest: Manifest,
    namespace: str,
    *,
    live: Mapping[str, Any] | None = None,
) -> Declared:
    """Read a manifest as the operator will.

    Args:
        manifest: the TFCluster.
        namespace: its namespace where it names none.
        live: the TFCluster of that name as the API server has it, whose identity and status count; None where there is
            none, or nobody looked.

    Raises:
        ManifestError: no TFCluster can be made of it; it tells all problems.
    """
    refuse(manifest, problems(manifest.body))
    body = complete(manifest.body, namespace, live)
    return Declared(manifest, body, read(manifest, body))


def refuse(manifest: Manifest, found: Sequence[Problem]) -> None:
    """Tell what is wrong with a manifest, in the order of its lines; raises ManifestError where something is."""
    if not found:
        return
    what = f"{naming.KIND} {manifest.name}" if manifest.name else f"a {naming.KIND} without a name"
    told = sorted(found, key=lambda one: manifest.line_of(one.where))
    raise ManifestError(f"{what} is not valid:", [f"{manifest.place(one.where)}: {one}" for one in told])


def read(manifest: Manifest, body: Mapping[str, Any]) -> TFCluster:
    """Read a TFCluster as the operator does.

    Raises:
        ManifestError: the operator could make nothing of it.
    """
    try:
        return parse(body)
    except InvalidSpecError as error:
        told = [problem.partition(": ") for problem in error.problems]
        refuse(manifest, [Problem(read_path(path), words) for path, _, words in told])
        raise


def complete(body: Mapping[str, Any], namespace: str, live: Mapping[str, Any] | None = None) -> Object:
    """Give a TFCluster as the API server would keep it."""
    about = {key: value for key, value in (body.get("metadata") or {}).items() if value is not None}
    known: Mapping[str, Any] = (live or {}).get("metadata") or {}
    identity = {"uid": known.get("uid", UNKNOWN_UID), "generation": known.get("generation", 1)}
    if "deletionTimestamp" in known:
        identity["deletionTimestamp"] = known["deletionTimestamp"]
    shaped = shape(schema(), without_nulls(schema(), {key: value for key, value in body.items() if key != "status"}))
    shaped["metadata"] = {**about, "name": name_of(about), "namespace": about.get("namespace") or namespace, **identity}
    if live is not None and "status" in live:
        shaped["status"] = live["status"]
    return shaped
