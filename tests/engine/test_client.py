"""The operator's client: which requests are retried and for how long, and watches that end."""

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import Any, Self

import aiohttp
import pytest
from decisions.in_memory import NOW
from support.async_tests import virtual
from support.virtual_time import run_in_virtual_time

from tfcluster_operator.kube.client import (
    AlreadyExistsError,
    ApiError,
    Client,
    Clock,
    ConflictError,
    GoneError,
    HistoryLostError,
    KubeError,
    NotFoundError,
    ServerError,
    UnreachableError,
    from_response,
)
from tfcluster_operator.kube.informer import Informer
from tfcluster_operator.kube.store import ChildStore
from tfcluster_operator.objects.kinds import KINDS

_REFUSED = b'{"kind":"Status","reason":"InternalError","message":"failed calling webhook"}'


class Server:
    """A session that always returns the same response, or fails; it records the times of the requests."""

    def __init__(self, status: int = 200, body: bytes = b"{}", *, dies: Exception | None = None) -> None:
        self.status, self.body, self.dies = status, body, dies
        self.headers: dict[str, str] = {}
        self.asked: list[float] = []
        self.paths: list[str] = []
        self.watches: list[float] = []
        #: What a watch shows at its start.
        self.events: list[bytes] = []
        self.lasts = self.takes = 0.0
        self.breaks = False

    def request(self, _: str, url: str, **__: object) -> "Server":
        self.paths.append(url)
        self.asked.append(asyncio.get_running_loop().time() - 1000.0)
        return self

    def get(self, *_: object, **__: object) -> "Server":
        self.watches.append(asyncio.get_running_loop().time() - 1000.0)
        assert len(self.watches) < 1000, "a watch without a pause"
        return self

    async def __aenter__(self) -> Self:
        await asyncio.sleep(self.takes)
        if self.dies is not None:
            raise self.dies
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        return self.body

    @property
    def content(self) -> "Server":
        """A watch that shows its events, and then nothing for a while."""
        return self

    async def iter_any(self) -> Any:
        for event in self.events:
            yield event + b"\n"
        await asyncio.sleep(self.lasts)
        if self.breaks:
            raise aiohttp.ClientPayloadError("the connection broke")


def make_client(server: Server) -> Client:
    loop = asyncio.get_running_loop()
    clock = Clock(wall=lambda: NOW + loop.time(), elapsed=loop.time)
    session: Any = server
    return Client(session, "https://server.example.test", clock=clock)


def ask(server: Server, method: str) -> bytes | KubeError:
    async def scenario() -> bytes | KubeError:
        try:
            return await make_client(server).request(method, "/api/v1/pods")
        except KubeError as error:
            return error

    return run_in_virtual_time(scenario())


#: A create is rejected with a conflict if it lost a race over a quota's count.
TRANSIENT = {"GET": (500, 503, None), "POST": (409, 429, 503, 504), "DELETE": (None,)}


@pytest.mark.parametrize(("method", "least", "most"), [("GET", 10.0, 20.0), ("POST", 0.7, 3.0), ("DELETE", 0.7, 3.0)])
def test_transient_errors_and_silence_are_retried_for_a_limited_time(method, least, most):
    """Reads have 20 seconds, writes 3: a reconcile that waits blocks others; they begin with 0.1, 0.2 and 0.4 s."""
    for status in TRANSIENT[method]:
        dies = aiohttp.ClientConnectionError("no route") if status is None else None
        server = Server(status or 200, _REFUSED, dies=dies)
        assert isinstance(ask(server, method), UnreachableError if dies else ServerError)
        assert len(server.asked) > 3
        assert least <= server.asked[-1] <= most


@virtual
async def test_32_requests_are_sent_at_a_time_and_reports_after_all_others():
    """Each takes a second, and then fails; some are cancelled while they wait, one in the moment of its turn."""
    server = Server(dies=aiohttp.ClientConnectionError("no route"))
    server.takes = 1.0
    client, begin = make_client(server), asyncio.get_running_loop().time() - 1000.0

    def send(number: int, *, urgent: bool) -> list[asyncio.Task[bytes]]:
        path = "/others" if urgent else "/reports"
        return [asyncio.create_task(client.request("GET", path, patience=0.0, urgent=urgent)) for _ in range(number)]

    async def send_one_and_cancel_the_next() -> None:
        with suppress(UnreachableError):
            await client.request("GET", "/others", patience=0.0)
        others[0].cancel()

    first = [asyncio.create_task(send_one_and_cancel_the_next()), *send(31, urgent=True)]
    await asyncio.sleep(0)
    reports, others = send(20, urgent=False), send(50, urgent=True)
    await asyncio.sleep(0.5)
    assert client.waiting == 70
    for task in others[-10:]:
        task.cancel()
    await asyncio.gather(*first, *reports, *others, return_exceptions=True)
    sent = [(int(at - begin), path.rpartition("/")[2]) for at, path in zip(server.asked, server.paths, strict=True)]
    assert Counter(sent) == {(0, "others"): 32, (1, "others"): 32, (2, "others"): 7, (2, "reports"): 20}
    assert client.waiting == 0


EVERY, WRITES = ("GET", "PATCH"), ("POST", "PATCH", "DELETE")


# An unavailable webhook stays so for longer than a reconcile should wait.
@pytest.mark.parametrize(
    ("methods", "status", "reason", "kind"),
    [
        (EVERY, 403, "Forbidden", ApiError),
        (EVERY, 404, "NotFound", NotFoundError),
        (EVERY, 409, "AlreadyExists", AlreadyExistsError),
        (EVERY, 409, "Conflict", ConflictError),
        (EVERY, 410, "Expired", GoneError),
        *((WRITES, status, "InternalError", ServerError) for status in (500, 502, 599)),
    ],
)
def test_rejection_and_server_error_on_a_write_are_reported_immediately(methods, status, reason, kind):
    for method in methods:
        server = Server(status, f'{{"kind":"Status","reason":"{reason}","message":"no"}}'.encode())
        error = ask(server, method)
        assert (type(error), error.message, len(server.asked)) == (kind, "no", 1)


@pytest.mark.parametrize("body", [b"<html>Bad Gateway</html>", b"", b"[]", b'{"reason": 5}', b"\xff" * 300])
def test_response_without_a_status_is_reported_verbatim(body):
    """A proxy on the way can return any text; its first 200 bytes are the message."""
    error = from_response(403, body)
    assert ("", body[:200].decode(errors="replace")) == (error.reason, error.message)


# --- informers


def inform(server: Server, seconds: float) -> Informer:
    async def scenario() -> Informer:
        store = ChildStore(lambda *_: None, lambda: 0.0)
        informer = Informer(make_client(server), KINDS["Pod"], store, None)
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(seconds)
        running.cancel()
        return informer

    return run_in_virtual_time(scenario())


_EMPTY = b'{"metadata":{"resourceVersion":"7"},"items":[]}'


def test_server_that_closes_every_watch_gets_back_off():
    """The back-off grows to about three seconds although no error occurs: few watches in a minute, not thousands."""
    server = Server(body=_EMPTY)
    informer = inform(server, 60.0)
    assert informer.synced.is_set()
    assert 6 <= len(server.watches) <= 50
    gaps = [later - former for former, later in zip(server.watches[1:], server.watches[2:], strict=False)]
    assert 4 * gaps[0] < max(gaps) <= 3.0 * 1.5
    assert len(server.asked) == 1  # the list stays valid


def test_watch_that_lasted_is_reopened_immediately():
    """A server ends each watch after some minutes; events are not missed for long."""
    server = Server(body=_EMPTY)
    server.lasts = 270.0
    inform(server, 1000.0)
    assert [round(at) for at in server.watches] == [0, 270, 540, 810]


@pytest.mark.parametrize(
    ("events", "answered", "stored"),
    [
        ([], 7, False),
        ([], 8, True),
        ([("ADDED", 8), ("DELETED", 12)], 11, False),
        ([("ADDED", 8), ("DELETED", 12)], 13, True),
        ([("BOOKMARK", 12)], 11, False),
    ],
)
@virtual
async def test_late_answer_to_a_write_does_not_restore_an_object_that_the_watch_has_shown_as_deleted(
    events, answered, stored
):
    """The list is of version 7. Whatever the watch has passed, and is unknown, was deleted."""

    def pod(version: int) -> bytes:
        about = {"name": "a", "namespace": "here", "uid": "u", "resourceVersion": str(version)}
        return json.dumps({"metadata": about}).encode()

    server, store = Server(body=_EMPTY), ChildStore(lambda *_: None, lambda: 0.0)
    server.events = [b'{"type":"%s","object":%s}' % (kind.encode(), pod(version)) for kind, version in events]
    server.lasts = 60.0
    running = asyncio.create_task(Informer(make_client(server), KINDS["Pod"], store, None).run())
    await asyncio.sleep(30.0)
    store.put(KINDS["Pod"].read(pod(answered)))
    assert (store.get(("here", "a")) is not None) == stored
    running.cancel()


@pytest.mark.parametrize("status", [401, 403, 404])
def test_rejected_list_is_reported_and_retried(status):
    """The message is the server's; it is removed when the list is permitted."""
    server = Server(status, b'{"kind":"Status","reason":"Forbidden","message":"pods is forbidden"}')
    informer = inform(server, 30.0)
    assert (informer.refused, informer.synced.is_set()) == ("pods is forbidden", False)
    assert 3 <= len(server.asked) <= 25


def test_answer_of_a_proxy_is_not_a_list():
    server = Server(body=b'{"metadata":{},"items":"maintenance"}')
    assert not inform(server, 30.0).synced.is_set()
    assert 3 <= len(server.asked) <= 25


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "the API server does not serve podgroups of scheduling.k8s.io/v1beta1"), (403, "podgroups is forbidden")],
)
@virtual
async def test_kind_that_a_server_need_not_have_is_done_without(status, words):
    """It is requested once, and about every 20 s while a decision needs it, until it exists."""
    server = Server(status, b'{"kind":"Status","reason":"Forbidden","message":"podgroups is forbidden"}')
    store = ChildStore(lambda *_: None, lambda: 0.0)
    informer = Informer(make_client(server), KINDS["PodGroup"], store, None)
    running = asyncio.create_task(informer.run())
    await asyncio.sleep(3600.0)
    assert (informer.refused, informer.synced.is_set(), len(server.asked)) == ("", True, 1)
    assert store.lacking == {None: words}
    for _ in range(10):
        store.asked_for.set()
        await asyncio.sleep(30.0)
    assert 6 <= len(server.asked) <= 15
    server.status, server.body = 200, _EMPTY
    store.asked_for.set()
    await asyncio.sleep(31.0)
    assert store.lacking == {None: ""}
    assert server.watches
    running.cancel()


def test_objects_of_a_disabled_api_are_dropped():
    """The API was disabled: its objects are dropped, and it is no longer requested."""
    store = ChildStore(lambda *_: None, lambda: 0.0)
    group = {"metadata": {"name": "c.0", "namespace": "here", "uid": "u", "resourceVersion": "5"}}
    store.put(KINDS["PodGroup"].read(json.dumps(group).encode()))
    store.have_none("it is off", "there")
    assert store.get(("here", "c.0")) is not None
    assert store.lacking == {"there": "it is off"}
    store.have_none("it is off", None)
    assert store.get(("here", "c.0")) is None


class Idle(Server):
    """A server whose watches send one bookmark, after two minutes, and then nothing."""

    def get(self, *_: object, timeout: aiohttp.ClientTimeout, **__: object) -> Server:
        self.allowed = timeout.sock_read
        return super().get()

    async def iter_any(self) -> Any:
        for pause in (120.0, 10_000.0):
            async with asyncio.timeout(self.allowed):
                await asyncio.sleep(pause)
            yield b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'


def test_watch_of_an_idle_server_is_left_alone_for_two_minutes():
    """Without changes, bookmarks are left out, and the watch is alive; a longer silence means that it is dead."""
    server = Idle(body=_EMPTY)
    inform(server, 310.0)
    assert len(server.watches) == 1
    inform(server, 330.0)
    assert len(server.watches) == 1 + 2, "the second informer's watch was opened again"


def listed_at(version: int) -> bytes:
    return f'{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}'.encode()


def lose_history(seconds: float) -> asyncio.Task[None]:
    """Break a watch, and set the server back to an earlier version for this duration."""

    async def scenario() -> asyncio.Task[None]:
        server = Server(body=listed_at(7))
        server.lasts = 60.0
        informer = Informer(make_client(server), KINDS["Pod"], ChildStore(lambda *_: None, lambda: 0.0), None)
        running = asyncio.create_task(informer.run())
        await informer.synced.wait()
        server.breaks, server.body = True, listed_at(3)
        await asyncio.sleep(60.0 + seconds)
        server.breaks, server.body = False, listed_at(8)
        await asyncio.sleep(30.0)
        running.cancel()
        await asyncio.wait([running])
        return running

    return run_in_virtual_time(scenario())


def test_history_that_is_lost_ends_the_process_and_a_server_that_lags_for_a_moment_does_not():
    """The operator's data is newer than all events of a restored etcd: it would never be corrected."""
    assert isinstance(lose_history(20.0).exception(), HistoryLostError)
    assert lose_history(2.0).cancelled()
