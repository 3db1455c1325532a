"""``tfcluster create``: a sound manifest from a few options, printed or applied."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import click

from tfcluster.commands import options
from tfcluster.commands.output import data, say
from tfcluster.errors import ConflictError, ManifestError

if TYPE_CHECKING:
    from tfcluster.client import Client
    from tfcluster.recipes import Mount, Program, Recipe

_VARIABLE: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
#: What a key of a ConfigMap may be.
_FILE: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def _read_variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise click.BadParameter(f"write NAME=VALUE, not {value}", ctx, param)
        found[name] = text
    return found


def _read_mounts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Mount]:
    from tfcluster.recipes import Mount

    found = []
    for value in values:
        claim, _, rest = value.partition(":")
        path, colon, how = rest.partition(":")
        if not claim or not PurePosixPath(path).is_absolute() or (colon and how != "ro"):
            raise click.BadParameter(f"write CLAIM:/PATH or CLAIM:/PATH:ro, not {value}", ctx, param)
        found.append(Mount(claim, path, read_only=how == "ro"))
    return found


def _read_program(ctx: click.Context, param: click.Parameter, value: Path | None) -> Program | None:
    from tfcluster.recipes import Program

    if value is None:
        return None
    if not _FILE.fullmatch(value.name):
        raise click.BadParameter("name the file with letters, digits and -_. alone", ctx, param)
    try:
        return Program(value.name, value.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{value} is no text in UTF-8", ctx, param) from error
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}", ctx, param) from error


@click.command()
@click.argument("name")
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--image", required=True, help="The image of every task.")
@click.option("--workers", type=click.IntRange(0), default=1, show_default=True, help="How many workers.")
@click.option("--max-workers", type=click.IntRange(1), help="To how many they may grow.  [default: no more]")
@click.option("--ps", type=click.IntRange(0), default=0, show_default=True, help="How many parameter servers.")
@click.option("--chief/--no-chief", default=None, help="Whether there is a chief.  [default: with --ps]")
@click.option("--evaluator", is_flag=True, help="Add an evaluator, which runs the same program.")
@click.option(
    "--script",
    "program",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_read_program,
    help="A program, delivered in a ConfigMap; what comes after -- are its arguments.",
)
@click.option("--gpus", type=click.IntRange(0), default=0, help="How many GPUs each task that computes gets.")
@click.option("--gpu-resource", default="nvidia.com/gpu", show_default=True, help="What a GPU is called.")
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
@click.option("--isolation", is_flag=True, help="Let nobody but tasks reach tasks.")
@click.option("--port", type=click.IntRange(1, 65_535), help="The port of the tasks.  [default: 2222]")
@click.option(
    "--restart-policy",
    type=click.Choice(["OnFailure", "ExitCode", "Never"]),
    help="What the end of the program means.  [default: OnFailure]",
)
@click.option("--apply", is_flag=True, help="Create it instead of printing it.")
@options.place_if_needed
@options.output("yaml", "json")
@options.examples("""
    $ tfcluster create letters --ps 1 --workers 2 --image registry.example.test/train:1 --script train.py
    $ tfcluster create letters --workers 4 --gpus 1 --image registry.example.test/train:1 -- python3 /opt/train.py
    $ tfcluster create letters --ps 1 --image registry.example.test/train:1 --script train.py --apply -- --epochs 5
""")
def command(
    *,
    connect: Callable[[], Client],
    namespace: str | None,
    name: str,
    command_line: tuple[str, ...],
    output: str,
    apply: bool,
    **wishes: Any,
) -> None:
    """Print a sound manifest from a few options, to edit or to apply.

    With --ps a chief runs the program and drives workers and parameter servers. Without, every worker runs it, and all
    of them train as equals.
    """
    from tfcluster.declared import declare
    from tfcluster.manifest_files import Manifest
    from tfcluster.recipes import Recipe, config_map_of, manifest_of

    recipe = Recipe(name=name, namespace=namespace, command=command_line, **wishes)
    manifest, comments = manifest_of(recipe)
    declare(Manifest(manifest, "the command line", 0), namespace or "default")
    program = config_map_of(recipe)
    if apply:
        with connect() as client:
            _create(client, recipe, manifest)
        return
    if output == "json":
        objects = [*([program] if program else ()), manifest]
        data(manifest if program is None else {"apiVersion": "v1", "kind": "List", "items": objects}, "json")
        return
    click.echo(_as_text(recipe, manifest, comments, program), nl=False)


_HEAD: Final = """\
  kubectl apply -f FILE
  tfcluster status {name}
  tfcluster logs {name} -f
"""
_OF_THE_PROGRAM: Final = """\
The program. Another one gets another name, so that an edit reaches the pods.
It stays when the cluster is deleted; `tfcluster create --apply` lets it go with the cluster.
"""


def _as_text(recipe: Recipe, manifest: Any, comments: Any, program: Any) -> str:
    from tfcluster.manifest_writing import write_yaml

    of_the_cluster = write_yaml(manifest, comments, head=_HEAD.format(name=recipe.name))
    if program is None:
        return of_the_cluster
    return of_the_cluster + "---\n" + write_yaml(program, {}, head=_OF_THE_PROGRAM)


def _create(client: Client, recipe: Recipe, manifest: Any) -> None:
    from tfcluster.kubernetes_api import CONFIG_MAPS, TFCLUSTERS
    from tfcluster.recipes import config_map_of

    created = True
    try:
        owner = client.api.create(TFCLUSTERS, manifest, recipe.namespace)
    except ConflictError:
        owner = _same(client, recipe, manifest)
        created = False
    # NB: the ConfigMap is owned by the cluster, whose UID it needs; the pods wait for it.
    program = config_map_of(recipe, owner)
    if program is not None:
        try:
            client.api.create(CONFIG_MAPS, program, recipe.namespace)
        except ConflictError:
            known = client.api.get(CONFIG_MAPS, program["metadata"]["name"], recipe.namespace)
            if known.get("data") != program["data"]:
                raise
    say(f"{recipe.name} is created." if created else f"{recipe.name} was there already, and is the same.")
    say(f"Follow it: tfcluster status {recipe.name} --watch, tfcluster logs {recipe.name} -f")


def _same(client: Client, recipe: Recipe, manifest: Any) -> Any:
    """Give the TFCluster of that name where it is what is wanted: a second try finishes what the first began."""
    from tfcluster.edits import edit_of
    from tfcluster.manifest_files import Manifest

    if edit_of(client.api, Manifest(manifest, "the command line", 0)).differs:
        raise ManifestError(
            f"there is a TFCluster {recipe.name} already, and it is another one",
            hint="Choose another name, or print the manifest, compare it (tfcluster diff -f FILE) and apply it.",
        )
    return client.get(recipe.name, recipe.namespace)
