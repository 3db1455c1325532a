"""Ports of tasks on this machine: which ones, the tunnel of each connection, and the pod that runs the task.

The protocol of the API server's ``portforward`` is v4.channel.k8s.io: each message begins with the number of its
channel, 0 for data and 1 for errors, and the first message of either holds the port.  Each connection has a websocket
of its own, so that one that fails takes no other with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import aiohttp

from tfcluster.errors import NoClusterError, TFClusterError, no_cluster
from tfcluster.kube.api import KubernetesApi, Object
from tfcluster.kube.connection import tls_and_proxy
from tfcluster.kube.watch import ClusterWatch
from tfcluster.logs.pods import LogPod, log_pods
from tfcluster.tasks import NoTaskError, TaskName, declared, listed, read, verdict
from tfcluster_operator.declaration.manifest import DEFAULT_PORT
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
    """A port that the user named."""

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
    """A port that a template names."""

    job: str
    port: int
    name: str = ""
    title: str = ""


def read_wish(text: str) -> Wish:
    """Read a port as LOCAL:REMOTE, REMOTE or :REMOTE, which takes a free one."""
    local, colon, remote = text.rpartition(":")
    numbers = [part or "0" for part in ([local, remote] if colon else [text, text])]
    if not all(number.isascii() and number.isdecimal() and int(number) <= _LAST_PORT for number in numbers):
        raise ValueError(f"{text} is not a port: write REMOTE, such as 6006, or LOCAL:REMOTE, such as 8080:6006")
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


PROTOCOL: Final = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK: Final = 64 * 1024
#: Seconds for which the pod may still answer after this side has said all, if it has not answered yet, and if it has:
#: the protocol cannot pass on that end.
_LINGER, _LINGER_AFTER_ANSWER = 15.0, 1.0
#: How much of what was said is kept until the pod answers, in bytes, to say it again to a program that comes up late.
_KEPT: Final = 64 * 1024


class TunnelError(Exception):
    """The pod could not be reached at this port; the words say why."""


class LocalEnd:
    """The connection on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._said: list[bytes] = []
        #: Whether all that was said can be said again to another pod, or to the same one.
        self.can_repeat = True
        self.answered = False

    async def send(self, tunnel: aiohttp.ClientWebSocketResponse) -> None:
        """Say to the pod what was said so far, and what is said from now on."""
        for chunk in list(self._said):
            await tunnel.send_bytes(bytes([_DATA]) + chunk)
        while chunk := await self._reader.read(_CHUNK):
            if self.can_repeat:
                self._said.append(chunk)
                if sum(map(len, self._said)) > _KEPT:
                    self.forget()
            await tunnel.send_bytes(bytes([_DATA]) + chunk)

    async def receive(self, content: bytes) -> None:
        self.forget()
        self.answered = True
        self._writer.write(content)
        await self._writer.drain()

    def forget(self) -> None:
        self.can_repeat, self._said = False, []


async def carry(local: LocalEnd, tunnel: aiohttp.ClientWebSocketResponse) -> None:
    """Carry bytes both ways until one side has ended."""
    sending = asyncio.create_task(local.send(tunnel))
    try:
        begun: set[int] = set()
        while (message := await _next(tunnel, sending, local)) is not None:
            if message.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}:
                return
            if message.type is aiohttp.WSMsgType.ERROR:
                raise TunnelError("the connection to the API server broke")
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, content = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
            elif channel == _ERROR and content:
                raise TunnelError(_brief(content.decode("utf-8", "replace")))
            elif channel == _DATA:
                await local.receive(content)
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await sending


async def _next(
    tunnel: aiohttp.ClientWebSocketResponse, sending: asyncio.Task[None], local: LocalEnd
) -> aiohttp.WSMessage | None:
    """Give the next message; None when nothing has come for a while after this side has ended."""
    receiving = asyncio.ensure_future(tunnel.receive())
    try:
        if not sending.done():
            await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            error = sending.exception()
            # NB: the tunnel closes after it has said why; that is still to be read.
            if error is not None and not isinstance(error, aiohttp.ClientError):
                raise error
            await asyncio.wait({receiving}, timeout=_LINGER_AFTER_ANSWER if local.answered else _LINGER)
        return await receiving if receiving.done() else None
    finally:
        if not receiving.done():
            receiving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await receiving


def _brief(words: str) -> str:
    """Say what the kubelet says, without the names of its own functions."""
    return "nothing listens there" if "connection refused" in words else " ".join(words.split())


HOST: Final = "127.0.0.1"
#: Seconds that a connection waits for a pod, and for the program in it, before it is closed.
_PATIENCE, _PATIENCE_WITH_PROGRAM = 30.0, 10.0
_PAUSE: Final = 0.3
#: Seconds between two signs of life on a connection: one that died without a word is noticed.
_HEARTBEAT: Final = 20.0
_FORBIDDEN: Final = (401, 403)
_NOT_OURS: Final = {errno.EADDRINUSE: "is in use", errno.EACCES: "is for the administrator alone"}


class PortForwards:
    """Forwards ports until the TFCluster is gone, or ``run`` is cancelled."""

    def __init__(
        self,
        api: KubernetesApi,
        name: str,
        *,
        choose: Callable[[Object], Sequence[Forward]],
        began: Callable[[list[tuple[Forward, int]]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._base, self._name, self._namespace = api, name, api.namespace
        self._choose, self._began, self._tell = choose, began, tell
        self._pods: dict[TaskName, LogPod] = {}
        self._said: dict[object, str] = {}
        self._changed = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        self._failure: TFClusterError | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        api = self._base.interruptible()

        def changed() -> None:
            # NB: the watch's threads may outlive the loop by a moment.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._changed.set)

        watch = ClusterWatch(api, self._name, self._namespace, changed)
        servers: list[asyncio.Server] = []
        try:
            watch.start()
            cluster = await self._first_sight(watch)
            forwards = list(self._choose(cluster))
            context, proxy = tls_and_proxy(api.configuration)
            connector = aiohttp.TCPConnector(limit=0, ssl=True if context is None else context)
            async with (
                aiohttp.ClientSession(connector=connector, proxy=proxy) as self._session,
                self._ending(servers),
            ):
                self._look(watch, {forward.task for forward in forwards})
                bound = []
                for forward in forwards:
                    server = await self._listen(forward)
                    servers.append(server)
                    bound.append((forward, server.sockets[0].getsockname()[1]))
                self._began(bound)
                await self._watch(watch, {forward.task for forward in forwards})
        finally:
            watch.stop()
            api.interrupt()
            api.close()

    @contextlib.asynccontextmanager
    async def _ending(self, servers: Sequence[asyncio.Server]) -> AsyncIterator[None]:
        """End all connections at the end, before that to the API server is closed: they would try again."""
        try:
            yield
        finally:
            for server in servers:
                server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    # --- what is there

    async def _first_sight(self, watch: ClusterWatch) -> Object:
        while not watch.complete:
            if watch.failure is not None:
                raise watch.failure
            self._changed.clear()
            await self._changed.wait()
        cluster, _, _ = watch.snapshot()
        if cluster is None:
            raise no_cluster(self._name, self._namespace)
        return cluster

    async def _watch(self, watch: ClusterWatch, tasks: set[TaskName]) -> None:
        while True:
            self._changed.clear()
            if watch.failure is not None or self._failure is not None:
                raise watch.failure or self._failure or TFClusterError("")
            if not watch.trouble or not self._said.get("watch"):
                self._say("watch", f"{watch.trouble}; trying again" if watch.trouble else "")
            cluster, gone, _ = watch.snapshot()
            self._look(watch, tasks)
            if gone:
                raise NoClusterError(f"TFCluster {self._name} was deleted")
            if cluster and not self._pods and (how := verdict(cluster)):
                raise TFClusterError(
                    f"TFCluster {self._name} has {how}",
                    hint="All its pods have ended; with spec.cleanPodPolicy: None they are kept.",
                )
            await self._changed.wait()

    def _look(self, watch: ClusterWatch, tasks: set[TaskName]) -> None:
        """Find the pod of each task, and say what became of the one before."""
        cluster, _, pods = watch.snapshot()
        uid = cluster["metadata"]["uid"] if cluster else ""
        found = [pod for pod in log_pods(uid, pods) if pod.task in tasks and not pod.kept]
        departed = {pod.uid: pod for pod in log_pods(uid, watch.departed())}
        for task in sorted(tasks):
            own = [pod for pod in found if pod.task == task]
            running = [pod for pod in own if pod.state == "running" and not pod.leaving]
            before, now = self._pods.get(task), running[-1] if running else None
            if before is not None and (now is None or now.uid != before.uid):
                del self._pods[task]
                last = next((pod for pod in own if pod.uid == before.uid), departed.get(before.uid, before))
                self._say(task, f"{task}: pod {before.name} {last.words or 'is gone'}; connections wait for the next")
            if now is not None:
                self._pods[task] = now
                if self._said.pop(task, ""):
                    self._tell(f"{task}: connections go to pod {now.name}")
            elif task not in self._said:
                waits = own[-1].words if own else "there is no pod yet"
                self._say(task, f"{task}: not started: {waits or 'it has ended'}; connections wait for it")

    # --- connections

    async def _listen(self, forward: Forward) -> asyncio.Server:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving = asyncio.current_task()
            if serving is not None:
                self._serving.add(serving)
            try:
                await self._serve(forward, LocalEnd(reader, writer))
            except (ConnectionError, asyncio.CancelledError):
                pass  # whoever connected is gone, or the session ends: asyncio would print that one was cancelled
            finally:
                if serving is not None:
                    self._serving.discard(serving)
                writer.close()

        try:
            return await asyncio.start_server(serve, HOST, forward.local)
        except OSError as error:
            if error.errno not in _NOT_OURS:
                raise
            if forward.optional and forward.local:
                return await self._listen(replace(forward, local=0))
            other = f"--port LOCAL:{forward.remote}"
            raise TFClusterError(
                f"port {forward.local} of this machine {_NOT_OURS[error.errno]}",
                hint=f"Choose another one with {other}; --port 0:{forward.remote} takes a free one.",
            ) from error

    async def _serve(self, forward: Forward, local: LocalEnd) -> None:
        """Carry one connection to the task's pod, and try again while nothing has been answered."""
        end, tried = time.monotonic() + _PATIENCE, False
        while time.monotonic() < end and self._failure is None and not self._session.closed:
            pod = self._pods.get(forward.task)
            if pod is not None:
                try:
                    await self._carry(pod, forward.remote, local)
                except TunnelError as error:
                    if self._failure is None:
                        self._say(forward, f"{forward.task} port {forward.remote}: {error}")
                else:
                    self._said.pop(forward, None)
                    return
                if not local.can_repeat:
                    return
                end = end if tried else time.monotonic() + _PATIENCE_WITH_PROGRAM
                tried = True
            await asyncio.sleep(_PAUSE)

    async def _carry(self, pod: LogPod, port: int, local: LocalEnd) -> None:
        url, headers = self._base.portforward(pod.name, self._namespace, port)
        try:
            async with self._session.ws_connect(
                url, headers=headers, protocols=[PROTOCOL], heartbeat=_HEARTBEAT, max_msg_size=0
            ) as tunnel:
                await carry(local, tunnel)
        except aiohttp.WSServerHandshakeError as error:
            if error.status in _FORBIDDEN:
                self._failure = TFClusterError(
                    f"you may not forward ports of pods in namespace {self._namespace}",
                    hint="Ask an administrator for the right to create and get pods/portforward.",
                )
                self._changed.set()
                local.forget()
            raise TunnelError(f"the API server answers with status {error.status}") from error
        except aiohttp.ClientError as error:
            raise TunnelError(f"the API server does not answer: {error}") from error

    def _say(self, about: object, words: str) -> None:
        """Say something that was not said last of the same."""
        if self._said.get(about, "") != words:
            self._said[about] = words
            if words:
                self._tell(words)
