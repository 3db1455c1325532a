"""The command line of the operator."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from tfcluster_operator import __version__, logs
from tfcluster_operator.declaration.gang_schedulers import GangSchedulerKind

#: The kubelet writes the pod's namespace to this file.
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Settings(argparse.Namespace):
    """The options of the command line; ``--help`` describes each."""

    #: Empty for all namespaces.
    namespaces: tuple[str, ...]
    health_port: int
    log_level: str
    metrics_port: int
    log_format: logs.Format
    leader_election: bool
    gang_scheduler: GangSchedulerKind
    gang_scheduler_name: str
    lease_name: str
    #: Empty if it is unknown.
    lease_namespace: str


def parse_arguments(arguments: Sequence[str]) -> Settings:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tfcluster_operator",
        description="Materialise TFClusters: pods, a headless Service and the views that tell each task of the others.",
    )
    parser.add_argument("--version", action="version", version=f"tfcluster-operator {__version__}")
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--namespace",
        dest="namespaces",
        metavar="NAMESPACE",
        action="append",
        default=[],
        help="watch this namespace; can be repeated",
    )
    scope.add_argument("--all-namespaces", action="store_true", help="watch all namespaces")
    parser.add_argument(
        "--health-port", type=int, default=8080, help="port of /healthz and /readyz, 0 for none (default 8080)"
    )
    parser.add_argument("--metrics-port", type=int, default=8081, help="port of /metrics, 0 for none (default 8081)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument(
        "--log-format", default="text", choices=logs.FORMATS, help="lines of text, or of JSON (default %(default)s)"
    )
    parser.add_argument(
        "--leader-election",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="act only while holding a Lease (default: where the Lease's namespace is known, as it is in a pod)",
    )
    parser.add_argument(
        "--gang-scheduler",
        default="Kubernetes",
        choices=get_args(GangSchedulerKind),
        help="the scheduler whose PodGroups the operator writes for spec.scheduling.gang (default %(default)s)",
    )
    parser.add_argument(
        "--gang-scheduler-name",
        default="",
        help="the default schedulerName of pods of a TFCluster with a gang (default: that of the scheduler's chart)",
    )
    parser.add_argument("--lease-name", default="tfcluster-operator", help="the Lease's name (default %(default)s)")
    parser.add_argument("--lease-namespace", default="", help="the Lease's namespace (default: the pod's)")
    options = parser.parse_args(arguments, Settings())
    if options.metrics_port == options.health_port != 0:
        parser.error("--metrics-port and --health-port must differ")
    if not all(options.namespaces):
        # For the API server an empty name means all namespaces.
        parser.error("--namespace needs a name: use --all-namespaces for all of them")
    options.namespaces = tuple(options.namespaces)
    options.lease_namespace = options.lease_namespace or _own_namespace()
    if options.leader_election is None:
        options.leader_election = bool(options.lease_namespace)
    if options.leader_election and not options.lease_namespace:
        parser.error("--leader-election needs --lease-namespace outside of a pod")
    del options.all_namespaces
    return options


def _own_namespace() -> str:
    if _NAMESPACE_FILE.exists():
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    return os.environ.get("POD_NAMESPACE", "")
