"""The node: it gives each pod its place on this machine, and runs it with processes as the kubelet would."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from tfcluster.local.addresses import HOST, NoPortError
from tfcluster.local.containers import Container, Kind
from tfcluster.local.environment import Surroundings
from tfcluster.local.logs import ContainerLog, answer
from tfcluster.local.store import Change, Refusal, Store
from tfcluster.local.volumes import NotYetError

Object = Mapping[str, Any]

_log = logging.getLogger(__name__)
USER: Final = "kubelet"
_GRACE: Final = 30.0


class PodPlayer:
    """Runs one pod."""

    def __init__(self, store: Store, pod: Object, surroundings: Surroundings) -> None:
        self._store = store
        self._pod = pod
        self._surroundings = surroundings
        self.grace = float(pod["spec"].get("terminationGracePeriodSeconds", _GRACE))
        self._volumes = surroundings.volumes_of(pod, self._lookup)
        self._init = [self._container(one, "init") for one in pod["spec"].get("initContainers") or ()]
        self._main = [self._container(one, "main") for one in pod["spec"]["containers"]]
        self._stopping = asyncio.Event()
        self._kill: asyncio.TimerHandle | None = None
        self._woken = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._phase = "Pending"
        self._initialized = False
        self._began_at = store.timestamp()
        self._conditions: dict[str, dict[str, Any]] = {}
        self.uid: str = pod["metadata"]["uid"]
        self.name: tuple[str, str] = (pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _container(self, spec: Object, kind: Kind) -> Container:
        if kind == "init" and spec.get("restartPolicy") == "Always":
            kind = "sidecar"
        return Container(spec, kind, changed=self._report, timestamp=self._store.timestamp)

    @property
    def containers(self) -> int:
        return len(self._init) + len(self._main)

    # --- input

    def learn(self, pod: Object) -> None:
        """Read the current state of the pod, which can be in deletion."""
        before, self._pod = self._pod, pod
        self._news.set()
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            self.stop(float(metadata.get("deletionGracePeriodSeconds", 0)))
            return
        if metadata.get("annotations") != before["metadata"].get("annotations"):
            self.refresh()

    async def changed(self) -> None:
        await self._news.wait()
        self._news.clear()

    def refresh(self) -> None:
        self._woken.set()
        self._volumes.refresh(self._pod)

    def stop(self, grace: float) -> None:
        """End the programs; a shorter time replaces a longer one."""
        loop = asyncio.get_running_loop()
        kill_at = loop.time() + grace
        if self._kill is None or kill_at < self._kill.when():
            if self._kill is not None:
                self._kill.cancel()
            self._kill = loop.call_at(kill_at, self._kill_all)
        self._news.set()
        if not self._stopping.is_set():
            self._stopping.set()
            self._woken.set()
            main_runs = any(one.runs for one in self._main)
            for container in (*self._init, *self._main):
                if container.kind != "sidecar" or not main_runs:
                    container.terminate()

    def _kill_all(self) -> None:
        for container in (*self._init, *self._main):
            container.kill()

    # --- the life of the pod

    async def play(self) -> None:
        """Run the pod until all its containers have ended."""
        self._condition("PodReadyToStartContainers", holds=True)
        for container in (*self._init, *(() if self._init else self._main)):
            container.wait_for("PodInitializing" if self._init and container not in self._init else "ContainerCreating")
        try:
            if await self._begin():
                await asyncio.gather(*(self._run(one) for one in self._main))
        except Exception as error:  # noqa: BLE001 - whatever it is, the pod must not stay without an end
            _log.exception("pod %s/%s cannot be played", *self.name)
            for container in self._main:
                container.cannot_start(str(error))
            self._kill_all()
        await self._stop_sidecars()
        self._phase = "Failed" if any(one.code != 0 for one in self._main) else "Succeeded"
        self._report()
        if self._kill is not None:
            self._kill.cancel()

    def clean(self) -> None:
        """Delete the pod's own files; its logs are kept."""
        shutil.rmtree(self._surroundings.pod_folder(self._pod), ignore_errors=True)

    async def _begin(self) -> bool:
        """Create the volumes and run the init containers; return whether the other containers can start."""
        if not await self._retrying(lambda: self._volumes.make(self._pod), self._wait_for_volumes):
            return False
        for container in self._init:
            if container.kind == "sidecar":
                running = self._background(self._run(container))
                started = self._background(container.started.wait())
                await asyncio.wait([running, started], return_when=asyncio.FIRST_COMPLETED)
                started.cancel()
            elif await self._run(container) != 0:
                return False
            if self._stopping.is_set():
                return False
        self._initialized = True
        return True

    async def _run(self, container: Container) -> int:
        prepared: list[Any] = []

        def prepare() -> None:
            prepared.append(self._surroundings.prepare(self._pod, container, self._volumes, self._lookup))

        if not await self._retrying(prepare, lambda why: container.wait_for("CreateContainerConfigError", why)):
            return 137
        if self._phase == "Pending" and container.kind == "main":
            self._initialized = True
            self._phase = "Running"
        return await container.run(prepared[0])

    async def _retrying(self, work: Callable[[], None], waits: Callable[[str], None]) -> bool:
        """Retry work that needs objects which might be created later; return whether it succeeded before a stop."""
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                work()
            except NotYetError as error:
                waits(str(error))
                self._surroundings.notice(f"{self.name[1]} waits: {error}")
                await self._woken.wait()
            except NoPortError as error:
                waits(str(error))
                raise
            else:
                return True
        return False

    def _wait_for_volumes(self, why: str) -> None:
        for container in self._init or self._main:
            container.wait_for("ContainerCreating", why)

    async def _stop_sidecars(self) -> None:
        """Stop the sidecars, the last first."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._kill = asyncio.get_running_loop().call_later(self.grace, self._kill_all)
        for container in reversed(self._init):
            if container.runs:
                container.terminate()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _background(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- output

    def log_of(self, container: str) -> ContainerLog:
        pod, name = self.name[1], container or self._main[0].name
        found = next((one for one in (*self._init, *self._main) if one.name == name), None)
        if found is None or found.log is None:
            why = "does not exist" if found is None else "does not have a log: it has not run"
            raise Refusal(400, "BadRequest", f'container "{name}" in pod "{pod}" {why}')
        return found.log

    def _lookup(self, plural: str, name: str) -> Object | None:
        if plural not in self._store.state.storages:
            return None
        return self._store.get(plural, self.name[0], name)

    def _condition(self, kind: str, *, holds: bool, reason: str = "", message: str = "") -> None:
        status = "True" if holds else "False"
        before = self._conditions.get(kind, {})
        at = before["lastTransitionTime"] if before.get("status") == status else self._store.timestamp()
        why = {key: text for key, text in (("reason", reason), ("message", message)) if text}
        self._conditions[kind] = {"type": kind, "status": status, **why, "lastTransitionTime": at}

    def _report(self) -> None:
        found = self._store.get("pods", *self.name)
        if found is None or found["metadata"]["uid"] != self.uid:
            return
        generation = self._pod["metadata"].get("generation", 0)
        self._set_conditions()
        told = {
            "phase": self._phase,
            "observedGeneration": generation,
            "startTime": self._began_at,
            "hostIP": HOST,
            "podIP": HOST,
            "podIPs": [{"ip": HOST}],
            "conditions": [
                *({**one, "observedGeneration": generation} for one in self._conditions.values()),
                *(one for one in found["status"].get("conditions") or () if one["type"] not in self._conditions),
            ],
            "containerStatuses": [one.status() for one in self._main],
            **({"initContainerStatuses": [one.status() for one in self._init]} if self._init else {}),
        }
        try:
            self._store.patch("pods", *self.name, {"status": told}, subresource="status", user=USER)
        except Refusal as refusal:
            _log.warning("the status of pod %s/%s is rejected: %s", *self.name, refusal)

    def _set_conditions(self) -> None:
        ended = self._phase in ("Succeeded", "Failed")
        unready = [one.name for one in self._main if not one.ready]
        why = "PodCompleted" if self._phase == "Succeeded" else "PodFailed" if ended else "ContainersNotReady"
        words = "" if ended else f"containers with unready status: [{' '.join(unready)}]"
        self._condition("Initialized", holds=self._initialized)
        holds = not unready and not ended
        for kind in ("ContainersReady", "Ready"):
            self._condition(kind, holds=holds, reason="" if holds else why, message="" if holds else words)


Name = tuple[str, str]

NODE: Final = "local"


class Node:
    """Runs every pod of an API server on this machine."""

    def __init__(self, store: Store, surroundings: Surroundings) -> None:
        self._store = store
        self._surroundings = surroundings
        self._players: dict[Name, PodPlayer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unplaced: dict[Name, None] = {}
        self._closed = False
        surroundings.write_wrappers()
        store.subscribers.append(self._learn)

    def _learn(self, change: Change) -> None:
        """Record a change; the store is still writing it, so the reaction is scheduled for later."""
        loop, metadata = asyncio.get_running_loop(), change.object["metadata"]
        if change.resource == "pods":
            loop.call_soon(self._look_at, change.type, (metadata["namespace"], metadata["name"]), change.object)
        elif change.resource in ("configmaps", "secrets"):
            loop.call_soon(self._refresh, metadata["namespace"])

    def _refresh(self, namespace: str) -> None:
        for (own, _), player in tuple(self._players.items()):
            if own == namespace:
                player.refresh()

    def _look_at(self, kind: str, name: Name, pod: Object) -> None:
        player = self._players.get(name)
        if player is not None and player.uid == pod["metadata"]["uid"]:
            if kind == "DELETED":
                player.stop(0.0)
            else:
                player.learn(pod)
        elif kind == "DELETED":
            self._unplaced.pop(name, None)
        elif kind == "ADDED" or not pod["spec"].get("nodeName"):
            self._unplaced[name] = None
            self._place()

    def _place(self) -> None:
        """Start the waiting pods in order of creation, except pods whose predecessor's programs still run."""
        for name in tuple(self._unplaced):
            pod = self._store.get("pods", *name)
            if pod is None or self._closed or "deletionTimestamp" in pod["metadata"]:
                self._unplaced.pop(name, None)
                continue
            if name in self._players:
                continue  # its predecessor's programs still run
            del self._unplaced[name]
            # A template can name a node, and this is the only one.
            bound = pod if pod["spec"].get("nodeName") else self._store.bind(*name, NODE)
            player = self._players[name] = PodPlayer(self._store, bound, self._surroundings)
            self._tasks[player.uid] = asyncio.create_task(self._play(player))

    async def _play(self, player: PodPlayer) -> None:
        try:
            await player.play()
            await self._until_deleted(player)
        finally:
            player.clean()
            self._players.pop(player.name, None)
            self._tasks.pop(player.uid, None)
            if not self._closed:
                self._place()

    async def _until_deleted(self, player: PodPlayer) -> None:
        """Keep an ended pod until it is deleted, and then release it."""
        while not self._closed:
            pod = self._store.get("pods", *player.name)
            if pod is None or pod["metadata"]["uid"] != player.uid:
                return
            if "deletionTimestamp" in pod["metadata"]:
                try:
                    gone = self._store.delete("pods", *player.name, uid=player.uid, grace=0, user=USER) is None
                except Refusal:
                    return
                if gone:
                    return
            await player.changed()

    async def stop(self, grace: float) -> None:
        """End every program, and accept no new pods."""
        self._closed = True
        for player in tuple(self._players.values()):
            player.stop(min(grace, player.grace))
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    # --- logs

    def containers_of(self, namespace: str, name: str) -> int:
        player = self._players.get((namespace, name))
        return 0 if player is None else player.containers

    async def log_of(self, namespace: str, name: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Return the log of a container, as the API does."""
        player = self._players.get((namespace, name))
        if player is None:
            if self._store.get("pods", namespace, name) is None:
                message = f'pods "{name}" not found'
                raise Refusal(404, "NotFound", message, details={"name": name, "kind": "pods"})
            raise Refusal(400, "BadRequest", f'pod "{name}" does not have a log yet: it waits for its place')
        log = player.log_of(query.get("container", ""))
        async for chunk in answer(log, query):
            yield chunk
