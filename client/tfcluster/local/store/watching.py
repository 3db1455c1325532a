"""Watches: the changes of one storage since a revision, as lines, with bookmarks and an end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from tfcluster.local.store import refusals
from tfcluster.local.store.reading import PARTIAL, encode_partial, read_version
from tfcluster.local.store.selectors import selector_of
from tfcluster.local.store.state import Entry, State, Storage, Version, encode, watch_line

#: The interval of bookmarks for a watch that requests them, in seconds.
BOOKMARK_EVERY: Final = 60.0
#: The time of the last bookmark before a watch ends, in seconds.
_BEFORE_END: Final = 2.0
#: The duration of a watch without timeoutSeconds.
_LONGEST: Final = 3600.0


class Watch:
    """One open watch.

    Args:
        state: the objects.
        storage: the kind.
        namespace: the namespace, or None for all.
        params: the query.
        accept: the Accept header.

    Raises:
        Refusal: 400, the query is invalid.
    """

    def __init__(
        self, state: State, storage: Storage, namespace: str | None, params: Mapping[str, str], accept: str
    ) -> None:
        self._state = state
        self._storage = storage
        self._namespace = namespace
        self._matches = selector_of(params.get("labelSelector", ""), params.get("fieldSelector", ""))
        self._partial = PARTIAL in accept
        self._bookmarks = params.get("allowWatchBookmarks") in ("true", "1")
        self._initial = params.get("sendInitialEvents") in ("true", "1")
        self._lasts = float(params.get("timeoutSeconds") or _LONGEST)
        self._since = read_version(params.get("resourceVersion", ""))
        self._woken = asyncio.Event()
        self._stopped = False

    def stop(self) -> None:
        """End the watch."""
        self._stopped = True
        self._storage.wakers.pop(self._woken.set, None)
        self._woken.set()

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Return the lines as they arrive, those of one moment together."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._lasts
        self._storage.wakers[self._woken.set] = None
        try:
            first = self._first_lines()
            if first:
                yield first
            if self._stopped:
                return
            bookmark_at = self._next_bookmark(loop.time(), ends_at)
            while True:
                self._woken.clear()
                if lines := self._new_lines():
                    yield lines
                    continue
                if self._stopped or self._storage.ended or loop.time() >= ends_at:
                    return
                if loop.time() >= bookmark_at:
                    bookmark_at = self._next_bookmark(loop.time(), ends_at)
                    yield [self._bookmark()]
                    continue
                await self._wait(min(bookmark_at, ends_at) - loop.time())
        finally:
            self._storage.wakers.pop(self._woken.set, None)

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, seconds), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    def _next_bookmark(self, now: float, ends_at: float) -> float:
        if not self._bookmarks:
            return ends_at
        last = ends_at - _BEFORE_END
        return min(now + BOOKMARK_EVERY, last if last > now else ends_at)

    def _first_lines(self) -> list[bytes]:
        if self._since == 0:
            found = [one for one in self._storage.every(self._namespace) if self._matches(one.body)]
            self._since = self._state.revision
            lines = [self._line("ADDED", one) for one in found]
            if self._initial and self._bookmarks:
                lines.append(self._bookmark(initial=True))
            return lines
        if self._since < self._storage.floor:
            return [self._too_old()]
        return []

    def _too_old(self) -> bytes:
        self._stopped = True
        refusal = refusals.expired(f"too old resource version: {self._since} ({self._storage.floor})")
        return watch_line("ERROR", refusal.as_bytes())

    def _new_lines(self) -> list[bytes]:
        if self._since < self._storage.trimmed:
            return [self._too_old()]
        lines = []
        for entry in self._storage.since(self._since):
            self._since = entry.revision
            kind = self._kind_of(entry)
            if kind:
                lines.append(self._line(kind, entry.after) if self._partial else entry.line(kind))
        return lines

    def _kind_of(self, entry: Entry) -> str:
        body = entry.after.body
        if self._namespace is not None and body["metadata"].get("namespace") != self._namespace:
            return ""
        before = entry.before is not None and self._matches(entry.before.body)
        after = entry.type != "DELETED" and self._matches(body)
        if before:
            return "MODIFIED" if after else "DELETED"
        return "ADDED" if after else ""

    def _line(self, kind: str, version: Version) -> bytes:
        return watch_line(kind, encode_partial(version) if self._partial else version.encoded)

    def _bookmark(self, *, initial: bool = False) -> bytes:
        resource = self._storage.resource
        metadata: dict[str, Any] = {"resourceVersion": str(self._state.revision)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        kind, api_version = (PARTIAL, "meta.k8s.io/v1") if self._partial else (resource.kind, resource.api_version)
        self._since = max(self._since, self._state.revision)
        return watch_line("BOOKMARK", encode({"kind": kind, "apiVersion": api_version, "metadata": metadata}))
