"""The commands that change TFClusters: ``scale``, ``suspend``, ``resume``, ``restart`` and ``delete``."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from tfcluster.changes import deletion
from tfcluster.client import Client
from tfcluster.commands.options import ClusterName, Format, TaskName, examples, place, seconds
from tfcluster.commands.options import output as output_option
from tfcluster.commands.output import data, say

_Function = TypeVar("_Function", bound=Callable[..., Any])


#: The command gets ``dry_run``, and ``timeout`` in seconds, 0 for no limit.
dry = click.option("--dry-run", is_flag=True, help="Change nothing; print what would happen.")
patience = click.option(
    "--timeout", type=seconds, default="10m", show_default=True, help="The longest time to wait; 0 waits forever."
)


def waiting(words: str) -> None:
    say(f"waiting: {words}")


def done(words: str, body: Any, kind: Format, *, dry_run: bool) -> None:
    """Print what was done, or the object after it."""
    if kind == "table":
        click.echo(f"{words} (dry run: nothing was changed)" if dry_run else words)
    else:
        data(body, kind)


def _each(
    clusters: Sequence[str],
    change: Callable[..., Any],
    past: str,
    *,
    client: Client,
    wait: str,
    timeout: float,
    dry_run: bool,
    output: Format,
) -> None:
    """Change several TFClusters, and wait for them."""
    for name in clusters:
        tell = partial(_say, f"{name}: " if len(clusters) > 1 else "")
        was = client.get(name)
        body = change(name, dry_run=dry_run, tell=tell)
        done(f"{name} {past if body['spec'] != was['spec'] else 'unchanged'}", body, output, dry_run=dry_run)
    for name in clusters if wait and not dry_run else ():
        client.wait(name, wait, timeout=timeout or None, tell=partial(_say, f"waiting: {name}: "))


def _say(before: str, words: str) -> None:
    say(before + words)


_clusters = click.argument("clusters", type=ClusterName(), metavar="NAME...", nargs=-1, required=True)


def _options(wait: str) -> Callable[[_Function], _Function]:
    """Add the common options of these commands; ``wait`` is the help of ``--wait``."""

    def add(function: _Function) -> _Function:
        shown = place(output_option("table", "json", "yaml")(function))
        return click.option("--wait", is_flag=True, help=wait)(patience(dry(shown)))

    return add


@click.command()
@click.argument("name", type=ClusterName())
@click.argument("replicas", type=click.IntRange(min=0), metavar="N")
@click.option("--job", default="worker", show_default=True, help="The job to scale.")
@_options("Wait until all tasks are ready and know each other.")
@examples("""
    $ tfcluster scale digits 4
    $ tfcluster scale digits --job ps 2 --wait
    $ tfcluster scale digits 1 --dry-run          # which tasks would go?
""")
def scale_command(
    *, client: Client, name: str, replicas: int, job: str, wait: bool, timeout: float, dry_run: bool, output: Format
) -> None:
    """Set the number of tasks of a job.

    Running tasks get the new view and keep running; the tasks with the highest indices are deleted. The command first
    prints what will happen.
    """
    body = client.scale(name, replicas, job=job, dry_run=dry_run, tell=say)
    done(f"{name} scaled", body, output, dry_run=dry_run)
    if wait and not dry_run:
        client.wait(name, "resized", timeout=timeout or None, tell=waiting)


@click.command()
@_clusters
@_options("Wait until the pods are deleted.")
@examples("""
    $ tfcluster suspend digits
    $ tfcluster suspend digits --wait --timeout 5m
""")
def suspend_command(*, client: Client, clusters: tuple[str, ...], wait: bool, **options: Any) -> None:
    """Delete the pods of TFClusters and keep everything else.

    A suspended cluster keeps its name, Service, views and volumes, and does not use CPU, memory or GPUs. `tfcluster
    resume` starts it from the beginning: a program continues only from its own checkpoints on a volume.
    """
    _each(clusters, client.suspend, "suspended", client=client, wait="suspended" if wait else "", **options)


@click.command()
@_clusters
@_options("Wait until it is ready.")
@examples("""
    $ tfcluster resume digits
    $ tfcluster resume digits --wait --timeout 5m
""")
def resume_command(*, client: Client, clusters: tuple[str, ...], wait: bool, **options: Any) -> None:
    """Restart suspended TFClusters from the beginning.

    Every task runs again, also the completed ones; restarts and the deadline count from zero. A program continues only
    from its own checkpoints on a volume.
    """
    _each(clusters, client.resume, "resumed", client=client, wait="ready" if wait else "", **options)


@click.command()
@click.argument("name", type=ClusterName())
@click.argument("tasks", nargs=-1, type=TaskName(jobs=True), metavar="[JOB[-INDEX]]...")
@_options("Wait until every pod is new and ready.")
@examples("""
    $ tfcluster restart digits worker-0
    $ tfcluster restart digits worker --wait
    $ tfcluster restart digits --dry-run
""")
def restart_command(
    *, client: Client, name: str, tasks: tuple[str, ...], wait: bool, timeout: float, dry_run: bool, output: Format
) -> None:
    """Restart one task (JOB-INDEX), a job (JOB), or every job.

    The pod of a task is deleted and replaced at the same address; this counts as a replacement, not as a failure. The
    tasks of a job restart together, or one after the other if its updateStrategy is RollingUpdate. Tasks that ended
    with exit code 0 do not run again.
    """
    body = client.restart(name, tasks, wait=wait, timeout=timeout or None, dry_run=dry_run, tell=say)
    done(f"{name} restarted", body, output, dry_run=dry_run)


@click.command()
@_clusters
@click.option("--wait", is_flag=True, help="Wait until it and its pods are deleted.")
@click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
@patience
@dry
@place
@examples("""
    $ tfcluster delete digits --dry-run
    $ tfcluster delete digits --yes --wait
""")
def delete_command(
    *, client: Client, clusters: tuple[str, ...], wait: bool, yes: bool, timeout: float, dry_run: bool
) -> None:
    """Delete TFClusters with everything that they own.

    This deletes their pods with their logs, their Service and their views. Volumes, ConfigMaps and Secrets that you
    created are kept. On a terminal the command asks for confirmation.
    """
    found = [client.get(name) for name in dict.fromkeys(clusters)]
    for body in found:
        say(deletion(body))
    if sys.stdin.isatty() and not (yes or dry_run):
        click.confirm("Delete?", abort=True, err=True)
    for body in found:
        about = body["metadata"]
        client.delete(
            about["name"], uid=about["uid"], wait=wait, timeout=timeout or None, dry_run=dry_run, tell=waiting
        )
        click.echo(f"{about['name']} deleted" + (" (dry run: nothing was changed)" if dry_run else ""))
