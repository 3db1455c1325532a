"""Which ports of which tasks are forwarded to this machine: a pure decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tfcluster.errors import TFClusterError
from tfcluster.kubernetes_api import Object
from tfcluster.task_names import NoTaskError, TaskName, declared, listed, read
from tfcluster_operator.declaration.parse import DEFAULT_PORT
from tfcluster_operator.declaration.spec import CHIEF, WORKER

#: What people look at in a browser: by the names of container ports, and by the ports that these programs choose.
TENSORBOARD: Final = "TensorBoard"
JUPYTER: Final = "Jupyter"
_NAMES: Final = {
    "tensorboard": TENSORBOARD,
    "jupyter": JUPYTER,
    "notebook": JUPYTER,
    "jupyterlab": JUPYTER,
    "http": "HTTP",
    "https": "HTTPS",
}
_NUMBERS: Final = {6006: TENSORBOARD, 8888: JUPYTER}
_LAST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Wish:
    """A port that the user named.

    Attributes:
        remote: the port of the task.
        local: the port of this machine; 0 means a free one.
    """

    remote: int
    local: int


@dataclass(frozen=True, slots=True)
class Forward:
    """A port of a task that becomes a port of this machine.

    Attributes:
        task: the task.
        remote: its port.
        local: the port of this machine; 0 means a free one.
        title: what it is.
        optional: whether another local port will do where this one is in use.
    """

    task: TaskName
    remote: int
    local: int
    title: str = ""
    optional: bool = False

    @property
    def scheme(self) -> str:
        """How a browser reaches it; "" where it is not known to be for browsers."""
        if not self.title:
            return ""
        return "https" if self.title == "HTTPS" else "http"


@dataclass(frozen=True, slots=True)
class DeclaredPort:
    """A port that a template names.

    Attributes:
        job: the job.
        port: the port.
        name: its name in the template; "" if it has none.
        title: what it is for people; "" if that is not known.
    """

    job: str
    port: int
    name: str = ""
    title: str = ""


def read_wish(text: str) -> Wish:
    """Read a port as LOCAL:REMOTE, REMOTE or :REMOTE, which takes a free one.

    Raises:
        ValueError: it is none of these; the words say what to write.
    """
    local, colon, remote = text.rpartition(":")
    numbers = [part or "0" for part in ([local, remote] if colon else [text, text])]
    if not all(number.isascii() and number.isdecimal() and int(number) <= _LAST_PORT for number in numbers):
        raise ValueError(f"{text} is no port: write REMOTE, such as 6006, or LOCAL:REMOTE, such as 8080:6006")
    if not int(numbers[1]):
        raise ValueError(f"{text} names no port of the task: write LOCAL:REMOTE, such as 0:6006")
    return Wish(remote=int(numbers[1]), local=int(numbers[0]))


def ports_of(cluster: Object) -> Iterator[DeclaredPort]:
    """Give the TCP ports that the containers of a TFCluster's templates name."""
    for job, fields in sorted(((cluster.get("spec") or {}).get("jobs") or {}).items()):
        spec = (fields.get("template") or {}).get("spec") or {}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            for port in container.get("ports") or ():
                if port.get("protocol", "TCP") == "TCP":
                    number, name = int(port["containerPort"]), str(port.get("name", ""))
                    yield DeclaredPort(job, number, name, _NAMES.get(name) or _NUMBERS.get(number, ""))


def task_port(cluster: Object, job: str) -> int:
    """Give the port at which TensorFlow's server of a job's tasks listens."""
    spec = cluster.get("spec") or {}
    return int(((spec.get("jobs") or {}).get(job) or {}).get("port") or spec.get("port") or DEFAULT_PORT)


def plan_forwards(
    cluster: Object, wishes: Sequence[Wish], word: str | None, titles: Sequence[str] = ()
) -> list[Forward]:
    """Decide what is forwarded.

    Raises:
        NoTaskError: there is no such task.
        TFClusterError: there is no such port; the words list those that there are.
    """
    name, jobs = cluster["metadata"]["name"], declared(cluster)
    task = None if word is None else read(word, jobs)
    if word is not None and (task is None or task.index >= jobs[task.job]):
        words = f"{name} has no task {word}; it has {listed(jobs)}"
        raise NoTaskError(words, hint="Name a task, such as --task worker-0.")
    found = [port for port in ports_of(cluster) if jobs.get(port.job) and (task is None or port.job == task.job)]
    forwards = [_named(wish, found, task, jobs) for wish in wishes]
    for title in titles:
        fitting = next((port for port in found if port.title == title), None)
        if fitting is None:
            number = next(number for number, known in _NUMBERS.items() if known == title)
            raise TFClusterError(
                f"no template of {name} has a container port named {title.lower()}, or {number}{_which(found)}",
                hint=f"Name its task and port: --task JOB-INDEX --port {number}.",
            )
        forwards.append(_discovered(fitting, task))
    if not wishes and not titles:
        forwards = [_discovered(port, task) for port in found if port.title]
        if not forwards:
            raise TFClusterError(
                f"no template of {name} has a container port for TensorBoard, Jupyter or HTTP{_which(found)}",
                hint="Name a task and its port: --task JOB-INDEX --port 6006.",
            )
    return list(dict.fromkeys(forwards))


def _named(wish: Wish, found: Sequence[DeclaredPort], task: TaskName | None, jobs: dict[str, int]) -> Forward:
    fitting = next((port for port in found if port.port == wish.remote), None)
    title = fitting.title if fitting else _NUMBERS.get(wish.remote, "")
    return Forward(task or TaskName(fitting.job if fitting else _first_job(jobs), 0), wish.remote, wish.local, title)


def _first_job(jobs: dict[str, int]) -> str:
    """Choose the job whose first task speaks for the cluster: chief, else worker, else the first."""
    present = [job for job, count in jobs.items() if count]
    return next((job for job in (CHIEF, WORKER) if job in present), next(iter(present), WORKER))


def _discovered(port: DeclaredPort, task: TaskName | None) -> Forward:
    return Forward(task or TaskName(port.job, 0), port.port, port.port, port.title, optional=True)


def _which(found: Sequence[DeclaredPort]) -> str:
    spelled = [f"{port.job} {port.port}" + (f" ({port.name})" if port.name else "") for port in found]
    return f"; the templates name {', '.join(spelled)}" if spelled else "; the templates name no port"
