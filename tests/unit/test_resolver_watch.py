"""Watching the mounted view for new epochs, through the kubelet's real swap."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.waiting import GUARD
from unit.resolver_world import GPU, Kubelet, be_no_task, be_task, view_of

from tfcluster_resolver import NewEpoch, TFClusterResolver, contract
from tfcluster_resolver.cluster import Task
from tfcluster_resolver.errors import MalformedViewError, ViewNotFoundError
from tfcluster_resolver.views import watch

VIEW = view_of(
    {"worker": ("w0:1", "w1:1"), "ps": ("p0:1",)},
    device_filters={"worker": (contract.FilterRange(0, 4, ("/job:ps",)),)},
)


@pytest.fixture
def kubelet(tmp_path, monkeypatch) -> Kubelet:
    one = Kubelet(tmp_path / "mounted")
    one.write(VIEW)
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(one.folder))
    return one


@pytest.fixture(params=["inotify", "polling"])
def _way(request, monkeypatch):
    """The watch detects changes either with inotify alone, or by polling without it."""
    if request.param == "polling":
        monkeypatch.setattr(watch, "_open_inotify", lambda: None)
    else:
        monkeypatch.setattr(watch, "_LOOK_ANYWAY", 1e6)


@pytest.fixture
def while_waiting(monkeypatch):
    """Runs an action while a watch waits, and returns the epoch that the watch then yields."""
    waits = threading.Event()
    real = watch.FolderNotice.wait

    def wait(notice: watch.FolderNotice, timeout: float) -> None:
        waits.set()
        real(notice, timeout)

    monkeypatch.setattr(watch.FolderNotice, "wait", wait)

    def follow(following: Iterator[NewEpoch], act: Callable[[], object]) -> NewEpoch:
        seen: list[NewEpoch] = []
        waits.clear()
        follower = threading.Thread(target=lambda: seen.append(next(following)), daemon=True)
        follower.start()
        assert waits.wait(GUARD), "it never waited"
        act()
        follower.join(GUARD)
        assert seen, "the change was not noticed"
        return seen[0]

    return follow


def at(epoch: int, **changes) -> contract.View:
    return replace(VIEW, epoch=epoch, **changes)


def open_descriptors() -> list[str]:
    """Return the open descriptors of this process, without that of the descriptor folder itself."""
    return sorted(os.fspath(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists())


@pytest.mark.parametrize(("descriptor", "found"), [(0, 0), (7, 7), (-1, None)])
def test_descriptor_of_inotify(monkeypatch, descriptor, found):
    """It can be 0 in a process without an input."""
    library = SimpleNamespace(inotify_init1=lambda _: descriptor)
    monkeypatch.setattr(watch.ctypes, "CDLL", lambda *_, **__: library)
    assert watch._open_inotify() == found


@pytest.mark.usefixtures("_way")
def test_epoch_names_what_came_and_went(kubelet):
    """The added and removed tasks, or a change of filters; its resolver is frozen at it."""
    following = TFClusterResolver(task_type="worker", task_id=0).watch(timeout=GUARD)
    kubelet.write(at(4, jobs={"worker": ("w0:1", "w1:2", "w2:1")}))

    change = next(following)
    kubelet.write(at(5))

    assert isinstance(change, NewEpoch)
    assert (change.epoch, change.filters_changed) == (4, False)
    assert change.added == (Task("worker", 1, "w1:2"), Task("worker", 2, "w2:1"))
    assert change.removed == (Task("ps", 0, "p0:1"), Task("worker", 1, "w1:1"))
    assert change.resolver.cluster_spec().as_dict() == {"worker": ["w0:1", "w1:2", "w2:1"]}
    assert (change.resolver.epoch, change.resolver.task_type, type(change.resolver)) == (4, "worker", TFClusterResolver)
    assert next(following).epoch == 5

    kubelet.write(at(6, device_filters={}))
    change = next(following)
    assert (change.added, change.removed, change.filters_changed) == ((), (), True)


def test_task_that_is_scaled_away_leaves(kubelet, monkeypatch):
    """It is both removed and leaving; its ClusterSpec keeps it, as TensorFlow needs, and then it is unchanged."""
    be_task(monkeypatch, "worker", 1, "w1:1")
    resolver = TFClusterResolver()
    following = resolver.watch(timeout=GUARD)
    assert not resolver.leaving
    kubelet.write(at(2, jobs={"ps": ("p0:1",), "worker": ("w0:1",)}, leaving={"worker": ((1, 3),), "ps": ((5, 6),)}))

    change = next(following)

    assert (change.added, change.removed) == ((), (Task("worker", 1, "w1:1"),))
    assert change.leaving == (("ps", 5), ("worker", 1), ("worker", 2))
    assert (resolver.leaving, change.resolver.leaving) == (True, True)
    assert [TFClusterResolver("ps", index).leaving for index in (4, 5)] == [False, True]
    assert change.resolver.cluster_spec().task_address("worker", 1) == "w1:1"
    kubelet.write(at(3))
    assert next(following).leaving == ()
    assert not resolver.leaving
    kubelet.write(at(4, leaving={"worker": ((0, 1),)}))
    be_no_task(monkeypatch)
    assert not TFClusterResolver().leaving


def test_close_ends_a_wait_in_another_thread(kubelet, monkeypatch):
    """The waiting thread ends without an error, and closes the descriptor; the watch stays closed."""
    monkeypatch.setattr(watch, "_LOOK_ANYWAY", 0.05)
    before, waits, real = open_descriptors(), threading.Event(), watch.FolderNotice.wait
    monkeypatch.setattr(watch.FolderNotice, "wait", lambda *arguments: (waits.set(), real(*arguments)))
    following = TFClusterResolver().watch()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(list, following)
        assert waits.wait(GUARD), "it never waited"
        following.close()
        assert ended.result(GUARD) == []
    assert open_descriptors() == before
    kubelet.write(at(2))
    assert list(following) == []


@pytest.mark.usefixtures("_way")
def test_every_change_of_the_folder_is_noticed(kubelet, tmp_path, while_waiting):
    """Also the rename of ``..data`` alone, and a re-created folder; no earlier folder stays open."""

    def rename_the_link_alone(epoch: int) -> None:
        (kubelet.folder / "..prepared").mkdir()
        (kubelet.folder / "..prepared" / "cluster.json").write_text(contract.dump(at(epoch)))
        (tmp_path / "link").symlink_to("..prepared")
        (tmp_path / "link").rename(kubelet.folder / "..data")

    def move_the_folder_away(epoch: int) -> None:
        kubelet.folder.rename(tmp_path / f"old-{epoch}")
        kubelet.write(at(epoch))

    def remove_the_folder(epoch: int) -> None:
        shutil.rmtree(kubelet.folder)
        kubelet.write(at(epoch))

    def swap(epoch: int) -> None:
        kubelet.write(at(epoch))

    following = TFClusterResolver().watch()
    assert while_waiting(following, partial(swap, 2)).epoch == 2
    count = len(open_descriptors())
    changes = (swap, rename_the_link_alone, swap, move_the_folder_away, swap, remove_the_folder, swap)
    for epoch, change in enumerate(changes, 3):
        assert while_waiting(following, partial(change, epoch)).epoch == epoch
    shutil.rmtree(kubelet.folder)
    assert while_waiting(following, partial(swap, 20)).epoch == 20
    assert len(open_descriptors()) == count


@pytest.mark.usefixtures("_way")
def test_file_written_in_place_is_noticed(tmp_path, while_waiting):
    path = tmp_path / "mine.json"
    path.write_text(contract.dump(VIEW))
    following = TFClusterResolver.from_file(path).watch()
    for epoch in (2, 3):
        whole = contract.dump(at(epoch))
        path.write_text(whole[:30])
        assert while_waiting(following, partial(path.write_text, whole)).epoch == epoch


def test_folder_that_comes_back_with_the_same_inode_is_followed(kubelet, monkeypatch, while_waiting):
    """A file system can reuse the inode of the removed folder, whose removal is detected all the same."""
    monkeypatch.setattr(watch, "_LOOK_ANYWAY", 1e6)
    monkeypatch.setattr(watch, "_identity", lambda _: (1, 1))
    following = TFClusterResolver().watch()
    assert while_waiting(following, lambda: (shutil.rmtree(kubelet.folder), kubelet.write(at(2)))).epoch == 2
    assert while_waiting(following, lambda: kubelet.write(at(3))).epoch == 3


@pytest.mark.usefixtures("_way")
def test_last_of_many_quick_changes_is_seen(kubelet):
    last = 400
    following = TFClusterResolver().watch(timeout=GUARD)
    writer = threading.Thread(target=lambda: [kubelet.write(at(epoch)) for epoch in range(2, last + 1)])
    writer.start()
    seen = []
    for change in following:
        seen.append(change.epoch)
        if change.epoch == last:
            break
    writer.join()

    assert seen == sorted(set(seen))
    assert seen[-1] == last


@pytest.mark.parametrize(
    ("changes", "epochs"),
    [
        ({}, []),
        ({"accelerators": {"worker": contract.JobAccelerators(limits={GPU: 1})}}, []),
        ({"uid": "another"}, [1]),
        ({"epoch": 2}, [2]),
    ],
    ids=["the same", "a lost accelerator", "a TFCluster made again", "another epoch"],
)
def test_another_epoch_or_cluster_is_news(kubelet, changes, epochs):
    """With timeout 0 the watch reads once, ends, and stays ended."""
    following = TFClusterResolver().watch(timeout=0)
    kubelet.write(replace(VIEW, **changes))
    assert [one.epoch for one in following] == epochs
    kubelet.write(at(3))
    assert list(following) == []


def test_watch_of_a_frozen_resolver_begins_at_its_epoch(kubelet):
    """A change between freezing and watching is not lost; a snapshot and the resolver of a change are frozen."""
    frozen = TFClusterResolver().snapshot()
    kubelet.write(at(2))
    change = next(frozen.watch(timeout=GUARD))
    assert (change.epoch, frozen.epoch) == (2, 1)
    assert next(frozen.snapshot().watch(timeout=GUARD)).epoch == 2
    kubelet.write(at(3))
    assert next(change.resolver.watch(timeout=GUARD)).epoch == 3


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("kind", [ViewNotFoundError, MalformedViewError])
def test_view_that_stays_spoilt_is_an_error(kubelet, monkeypatch, kind):
    """A missing or malformed view is an error each time, also without a timeout; after a repair the watch continues."""
    monkeypatch.setattr(watch, "GRACE", 0.2)
    following = TFClusterResolver().watch()
    if kind is MalformedViewError:
        kubelet.swap({"cluster.json": "{"})
    else:
        shutil.rmtree(kubelet.folder)
    for _ in range(2):
        with pytest.raises(kind):
            next(following)

    for epoch in (2, 3):
        kubelet.write(at(epoch))
        assert next(following).epoch == epoch


def test_forked_process_continues_with_its_own_watch(kubelet, monkeypatch):
    """After a fork both processes get every new epoch from the same iterator, independently."""
    monkeypatch.setattr(watch, "_LOOK_ANYWAY", 1e6)
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(2))
    next(following)
    to_child, from_parent = os.pipe(), os.pipe()

    child = os.fork()
    if not child:
        seen = []
        try:
            for _ in (3, 4):
                seen.append(next(following).epoch)
                os.write(to_child[1], b".")
                os.read(from_parent[0], 1)
        finally:
            os._exit(0 if seen == [3, 4] else 1)
    for epoch in (3, 4):
        kubelet.write(at(epoch))
        assert next(following).epoch == epoch
        os.read(to_child[0], 1)
        os.write(from_parent[1], b".")

    assert os.waitpid(child, 0)[1] == 0


def test_watch_closes_its_descriptor(kubelet):
    """A watch that ended by itself, was closed, dropped or never started leaves no descriptor open."""
    before = open_descriptors()
    resolver = TFClusterResolver()

    list(resolver.watch(timeout=0))
    begun = resolver.watch(timeout=GUARD)
    kubelet.write(at(2))
    next(begun)
    assert len(open_descriptors()) == len(before) + 1
    begun.close()
    resolver.watch()
    forgotten = resolver.watch(timeout=GUARD)
    kubelet.write(at(3))
    next(forgotten)
    assert list(begun) == []
    del forgotten
    gc.collect()

    assert open_descriptors() == before


@pytest.mark.usefixtures("kubelet")
def test_waiting_rarely_reads_the_view(monkeypatch):
    looks = []
    resolver = TFClusterResolver()
    real = resolver._source.view
    monkeypatch.setattr(resolver._source, "view", lambda: looks.append(1) or real())
    list(resolver.watch(timeout=0.5))
    assert len(looks) <= 4


def test_written_spec_never_changes(monkeypatch):
    monkeypatch.setattr(time, "sleep", None)
    assert list(TFClusterResolver.from_spec({"worker": ["w0:1"]}).watch()) == []


def test_polling_sleeps_between_looks(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with watch.PollingNotice(1.0) as notice:
        for timeout in (5.0, 0.25, -1.0):
            notice.wait(timeout)
    assert slept == [1.0, 0.25, 0.0]


def test_without_inotifys_descriptors_it_polls(kubelet, monkeypatch):
    monkeypatch.setattr(watch, "_add_watch", lambda *_: False)
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(2))
    assert next(following).epoch == 2
