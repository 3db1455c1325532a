"""Forwards ports of tasks to this machine, to whichever pod runs the task."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Final

import aiohttp

from tfcluster.cluster_watch import ClusterWatch
from tfcluster.errors import NoClusterError, TFClusterError
from tfcluster.forward_plan import Forward
from tfcluster.kubernetes_api import KubernetesApi, Object
from tfcluster.log_plan import verdict
from tfcluster.log_pods import LogPod, log_pods
from tfcluster.port_tunnel import PROTOCOL, LocalEnd, TunnelError, carry
from tfcluster.task_names import TaskName

HOST: Final = "127.0.0.1"
#: Seconds that a connection waits for a pod, and for the program in it, before it is closed.
_PATIENCE, _PATIENCE_WITH_PROGRAM = 30.0, 10.0
_PAUSE: Final = 0.3
#: Seconds between two signs of life on a connection: one that died without a word is noticed.
_HEARTBEAT: Final = 20.0
#: The answers that mean that one may not.
_FORBIDDEN: Final = (401, 403)
_NOT_OURS: Final = {errno.EADDRINUSE: "is in use", errno.EACCES: "is for the administrator alone"}


class PortForwards:
    """Forwards ports until the TFCluster is gone, or ``run`` is cancelled.

    Args:
        api: the connection.
        name: the TFCluster's name.
        namespace: its namespace; None is that of the connection.
        choose: decides what is forwarded, given the TFCluster.
        began: takes the forwards, each with its port on this machine, when that listens.
        tell: takes words for the user.
    """

    def __init__(
        self,
        api: KubernetesApi,
        name: str,
        namespace: str | None,
        *,
        choose: Callable[[Object], Sequence[Forward]],
        began: Callable[[list[tuple[Forward, int]]], None],
        tell: Callable[[str], None],
    ) -> None:
        self._base, self._name, self._namespace = api, name, namespace or api.namespace
        self._choose, self._began, self._tell = choose, began, tell
        self._pods: dict[TaskName, LogPod] = {}
        self._said: dict[object, str] = {}
        self._changed = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        self._failure: TFClusterError | None = None

    async def run(self) -> None:
        """Forward.

        Raises:
            NoClusterError: there is no such TFCluster, or it is gone.
            NoTaskError: it has no such task.
            RefusedError: the API server said no.
            TFClusterError: there is no such port, or a port of this machine is in use.
        """
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
            access = api.websocket_access()
            connector = aiohttp.TCPConnector(limit=0, ssl=access.context if access.context is not None else True)
            async with (
                aiohttp.ClientSession(connector=connector, proxy=access.proxy) as self._session,
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
            raise NoClusterError(
                f"there is no TFCluster {self._name} in namespace {self._namespace}",
                hint="List what is there with `tfcluster status`, in all namespaces with -A.",
            )
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
                    hint="None of its pods runs any more; spec.cleanPodPolicy: None leaves them.",
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
            raise TunnelError(f"the API server refuses with status {error.status}") from error
        except aiohttp.ClientError as error:
            raise TunnelError(f"the API server does not answer: {error}") from error

    def _say(self, about: object, words: str) -> None:
        """Say something that was not said last of the same."""
        if self._said.get(about, "") != words:
            self._said[about] = words
            if words:
                self._tell(words)
