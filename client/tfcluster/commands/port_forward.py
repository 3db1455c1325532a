"""``tfcluster port-forward``: ports of tasks on this machine, for notebooks and browsers."""

import click

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.options import ClusterName, TaskName, examples, place
from tfcluster.errors import TFClusterError
from tfcluster.forward import HOST, find_kubectl, forward_ports, plan_forwards, read_wish, with_port
from tfcluster.local.session import is_of_a_run


@click.command()
@click.argument("name", type=ClusterName())
@click.option("--port", "ports", multiple=True, metavar="LOCAL:REMOTE", help="A port; 0:REMOTE takes a free one.")
@click.option("--task", type=TaskName(), help="The task.  [default: the first of the job that names the port]")
@place
@examples("""
    $ tfcluster port-forward digits                  # TensorBoard, Jupyter and HTTP ports of the templates
    $ tfcluster port-forward digits --task worker-1 --port 18000:8000
""")
def port_forward_command(client: Client, name: str, *, ports: tuple[str, ...], task: str | None) -> None:
    """Forward local ports to tasks, until Ctrl-C.

    This runs `kubectl port-forward`, again for each pod that replaces another. Without options, the container ports
    named tensorboard, jupyter or http, and the ports 6006 and 8888, are forwarded.
    """
    if is_of_a_run(client.api.source):
        raise TFClusterError(
            "the programs of a local run listen on this machine themselves",
            hint="`tfcluster local run` prints the address of each task; all other ports are those of the programs.",
        )
    try:
        wishes = [read_wish(one) for one in ports]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--port") from error
    find_kubectl()
    cluster = client.get(name)
    forwards = [with_port(one) for one in plan_forwards(cluster, wishes, task)]
    for one in forwards:
        url = f"{one.scheme}://{HOST}:{one.local}" if one.scheme else f"{HOST}:{one.local}"
        what = f"{one.title} of {one.task}" if one.title else str(one.task)
        click.echo(f"{url:<28} {what}" + (f", port {one.remote}" if one.local != one.remote else ""))
    forward_ports(client.api, cluster, forwards, output.say)
