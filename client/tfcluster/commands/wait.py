"""``tfcluster wait``: until a TFCluster is as it should be."""

from __future__ import annotations

from typing import Any

import click

from tfcluster.client import Client
from tfcluster.commands import names, output
from tfcluster.commands.options import examples, place, seconds


@click.command()
@click.argument("name", type=names.ClusterName())
@click.option("--for", "goal", default="ready", show_default=True, metavar="GOAL", help="What to wait for, see above.")
@click.option(
    "--timeout", type=seconds, default="10m", show_default=True, help="How long at the most; 0 means for ever."
)
@place
@examples("""
    $ tfcluster wait digits
    $ tfcluster wait digits --for finished --timeout 24h
    $ tfcluster wait digits --for condition=MembershipPublished
""")
def command(client: Client, name: str, goal: str, timeout: float) -> None:
    """Wait until a TFCluster is as it should be, and tell what it waits for.

    GOAL is ready, succeeded, failed, finished (either of the two), suspended (its pods are gone), resized (every task
    is ready and knows the others), updated (every pod is ready and made from the newest template), deleted, or
    condition=TYPE or condition=TYPE=STATUS. It ends early, with exit code 1, where GOAL cannot come any more, and with
    124 after the time-out.
    """
    try:
        found = client.wait(name, goal, timeout=timeout or None, tell=lambda words: output.say(f"waiting: {words}"))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--for") from error
    output.say(f"{name} is {_state(goal, found)}")


def _state(goal: str, body: dict[str, Any] | None) -> str:
    if body is None or not goal.startswith("condition="):
        return "gone" if goal == "deleted" else goal
    return f"as waited for: {goal.removeprefix('condition=')}"
