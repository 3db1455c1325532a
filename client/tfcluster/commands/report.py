"""``tfcluster report``: one file for a bug report."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from tfcluster.client import Client
from tfcluster.commands.names import ClusterName
from tfcluster.commands.options import examples, place
from tfcluster.commands.output import say


@click.command()
@click.argument("name", type=ClusterName())
@place
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    help="The file, or - for stdout.  [default: tfcluster-report-NAME-TIME.tar.gz]",
)
@click.option("--no-logs", is_flag=True, help="Leave out the logs: a program may have written anything there.")
@examples("""
    $ tfcluster report digits --output-file digits.tar.gz
    $ tfcluster report digits --no-logs --output-file -
    tar -xzOf digits.tar.gz --wildcards '*/doctor.txt'
""")
def command(*, client: Client, name: str, output_file: str | None, no_logs: bool) -> None:
    """Write one tar.gz for a bug report.

    It has what status and doctor say, the TFCluster and its objects and events, the ends of the logs of its tasks and
    of the operator, the operator's metrics, and versions. README.txt in it says what is there and what is left out.

    Values of environment variables are left out, and Secrets are not read. In commands, messages and logs, what looks
    like a password or a token is replaced. Look through it before you give it away.
    """
    from tfcluster.archive import pack
    from tfcluster.report import Report

    now = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    folder = f"tfcluster-report-{name}-{stamp}"
    parameters = click.get_current_context().params
    local = bool(parameters.get("local") or parameters.get("session"))
    report = Report(client, name, logs=not no_logs, local=local, say=lambda words: say(f"{words} …"), now=now)
    files = report.files()
    packed = pack(folder, files, time=int(now))
    if output_file == "-":
        sys.stdout.buffer.write(packed)
        return
    path = Path(output_file or f"{folder}.tar.gz")
    _write(path, packed)
    say(
        f"Wrote {path}: {len(files)} files, {max(1, len(packed) // 1024)} KiB. Look through it before you give it away."
    )


def _write(path: Path, packed: bytes) -> None:
    """Write the whole file or none; nobody else can read it."""
    partly = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(partly, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(packed)
        partly.replace(path)
    except OSError as error:
        partly.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
