"""The report of a failed test: the objects of its namespace, their events, the operator's log."""

from collections.abc import Iterator, Mapping
from typing import Any

from support.world import World


def sections(fixtures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kubectl = fixtures.get("kubectl")
    if kubectl is None:
        return
    namespaces = {value.namespace for value in fixtures.values() if isinstance(value, World)}
    for name in sorted(namespaces | {fixtures[key] for key in ("namespace",) if key in fixtures}):
        for title, arguments in (
            ("objects", ("get", "tfclusters,pods,services,configmaps", "-o", "wide")),
            ("TFClusters", ("get", "tfclusters", "-o", "yaml")),
            ("views", ("get", "configmaps", "-l", "tfcluster.dev/cluster", "-o", "yaml")),
            ("pods", ("describe", "pods")),
            ("events", ("get", "events", "--sort-by=.metadata.creationTimestamp")),
            ("logs of the pods", ("logs", "-l", "tfcluster.dev/cluster", "--prefix", "--tail=25", "--all-containers")),
        ):
            yield f"{title} in {name}", _say(kubectl("-n", name, *arguments))
    release = fixtures.get("operator_release")
    if release is not None:
        for pod in release.pods():
            yield "the operator's log", _say(kubectl("-n", release.namespace, "logs", pod, "--tail=80"))


def _say(result: Any) -> str:
    return (result.stdout + result.stderr)[-12000:]
