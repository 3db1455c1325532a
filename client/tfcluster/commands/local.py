"""``tfcluster local``: a manifest's tasks as processes of this machine."""

import os
import re
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from tfcluster.commands.options import Format, examples, output, seconds
from tfcluster.commands.output import data, say
from tfcluster.errors import TFClusterError


@click.group()
@examples("$ tfcluster local run -f digits.yaml --timeout 10m")
def local_command() -> None:
    """Run a TFCluster on this machine, without Kubernetes."""


@local_command.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="The manifest; - is standard input."
)
@click.option(
    "--python",
    metavar="PATH",
    callback=lambda _ctx, _param, value: _interpreter(value),
    help="The interpreter for the tasks.  [default: the one that runs tfcluster]",
)
@click.option(
    "--map", "mapped", multiple=True, metavar="IMAGEPATH=PATH", help="Use a local path for a path in the image."
)
@click.option(
    "--entrypoint",
    "entry_points",
    multiple=True,
    metavar="[CONTAINER=]COMMAND",
    help="The command of containers that rely on their image's entry point.",
)
@click.option(
    "--timeout", type=seconds, metavar="TIME", help="Stop after this time, with exit code 124; 0 means never."
)
@click.option("--name", help="The name of the run, for --session of other commands.  [default: the TFCluster's]")
@click.option("-q", "--quiet", is_flag=True, help="Do not print the tasks' logs.")
@examples("""
    $ tfcluster local run -f digits.yaml --map /opt/examples=.
    $ tfcluster local run -f digits.yaml --timeout 5m
""")
def run_command(
    *, files: tuple[str, ...], mapped: tuple[str, ...], entry_points: tuple[str, ...], name: str | None, **chosen: Any
) -> None:
    """Run each task of a manifest as a local process, until the cluster completes or you press Ctrl-C.

    The operator's own engine runs in this process, so restarts, resizes and verdicts are those of Kubernetes; the other
    commands work on it with --local.  The exit code is 0 if it succeeded, 1 if it failed, 124 after --timeout,
    130 after Ctrl-C.
    """
    from tfcluster.local import manifest
    from tfcluster.local.environment import PathMapping
    from tfcluster.local.run import Options, run

    paths = [PathMapping(*_mapping(one)) for one in mapped]
    programs = dict(map(_entry_point, entry_points))
    objects = manifest.load(files, say)
    manifest.check_programs(objects, programs)
    name = _name(name or manifest.clusters_of(objects)[0]["metadata"]["name"])
    sys.exit(run(Options(objects=objects, name=name, mapped=paths, entry_points=programs, **chosen)))


@local_command.command("list")
@output("table", "json", "yaml")
@examples("$ tfcluster local list")
def list_command(*, output: Format) -> None:
    """List the runs on this machine, and the volumes that earlier runs left."""
    from tfcluster.local import session

    found: list[dict[str, Any]] = []
    for own in session.known():
        about = {"name": own.name, "running": own.runs, **own.about(), "folder": str(own.folder)}
        if about["running"] or own.claims:
            found.append({**about, "volumes": list(map(str, own.claims))})
    if output != "table":
        data(found, output)
        return
    if not any(one["running"] for one in found):
        say("nothing is running; start a run with `tfcluster local run -f FILE`")
    for one in found:
        if one["running"]:
            age = time.time() - one.get("began", time.time())
            clusters = ", ".join(one.get("clusters", ()))
            click.echo(f"{one['name']}: {clusters}; process {one.get('pid', '?')}, for {age:.0f} s; {one['folder']}")
        else:
            click.echo(f"{one['name']}: not running; volumes in {', '.join(one['volumes'])}")


@local_command.command()
@click.argument("name")
@examples("$ tfcluster local delete digits")
def delete_command(*, name: str) -> None:
    """Delete the volumes that a run left on this machine."""
    from tfcluster.local import session

    session.delete(_name(name))
    say(f"deleted the volumes of {name}")


@local_command.command()
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@click.option("--session", metavar="NAME", help="Which `tfcluster local run`, if several run.")
@examples("$ tfcluster local kill worker-1")
def kill_command(*, tasks: tuple[str, ...], session: str | None) -> None:
    """Kill the processes of tasks with SIGKILL, to see how the cluster recovers.

    A TASK is named worker-1 or worker/1, or by its pod.
    """
    from tfcluster.kube.api import PODS, KubernetesApi
    from tfcluster.local.session import kubeconfig_of

    api = KubernetesApi.connect(kubeconfig=str(kubeconfig_of(session)))
    pods = list(api.list(PODS, ""))
    found = {task: list(_processes(pods, task)) for task in tasks}
    if missing := ", ".join(task for task, processes in found.items() if not processes):
        raise TFClusterError(f"no process of {missing} runs here", hint="See what runs: tfcluster status --local")
    for task, processes in found.items():
        for pod, pid in processes:
            os.kill(pid, signal.SIGKILL)
            say(f"killed {task}: process {pid} of pod {pod}")


def _processes(pods: list[dict[str, Any]], task: str) -> Any:
    """Return the pod and the process ID of each main process of a task."""
    from tfcluster.tasks import read, task_of

    for pod in pods:
        own = task_of(pod)
        if task == pod["metadata"]["name"] or (own is not None and read(task, [own.job]) == own):
            for status in pod.get("status", {}).get("containerStatuses") or ():
                if "running" in status["state"]:
                    yield pod["metadata"]["name"], int(status["containerID"].removeprefix("process://"))


def _name(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
        words = f"{name} is not a valid name: use lowercase letters, digits and hyphens"
        raise click.BadParameter(words, param_hint="--name")
    return name


def _mapping(text: str) -> tuple[str, Path]:
    there, equals, here = text.partition("=")
    if not (equals and there.startswith("/") and here):
        raise click.BadParameter(f"{text} is not IMAGEPATH=PATH, such as /opt/examples=examples", param_hint="--map")
    path = Path(here).expanduser().resolve()
    if not path.exists():
        raise click.BadParameter(f"no such file or folder: {here}", param_hint="--map")
    return there, path


def _entry_point(text: str) -> tuple[str, list[str]]:
    container, equals, words = text.partition("=")
    # A command can contain an equals sign; the name of a container cannot contain a space or a slash.
    named = bool(equals) and not set(container) & set(" /")
    try:
        command = shlex.split(words if named else text)
    except ValueError as error:
        raise click.BadParameter(f"{text}: {error}", param_hint="--entrypoint") from error
    if not command:
        raise click.BadParameter(f"{text} names no program", param_hint="--entrypoint")
    return (container if named else ""), command


def _interpreter(named: str | None) -> Path:
    found = shutil.which(Path(named).expanduser()) if named else sys.executable
    if not found:
        raise click.BadParameter(f"{named} is not an executable program", param_hint="--python")
    # Symbolic links are not resolved: Python finds its virtual environment through them.
    return Path(found).absolute()
