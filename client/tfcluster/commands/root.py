"""The command ``tfcluster``: which commands there are, and how an error reaches the user."""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

import tfcluster_resolver
from tfcluster import colours, exit_codes
from tfcluster.errors import TFClusterError

#: The commands in the order in which one meets them; each is the ``command`` of the module of that name.
COMMANDS: Final = {
    "Look": ("status", "logs", "matrix", "wait", "events", "doctor", "report"),
    "Make": ("create", "convert", "render", "diff", "apply"),
    "Change": ("scale", "suspend", "resume", "restart", "delete"),
    "Work with": ("session", "local", "completion"),
}


#: What a full or broken disk under the output says.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Root(click.Group):
    """The commands, each imported when it is asked for: ``tfcluster --help`` must not take a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [name for names in COMMANDS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"tfcluster.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, names in COMMANDS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name.ljust(width), one.get_short_help_str(100)) for name, one in found if one is not None]
            with formatter.section(title):
                formatter.write_dl(rows)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell an error in words, and end with its exit code."""
    try:
        yield
    except TFClusterError as error:
        # NB: it quotes the API server, and so whoever wrote an object there: it must not steer the terminal.
        from tfcluster.standing import printable

        click.secho(printable(f"Error: {error}"), err=True, fg="red" if colours.wanted(sys.stderr) else None)
        if error.hint:
            click.echo(printable(error.hint), err=True)
        raise click.exceptions.Exit(error.exit_code) from error
    except BrokenPipeError as error:
        # NB: what is piped into `head` must not end in a traceback; Python would complain at its exit again.
        sys.stdout = None
        raise click.exceptions.Exit(exit_codes.OK) from error
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        sys.stdout = None  # NB: what is still to be written would fail again at the exit
        click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
        raise click.exceptions.Exit(exit_codes.FAILED) from error
    except KeyboardInterrupt as error:
        raise click.exceptions.Exit(exit_codes.INTERRUPTED) from error


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(tfcluster_resolver.__version__, prog_name="tfcluster")
def root() -> None:
    """TensorFlow clusters on Kubernetes, and on this machine.

    Start with `tfcluster local run -f FILE` on this machine, or `tfcluster status` where an operator is installed.
    """
