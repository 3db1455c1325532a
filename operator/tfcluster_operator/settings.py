"""What the operator is started with: the command line and, for each option, an environment variable."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings."""

    namespaces: tuple[str, ...]
    """The namespaces to work in; none means all of them, and needs cluster-wide rights."""

    health_port: int
    """The TCP port of /healthz and /readyz, on every address; 0 serves none."""

    log_level: str
    """The least severe level that is logged."""


def parse_arguments(arguments: Sequence[str]) -> Settings:
    """Read the command line.

    Args:
        arguments: the arguments after the program's name.

    Returns:
        The settings.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_operator",
        description="Materialise TFClusters: pods, a headless Service and the views that tell each task of the others.",
    )
    scope = parser.add_mutually_exclusive_group(required="TFCLUSTER_NAMESPACES" not in os.environ)
    scope.add_argument("--namespace", action="append", default=[], help="work in this namespace; may be repeated")
    scope.add_argument("--all-namespaces", action="store_true", help="work in every namespace")
    parser.add_argument(
        "--health-port", type=int, default=8080, help="port of /healthz and /readyz, 0 for none (default 8080)"
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args(arguments)
    named = options.namespace or os.environ.get("TFCLUSTER_NAMESPACES", "").split()
    return Settings(
        namespaces=() if options.all_namespaces else tuple(named),
        health_port=options.health_port,
        log_level=options.log_level,
    )
