"""``tfcluster port-forward``: ``kubectl port-forward`` to a task, again for each pod that replaces another."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence

import click

from tfcluster.client import Client
from tfcluster.commands import output
from tfcluster.commands.options import ClusterName, TaskName, examples, place
from tfcluster.errors import NoClusterError, TFClusterError
from tfcluster.kube.api import PODS, TFCLUSTERS
from tfcluster.local.session import is_of_a_run
from tfcluster.logs.pods import LogPod, log_pods
from tfcluster.tasks import NoTaskError, declared, listed, read, verdict
from tfcluster_operator.declaration import naming

#: Seconds between two looks at the pods, and how soon a kubectl ends that will not do better when it is started again.
_LOOK, _SOON = 1.0, 5.0


@click.command()
@click.argument("name", type=ClusterName())
@click.argument("task", type=TaskName())
@click.argument("ports", nargs=-1, required=True, metavar="[LOCAL:]PORT...")
@place
@examples("""
    $ tfcluster port-forward digits chief-0 6006          # then open http://localhost:6006
    $ tfcluster port-forward digits worker-1 18000:8000
""")
def port_forward_command(client: Client, name: str, task: str, ports: tuple[str, ...]) -> None:
    """Forward local ports to a task, until Ctrl-C.

    This runs `kubectl port-forward`, again for each pod that replaces another. It ends when the TFCluster is deleted or
    has finished.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        hint = "Install it: https://kubernetes.io/docs/tasks/tools/"
        raise TFClusterError("port-forward needs kubectl, which is not on the PATH", hint=hint)
    if is_of_a_run(client.api.source):
        raise TFClusterError("the tasks of a local run listen on this machine", hint=f"tfcluster status {name} --local")
    command = [kubectl, *client.api.kubectl_options, "-n", client.api.namespace, "port-forward"]
    _forward(client, name, task, command, ports)


def _forward(client: Client, name: str, task: str, command: Sequence[str], ports: Sequence[str]) -> None:
    uid, said = client.api.cluster(name)["metadata"]["uid"], ""
    while True:
        pods = _pods_of(client, name, uid, task)
        now = _running(pods)
        why = (pods[-1].words or "it has ended") if pods else "there is no pod yet"
        words = f"{task}: connections go to pod {now.name}" if now else f"{task} is not running: {why}"
        if words != said:
            output.say(words)
            said = words
        if now is None:
            time.sleep(_LOOK)
            continue
        began = time.monotonic()
        with subprocess.Popen([*command, f"pod/{now.name}", *ports]) as process:  # noqa: S603 - kubectl
            try:
                while process.poll() is None and _running(_pods_of(client, name, uid, task)) == now:
                    time.sleep(_LOOK)
            finally:
                process.terminate()
        if process.returncode > 0 and time.monotonic() - began < _SOON:
            raise TFClusterError(f"kubectl port-forward ended with status {process.returncode}")


def _running(pods: Sequence[LogPod]) -> LogPod | None:
    return next((pod for pod in reversed(pods) if pod.state == "running" and not pod.leaving), None)


def _pods_of(client: Client, name: str, uid: str, task: str) -> list[LogPod]:
    """Return the pods of a task, and end when there will be no more."""
    cluster = client.api.find(TFCLUSTERS, name)
    if cluster is None or cluster["metadata"]["uid"] != uid:
        raise NoClusterError(f"TFCluster {name} was deleted")
    jobs = declared(cluster)
    wanted = read(task, jobs)
    if wanted is None or wanted.index >= jobs[wanted.job]:
        raise NoTaskError(f"{name} has no task {task}; it has {listed(jobs)}", hint="Name a task, such as worker-0.")
    pods = log_pods(uid, client.api.list(PODS, labels=f"{naming.LABEL_CLUSTER}={name}"))
    found = [pod for pod in pods if pod.task == wanted and not pod.kept]
    if (how := verdict(cluster)) and not any(pod.state == "running" for pod in found):
        raise TFClusterError(f"TFCluster {name} has {how}", hint="With spec.cleanPodPolicy: None its pods are kept.")
    return found
