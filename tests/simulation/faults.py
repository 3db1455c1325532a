"""Faults between the operator and the API server: in requests, in responses and in lines of watches.

A run has at most one fault, at the plan's trigger. A clean run records each request and line, and plans are generated
from the record.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from simulation.plans import Line, Plan, Write, stable
from support.memory_kubernetes import Answer, ConnectionLost, Interceptor, Refusal, Request

WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
#: Faults that end an operator.
DEADLY: Final = frozenset({"crash", "leader dies", "leader hands over"})
#: Faults of a write, and of a line of a watch.
WRITE_ACTIONS: Final = ("crash", "answer lost", "409", "429", "500", "403 for 10 s", "leader dies")
LINE_ACTIONS: Final = (
    *("drop", "duplicate", "swap", "coalesce", "hold 0.3 s", "hold 5 s", "hold 75 s"),
    *("ERROR 500", "ERROR 504", "ERROR 410", "HTTP 410"),
)
_REASONS: Final = {403: "Forbidden", 409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
_REFUSED_FOR: Final = 10.0
#: After this number of seconds, a held line is sent, before the next one.
_BOOKMARK: Final = 61.0
#: After this number of seconds, a crashed process runs again and has its lists.
_BACK_AFTER: Final = 1.0
#: A standby leads this number of seconds after its leader's death: the lease's duration and two.
_TAKEN_OVER_AFTER: Final = 17.0


def _refusal(code: int, message: str) -> Refusal:
    """Build the API server's message for a request that it rejects."""
    return Refusal(code, _REASONS.get(code, "Timeout"), message, retry_after=1 if code == 429 else None)


def _error(code: int) -> bytes:
    """Build the line that ends a watch with an error."""
    error = {"type": "ERROR", "object": _refusal(code, "the simulation breaks the watch").as_object()}
    return json.dumps(error).encode() + b"\n"


class Faults(Interceptor):
    """The operator's connection, as the plan wants it; ``crash`` kills the process whose request it is."""

    def __init__(self, plan: Plan, crash: Callable[[], None], *, recording: bool = False) -> None:
        self._trigger = plan.trigger
        self._action = plan.action
        self._crash = crash
        self._recording = recording
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._lines_seen: Counter[tuple[str, ...]] = Counter()
        self._held: tuple[Request, bytes] | None = None
        self._struck: Request | None = None
        self._refuse: tuple[str, str] | None = None
        self._gone: set[str] = set()
        self._away = asyncio.Event()
        self._relist: set[str] = set()
        self._slow: dict[str, float] = {}
        self._stale: dict[tuple[str, str], Answer] = {}
        self._lists: dict[tuple[str, str], list[Answer]] = {}
        #: Every write and every line that was sent, in order.
        self.writes: list[Write] = []
        self.lines: list[Line] = []
        #: Whether the trigger was met, and when its effect ended, by the loop's clock.
        self.met = False
        self.began_at = 0.0
        self.over_at = 0.0
        #: Whether the fault prevents the operator from observing or reporting the true state.
        self.blinds = False
        #: Receives the trace.
        self.tell: Callable[[str], None] = lambda _: None

    # --- requests

    async def before(self, request: Request) -> Answer | None:
        if self._away.is_set():
            raise ConnectionLost("the API server is away")
        if request.verb == "watch":
            return self._at_opening(request)
        if request.verb not in WRITES or request.resource == "leases":
            return None
        target = _target(request)
        if self._refuse == (request.verb, target):
            return Answer.refusing(_refusal(403, f"{request.resource} is forbidden: the simulation refuses it"))
        if not self._is_struck(request, target):
            return None
        return await self._strike(request, target)

    def _is_struck(self, request: Request, target: str) -> bool:
        name = stable(request.resource, request.name)
        key = (request.verb, target, name)
        write = Write(*key, self._seen[key])
        self._seen[key] += 1
        self.writes.append(write)
        wanted = self._trigger
        return isinstance(wanted, Write) and (*key, write.nth) == (
            wanted.verb,
            wanted.resource,
            wanted.name,
            wanted.nth,
        )

    async def _strike(self, request: Request, target: str) -> Answer | None:
        assert isinstance(self._trigger, Write)
        if self._action == "answer lost" or (self._action == "crash" and self._trigger.when == "after"):
            self._struck = request
            return None
        if self._action in {"crash", "leader dies"}:
            await self._die()
        self._begin(blinds=target.startswith("tfclusters"))
        if self._action == "403 for 10 s":
            self._refuse = (request.verb, target)
            self.over_at = _now() + _REFUSED_FOR
            asyncio.get_running_loop().call_later(_REFUSED_FOR, self._allow)
            return Answer.refusing(_refusal(403, f"{request.resource} is forbidden: the simulation refuses it"))
        return Answer.refusing(_refusal(int(self._action), "the simulation refuses it"))

    async def _die(self) -> None:
        self._begin(blinds=True)
        self.over_at = _now() + (_BACK_AFTER if self._action == "crash" else _TAKEN_OVER_AFTER)
        self._crash()
        await asyncio.Future()

    def _allow(self) -> None:
        self._refuse = None

    async def after(self, request: Request, answer: Answer) -> Answer:
        if request is self._struck:
            if self._action == "crash":
                await self._die()
            self._begin(blinds=request.resource == "tfclusters")
            raise ConnectionLost("the answer is lost")
        # A GET of one object is answered from the store; lists for a watch come from a lagging cache.
        if request.verb == "list" and "fieldSelector" not in request.params:
            # A request is identical only if its Accept header is: a metadata-only list is another request.
            asked = sorted((name, value) for name, value in request.params.items() if name != "continue")
            key = (request.resource, f"{request.path} {asked} {request.headers.get('Accept', '')}")
            self._lists.setdefault(key, []).append(answer)
            if key in self._stale:
                self.over_at = max(self.over_at, _now())
                return self._stale.pop(key)
        return answer

    def _at_opening(self, request: Request) -> Answer | None:
        if request.resource in self._relist:
            # As the real server does: the rejection is the only line of the watch.
            self._relist.discard(request.resource)
            return Answer.of(_error(410))
        if request.resource in self._gone:
            self._gone.discard(request.resource)
            return Answer.refusing(_refusal(410, "too old resource version"))
        return None

    async def opened(self, request: Request) -> None:
        if self._held and self._held[0].resource == request.resource:
            # The line was lost with its connection: the new watch starts before it.
            self._held, self.over_at = None, _now()
            self._begin(blinds=True)

    # --- lines of watches

    async def line(self, request: Request, line: bytes) -> Sequence[bytes]:
        if (late := self._slow.get(request.resource, 0.0) - _now()) > 0:
            await asyncio.sleep(late)
        if self._away.is_set():
            raise ConnectionLost("the watch breaks")
        if self._held and self._held[0] is request:
            held, self._held, self.over_at = self._held[1], None, _now()
            self._begin(blinds=True)
            return self._joined(held, line)
        wanted = self._trigger
        if not self._recording and not (isinstance(wanted, Line) and wanted.line == request.resource):
            return (line,)
        told = json.loads(line)
        if told["type"] in {"BOOKMARK", "ERROR"}:
            return (line,)
        key = (request.resource, told["type"], stable(request.resource, told["object"]["metadata"]["name"]))
        passing = Line(*key, self._lines_seen[key])
        self._lines_seen[key] += 1
        self.lines.append(passing)
        return await self._disturbed(request, line) if passing == wanted else (line,)

    async def _disturbed(self, request: Request, line: bytes) -> Sequence[bytes]:
        self._begin(blinds=True)
        match self._action.split():
            case ["drop"]:
                raise ConnectionLost("reset by peer")
            case ["duplicate"]:
                return (line, line)
            case ["swap"] | ["coalesce"]:
                self._held = (request, line)
                self.over_at = _now() + _BOOKMARK
                return ()
            case ["hold", seconds, _]:
                self.over_at = _now() + float(seconds)
                await asyncio.sleep(float(seconds))
                return (line,)
            case ["ERROR", code]:
                return (_error(int(code)),)
            case ["HTTP", "410"]:
                self._gone.add(request.resource)
                raise ConnectionLost("closed by the server")
        raise AssertionError(self._action)

    def _joined(self, held: bytes, line: bytes) -> Sequence[bytes]:
        if b'"BOOKMARK"' in line[:40]:
            return (held, line)
        first, second = json.loads(held), json.loads(line)
        same = first["object"]["metadata"]["name"] == second["object"]["metadata"]["name"]
        if self._action == "swap":
            # The API server sends the changes of one object in order.
            return (held, line) if same else (line, held)
        if not same or second["type"] == "DELETED":
            return (held, line)
        if first["type"] == "ADDED" and second["type"] == "MODIFIED":
            second["type"] = "ADDED"
        return (json.dumps(second).encode() + b"\n",)

    # --- the whole API server

    def go_away(self, seconds: float) -> None:
        """Make the API server unreachable for this number of seconds; open watches break."""
        self._begin(blinds=True)
        self.over_at = _now() + seconds
        self._away.set()
        asyncio.get_running_loop().call_later(seconds, self._away.clear)

    def see_late(self, resource: str, seconds: float) -> None:
        """Silence every watch of a resource for this number of seconds."""
        self._begin(blinds=True)
        self._slow[resource] = _now() + seconds
        self.over_at = max(self.over_at, self._slow[resource])

    def list_from_the_past(self) -> None:
        """Answer the next list of each resource from an older version, as an API server with a lagging cache does."""
        self._begin(blinds=True)
        self._stale = {key: answers[-1] for key, answers in self._lists.items()}
        self._relist = {resource for resource, _ in self._lists}

    def end(self) -> None:
        self._stale.clear()
        self._relist.clear()
        self._gone.clear()

    def _begin(self, *, blinds: bool) -> None:
        if not self.met:
            self.began_at = _now()
        self.met, self.blinds = True, blinds
        self.over_at = max(self.over_at, _now())
        self.tell(f"fault: {self._action}")


def _target(request: Request) -> str:
    return f"{request.resource}/{request.subresource}" if request.subresource else request.resource


def _now() -> float:
    return asyncio.get_running_loop().time()
