"""``tfcluster delete``: a TFCluster goes, with everything that it owns."""

from __future__ import annotations

import sys

import click

from tfcluster.changes import deletion
from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands.changing import dry, patience, waiting
from tfcluster.commands.options import examples, place
from tfcluster.commands.output import say


@click.command()
@click.argument("clusters", type=names.ClusterName(), metavar="NAME...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Come back when it is gone, and its pods with it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@patience
@dry
@place
@examples("""
    $ tfcluster delete digits --dry-run
    $ tfcluster delete digits --yes --wait
""")
def command(*, client: Client, clusters: tuple[str, ...], wait: bool, yes: bool, timeout: float, dry_run: bool) -> None:
    """Delete TFClusters with everything that they own.

    Their pods go, with their logs, their Service and their views. What you created beside them stays: volumes,
    ConfigMaps, Secrets. On a terminal it asks first.
    """
    found = [client.get(name) for name in dict.fromkeys(clusters)]
    for body in found:
        for words in deletion(body):
            say(words)
    if sys.stdin.isatty() and not (yes or dry_run):
        click.confirm("Delete?", abort=True, err=True)
    for body in found:
        about = body["metadata"]
        client.delete(about["name"], uid=about["uid"], dry_run=dry_run, cascade="foreground" if wait else None)
        click.echo(f"{about['name']} deleted" + (" (dry run: nothing was changed)" if dry_run else ""))
    for body in found if wait and not dry_run else ():
        about = body["metadata"]
        client.wait(about["name"], "deleted", uid=about["uid"], timeout=timeout or None, tell=waiting)
