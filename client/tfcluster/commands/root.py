"""The command ``tfcluster``: which commands there are, completion, and how an error reaches the user."""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

import tfcluster_resolver
from tfcluster.commands.options import examples, kubernetes
from tfcluster.errors import ExitCode, TFClusterError
from tfcluster.terminal import printable, wants_colour

#: The commands in a natural order of use, with their summaries: `tfcluster --help` does not import the commands.
COMMANDS: Final = {
    "Look": {
        "status": "Show a cluster with its tasks, or all clusters.",
        "logs": "Print the logs of tasks, many tasks in one stream.",
        "matrix": "Show which tasks see each other, by device filter and network policy.",
        "wait": "Wait until a TFCluster reaches a goal.",
        "events": "Print the events of a cluster and its pods, the oldest first.",
        "doctor": "Find problems of the installation or a cluster, and what to do.",
    },
    "Make": {
        "create": "Generate a manifest from a few options.",
        "convert": "Convert Kubeflow's TFJobs to TFClusters.",
        "validate": "Validate the TFClusters in files, without a Kubernetes cluster.",
        "render": "Print the objects that the operator would create, and the view of each task.",
        "diff": "Show what applying a manifest would change: fields and pods.",
        "apply": "Create or update TFClusters from files.",
    },
    "Change": {
        "scale": "Set the number of tasks of a job.",
        "suspend": "Delete the pods of TFClusters and keep everything else.",
        "resume": "Restart suspended TFClusters from the beginning.",
        "restart": "Restart one task (JOB-INDEX), a job (JOB), or every job.",
        "delete": "Delete TFClusters with everything that they own.",
    },
    "Work with": {
        "port-forward": "Forward local ports to tasks, until Ctrl-C.",
        "local": "Run a TFCluster on this machine, without Kubernetes.",
        "version": "Print the versions of the client and of the operator in the cluster.",
        "completion": "Print the shell completion script.",
    },
}
_MODULES: Final = {
    "status": ("status",),
    "logs": ("logs", "events", "wait"),
    "doctor": ("doctor", "version"),
    "make": ("create", "apply"),
    "preview": ("render", "validate", "diff", "matrix"),
    "convert": ("convert",),
    "change": ("scale", "suspend", "resume", "restart", "delete"),
    "port_forward": ("port-forward",),
    "local": ("local",),
    "root": ("completion",),
}


class _Root(click.Group):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = next(module for module, names in _MODULES.items() if cmd_name in names)
        module = importlib.import_module(f"tfcluster.commands.{name}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, summaries in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in summaries.items()])

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _told():
            found = super().make_context(*args, **kwargs)
        # Not in the group's callback, because completion does not call it.
        given = {name: value for name, value in found.params.items() if value is not None}
        found.default_map = dict.fromkeys(self.list_commands(found), given)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Print an error as a message, and exit with its exit code."""
    try:
        yield
    except TFClusterError as error:
        # The message quotes the API server, and so texts of other users: control characters are removed.
        click.secho(printable(f"Error: {error}"), err=True, fg="red" if wants_colour(sys.stderr) else None)
        if error.hint:
            click.echo(printable(error.hint), err=True)
        raise click.exceptions.Exit(error.exit_code) from error
    except BrokenPipeError as error:
        # A closed pipe, such as of `head`, must not end in a traceback; Python would fail again at its exit.
        sys.stdout = None
        raise click.exceptions.Exit(ExitCode.OK) from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from error


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(tfcluster_resolver.__version__, prog_name="tfcluster")
@kubernetes
def root(**_: str | None) -> None:
    """TensorFlow clusters on Kubernetes, and on this machine.

    Start with `tfcluster local run -f FILE` on this machine, or `tfcluster status` where an operator is installed.
    -n, --context and --kubeconfig can stand before or after the command.
    """


_SHELLS: Final = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


def candidates(words: Sequence[str]) -> tuple[list[str], bool]:
    *before, last = words or [""]
    completing = ShellComplete(root, {}, "tfcluster", "_TFCLUSTER_COMPLETE")
    found = completing.get_completions(list(before), last)
    return [one.value for one in found if one.type == "plain"], any(one.type in {"file", "dir"} for one in found)


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@examples("""
    $ tfcluster completion bash
    source <(tfcluster completion bash)      # in ~/.bashrc
""")
def completion_command(shell: str) -> None:
    """Print the shell completion script.

    kubectl completes the plug-in by itself where `kubectl_complete-tfcluster` is on the PATH.
    """
    click.echo(_SHELLS[shell](root, {}, "tfcluster", "_TFCLUSTER_COMPLETE").source())
