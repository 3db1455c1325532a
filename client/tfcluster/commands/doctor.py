"""``tfcluster doctor``: what is wrong with the installation, or with a cluster, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tfcluster import exit_codes
from tfcluster.client import Client
from tfcluster.commands import output as printing
from tfcluster.commands.names import ClusterName
from tfcluster.commands.options import Format, examples, output, place

if TYPE_CHECKING:
    from tfcluster.checks import Check

_STYLES = {"ok": "good", "warning": "waiting", "failed": "bad", "unknown": "off", "skipped": "off"}


@click.command()
@click.argument("name", required=False, type=ClusterName())
@place
@click.option("--no-exec", is_flag=True, help="Run nothing in the tasks.")
@output("table", "json", "yaml")
@examples("""
    $ tfcluster doctor
    $ tfcluster doctor digits
    tfcluster doctor digits -o json | jq -r .toDo[0]
""")
def command(*, client: Client, name: str | None, no_exec: bool, output: Format) -> None:
    """Look for what is wrong, and say what to do.

    Without NAME it looks at the API server, the definition of the kind, the operator, its leader and namespaces, and
    your rights. With NAME also at the cluster: its conditions, images, scheduling, devices, quotas, what its templates
    name, its Service and NetworkPolicies; and it runs the resolver's doctor in up to eight of its tasks.

    It changes nothing, and reads no Secret. What you may not see is "unknown" and no failure.

    The exit code is 0, and 1 if a check has failed.
    """
    from tfcluster import doctor
    from tfcluster.checks import document_of, what_to_do, worst

    parameters = click.get_current_context().params
    local = bool(parameters.get("local") or parameters.get("session"))
    checks: list[Check] = []
    found = doctor.diagnose(client, name, local=local, inside=not no_exec, say=printing.say)
    if output == "table":
        for check in found:
            checks.append(check)
            _print(check)
        _advise(what_to_do(checks))
    else:
        checks = list(found)
        printing.data(document_of(checks), output)
    if worst(checks) == "failed":
        click.get_current_context().exit(exit_codes.FAILED)


def _print(check: Check) -> None:
    from rich.text import Text

    from tfcluster.text_columns import Paper, wrap

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
