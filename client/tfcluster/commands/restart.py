"""``tfcluster restart``: tasks, jobs or a whole TFCluster start again."""

from __future__ import annotations

import click

from tfcluster.client import Client
from tfcluster.commands import names
from tfcluster.commands.changing import done, dry, patience
from tfcluster.commands.options import Format, examples, output, place
from tfcluster.commands.output import say


@click.command()
@click.argument("name", type=names.ClusterName())
@click.argument("tasks", nargs=-1, type=names.TaskName(jobs=True), metavar="[JOB[-INDEX]]...")
@click.option("--wait", is_flag=True, help="Come back when every pod is new and ready.")
@patience
@dry
@place
@output("table", "json", "yaml")
@examples("""
    $ tfcluster restart digits worker-0
    $ tfcluster restart digits worker --wait
    $ tfcluster restart digits --dry-run
""")
def command(
    *,
    client: Client,
    name: str,
    tasks: tuple[str, ...],
    wait: bool,
    timeout: float,
    dry_run: bool,
    output: Format,
) -> None:
    """Start tasks again: JOB-INDEX for one, JOB for a whole job, nothing for every job.

    The pod of a task is deleted and replaced at its address; it counts as replaced, not as failed. For a job the
    template is marked as by `kubectl rollout restart`, so that updateStrategy decides how its pods are replaced. Tasks
    that ended with exit code 0 do not run again.
    """
    body = client.restart(name, tasks, wait=wait, timeout=timeout or None, dry_run=dry_run, tell=say)
    done(f"{name} restarted", body, output, dry_run=dry_run)
