"""``tfcluster create`` and ``apply``: manifests from a few options, and TFClusters from manifests."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster.apply import Applied, Applying
from tfcluster.client import Client
from tfcluster.commands import options
from tfcluster.commands.change import done, dry, patience, waiting
from tfcluster.commands.options import Format
from tfcluster.commands.output import data, say
from tfcluster.errors import ManifestError
from tfcluster.kube.api import CONFIG_MAPS, TFCLUSTERS
from tfcluster.wait import GOALS

if TYPE_CHECKING:
    from tfcluster.manifest.recipes import Program

_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
#: A valid key of a ConfigMap.
_FILE: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def _read_variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"write NAME=VALUE, not {value}", ctx, param)
        found[name] = text
    return found


def _read_mounts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for value in values:
        claim, _, rest = value.partition(":")
        path, colon, how = rest.partition(":")
        if not claim or not PurePosixPath(path).is_absolute() or (colon and how != "ro"):
            raise click.BadParameter(f"write CLAIM:/PATH or CLAIM:/PATH:ro, not {value}", ctx, param)
        source = {"claimName": claim, **({"readOnly": True} if how == "ro" else {})}
        found.append((path, {"persistentVolumeClaim": source}))
    return found


def _read_program(ctx: click.Context, param: click.Parameter, value: Path | None) -> Program | None:
    from tfcluster.manifest.recipes import Program

    if value is None:
        return None
    if not _FILE.fullmatch(value.name):
        raise click.BadParameter("name the file with letters, digits and -_. alone", ctx, param)
    try:
        return Program(value.name, value.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{value} is not UTF-8 text", ctx, param) from error
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}", ctx, param) from error


@click.command()
@click.argument("name")
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, help="The image of all tasks.")
@click.option("--workers", type=click.IntRange(0), default=1, show_default=True, help="The number of workers.")
@click.option("--max-workers", type=click.IntRange(1), help="The largest number of workers.  [default: --workers]")
@click.option("--ps", type=click.IntRange(0), default=0, show_default=True, help="The number of parameter servers.")
@click.option(
    "--script",
    "program",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_read_program,
    help="A program, delivered in a ConfigMap; what follows -- are its arguments.",
)
@click.option("--gpus", type=click.IntRange(0), default=0, help="The number of GPUs of each task that computes.")
@click.option("--gpu-resource", default="nvidia.com/gpu", show_default=True, help="The name of the GPU resource.")
@click.option("--cpu", default="500m", show_default=True, help="The CPU request of each task.")
@click.option("--memory", default="2Gi", show_default=True, help="The memory of each task.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", callback=_read_variables, help="A variable of each task.")
@click.option(
    "--data",
    "--pvc",
    "mounts",
    multiple=True,
    metavar="CLAIM:/PATH[:ro]",
    callback=_read_mounts,
    help="A PersistentVolumeClaim that each task mounts.",
)
@click.option("--apply", is_flag=True, help="Create it instead of printing it.")
@options.place_if_needed
@options.output("yaml", "json")
@options.examples("""
    $ tfcluster create letters --ps 1 --workers 2 --image registry.example.test/train:1 --script train.py
    $ tfcluster create letters --workers 4 --gpus 1 --image registry.example.test/train:1 -- python3 /opt/train.py
    $ tfcluster create letters --ps 1 --image registry.example.test/train:1 --script train.py --apply -- --epochs 5
""")
def create_command(
    *,
    connect: Callable[[], Client],
    namespace: str | None,
    name: str,
    command_line: tuple[str, ...],
    output: str,
    apply: bool,
    **wishes: Any,
) -> None:
    """Generate a manifest from a few options.

    With --ps a chief runs the program and drives workers and parameter servers. Without it, every worker runs the
    program, and all of them train as equals.
    """
    from tfcluster.manifest.files import Manifest
    from tfcluster.manifest.recipes import Recipe, config_map_of, manifest_of
    from tfcluster.manifest.validate import declare
    from tfcluster.manifest.yaml import write

    recipe = Recipe(name=name, namespace=namespace, command=command_line, **wishes)
    manifest = manifest_of(recipe)
    declare(Manifest(manifest, "the command line", 0), namespace or "default")
    program = config_map_of(recipe)
    if apply:
        with connect() as client:
            owner = client.api.create(TFCLUSTERS, manifest, namespace)
            # The ConfigMap needs the UID of the cluster that owns it, so it is created second; the pods wait for it.
            if (owned := config_map_of(recipe, owner)) is not None:
                client.api.apply(CONFIG_MAPS, owned, namespace)
        say(f"{name} is created. Follow it: tfcluster status {name} --watch, tfcluster logs {name} -f")
        return
    if output == "json":
        both = {"apiVersion": "v1", "kind": "List", "items": [program, manifest]}
        data(manifest if program is None else both, "json")
        return
    click.echo(_HEAD.format(name=name) + write(manifest, width=1 << 20), nl=False)
    if program is not None:
        click.echo("---\n" + _OF_THE_PROGRAM + write(program, width=1 << 20), nl=False)


_HEAD: Final = """\
#   kubectl apply -f FILE
#   tfcluster status {name}
#   tfcluster logs {name} -f
# Checkpoints survive a pod only on a volume: --data CLAIM:/checkpoints.
"""
_OF_THE_PROGRAM: Final = """\
# The program. Another one gets another name, so that an edit reaches the pods.
# It stays when the cluster is deleted; with `tfcluster create --apply` it is deleted with the cluster.
"""


@click.command()
@options.files
@click.option("--force-conflicts", is_flag=True, help="Take over fields that another manager has set.")
@click.option(
    "--wait",
    "goal",
    type=click.Choice(GOALS),
    metavar="GOAL",
    help="Then wait for GOAL, such as ready; see `tfcluster wait`.",
)
@patience
@dry
@options.place
@options.output("table", "json", "yaml")
@options.examples("""
    $ tfcluster apply -f digits.yaml
    $ tfcluster apply -f digits.yaml --wait ready
    $ tfcluster apply -f digits.yaml --dry-run
""")
def apply_command(
    *,
    client: Client,
    files: tuple[str, ...],
    force_conflicts: bool,
    goal: str | None,
    timeout: float,
    dry_run: bool,
    output: Format,
) -> None:
    """Create or update TFClusters from files.

    Other objects in the files, such as ConfigMaps and volumes, are applied first. This is server-side apply: fields
    that the file does not name are not changed. `tfcluster diff` shows what an edit would do to pods.
    """
    from tfcluster.local.manifest import playable
    from tfcluster.local.session import is_of_a_run
    from tfcluster.manifest.files import read
    from tfcluster.preview.diff import edit_of

    found = read(files)
    if not (found.others or found.clusters):
        raise ManifestError("nothing to apply: the input is empty", hint="Name another file with -f.")
    if is_of_a_run(client.api.source):
        found = playable(found, say)
        for manifest in found.clusters:
            # The control plane of a local run does not evaluate the CRD's rules; this call does.
            edit_of(client.api, manifest)
    _check_namespaces((*found.others, *found.clusters))
    applied: list[Applied] = []
    for one in Applying(client.api, force=force_conflicts, dry_run=dry_run).apply(found):
        applied.append(one)
        if output == "table":
            done(str(one), one.body, output, dry_run=dry_run)
    if output != "table":
        bodies = [one.body for one in applied]
        data(bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": bodies}, output)
    for one in applied if goal is not None and not dry_run else ():
        if one.resource == TFCLUSTERS:
            about = one.body["metadata"]
            client.wait(about["name"], str(goal), namespace=about["namespace"], timeout=timeout or None, tell=waiting)


def _check_namespaces(manifests: Any) -> None:
    """Reject files whose namespace differs from that of the command line."""
    asked = click.get_current_context().params.get("namespace")
    others = [f"{one.place()}: namespace {one.namespace}" for one in manifests if one.namespace not in {None, asked}]
    if asked and others:
        raise ManifestError(f"-n says {asked}, and the files say something else:", others)
