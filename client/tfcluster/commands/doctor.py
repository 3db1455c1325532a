"""``tfcluster doctor`` and ``version``: what is wrong, what to do, and what is installed."""

from dataclasses import asdict

import click
from rich.text import Text

import tfcluster_resolver
from tfcluster.client import Client
from tfcluster.commands import output as printing
from tfcluster.commands.options import ClusterName, Format, examples, output, place
from tfcluster.doctor.cluster import diagnose
from tfcluster.doctor.installation import Check, Unknown, operators_of, what_to_do, worst
from tfcluster.errors import ExitCode
from tfcluster.status.text import wrap

_STYLES = {"ok": "good", "warning": "waiting", "failed": "bad", "unknown": "off"}


@click.command()
@click.argument("name", required=False, type=ClusterName())
@place
@output("table", "json", "yaml")
@examples("""
    $ tfcluster doctor
    $ tfcluster doctor digits
    tfcluster doctor digits -o json | jq -r .toDo[0]
""")
def doctor_command(*, client: Client, name: str | None, output: Format) -> None:
    """Find problems of the installation or a cluster, and what to do.

    Without NAME it checks the API server, the CRD, the operator, its namespaces, and your permissions. With
    NAME it also checks the cluster: its conditions, what its tasks wait for, and its NetworkPolicies. For the view of
    a task itself, run `kubectl exec POD -- python3 -m tfcluster_resolver doctor`.

    It does not change anything. A check that you do not have permission for is "unknown", not failed.

    The exit code is 0, and 1 if a check has failed.
    """
    parameters = click.get_current_context().params
    local = bool(parameters.get("local") or parameters.get("session"))
    checks: list[Check] = []
    found = diagnose(client.api, name, local=local)
    if output == "table":
        for check in found:
            checks.append(check)
            _print(check)
        for number, remedy in enumerate(what_to_do(checks), 1):
            click.echo(("\nWhat to do:\n" if number == 1 else "") + f"  {number}. {remedy}")
    else:
        checks = list(found)
        told = [asdict(one) for one in checks]
        printing.data({"verdict": worst(checks), "checks": told, "toDo": what_to_do(checks)}, output)
    if worst(checks) == "failed":
        click.get_current_context().exit(ExitCode.FAILED)


def _print(check: Check) -> None:
    first, *more = wrap(Text(f"{check.name}: {check.message}"), printing.width(), " " * 10)
    first = Text.assemble((f"{check.verdict:10}", printing.STYLES[_STYLES[check.verdict]]), first[10:])
    for line in (first, *more):
        printing.console().print(line)


@click.command()
@place
@examples("""
    $ tfcluster version
""")
def version_command(*, client: Client) -> None:
    """Print the versions of the client and of the operator in the cluster."""
    click.echo(f"client: {tfcluster_resolver.__version__}")
    operators, everywhere = operators_of(client.api)
    found = () if isinstance(operators, Unknown) else operators
    for one in found:
        metadata = one["metadata"]
        version = (metadata.get("labels") or {}).get("app.kubernetes.io/version", "unknown")
        click.echo(f"operator {metadata['namespace']}/{metadata['name']}: {version}")
    if not found:
        why = operators.why if isinstance(operators, Unknown) else "no Deployment has the labels of its chart"
        where = "" if everywhere else " in the namespaces that you can look into"
        click.echo(f"operator: not found{where}: {why}")
