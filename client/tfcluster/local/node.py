"""The node: it gives each pod its place on this machine, plays it with processes, and obeys deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from tfcluster.local.environment import Surroundings
from tfcluster.local.logs import answer
from tfcluster.local.pods import USER, PodPlayer
from tfcluster.local.store import Change, Refusal, Store

Object = Mapping[str, Any]
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
