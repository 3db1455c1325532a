"""What a TFCluster may be: the schema of the CustomResourceDefinition that the package brings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

Schema = Mapping[str, Any]


@cache
def definition() -> Mapping[str, Any]:
    """Give the CustomResourceDefinition that the package brings."""
    text = resources.files("tfcluster").joinpath("definition.yaml").read_text(encoding="utf-8")
    body: Mapping[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    return body


@cache
def schema() -> Schema:
    """Give the schema of a TFCluster in the version that is stored."""
    version = next(one for one in definition()["spec"]["versions"] if one["storage"])
    found: Schema = version["schema"]["openAPIV3Schema"]
    return found
