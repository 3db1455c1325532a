"""Watching the mounted view for new epochs, through the kubelet's real swap."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from resolver.resolver_world import GPU, Kubelet, be_no_task, be_task, view_of
from support.waiting import GUARD

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


def at(epoch: int, **changes) -> contract.View:
    return replace(VIEW, epoch=epoch, **changes)


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
    waits, real = threading.Event(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (waits.set(), real(seconds)))
    following = TFClusterResolver().watch()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(list, following)
        assert waits.wait(GUARD), "it never waited"
        following.close()
        assert ended.result(GUARD) == []
    kubelet.write(at(2))
    assert list(following) == []


def test_every_change_of_the_folder_is_noticed(kubelet, tmp_path):
    """Also the rename of ``..data`` alone, and a folder that was moved away or removed and created again."""

    def rename_the_link_alone(epoch: int) -> None:
        (kubelet.folder / "..prepared").mkdir()
        (kubelet.folder / "..prepared" / "cluster.json").write_text(contract.dump(at(epoch)))
        (tmp_path / "link").symlink_to("..prepared")
        (tmp_path / "link").rename(kubelet.folder / "..data")

    def move_the_folder_away(epoch: int) -> None:
        kubelet.folder.rename(tmp_path / "old")
        kubelet.write(at(epoch))

    def remove_the_folder(epoch: int) -> None:
        shutil.rmtree(kubelet.folder)
        kubelet.write(at(epoch))

    following = TFClusterResolver().watch(timeout=GUARD)
    for epoch, change in enumerate((rename_the_link_alone, move_the_folder_away, remove_the_folder), 2):
        change(epoch)
        assert next(following).epoch == epoch


def test_file_that_is_half_written_is_awaited(tmp_path, monkeypatch):
    path = tmp_path / "mine.json"
    path.write_text(contract.dump(VIEW))
    following = TFClusterResolver.from_file(path).watch()
    whole = contract.dump(at(2))
    path.write_text(whole[:30])
    monkeypatch.setattr(time, "sleep", lambda _: path.write_text(whole))
    assert next(following).epoch == 2


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


@pytest.mark.parametrize("kind", [ViewNotFoundError, MalformedViewError])
def test_view_that_stays_spoilt_is_an_error(kubelet, monkeypatch, kind):
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


@pytest.mark.usefixtures("kubelet")
def test_watch_sleeps_between_looks(monkeypatch):
    slept: list[float] = []
    now = iter([0.0, 0.0, 0.05, 0.1, 0.12])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", now.__next__)
    assert list(TFClusterResolver().watch(timeout=0.12)) == []
    assert slept == pytest.approx([0.05, 0.05, 0.02])


def test_written_spec_never_changes(monkeypatch):
    monkeypatch.setattr(time, "sleep", None)
    assert list(TFClusterResolver.from_spec({"worker": ["w0:1"]}).watch()) == []
