"""``tfcluster apply``: what files declare becomes what is."""

from __future__ import annotations

from typing import Any

import click

from tfcluster.applying import Applying
from tfcluster.client import Client
from tfcluster.commands import options
from tfcluster.commands.changing import dry, patience, waiting
from tfcluster.commands.options import Format
from tfcluster.errors import ManifestError
from tfcluster.kubernetes_api import TFCLUSTERS


@click.command()
@options.files
@click.option("--force-conflicts", is_flag=True, help="Take over fields that somebody else set to something else.")
@click.option("--wait", "goal", metavar="GOAL", help="Then wait for GOAL, such as ready; see `tfcluster wait`.")
@patience
@dry
@options.place
@options.output("table", "json", "yaml")
@options.examples("""
    $ tfcluster apply -f digits.yaml
    $ tfcluster apply -f digits.yaml --wait ready
    $ tfcluster apply -f digits.yaml --dry-run
""")
def command(
    *,
    client: Client,
    files: tuple[str, ...],
    force_conflicts: bool,
    goal: str | None,
    timeout: float,
    dry_run: bool,
    output: Format,
) -> None:
    """Create TFClusters, or change them into what files say.

    Other objects in the files, such as ConfigMaps and volumes, are applied, too, before the TFClusters. It is
    server-side apply: a field that the file does not name stays as it is. What an edit would do to pods, `tfcluster
    diff` tells.
    """
    from tfcluster import manifest_files
    from tfcluster.commands.output import data, say
    from tfcluster.edits import edit_of
    from tfcluster.goals import Goal
    from tfcluster.local.manifest import playable
    from tfcluster.local.session import is_of_a_run

    try:
        wanted = None if goal is None else Goal.of(goal)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--wait") from error
    found = manifest_files.read(files)
    if not (found.others or found.clusters):
        raise ManifestError("there is nothing to apply: the input is empty", hint="Name another file with -f.")
    if is_of_a_run(client.api.source):
        found = playable(found, say)
        for manifest in found.clusters:
            # NB: its API server has no rules of its own; this refuses as a real one does.
            edit_of(client.api, manifest)
    _check_namespaces((*found.others, *found.clusters))
    bodies: list[Any] = []
    waited: list[Any] = []
    for one in Applying(client.api, force=force_conflicts, dry_run=dry_run).apply(found):
        bodies.append(one.body)
        waited += [one.body["metadata"]] if one.resource == TFCLUSTERS and wanted is not None else []
        if output == "table":
            click.echo(f"{one} (dry run: nothing was changed)" if dry_run else str(one))
    if output != "table":
        data(bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": bodies}, output)
    for about in waited if not dry_run else ():
        client.wait(about["name"], str(wanted), namespace=about["namespace"], timeout=timeout or None, tell=waiting)


def _check_namespaces(manifests: Any) -> None:
    """Refuse files that name another namespace than the command line."""
    asked = click.get_current_context().params.get("namespace")
    others = [f"{one.place()}: namespace {one.namespace}" for one in manifests if one.namespace not in {None, asked}]
    if asked and others:
        raise ManifestError(f"-n says {asked}, and the files say something else:", others)
