"""``tfcluster scale``: more or fewer tasks of a job."""

from __future__ import annotations

import click

from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands.changing import done, dry, patience, waiting
from tfcluster.commands.options import Format, examples, place
from tfcluster.commands.options import output as output_option
from tfcluster.commands.output import say


@click.command()
@click.argument("name", type=names.ClusterName())
@click.argument("replicas", type=click.IntRange(min=0), metavar="N")
@click.option("--job", default="worker", show_default=True, help="The job.")
@click.option("--wait", is_flag=True, help="Come back when every task is ready and knows the others.")
@patience
@dry
@place
@output_option("table", "json", "yaml")
@examples("""
    $ tfcluster scale digits 4
    $ tfcluster scale digits --job ps 2 --wait
    $ tfcluster scale digits 1 --dry-run          # which tasks would go?
""")
def command(
    *, client: Client, name: str, replicas: int, job: str, wait: bool, timeout: float, dry_run: bool, output: Format
) -> None:
    """Change how many tasks a job has: N of them.

    Tasks that stay are told of it and run on; the tasks with the highest indices go. What will happen is said first.
    """
    body = client.scale(name, replicas, job=job, dry_run=dry_run, tell=say)
    done(f"{name} scaled", body, output, dry_run=dry_run)
    if wait and not dry_run:
        client.wait(name, "resized", timeout=timeout or None, tell=waiting)
