"""`tfcluster logs` and Client.logs on a cluster in memory: streams that break, pods that follow each other."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from client.client_world import ClientWorld
from support.memory_kubernetes import Refusal
from support.waiting import GUARD

from tfcluster.errors import RefusedError, TFClusterError
from tfcluster.kube import api
from tfcluster.kube.api import KubernetesApi
from tfcluster.logs.reader import LogLine
from tfcluster.logs.stream import LogFollowing, LogRequest

POD, SECOND_POD = "mnist-worker-0", "mnist-worker-1"


class Followed:
    """Logs of the cluster `mnist` that are followed in a thread: what came so far."""

    def __init__(self, world: ClientWorld, *tasks: str) -> None:
        self.lines: list[LogLine] = []
        self.told: list[str] = []
        self.error: Exception | None = None
        self._api = KubernetesApi.connect(kubeconfig=world.kubeconfig)
        self._source = LogFollowing(self._api, "mnist", None, LogRequest(tasks, follow=True), self.told.append)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for batch in self._source.batches():
                self.lines += batch
        except TFClusterError as error:
            self.error = error
        finally:
            self._over.set()

    def stop(self) -> None:
        self._source.items.put(TFClusterError("the test is over"))
        self._thread.join(GUARD)
        self._api.close()

    def texts(self, task: str = "") -> list[str]:
        return [line.text for line in self.lines if not task or f"{line.job}-{line.index}" == task]

    def _await(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + GUARD
        while not holds():
            assert time.monotonic() < end, (self.texts(), self.told, self.error)
            time.sleep(0.02)

    def await_texts(self, *texts: str, task: str = "") -> None:
        self._await(lambda: self.texts(task) == list(texts))

    def await_told(self, part: str) -> None:
        self._await(lambda: any(part in words for words in self.told))

    def await_end(self) -> None:
        assert self._over.wait(GUARD), (self.texts(), self.told)


@pytest.fixture
def follow(client_world) -> Iterator[Callable[..., Followed]]:
    begun: list[Followed] = []

    def begin(*tasks: str) -> Followed:
        begun.append(Followed(client_world, *tasks))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


def test_logs_of_all_tasks_one_after_the_other(client_world):
    client_world.launch("mnist", ps=1, worker=2)
    for pod in (SECOND_POD, "mnist-ps-0", POD):
        client_world.write(pod, f"hello from {pod}", "bye")
    lines = [(f"{task} | hello from mnist-{task}", f"{task} | bye") for task in ("ps-0", "worker-0", "worker-1")]
    assert client_world.ok("logs", "mnist").stdout.splitlines() == [line for of_task in lines for line in of_task]


def test_follow_continues_in_the_replacing_pod(client_world, follow):
    client_world.launch("mnist", worker=1)
    followed = follow()
    client_world.write(POD, "before")
    followed.await_texts("before")
    before = client_world.uids()
    client_world.delete("pods", POD)
    client_world.await_that(lambda: client_world.uids().get(POD, before[POD]) != before[POD])
    client_world.await_condition("mnist", "Ready")
    client_world.write(POD, "after")
    followed.await_texts("before", "after")
    assert any("mnist-worker-0 was deleted" in words for words in followed.told)
    client_world.delete("tfclusters", "mnist")
    followed.await_end()
    assert (followed.error, followed.told[-1]) == (None, "TFCluster mnist was deleted")


def test_follow_ends_with_the_cluster(client_world, follow):
    client_world.launch("mnist", ps=1, worker=1)
    followed = follow()
    client_world.write(POD, "step 1")
    followed.await_texts("step 1")
    client_world.write(POD, "done")
    client_world.exit(POD, 0)
    followed.await_end()
    assert (followed.error, followed.texts()) == (None, ["step 1", "done"])
    assert followed.told[-1].startswith("TFCluster mnist has succeeded")


def test_interrupted_or_rotated_stream_keeps_every_line_once(client_world, follow):
    client_world.launch("mnist", worker=1)
    followed = follow()
    now = datetime.now(UTC)
    expected = ["one", "same", "same"]
    client_world.write(POD, *expected, at=now)
    followed.await_texts(*expected)
    for number in range(3):
        client_world.at_once(client_world.played.cut)
        client_world.write(POD, "same", at=now if number == 0 else None)
        client_world.write(POD, f"after {number}")
        expected += ["same", f"after {number}"]
        followed.await_texts(*expected)
    sinces = [one.get("sinceTime") for one in client_world.played.requests]
    assert (sinces[0], all(sinces[1:])) == (None, True), "a stream that broke was read from its beginning"
    client_world.at_once(lambda: client_world.played.rotate(POD))
    client_world.at_once(client_world.played.cut)
    client_world.write(POD, "three", "four")
    followed.await_texts(*expected, "three", "four")


def test_follow_takes_the_next_pod_of_a_failed_task_and_previous_reads_the_kept_one(client_world, follow):
    client_world.launch("mnist", worker=1)
    followed = follow()
    client_world.write(POD, "first try")
    followed.await_texts("first try")
    client_world.write(POD, "Traceback")
    client_world.exit(POD, 1)
    client_world.await_that(lambda: f"{POD}-r1" in client_world.uids())
    client_world.await_condition("mnist", "Ready")
    client_world.write(f"{POD}-r1", "second try")
    followed.await_texts("first try", "Traceback", "second try")
    assert [line.pod for line in followed.lines] == [POD, POD, f"{POD}-r1"]
    assert any("failed with exit code 1; the task continues in mnist-worker-0-r1" in words for words in followed.told)
    assert client_world.cli("logs", "mnist", "worker-0", "--previous").stdout == "first try\nTraceback\n"
    assert client_world.cli("logs", "mnist", "worker-0").stdout == "second try\n"


def test_tasks_join_and_leave_by_scaling(client_world, follow):
    client_world.launch("mnist", worker=1)
    followed = follow("worker")
    client_world.write(POD, "alone")
    followed.await_texts("alone")
    client_world.scale("mnist", worker=2)
    client_world.await_that(lambda: SECOND_POD in client_world.uids())
    client_world.await_condition("mnist", "Ready")
    client_world.write(SECOND_POD, "joined")
    followed.await_texts("joined", task="worker-1")
    followed.await_told("worker-1 joins")
    client_world.scale("mnist", worker=1)
    followed.await_told("worker-1 is no longer declared: worker has 1 tasks now")
    client_world.write(POD, "alone again")
    followed.await_texts("alone", "alone again", task="worker-0")


def test_follow_waits_for_pods_that_have_not_started(client_world, follow):
    client_world.declare("mnist", worker=1)
    followed = follow()
    client_world.await_condition("mnist", "Ready")
    client_world.write(POD, "at last")
    followed.await_texts("at last")
    assert followed.told, "nothing said that it waits"
    assert len([words for words in followed.told if words.startswith("worker-0")]) <= 2


def test_logs_end_without_permission_to_read_them(client_world, follow):
    client_world.launch("mnist", worker=1)
    words = 'pods "mnist-worker-0" is forbidden: User "me" cannot get resource "pods/log"'
    client_world.at_once(lambda: setattr(client_world.played, "refuse", Refusal(403, "Forbidden", words)))
    followed = follow()
    followed.await_end()
    assert isinstance(followed.error, RefusedError)
    once = client_world.cli("logs", "mnist")
    assert once.exit_code == 1
    assert "pods/log" in once.stderr
    assert "Ask an administrator" in once.stderr


def test_unknown_names_are_rejected_with_the_existing_ones(client_world):
    client_world.declare("mnist", ps=1, worker=2)
    for arguments, words in (
        (["other"], "TFCluster other not found in namespace default"),
        (["mnist", "worker-2"], "mnist has no task worker-2; it has ps-0, worker-0 to worker-1"),
        (["mnist", "wrong"], "mnist has no job wrong"),
        (["mnist", "-c", "wrong"], "no task of mnist has a container wrong; there are tensorflow"),
    ):
        for follow in ([], ["-f"]):
            done = client_world.cli("logs", *arguments, *follow)
            assert (done.exit_code, done.stdout) == (1, "")
            assert words in done.stderr


def test_options_reach_the_log(client_world):
    client_world.launch("mnist", worker=1)
    client_world.write(POD, *(f"line {number}" for number in range(10)))

    def logs(*options: str) -> str:
        return client_world.cli("logs", "mnist", *options).stdout

    assert logs("--tail", "2") == "worker-0 | line 8\nworker-0 | line 9\n"
    assert logs("--tail", "1", "--no-prefix") == "line 9\n"
    assert logs("worker-0", "--tail", "1", "--prefix") == "worker-0 | line 9\n"
    logs("--since", "1h30m")
    assert client_world.at_once(lambda: client_world.played.requests[-1]["sinceSeconds"]) == "5400"
    stamped = logs("worker-0", "--tail", "1", "--timestamps")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z line 9\n", stamped)
    for wrong in (["--since", "soon"], ["-f", "--previous"]):
        assert client_world.cli("logs", "mnist", *wrong).exit_code == 2


def test_following_closes_its_streams_and_respects_the_limit(client_world, monkeypatch):
    """A while later also the streams of silent tasks."""
    monkeypatch.setattr(api, "_READ", 0.5)
    client_world.launch("mnist", worker=3)
    client_world.write(POD, "one")
    with client_world.client() as client:
        with pytest.raises(TFClusterError, match="3 logs are too many") as raised:
            list(client.logs("mnist", follow=True, limit=2))
        assert "--max-log-requests 3" in raised.value.hint
        lines = client.logs("mnist", follow=True)
        assert next(lines).text == "one"
        lines.close()
    client_world.await_that(lambda: client_world.at_once(lambda: client_world.played.open) == 0)
    names = ("log-of", "watch-")
    client_world.await_that(lambda: not [one for one in threading.enumerate() if one.name.startswith(names)])


def test_a_busy_task_does_not_silence_a_quiet_one(client_world):
    client_world.launch("mnist", worker=2)
    busy = [f"busy {number}" for number in range(20_000)]
    client_world.write(POD, *busy)
    client_world.write(SECOND_POD, "quiet")
    with client_world.client() as client:
        batches = LogFollowing(client.api, "mnist", None, LogRequest((), follow=True), lambda _: None).batches()
        taken: list[list[LogLine]] = []
        while sum(map(len, taken)) < 20_001:
            taken.append(next(batches))
        batches.close()
    assert max(map(len, taken)) < 10_000, "others must have a chance to come between"
    assert [line.text for batch in taken for line in batch if line.index == 0] == busy
    assert [line.text for batch in taken for line in batch if line.index == 1] == ["quiet"]


def test_logs_wait_until_their_lines_are_taken(client_world):
    client_world.launch("mnist", worker=1)
    client_world.write(POD, *["x" * 1000] * 8_000)
    with client_world.client() as client:
        source = LogFollowing(client.api, "mnist", None, LogRequest((), follow=True), lambda _: None)
        batches = source.batches()
        next(batches)
        client_world.await_that(source.items.full)
        batches.close()
    client_world.await_that(lambda: client_world.at_once(lambda: client_world.played.open) == 0)
