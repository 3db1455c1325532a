"""``tfcluster matrix``: who sees whom and why, of a cluster that runs or of a manifest."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster.commands import names, options
from tfcluster.commands.output import data

if TYPE_CHECKING:
    from tfcluster.client import Client
    from tfcluster_operator.declaration.spec import TFCluster

#: How many groups of tasks a grid may have.
_MOST: Final = 24


@click.command()
@click.argument("name", type=names.ClusterName(), required=False)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(allow_dash=True),
    help="A manifest instead of a cluster that runs.",
)
@options.place_if_needed
@options.output("table", "json", "yaml")
@options.examples("""
    $ tfcluster matrix digits
    $ tfcluster matrix -f digits.yaml
""")
def command(
    *,
    connect: Callable[[], Client],
    namespace: str | None,
    name: str | None,
    files: tuple[str, ...],
    output: str,
) -> None:
    """Show which task sees which, by which device filter, and whom network policies keep apart.

    It tells of the whole cluster, as the device filters and the isolation of its spec have it; what a single task sees
    now, `python -m tfcluster_resolver matrix` tells in its pod.
    """
    from tfcluster.sight_grid import grid_lines, grid_of, membership_of
    from tfcluster_resolver.commands import matrix

    if bool(name) == bool(files):
        raise click.UsageError("name a TFCluster, or a manifest with -f")
    cluster = _of_a_file(files, namespace) if files else _of_a_cluster(str(name), connect)
    membership = membership_of(cluster)
    if output != "table":
        document = json.loads(matrix.as_json(membership, whole=True))
        data({**document, "notes": [*_notes(cluster)]}, output)
        return
    grid = grid_of(membership, most=_MOST)
    if len(grid.groups) <= _MOST:
        click.echo("\n".join(grid_lines(grid, fancy=_knows_unicode())) + "\n")
    click.echo(matrix.as_text(membership, whole=True))
    for note in _notes(cluster):
        click.echo(note)


def _of_a_file(files: tuple[str, ...], namespace: str | None) -> TFCluster:
    from tfcluster import manifest_files
    from tfcluster.declared import declare

    return declare(manifest_files.read(files).only(), namespace or "default").cluster


def _of_a_cluster(name: str, connect: Callable[[], Client]) -> TFCluster:
    from tfcluster.errors import ManifestError
    from tfcluster_operator.declaration.parse import InvalidSpecError, parse

    with connect() as client:
        body: Any = client.get(name)
    try:
        return parse(body)
    except InvalidSpecError as error:
        raise ManifestError(f"the operator can make nothing of {name}:", error.problems) from error


def _notes(cluster: TFCluster) -> Iterator[str]:
    from tfcluster_operator.declaration.spec import EVALUATOR

    evaluator = cluster.job(EVALUATOR)
    if evaluator is not None:
        seen = f"sees what {', '.join(evaluator.filters)} show" if evaluator.filters else "sees every task"
        yield f"The evaluator {seen}, and no task sees it: it is in no ClusterSpec."
    match cluster.isolation.mode:
        case "None":
            yield "No isolation: whoever is in the network reaches every task."
        case "Cluster":
            yield "Isolation Cluster: no pod but those of this cluster reaches a task."
        case _:
            yield "Isolation DeviceFilters: a task is reached by whom it sees, and by who sees it."
    if cluster.isolation.mode != "None" and cluster.isolation.allow_from:
        yield "spec.isolation.allowFrom lets others in, too."


def _knows_unicode() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return encoding.lower().replace("-", "").startswith("utf")
