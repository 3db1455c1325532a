"""``tfcluster local``: a manifest's tasks as processes of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tfcluster.commands.options import examples


@click.group()
def command() -> None:
    """Run a TFCluster on this machine, without Kubernetes."""


@command.command()
@click.option("-f", "--filename", "file", type=click.Path(path_type=Path), required=True, help="The manifest.")
@click.option(
    "--python", type=click.Path(path_type=Path), help="The interpreter for the tasks.  [default: the one of tfcluster]"
)
@click.option("--gpus", type=click.IntRange(0), help="How many GPUs to grant.  [default: those of this machine]")
@click.option(
    "--map", "maps", multiple=True, metavar="IMAGEPATH=PATH", help="A path here that stands for one in the image."
)
@click.option("--name", help="The name of the run, for --session.  [default: the TFCluster's]")
@click.option("--keep", is_flag=True, help="Keep logs and volumes.")
@click.option("-q", "--quiet", is_flag=True, help="Leave the tasks' logs out.")
@examples("$ tfcluster local run -f examples/parameter-server.yaml --map /opt/examples=examples")
def run(
    *,
    file: Path,
    python: Path | None,
    gpus: int | None,
    maps: tuple[str, ...],
    name: str | None,
    keep: bool,
    quiet: bool,
) -> None:
    """Play each task of a manifest by a process, until the cluster is over or you press Ctrl-C."""
    from tfcluster.local import devices, manifest
    from tfcluster.local.control_plane import definition
    from tfcluster.local.paths import Mapping
    from tfcluster.local.run import Options
    from tfcluster.local.run import run as run_it

    objects = manifest.load([file], definition().schema or {})
    clusters = [one for one in objects if one["kind"] == "TFCluster"]
    options = Options(
        objects=objects,
        name=name or clusters[0]["metadata"]["name"],
        python=Path(python or sys.executable).absolute(),
        gpus=devices.detect() if gpus is None else gpus,
        mapped=[Mapping(there, Path(here).resolve()) for there, _, here in (one.partition("=") for one in maps)],
        keep=keep,
        quiet=quiet,
    )
    sys.exit(run_it(options).code)
