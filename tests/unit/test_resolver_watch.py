"""Watching the mounted view for new epochs, through the kubelet's real swap."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.waiting import GUARD

from tfcluster_resolver import NewEpoch, TFClusterResolver, contract
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import MalformedViewError, ViewNotFoundError
from tfcluster_resolver.views import watch

VIEW = contract.View(
    name="c",
    namespace="n",
    uid="u",
    epoch=1,
    rpc_layer="grpc",
    jobs={"worker": ("w0:1", "w1:1"), "ps": ("p0:1",)},
    device_filters={"worker": (contract.FilterRange(0, 4, ("/job:ps",)),)},
)


class Kubelet:
    """Writes a ConfigMap volume by the steps of the kubelet's atomic writer (pkg/volume/util/atomic_writer.go)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stamps = itertools.count()

    def write(self, view: contract.View) -> None:
        """Put a view in place: a timestamped folder, the rename of ``..data``, the user's link, the old one's end."""
        self.folder.mkdir(exist_ok=True)
        data = self.folder / "..data"
        before = data.readlink() if data.is_symlink() else None
        new = self.folder / f"..2026_11_21_09_00_00.{next(self._stamps):09d}"
        new.mkdir()
        new.chmod(0o755)
        (new / "cluster.json").write_text(contract.dump(view))
        (self.folder / "..data_tmp").symlink_to(new.name)
        (self.folder / "..data_tmp").rename(data)
        if not (self.folder / "cluster.json").is_symlink():
            (self.folder / "cluster.json").symlink_to("..data/cluster.json")
        if before is not None:
            shutil.rmtree(self.folder / before)


@pytest.fixture
def kubelet(tmp_path, monkeypatch) -> Kubelet:
    """The kubelet of a mounted view at epoch 1, which the environment names."""
    one = Kubelet(tmp_path / "mounted")
    one.write(VIEW)
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(one.folder))
    return one


@pytest.fixture(params=["inotify", "polling"])
def _way(request, monkeypatch):
    """The watch learns of changes by inotify alone, and by looking where there is none."""
    if request.param == "polling":
        monkeypatch.setattr(watch, "_open_inotify", lambda: None)
    else:
        monkeypatch.setattr(watch, "_LOOK_ANYWAY", 1e6)


@pytest.fixture
def while_waiting(monkeypatch):
    """Has something happen while a watch waits, and gives the epoch that the watch then yields."""
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
    """Name what this process has open, but not the folder of descriptors itself."""
    return sorted(os.fspath(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists())


@pytest.mark.usefixtures("_way")
def test_epoch_tells_what_came_and_went(kubelet):
    """A new epoch names the tasks that were added and removed, and its resolver is frozen at it."""
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


def test_a_task_that_is_scaled_away_is_told_so(kubelet, monkeypatch):
    """It went and it leaves; its ClusterSpec keeps it, as TensorFlow needs, and afterwards it is as if it stayed."""
    names = {contract.ENV_JOB: "worker", contract.ENV_TASK_INDEX: "1", contract.ENV_ADDRESS: "w1:1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    resolver = TFClusterResolver()
    following = resolver.watch(timeout=GUARD)
    assert not resolver.leaving
    kubelet.write(at(2, jobs={"ps": ("p0:1",), "worker": ("w0:1",)}, leaving={"worker": ((1, 3),)}))

    change = next(following)

    assert (change.added, change.removed) == ((), (Task("worker", 1, "w1:1"),))
    assert change.leaving == (("worker", 1), ("worker", 2))
    assert (resolver.leaving, change.resolver.leaving) == (True, True)
    assert change.resolver.cluster_spec().task_address("worker", 1) == "w1:1"
    kubelet.write(at(3))
    assert next(following).leaving == ()
    assert not resolver.leaving


def test_others_that_leave_are_named(kubelet):
    """Who stays hears of them too, whatever task the resolver speaks for."""
    kubelet.write(at(2, leaving={"worker": ((1, 2),), "ps": ((5, 6),)}))

    membership = TFClusterResolver().membership()

    assert membership.leaving() == (("ps", 5), ("worker", 1))
    assert TFClusterResolver(task_type="ps", task_id=5).leaving
    assert not TFClusterResolver(task_type="ps", task_id=4).leaving
    assert not TFClusterResolver().leaving


def test_more_tasks_than_there_can_be_do_not_leave():
    """A view that was made in a program, and that no file could hold, does not fill the memory."""
    view = replace(VIEW, leaving={"worker": ((0, 2_000_000_000),)})

    with pytest.raises(MalformedViewError, match="over 100000 tasks leave"):
        Membership(view=view, own=None).leaving()


def test_changed_filters_are_an_epoch_without_tasks(kubelet):
    """An edit of device filters alone adds and removes nobody, and is told."""
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(2, device_filters={}))

    change = next(following)

    assert (change.added, change.removed, change.filters_changed) == ((), (), True)


@pytest.mark.usefixtures("_way")
def test_change_while_waiting_is_noticed(kubelet, while_waiting):
    """A swap that happens while somebody waits wakes that somebody, each time."""
    following = TFClusterResolver().watch()

    assert [while_waiting(following, lambda e=epoch: kubelet.write(at(e))).epoch for epoch in (2, 3)] == [2, 3]


@pytest.mark.usefixtures("_way")
def test_renamed_link_alone_is_noticed(kubelet, while_waiting):
    """The rename of ``..data`` is enough: nothing else in the folder needs to change."""
    new = kubelet.folder / "..prepared"
    new.mkdir()
    (new / "cluster.json").write_text(contract.dump(at(2)))
    outside = kubelet.folder.parent / "link"
    outside.symlink_to(new.name)

    following = TFClusterResolver().watch()

    assert while_waiting(following, lambda: outside.rename(kubelet.folder / "..data")).epoch == 2


@pytest.mark.usefixtures("_way")
def test_file_written_in_place_is_noticed(tmp_path, while_waiting):
    """A file that is overwritten, as on a laptop, is noticed when it is whole."""
    path = tmp_path / "mine.json"
    path.write_text(contract.dump(VIEW))
    following = TFClusterResolver.from_file(path).watch()

    assert while_waiting(following, lambda: path.write_text(contract.dump(at(2)))).epoch == 2


@pytest.mark.usefixtures("_way")
def test_last_of_many_quick_changes_is_seen(kubelet):
    """However quickly views follow one another, epochs only grow and the last one always comes."""
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


def test_views_without_a_new_epoch_are_no_news(kubelet):
    """A rewritten view of the same epoch, such as after a lost accelerator, ends no wait."""
    following = TFClusterResolver().watch(timeout=0)
    kubelet.write(at(1, accelerators={"worker": contract.JobAccelerators(limits={"nvidia.com/gpu": 1})}))

    assert list(following) == []


def test_recreated_cluster_is_a_new_epoch(kubelet):
    """A TFCluster that was deleted and made again starts at epoch 1 again, and is told by its uid."""
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(1, uid="another"))

    assert next(following).epoch == 1


def test_watch_ends_after_its_timeout(kubelet):
    """Without a change the watch ends; with timeout 0 it looks once and finds what had changed."""
    assert list(TFClusterResolver().watch(timeout=0)) == []

    following = TFClusterResolver().watch(timeout=0)
    kubelet.write(at(2))

    assert [one.epoch for one in following] == [2]


def test_watch_of_a_snapshot_begins_at_its_epoch(kubelet):
    """What changed between freezing and watching is not lost, and the snapshot itself stays as it is."""
    frozen = TFClusterResolver().snapshot()
    kubelet.write(at(2))

    following = frozen.watch(timeout=GUARD)
    assert next(following).epoch == 2
    assert frozen.epoch == 1

    again = frozen.snapshot()
    assert next(again.watch(timeout=GUARD)).epoch == 2


def test_watch_of_an_epoch_goes_on_from_it(kubelet):
    """The resolver of a change can be watched in turn."""
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(2))
    change = next(following)
    kubelet.write(at(3))

    assert next(change.resolver.watch(timeout=GUARD)).epoch == 3


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("moved", ["moved away", "removed"])
def test_replaced_folder_is_followed(kubelet, tmp_path, while_waiting, moved):
    """A folder that is moved away or removed, and made anew, is watched on; so is every change after that."""
    following = TFClusterResolver().watch()

    def replace_folder() -> None:
        if moved == "removed":
            shutil.rmtree(kubelet.folder)
        else:
            kubelet.folder.rename(tmp_path / "elsewhere")
        kubelet.write(at(2))

    assert while_waiting(following, replace_folder).epoch == 2
    assert while_waiting(following, lambda: kubelet.write(at(3))).epoch == 3


def test_folder_that_comes_back_with_the_same_inode_is_followed(kubelet, monkeypatch, while_waiting):
    """A file system may give a new folder the inode of the removed one, whose end is noticed all the same."""
    monkeypatch.setattr(watch, "_LOOK_ANYWAY", 1e6)
    monkeypatch.setattr(watch, "_identity", lambda _: (1, 1))
    following = TFClusterResolver().watch()

    def replace_folder() -> None:
        shutil.rmtree(kubelet.folder)
        kubelet.write(at(2))

    assert while_waiting(following, replace_folder).epoch == 2
    assert while_waiting(following, lambda: kubelet.write(at(3))).epoch == 3


@pytest.mark.usefixtures("_way")
def test_missing_folder_is_waited_for(kubelet, while_waiting):
    """While the folder is missing the watch waits for it."""
    following = TFClusterResolver().watch()
    shutil.rmtree(kubelet.folder)

    assert while_waiting(following, lambda: kubelet.write(at(2))).epoch == 2


def test_half_written_file_of_a_laptop_is_waited_for(tmp_path):
    """Where no kubelet swaps folders a file may be seen half-written: the watch waits for the rest."""
    path = tmp_path / "mine.json"
    path.write_text(contract.dump(VIEW))
    following = TFClusterResolver.from_file(path).watch(timeout=GUARD)
    whole = contract.dump(at(2))
    path.write_text(whole[:30])
    later = threading.Timer(0.2, path.write_text, (whole,))
    later.start()

    assert next(following).epoch == 2
    later.join()


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (shutil.rmtree, ViewNotFoundError),
        (lambda folder: (folder / "..data" / "cluster.json").write_text("{"), MalformedViewError),
    ],
)
def test_view_that_stays_spoilt_is_an_error(kubelet, monkeypatch, spoil, kind):
    """A view that stays missing or malformed ends the watch with its error, also one without a timeout."""
    monkeypatch.setattr(watch, "GRACE", 0.2)
    following = TFClusterResolver().watch()
    spoil(kubelet.folder)
    # What was swapped by hand has the stamp of the old folder.
    if kind is MalformedViewError:
        os.utime(kubelet.folder / "..data")

    with pytest.raises(kind):
        next(following)


@pytest.mark.usefixtures("_way")
def test_watch_goes_on_after_an_error(kubelet, monkeypatch):
    """A watch that met a malformed view tells the repaired one's epoch when it is asked again, and goes on."""
    monkeypatch.setattr(watch, "GRACE", 0.2)
    following = TFClusterResolver().watch(timeout=GUARD)
    (kubelet.folder / "..data" / "cluster.json").write_text("{")
    os.utime(kubelet.folder / "..data")  # what was swapped by hand has the stamp of the old folder
    for _ in range(2):
        with pytest.raises(MalformedViewError):
            next(following)

    for epoch in (2, 3):
        kubelet.write(at(epoch))
        assert next(following).epoch == epoch


def test_watch_that_ended_stays_ended(kubelet):
    """After its timeout, or closed, a watch is over, as any iterator."""
    timed_out, closed = TFClusterResolver().watch(timeout=0), TFClusterResolver().watch(timeout=GUARD)
    assert list(timed_out) == []
    closed.close()
    kubelet.write(at(2))

    assert list(timed_out) == list(closed) == []


def test_forked_process_goes_on_with_a_watch_of_its_own(kubelet, monkeypatch):
    """After a fork both processes see every new epoch by the same iterator, and neither takes from the other."""
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
    """However a watch ends (by itself, closed, forgotten, never begun), it leaves nothing open."""
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
    del forgotten
    gc.collect()

    assert open_descriptors() == before


def test_replaced_folders_leave_nothing_open(kubelet, tmp_path, while_waiting):
    """Each new folder gets a new watch, and the old one's descriptor is closed."""
    following = TFClusterResolver().watch()
    while_waiting(following, lambda: kubelet.write(at(2)))
    count = len(open_descriptors())

    for epoch in range(3, 8):
        kubelet.folder.rename(tmp_path / f"old-{epoch}")
        while_waiting(following, lambda e=epoch: kubelet.write(at(e)))

    assert len(open_descriptors()) == count


@pytest.mark.usefixtures("kubelet")
def test_waiting_takes_no_processor_time():
    """A watch sleeps: while nothing changes it looks at the files a few times a second at most."""
    looks = []
    resolver = TFClusterResolver()
    live = resolver._source
    real = live.view

    def counted() -> contract.View:
        looks.append(time.monotonic())
        return real()

    live.view = counted
    list(resolver.watch(timeout=0.5))

    assert len(looks) <= 4


def test_written_spec_never_changes(monkeypatch):
    """A resolver of a written ClusterSpec has no epochs: its watch ends at once, without a timeout too."""
    monkeypatch.setattr(time, "sleep", None)

    assert list(TFClusterResolver.from_spec({"worker": ["w0:1"]}).watch()) == []


def test_polling_sleeps_between_looks(monkeypatch):
    """Where nothing tells of changes, each look is followed by a sleep, never beyond the end of the wait."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)

    with watch.PollingNotice(1.0) as notice:
        for timeout in (5.0, 0.25, -1.0):
            notice.wait(timeout)

    assert slept == [1.0, 0.25, 0.0]


def test_without_inotifys_descriptors_it_polls(kubelet, monkeypatch):
    """Where the user's inotify watches are used up the watch still works."""
    monkeypatch.setattr(watch, "_add_watch", lambda *_: False)
    following = TFClusterResolver().watch(timeout=GUARD)
    kubelet.write(at(2))

    assert next(following).epoch == 2
