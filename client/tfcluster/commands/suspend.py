"""``tfcluster suspend``: the pods go, everything else stays."""

from __future__ import annotations

import click

from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands.changing import dry, each, patience
from tfcluster.commands.options import Format, examples, output, place


@click.command()
@click.argument("clusters", type=names.ClusterName(), metavar="NAME...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Come back when the pods are gone.")
@patience
@dry
@place
@output("table", "json", "yaml")
@examples("""
    $ tfcluster suspend digits
    $ tfcluster suspend digits --wait --timeout 5m
""")
def command(
    *, client: Client, clusters: tuple[str, ...], wait: bool, timeout: float, dry_run: bool, output: Format
) -> None:
    """Delete the pods of TFClusters and keep everything else.

    A suspended cluster keeps its name, Service, views and volumes, and takes no CPU, memory or GPU. `tfcluster resume`
    starts it from the beginning: a program goes on where it was only by checkpoints on a volume.
    """
    goal = "suspended" if wait and not dry_run else ""
    each(client, clusters, client.suspend, "suspended", output, dry_run=dry_run, goal=goal, timeout=timeout)
