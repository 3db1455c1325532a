"""From a manifest to what the operator will read: defaults filled in, every problem told with its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from memory_kubernetes.shaping import shape
from tfcluster.errors import ManifestError
from tfcluster.manifest_files import Manifest
from tfcluster_operator.model import naming
from tfcluster_operator.model.parse import InvalidSpecError, parse
from tfcluster_operator.model.spec import IsolationMode, TFCluster

Object = dict[str, Any]

#: What stands where only the API server can give a value.
UNKNOWN_UID: Final = "<uid>"
#: A step of a path such as spec.jobs.worker.template.spec.containers[0].env.
_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


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


@cache
def definition() -> Mapping[str, Any]:
    """Give the schema of a TFCluster, from the CustomResourceDefinition that the package brings."""
    text = resources.files("tfcluster").joinpath("definition.yaml").read_text(encoding="utf-8")
    body = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    version = next(one for one in body["spec"]["versions"] if one["storage"])
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def declare(
    manifest: Manifest,
    namespace: str,
    *,
    live: Mapping[str, Any] | None = None,
    default_isolation: IsolationMode = "None",
) -> Declared:
    """Read a manifest as the operator will.

    Args:
        manifest: the TFCluster.
        namespace: its namespace where it names none.
        live: the TFCluster of that name as the API server has it, whose identity and status count; None where there is
            none, or nobody looked.
        default_isolation: the isolation of a cluster that says nothing of it, as the operator is set up.

    Returns:
        The cluster; without ``live`` its UID is UNKNOWN_UID and its generation 1.

    Raises:
        ManifestError: no TFCluster can be made of it; it tells all problems.
    """
    found = [(_steps(words), words) for words in _problems(manifest.body)]
    body = None
    if not found:
        body = complete(manifest.body, namespace, live)
        try:
            return Declared(manifest, body, parse(body, default_isolation=default_isolation))
        except InvalidSpecError as error:
            found = [(_steps(words), words) for words in error.problems]
    what = f"{naming.KIND} {manifest.name}" if manifest.name else f"a {naming.KIND} without a name"
    raise ManifestError(f"{what} is not valid:", [f"{manifest.place(where)}: {words}" for where, words in found])


def complete(body: Mapping[str, Any], namespace: str, live: Mapping[str, Any] | None = None) -> Object:
    """Give a TFCluster as the API server would keep it.

    Args:
        body: the object; it is valid.
        namespace: its namespace where it names none.
        live: the object of that name, if there is one.

    Returns:
        The object with defaults, and with the identity and the status of ``live``.
    """
    about = {key: value for key, value in (body.get("metadata") or {}).items() if value is not None}
    known: Mapping[str, Any] = (live or {}).get("metadata") or {}
    identity = {"uid": known.get("uid", UNKNOWN_UID), "generation": known.get("generation", 1)}
    if "deletionTimestamp" in known:
        identity["deletionTimestamp"] = known["deletionTimestamp"]
    shaped = shape(definition(), {key: value for key, value in body.items() if key != "status"})
    shaped["metadata"] = {**about, "namespace": about.get("namespace") or namespace, **identity}
    if live is not None and "status" in live:
        shaped["status"] = live["status"]
    return shaped


def _problems(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("apiVersion") != naming.API_VERSION:
        yield f"apiVersion: write {naming.API_VERSION}"
    about = body.get("metadata")
    name = about.get("name") if isinstance(about, Mapping) else None
    if not isinstance(name, str) or not name:
        yield "metadata.name: give the cluster a name"


def _steps(problem: str) -> Sequence[str | int]:
    path = problem.partition(": ")[0]
    return [int(index) if index else key for index, key in _STEP.findall(path)]
