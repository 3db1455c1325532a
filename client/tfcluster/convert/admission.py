"""What an API server would say of the TFCluster that came out: by the definition's schema, and the operator's reading.

The definition's rules in CEL need an API server; what they refuse is known to ``templates`` and ``conversion``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
import yaml

from tfcluster.convert.conversion import Conversion
from tfcluster.convert.verdicts import Findings, Outcome, Path, said, spelled
from tfcluster_operator.declaration.parse import InvalidSpecError, parse


def judged(conversion: Conversion) -> Conversion:
    """Add to a conversion what an API server would refuse or drop.

    Returns:
        It with those verdicts, and without the TFCluster if it is refused.
    """
    findings = Findings()
    _judge(conversion.cluster or {}, conversion.moved, findings)
    refused = any(one.outcome is Outcome.REFUSED for one in findings.verdicts)
    return replace(
        conversion,
        cluster=None if refused else conversion.cluster,
        verdicts=(*conversion.verdicts, *findings.verdicts),
    )


def _judge(cluster: Mapping[str, Any], moved: Mapping[Path, Path], findings: Findings) -> None:
    schema = _schema()
    plain = _without_nulls(cluster)
    errors = jsonschema.Draft202012Validator(schema).iter_errors(plain)
    # The validator walks through sets, in an order that differs from process to process.
    for error in sorted(errors, key=lambda one: [str(part) for part in one.absolute_path]):
        words = f"the API server refuses {said(error.instance)} ({error.validator}: {said(error.validator_value)})"
        if error.validator == "type":
            words = f"it is {said(error.instance)}, and must be of type {error.validator_value}"
        findings.remark(Outcome.REFUSED, (), words, target=spelled(_origin(tuple(error.absolute_path), moved)))
    if any(one.outcome is Outcome.REFUSED for one in findings.verdicts):
        return
    for path in _unknown(plain, schema, ()):
        words = "no pod has this field: the API server drops it, as it does from a TFJob. Correct it, or remove it"
        findings.remark(Outcome.NOTED, (), words, target=spelled(_origin(path, moved)))
    metadata = {"namespace": "default", "uid": "", "name": "x", **plain["metadata"]}
    try:
        parse({**plain, "metadata": metadata})
    except InvalidSpecError as error:
        for problem in error.problems:
            findings.remark(Outcome.REFUSED, (), problem)


def _origin(path: Path, moved: Mapping[Path, Path]) -> Path:
    """Give where a node of the TFCluster stands in the TFJob, as far as it stands there."""
    known = [(source, target) for source, target in moved.items() if path[: len(target)] == target]
    source, target = max(known, key=lambda pair: len(pair[1]), default=((), ()))
    return (*source, *path[len(target) :])


@cache
def _schema() -> Mapping[str, Any]:
    text = resources.files("tfcluster").joinpath("definition.yaml").read_text(encoding="utf-8")
    definition = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    schema: Mapping[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _without_nulls(node: Any) -> Any:
    """Leave out what is null, as the API server does."""
    if isinstance(node, Mapping):
        return {str(key): _without_nulls(value) for key, value in node.items() if value is not None}
    return [_without_nulls(one) for one in node] if isinstance(node, list) else node


def _unknown(node: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Path]:
    if isinstance(node, Mapping) and "properties" in schema:
        for key, value in node.items():
            inner = schema["properties"].get(key)
            if inner is not None:
                yield from _unknown(value, inner, (*path, key))
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield (*path, key)
    elif isinstance(node, Mapping) and isinstance(schema.get("additionalProperties"), Mapping):
        for key, value in node.items():
            yield from _unknown(value, schema["additionalProperties"], (*path, key))
    elif isinstance(node, list) and "items" in schema:
        for index, value in enumerate(node):
            yield from _unknown(value, schema["items"], (*path, index))
