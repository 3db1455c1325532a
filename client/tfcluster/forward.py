"""Ports of tasks on this machine: which ones, and a ``kubectl port-forward`` to the pod that runs the task now."""

import errno
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Final, NamedTuple

from tfcluster.errors import NoClusterError, TFClusterError
from tfcluster.kube.api import PODS, TFCLUSTERS, KubernetesApi, Object, Selection
from tfcluster.kube.watch import snapshots
from tfcluster.logs.plan import LogPod, log_pods
from tfcluster.tasks import NoTaskError, TaskName, declared, listed, read, verdict
from tfcluster_operator.declaration import naming
from tfcluster_operator.declaration.spec import CHIEF, WORKER

#: Programs that users open in a browser, by the name or the number of a container port.
_TITLES: Final[Mapping[object, str]] = {
    **dict.fromkeys(("tensorboard", 6006), "TensorBoard"),
    **dict.fromkeys(("jupyter", "jupyterlab", "notebook", 8888), "Jupyter"),
    "http": "HTTP",
    "https": "HTTPS",
}
_LAST_PORT: Final = 65535


class Wish(NamedTuple):
    """A port that the user requested."""

    remote: int
    local: int


@dataclass(frozen=True, slots=True)
class Forward:
    """A task's port, and one of this machine, 0 for a free one; ``optional`` if another will do if it is in use."""

    task: TaskName
    remote: int
    local: int
    title: str = ""
    optional: bool = False

    @property
    def scheme(self) -> str:
        """The URL scheme for a browser; "" if the port is not known to serve a browser."""
        return "" if not self.title else "https" if self.title == "HTTPS" else "http"


class DeclaredPort(NamedTuple):
    """A port that is declared in a template."""

    job: str
    port: int
    name: str = ""
    title: str = ""


def read_wish(text: str) -> Wish:
    """Read a port as LOCAL:REMOTE, REMOTE or :REMOTE, which uses a free local port."""
    local, colon, remote = text.rpartition(":")
    numbers = [part or "0" for part in ([local, remote] if colon else [text, text])]
    if not all(number.isascii() and number.isdecimal() and int(number) <= _LAST_PORT for number in numbers):
        raise ValueError(f"{text} is not a port: write REMOTE, such as 6006, or LOCAL:REMOTE, such as 8080:6006")
    if not int(numbers[1]):
        raise ValueError(f"{text} does not name a port of the task: write LOCAL:REMOTE, such as 0:6006")
    return Wish(remote=int(numbers[1]), local=int(numbers[0]))


def ports_of(cluster: Object) -> Iterator[DeclaredPort]:
    """Return the TCP ports that the containers of a TFCluster's templates declare."""
    for job, fields in sorted(((cluster.get("spec") or {}).get("jobs") or {}).items()):
        spec = (fields.get("template") or {}).get("spec") or {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for port in container.get("ports") or ():
                if port.get("protocol", "TCP") == "TCP":
                    number, name = int(port["containerPort"]), str(port.get("name", ""))
                    yield DeclaredPort(job, number, name, _TITLES.get(name) or _TITLES.get(number, ""))


def plan_forwards(cluster: Object, wishes: Sequence[Wish], word: str | None) -> list[Forward]:
    """Return the requested ports, or without any those of the templates that serve a browser."""
    name, jobs = cluster["metadata"]["name"], declared(cluster)
    task = None if word is None else read(word, jobs)
    if word is not None and (task is None or task.index >= jobs[task.job]):
        words = f"{name} has no task {word}; it has {listed(jobs)}"
        raise NoTaskError(words, hint="Name a task, such as --task worker-0.")
    found = [port for port in ports_of(cluster) if jobs.get(port.job) and (task is None or port.job == task.job)]
    if wishes:
        return list(dict.fromkeys(_named(wish, found, task, jobs) for wish in wishes))
    titled = [port for port in found if port.title]
    if not titled:
        spelled = [f"{port.job} {port.port}" + (f" ({port.name})" if port.name else "") for port in found]
        raise TFClusterError(
            f"no template of {name} has a container port for TensorBoard, Jupyter or HTTP; "
            f"the templates name {', '.join(spelled) or 'no port'}",
            hint="Name a task and its port: --task JOB-INDEX --port 6006.",
        )
    forwards = (Forward(task or TaskName(one.job, 0), one.port, one.port, one.title, optional=True) for one in titled)
    return list(dict.fromkeys(forwards))


def _named(wish: Wish, found: Sequence[DeclaredPort], task: TaskName | None, jobs: dict[str, int]) -> Forward:
    fitting = next((port for port in found if port.port == wish.remote), None)
    title = fitting.title if fitting else _TITLES.get(wish.remote, "")
    present = [job for job, count in jobs.items() if count]
    first = next((job for job in (CHIEF, WORKER, *present) if job in present), WORKER)
    return Forward(task or TaskName(fitting.job if fitting else first, 0), wish.remote, wish.local, title)


HOST: Final = "127.0.0.1"
#: Seconds until kubectl is started again after its end.
_LOOK: Final = 1.0
_NOT_OURS: Final = {errno.EADDRINUSE: "is in use", errno.EACCES: "needs administrator permissions"}


def find_kubectl() -> str:
    if (kubectl := shutil.which("kubectl")) is None:
        hint = "Install it: https://kubernetes.io/docs/tasks/tools/"
        raise TFClusterError("port-forward needs kubectl, which is not on the PATH", hint=hint)
    return kubectl


def forward_ports(
    api: KubernetesApi, cluster: Object, forwards: Sequence[Forward], tell: Callable[[str], None]
) -> None:
    """Forward ports until the TFCluster has finished or is deleted; the error says which."""
    name, uid = cluster["metadata"]["name"], cluster["metadata"]["uid"]
    command = [find_kubectl(), *api.kubectl_options, "-n", api.namespace, "port-forward"]
    tunnels = {
        task: _Tunnel(command, task, [one for one in forwards if one.task == task], tell)
        for task in dict.fromkeys(one.task for one in forwards)
    }
    selections = (
        Selection(TFCLUSTERS, fields=f"metadata.name={name}"),
        Selection(PODS, labels=f"{naming.LABEL_CLUSTER}={name}"),
    )
    try:
        for clusters, pods in snapshots(api, selections, tick=_LOOK):
            if (refused := clusters.refused or pods.refused) is not None:
                raise refused
            now = next((one for one in clusters.objects if one["metadata"]["uid"] == uid), None)
            if now is None:
                raise NoClusterError(f"TFCluster {name} was deleted")
            found = [pod for pod in log_pods(uid, pods.objects) if not pod.kept]
            if (how := verdict(now)) and not any(pod.state == "running" for pod in found):
                hint = "With spec.cleanPodPolicy: None its pods are kept."
                raise TFClusterError(f"TFCluster {name} has {how}", hint=hint)
            for task, tunnel in tunnels.items():
                tunnel.lead_to([pod for pod in found if pod.task == task])
    finally:
        for tunnel in tunnels.values():
            tunnel.stop()


def with_port(forward: Forward) -> Forward:
    """Choose the port of this machine."""
    try:
        with socket.create_server((HOST, forward.local)) as server:
            return replace(forward, local=server.getsockname()[1])
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        if forward.optional and forward.local:
            return with_port(replace(forward, local=0))
        raise TFClusterError(
            f"port {forward.local} of this machine {_NOT_OURS[error.errno]}",
            hint=f"Choose another one with --port LOCAL:{forward.remote}; --port 0:{forward.remote} takes a free one.",
        ) from error


class _Tunnel:
    """The ports of one task, and kubectl while a pod runs it."""

    def __init__(
        self, command: Sequence[str], task: TaskName, forwards: Sequence[Forward], tell: Callable[[str], None]
    ) -> None:
        self._command, self._task, self._tell = command, task, tell
        self._ports = [f"{one.local}:{one.remote}" for one in forwards]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes]
        self._pod = self._said = ""

    def lead_to(self, pods: Sequence[LogPod]) -> None:
        now = next((pod for pod in reversed(pods) if pod.state == "running" and not pod.leaving), None)
        if self._process is not None and (now is None or now.uid != self._pod or self._process.poll() is not None):
            if now is not None and now.uid == self._pod:
                self._say(f"{self._task}: {self._last_error()}; trying again")
            self.stop()
        if now is None:
            waits = pods[-1].words if pods else "its pod does not exist yet"
            self._say(f"{self._task} is not running: {waits or 'it has ended'}")
        elif self._process is None:
            if now.uid != self._pod:
                self._say(f"{self._task}: connections go to pod {now.name}")
            self._pod = now.uid
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it is open as long as kubectl runs
            words = [*self._command, "--address", HOST, f"pod/{now.name}", *self._ports]
            self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self._errors)  # noqa: S603 - kubectl

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._errors.close()
        self._process = None

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "kubectl port-forward ended"

    def _say(self, words: str) -> None:
        if words != self._said:
            self._said = words
            self._tell(words)
