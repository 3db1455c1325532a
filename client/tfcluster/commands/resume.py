"""``tfcluster resume``: a suspended TFCluster starts again."""

from __future__ import annotations

import click

from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands.changing import dry, each, patience
from tfcluster.commands.options import Format, examples, output, place


@click.command()
@click.argument("clusters", type=names.ClusterName(), metavar="NAME...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Come back when it is ready.")
@patience
@dry
@place
@output("table", "json", "yaml")
@examples("""
    $ tfcluster resume digits
    $ tfcluster resume digits --wait --timeout 5m
""")
def command(
    *, client: Client, clusters: tuple[str, ...], wait: bool, timeout: float, dry_run: bool, output: Format
) -> None:
    """Start suspended TFClusters again, from the beginning.

    Every task runs again, also those that were complete; restarts and the deadline count from zero. A program goes on
    where it was only by checkpoints on a volume.
    """
    goal = "ready" if wait and not dry_run else ""
    each(client, clusters, client.resume, "resumed", output, dry_run=dry_run, goal=goal, timeout=timeout)
