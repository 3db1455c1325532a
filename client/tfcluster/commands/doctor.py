"""``tfcluster doctor`` and ``report``: what is wrong, and one file for a bug report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfcluster.client import Client
from tfcluster.commands import output as printing
from tfcluster.commands.options import ClusterName, Format, examples, output, place
from tfcluster.commands.output import say
from tfcluster.errors import ExitCode

if TYPE_CHECKING:
    from tfcluster.doctor.checks import Check

_STYLES = {"ok": "good", "warning": "waiting", "failed": "bad", "unknown": "off", "skipped": "off"}


@click.command()
@click.argument("name", required=False, type=ClusterName())
@place
@click.option("--no-exec", is_flag=True, help="Do not run anything in the tasks.")
@output("table", "json", "yaml")
@examples("""
    $ tfcluster doctor
    $ tfcluster doctor digits
    tfcluster doctor digits -o json | jq -r .toDo[0]
""")
def doctor_command(*, client: Client, name: str | None, no_exec: bool, output: Format) -> None:
    """Find problems of the installation or a cluster, and what to do.

    Without NAME it checks the API server, the CRD, the operator, its leader and namespaces, and your permissions. With
    NAME it also checks the cluster: its conditions, images, scheduling, devices, quotas, the objects that its templates
    name, its Service and NetworkPolicies; and it runs the resolver's doctor in up to eight of its tasks.

    It does not change anything or read Secrets. A check that you do not have permission for is "unknown", not failed.

    The exit code is 0, and 1 if a check has failed.
    """
    from tfcluster.doctor.checks import document_of, what_to_do, worst
    from tfcluster.doctor.diagnosis import diagnose

    parameters = click.get_current_context().params
    local = bool(parameters.get("local") or parameters.get("session"))
    checks: list[Check] = []
    found = diagnose(client.api, name, local=local, inside=not no_exec, say=printing.say)
    if output == "table":
        for check in found:
            checks.append(check)
            _print(check)
        _advise(what_to_do(checks))
    else:
        checks = list(found)
        printing.data(document_of(checks), output)
    if worst(checks) == "failed":
        click.get_current_context().exit(ExitCode.FAILED)


def _print(check: Check) -> None:
    from rich.text import Text

    from tfcluster.status.text import Paper, wrap

    console = printing.console()
    paper = Paper(console.width if printing.is_terminal() else None)
    first, *more = wrap(Text(f"{check.name}: {check.message}"), paper, " " * 10)
    first = Text.assemble((f"{check.verdict:10}", printing.STYLES[_STYLES[check.verdict]]), first[10:])
    for line in (first, *more):
        console.print(line)


def _advise(remedies: Sequence[str]) -> None:
    if not remedies:
        return
    console = printing.console()
    console.print()
    console.print(printing.styled("What to do:", "name"))
    for number, remedy in enumerate(remedies, 1):
        console.print(f"  {number}. {remedy}")


@click.command()
@click.argument("name", type=ClusterName())
@place
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    help="The file, or - for stdout.  [default: tfcluster-report-NAME-TIME.tar.gz]",
)
@click.option("--no-logs", is_flag=True, help="Leave out the logs.")
@examples("""
    $ tfcluster report digits --output-file digits.tar.gz
    $ tfcluster report digits --no-logs --output-file -
    tar -xzOf digits.tar.gz --wildcards '*/doctor.txt'
""")
def report_command(*, client: Client, name: str, output_file: str | None, no_logs: bool) -> None:
    """Write a tar.gz file for a bug report.

    It contains the output of status and doctor, the TFCluster with its objects and events, the ends of the logs of its
    tasks and of the operator, the operator's metrics, and versions. Its README.txt lists what is included and left out.

    Values of environment variables are left out, and Secrets are not read. In commands, messages and logs, text that
    looks like a password or a token is replaced. Review the file before you share it.
    """
    from tfcluster.report import Report, pack

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
    say(f"Wrote {path}: {len(files)} files, {max(1, len(packed) // 1024)} KiB. Review it before you share it.")


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
