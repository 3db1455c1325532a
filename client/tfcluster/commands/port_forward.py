"""``tfcluster port-forward``: ports of tasks on this machine, for notebooks and browsers."""

from __future__ import annotations

import socket
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.options import ClusterName, TaskName, examples, place
from tfcluster.errors import NotRunningError
from tfcluster.forward import (
    HOST,
    JUPYTER,
    TENSORBOARD,
    Forward,
    Wish,
    forward_ports,
    plan_forwards,
    read_wish,
    task_port,
)
from tfcluster.kube.api import PODS, Object
from tfcluster.local.addresses import LOCAL_PORTS
from tfcluster.local.session import is_of_a_run
from tfcluster.tasks import task_of
from tfcluster_operator.declaration import naming

_PATIENCE, _PAUSE = 10.0, 0.1


class PortType(click.ParamType[Wish]):
    """A port as LOCAL:REMOTE or REMOTE."""

    name = "LOCAL:REMOTE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Wish:
        if isinstance(value, Wish):
            return value
        try:
            return read_wish(str(value))
        except ValueError as error:
            return self.fail(str(error), param, ctx)


@click.command()
@click.argument("name", type=ClusterName())
@click.option("--port", "ports", type=PortType(), multiple=True, help="A port; 0:REMOTE takes a free local port.")
@click.option("--task", type=TaskName(), help="The task.  [default: the first of the job that names the port]")
@click.option("--tensorboard", is_flag=True, help="The port of TensorBoard.")
@click.option("--jupyter", is_flag=True, help="The port of Jupyter.")
@click.option("--open", "open_", is_flag=True, help="Open a browser.")
@place
@examples("""
    $ tfcluster port-forward digits                  # TensorBoard, Jupyter and HTTP ports of the templates
    $ tfcluster port-forward digits --tensorboard --open
    $ tfcluster port-forward digits --task worker-1 --port 18000:8000
""")
def port_forward_command(
    client: Client,
    name: str,
    *,
    ports: tuple[Wish, ...],
    task: str | None,
    tensorboard: bool,
    jupyter: bool,
    open_: bool,
) -> None:
    """Forward local ports to tasks, until Ctrl-C.

    This runs `kubectl port-forward`, again for each pod that replaces another. Without options, the container ports
    named tensorboard, jupyter or http, and the ports 6006 and 8888, are forwarded.
    """
    titles = [title for title, wanted in ((TENSORBOARD, tensorboard), (JUPYTER, jupyter)) if wanted]

    if is_of_a_run(client.api.source):
        found = plan_forwards(client.get(name), ports, task, titles)
        _began([replace(one, local=_local_port(client, name, one)) for one in found], open_=open_)
        output.say("Nothing is forwarded: the tasks listen at these ports themselves.")
        return

    def choose(cluster: Object) -> Sequence[Forward]:
        forwards = plan_forwards(cluster, ports, task, titles)
        for one in forwards:
            if one.remote == task_port(cluster, one.task.job):
                output.say(
                    f"{one.task} port {one.remote} is TensorFlow's own: a program on this machine cannot join the "
                    "cluster by it, because the tasks answer with names that only pods can resolve"
                )
        return forwards

    forward_ports(client.api, name, choose=choose, began=lambda bound: _began(bound, open_=open_), tell=output.say)


def _local_port(client: Client, name: str, forward: Forward) -> int:
    """Find the local port where a task of a local run listens."""
    for pod in client.api.list(PODS, client.namespace, labels=f"{naming.LABEL_CLUSTER}={name}"):
        if task_of(pod) == forward.task and pod["status"].get("phase") == "Running":
            return int(pod["status"].get(LOCAL_PORTS, {}).get(str(forward.remote), forward.remote))
    raise NotRunningError(
        f"{forward.task} does not run, so nothing listens there", hint=f"See why: tfcluster status {name} --local"
    )


def _began(bound: Sequence[Forward], *, open_: bool) -> None:
    for forward in bound:
        port = forward.local
        url = f"{forward.scheme}://{HOST}:{port}" if forward.scheme else f"{HOST}:{port}"
        what = f"{forward.title} of {forward.task}" if forward.title else str(forward.task)
        click.echo(f"{url:<28} {what}" + (f", port {forward.remote}" if port != forward.remote else ""))
        if open_ and forward.scheme:
            _await_port(port)
            webbrowser.open(url)


def _await_port(port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection((HOST, port), timeout=_PAUSE).close()
        except OSError:
            time.sleep(_PAUSE)
        else:
            return
