"""`tfcluster logs` and Client.logs on a cluster in memory: streams that break, pods that follow each other."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from support.waiting import GUARD
from unit.client_world import ClientWorld

from memory_kubernetes import Refusal
from tfcluster.errors import RefusedError, TFClusterError
from tfcluster.kubernetes_api import KubernetesApi
from tfcluster.log_following import LogFollowing
from tfcluster.log_lines import LogLine
from tfcluster.log_stream import Channel, LogRequest


class Followed:
    """Logs that are followed in a thread: what came so far."""

    def __init__(self, world: ClientWorld, name: str, *tasks: str) -> None:
        self.lines: list[LogLine] = []
        self.told: list[str] = []
        self.error: Exception | None = None
        self._api = KubernetesApi.connect(kubeconfig=world.kubeconfig)
        self._source = LogFollowing(self._api, name, None, LogRequest(tasks, follow=True), self.told.append)
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for batch in self._source.batches():
                self.lines += batch
        except TFClusterError as error:
            self.error = error
        finally:
            self.over.set()

    def stop(self) -> None:
        self._source.channel.close()
        self._thread.join(GUARD)
        self._api.close()

    def texts(self, task: str = "") -> list[str]:
        return [line.text for line in self.lines if not task or f"{line.job}-{line.index}" == task]

    def await_texts(self, *texts: str, task: str = "") -> None:
        end = time.monotonic() + GUARD
        while self.texts(task) != list(texts):
            assert time.monotonic() < end, (self.texts(task), self.told, self.error)
            time.sleep(0.02)

    def await_told(self, part: str) -> None:
        end = time.monotonic() + GUARD
        while not any(part in words for words in self.told):
            assert time.monotonic() < end, (self.told, self.error)
            time.sleep(0.02)

    def await_end(self) -> None:
        assert self.over.wait(GUARD), (self.texts(), self.told)


@pytest.fixture
def follow(client_world) -> Iterator[Callable[..., Followed]]:
    """Follows logs until the test is over."""
    begun: list[Followed] = []

    def begin(name: str, *tasks: str) -> Followed:
        begun.append(Followed(client_world, name, *tasks))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


def launch(world: ClientWorld, name: str = "mnist", **jobs: int) -> None:
    world.declare(name, {job: {"replicas": count} for job, count in (jobs or {"worker": 1}).items()})
    world.await_condition(name, "Ready")


def write(world: ClientWorld, pod: str, *lines: str) -> None:
    world.at_once(lambda: world.played.write(pod, *lines))


def uid(world: ClientWorld, pod: str) -> str:
    found = world.at_once(lambda: world.kube.get("pods", "default", pod))
    return found["metadata"]["uid"] if found else ""


def test_logs_of_all_tasks_one_after_the_other(client_world):
    launch(client_world, ps=1, worker=2)
    for pod in ("mnist-worker-1", "mnist-ps-0", "mnist-worker-0"):
        write(client_world, pod, f"hello from {pod}", "bye")

    done = client_world.cli("logs", "mnist")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "ps-0 | hello from mnist-ps-0",
        "ps-0 | bye",
        "worker-0 | hello from mnist-worker-0",
        "worker-0 | bye",
        "worker-1 | hello from mnist-worker-1",
        "worker-1 | bye",
    ]


def test_follow_goes_on_in_the_pod_that_replaces_another(client_world, follow):
    launch(client_world)
    followed = follow("mnist")
    write(client_world, "mnist-worker-0", "before")
    followed.await_texts("before")
    before = uid(client_world, "mnist-worker-0")

    client_world.at_once(lambda: client_world.kube.delete("pods", "default", "mnist-worker-0"))
    client_world.await_that(lambda: uid(client_world, "mnist-worker-0") not in {"", before})
    client_world.await_condition("mnist", "Ready")
    write(client_world, "mnist-worker-0", "after")

    followed.await_texts("before", "after")
    assert any("mnist-worker-0 was deleted" in words for words in followed.told)


def test_follow_ends_with_the_cluster(client_world, follow):
    launch(client_world, ps=1, worker=1)
    followed = follow("mnist")
    write(client_world, "mnist-worker-0", "step 1")
    followed.await_texts("step 1")

    write(client_world, "mnist-worker-0", "done")
    client_world.at_once(lambda: client_world.nodes.exit("mnist-worker-0", 0))

    followed.await_end()
    assert followed.error is None
    assert followed.texts() == ["step 1", "done"]
    assert followed.told[-1].startswith("TFCluster mnist has succeeded")


def test_a_broken_stream_goes_on_without_a_line_lost_or_doubled(client_world, follow):
    """Among them are equal lines of one moment, which the times cannot tell apart."""
    launch(client_world)
    followed = follow("mnist")
    now = datetime.now(UTC)
    client_world.at_once(lambda: client_world.played.write("mnist-worker-0", "one", "same", "same", at=now))
    followed.await_texts("one", "same", "same")

    expected = ["one", "same", "same"]
    for number in range(3):
        client_world.at_once(client_world.played.cut)
        client_world.at_once(lambda: client_world.played.write("mnist-worker-0", "same", at=now))
        write(client_world, "mnist-worker-0", f"after {number}")
        expected += ["same", f"after {number}"]
        followed.await_texts(*expected)

    sinces = [one.get("sinceTime") for one in client_world.played.requests]
    assert sinces[0] is None
    assert all(sinces[1:]), "a stream that broke was read from its beginning"


def test_rotation_between_two_streams_doubles_nothing(client_world, follow):
    """What was rotated away comes no more, so that the lines that were seen cannot simply be counted off."""
    launch(client_world)
    followed = follow("mnist")
    write(client_world, "mnist-worker-0", "one", "two")
    followed.await_texts("one", "two")

    client_world.at_once(lambda: client_world.played.rotate("mnist-worker-0"))
    client_world.at_once(client_world.played.cut)
    write(client_world, "mnist-worker-0", "three", "four")

    followed.await_texts("one", "two", "three", "four")


def test_follow_takes_the_next_pod_of_a_failed_task_and_previous_reads_the_kept_one(client_world, follow):
    launch(client_world)
    followed = follow("mnist")
    write(client_world, "mnist-worker-0", "first try")
    followed.await_texts("first try")

    write(client_world, "mnist-worker-0", "Traceback")
    client_world.at_once(lambda: client_world.nodes.exit("mnist-worker-0", 1))
    client_world.await_that(lambda: uid(client_world, "mnist-worker-0-r1"))
    client_world.await_condition("mnist", "Ready")
    write(client_world, "mnist-worker-0-r1", "second try")

    followed.await_texts("first try", "Traceback", "second try")
    assert [line.pod for line in followed.lines] == ["mnist-worker-0"] * 2 + ["mnist-worker-0-r1"]
    assert any("failed with exit code 1; the task goes on in mnist-worker-0-r1" in words for words in followed.told)
    previous = client_world.cli("logs", "mnist", "worker-0", "--previous")
    assert previous.stdout == "first try\nTraceback\n"
    present = client_world.cli("logs", "mnist", "worker-0")
    assert present.stdout == "second try\n"


def test_tasks_join_and_leave_by_scaling(client_world, follow):
    launch(client_world, worker=1)
    followed = follow("mnist", "worker")
    write(client_world, "mnist-worker-0", "alone")
    followed.await_texts("alone")

    scale(client_world, 2)
    client_world.await_that(lambda: uid(client_world, "mnist-worker-1"))
    client_world.await_condition("mnist", "Ready")
    write(client_world, "mnist-worker-1", "joined")
    followed.await_texts("joined", task="worker-1")
    followed.await_told("worker-1 joins")

    scale(client_world, 1)
    followed.await_told("worker-1 is no longer declared: worker has 1 tasks now")
    write(client_world, "mnist-worker-0", "alone again")
    followed.await_texts("alone", "alone again", task="worker-0")


def test_follow_waits_for_pods_that_have_not_started(client_world, follow):
    client_world.declare("mnist", {"worker": {"replicas": 1}})
    followed = follow("mnist")

    client_world.await_condition("mnist", "Ready")
    write(client_world, "mnist-worker-0", "at last")

    followed.await_texts("at last")
    assert followed.told, "nothing said that it waits"
    assert len([words for words in followed.told if words.startswith("worker-0")]) <= 2


def test_follow_ends_when_the_cluster_is_deleted(client_world, follow):
    launch(client_world)
    followed = follow("mnist")
    write(client_world, "mnist-worker-0", "here")
    followed.await_texts("here")

    client_world.at_once(lambda: client_world.kube.delete("tfclusters", "default", "mnist"))

    followed.await_end()
    assert (followed.error, followed.told[-1]) == (None, "TFCluster mnist was deleted")


def test_follow_of_more_tasks_than_may_be_says_so(client_world):
    launch(client_world, worker=3)

    with client_world.client() as client, pytest.raises(TFClusterError, match="3 logs are too many") as raised:
        list(client.logs("mnist", follow=True, limit=2))

    assert "--max-log-requests 3" in raised.value.hint


def test_without_the_right_to_read_logs_it_ends(client_world, follow):
    launch(client_world)
    forbidden = Refusal(
        403, "Forbidden", 'pods "mnist-worker-0" is forbidden: User "me" cannot get resource "pods/log"'
    )
    client_world.at_once(lambda: setattr(client_world.played, "refuse", forbidden))

    followed = follow("mnist")
    followed.await_end()
    assert isinstance(followed.error, RefusedError)
    once = client_world.cli("logs", "mnist")
    assert once.exit_code == 1
    assert "pods/log" in once.stderr
    assert "Ask an administrator" in once.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["other"], "there is no TFCluster other in namespace default"),
        (["mnist", "worker-2"], "mnist has no task worker-2; it has ps-0, worker-0 to worker-1"),
        (["mnist", "wrong"], "mnist has no job wrong"),
        (["mnist", "-c", "wrong"], "no task of mnist has a container wrong; there are tensorflow"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(client_world, arguments, words):
    client_world.declare("mnist", {"ps": {}, "worker": {"replicas": 2}})
    for follow in ([], ["-f"]):
        done = client_world.cli("logs", *arguments, *follow)
        assert (done.exit_code, done.stdout) == (1, "")
        assert words in done.stderr


def test_options_reach_the_log(client_world):
    launch(client_world)
    write(client_world, "mnist-worker-0", *(f"line {number}" for number in range(10)))

    assert client_world.cli("logs", "mnist", "--tail", "2").stdout == "worker-0 | line 8\nworker-0 | line 9\n"
    assert client_world.cli("logs", "mnist", "--tail", "1", "--no-prefix").stdout == "line 9\n"
    assert client_world.cli("logs", "mnist", "worker-0", "--tail", "1", "--prefix").stdout == "worker-0 | line 9\n"
    client_world.cli("logs", "mnist", "--since", "1h30m")
    assert client_world.at_once(lambda: client_world.played.requests[-1]["sinceSeconds"]) == "5400"
    stamped = client_world.cli("logs", "mnist", "worker-0", "--tail", "1", "--timestamps").stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z line 9\n", stamped)
    assert client_world.cli("logs", "mnist", "--since", "soon").exit_code == 2
    assert client_world.cli("logs", "mnist", "-f", "--previous").exit_code == 2


def test_closing_the_iterator_ends_all_that_it_began(client_world):
    launch(client_world, worker=2)
    write(client_world, "mnist-worker-0", "one")
    with client_world.client() as client:
        lines = client.logs("mnist", follow=True)
        assert next(lines).text == "one"
        lines.close()

    client_world.await_that(lambda: client_world.at_once(lambda: client_world.played.open) == 0)
    names = ("log-of", "logs-of", "watch-")
    client_world.await_that(lambda: not [one for one in threading.enumerate() if one.name.startswith(names)])


def test_a_busy_task_does_not_silence_a_quiet_one(client_world):
    launch(client_world, worker=2)
    busy = [f"busy {number}" for number in range(20_000)]
    write(client_world, "mnist-worker-0", *busy)
    write(client_world, "mnist-worker-1", "quiet")
    with client_world.client() as client:
        batches = LogFollowing(client.api, "mnist", None, LogRequest((), follow=True), lambda _: None).batches()
        taken: list[list[LogLine]] = []
        while sum(map(len, taken)) < 20_001:
            taken.append(next(batches))
        batches.close()

    assert max(map(len, taken)) < 10_000, "others must have a chance to come between"
    assert [line.text for batch in taken for line in batch if line.index == 0] == busy
    assert [line.text for batch in taken for line in batch if line.index == 1] == ["quiet"]


def test_who_gives_lines_waits_while_nobody_takes_them():
    channel = Channel()
    line = [LogLine("worker", 0, "p", "c", "text", "")]
    for _ in range(64):
        assert channel.put(line)
    giving = threading.Thread(target=channel.put, args=(line,), daemon=True)
    giving.start()
    giving.join(0.2)
    assert giving.is_alive(), "what nobody takes is kept without an end"

    assert channel.take() == line
    giving.join(GUARD)
    assert not giving.is_alive()
    channel.close()
    assert not channel.put(line)
    assert [channel.take() for _ in range(65)] == [line] * 64 + [None]


def scale(world: ClientWorld, replicas: int) -> None:
    change = {"spec": {"jobs": {"worker": {"replicas": replicas}}}}
    world.at_once(lambda: world.kube.patch("tfclusters", "default", "mnist", change))
