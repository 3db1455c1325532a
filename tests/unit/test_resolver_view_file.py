"""Reading the mounted view: swaps, missing and malformed files."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcluster_resolver import contract, errors
from tfcluster_resolver.views.file import ViewFile

VIEW = contract.View(
    name="c", namespace="n", uid="u", epoch=1, rpc_layer="grpc", jobs={"worker": ("a:1", "b:1"), "ps": {2: "p:1"}}
)
SWAPS = 3000


class Mount:
    """A ConfigMap volume as the kubelet keeps it: a new folder for each content, swapped in by a rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names = (f"..{number}" for number in itertools.count())

    def swap(self, **texts: str) -> None:
        """Put these files in place of the present ones, all at once, and remove the old folder at once."""
        data = self.folder / "..data"
        before = data.readlink() if data.is_symlink() else None
        new = self.folder / next(self._names)
        new.mkdir()
        for name, text in texts.items():
            (new / name.replace("_json", ".json").replace("task_", "task-")).write_text(text)
        (self.folder / "..data_tmp").symlink_to(new.name)
        (self.folder / "..data_tmp").rename(data)
        if before is not None:
            shutil.rmtree(self.folder / before)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


def text_of(epoch: int, **changes) -> str:
    return contract.dump(replace(VIEW, epoch=epoch, **changes))


def test_slow_thread_takes_nothing_back(mount, monkeypatch):
    """A thread that stores an old view while another looks at the cache does not change what the other is given."""
    mount.swap(cluster_json=text_of(1))
    view_file = ViewFile(mount.folder, None)
    old = view_file.read()
    old_stamp = view_file._stamp()
    mount.swap(cluster_json=text_of(2))

    class Stamp(tuple):
        """The stamp of the new view; while it is compared, the slow thread stores what it read before."""

        __slots__ = ()

        def __ne__(self, other: object) -> bool:
            view_file._last = (old_stamp, old)
            return tuple.__ne__(self, other)

    stamp = Stamp(view_file._stamp())
    monkeypatch.setattr(view_file, "_stamp", lambda: stamp)

    assert [view_file.read().view.epoch for _ in range(3)] == [2, 2, 2]


def test_reader_never_sees_a_torn_view(mount):
    """While the kubelet swaps as fast as it can, every reading is one of the whole views, and epochs only grow."""
    addresses = {epoch: tuple(f"{epoch}:{task}" for task in range(epoch % 7)) for epoch in range(SWAPS)}
    mount.swap(cluster_json=text_of(0, jobs={"worker": addresses[0]}))
    view_file = ViewFile(mount.folder, 3)

    def write() -> None:
        for epoch in range(1, SWAPS):
            name = "task_3_json" if epoch % 3 == 0 else "cluster_json"
            mount.swap(**{name: text_of(epoch, jobs={"worker": addresses[epoch]})})

    writer = threading.Thread(target=write)
    writer.start()
    seen = [0]
    while seen[-1] < SWAPS - 1:
        view = view_file.read().view
        assert view.jobs["worker"] == addresses[view.epoch]
        seen.append(view.epoch)
    writer.join()

    assert seen == sorted(seen)
    assert len(set(seen)) > 10


def test_own_view_goes_before_the_shared_one(mount):
    """A task with filters of its own reads its file, every other task the shared one."""
    mount.swap(task_3_json=text_of(2), cluster_json=text_of(1))

    assert [ViewFile(mount.folder, index).read().view.epoch for index in (3, 4, None)] == [2, 1, 1]


def test_own_view_that_comes_and_goes_is_noticed(mount):
    """A reader changes between its own file and the shared one with the mount."""
    view_file = ViewFile(mount.folder, 3)
    seen = []
    for files in ({"cluster_json": text_of(1)}, {"cluster_json": text_of(1), "task_3_json": text_of(2)}) * 2:
        mount.swap(**files)
        seen.append(view_file.read().view.epoch)

    assert seen == [1, 2, 1, 2]


def test_unchanged_view_is_not_parsed_again(mount, monkeypatch):
    """While the mount is unchanged a reading costs one stat, and gives the very same view."""
    mount.swap(cluster_json=text_of(1))
    view_file = ViewFile(mount.folder, None)
    first = view_file.read()
    calls = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **kwargs: calls.append(args) or real(*args, **kwargs))
    monkeypatch.setattr(contract, "load", None)

    assert view_file.read() is first
    assert len(calls) == 1


def test_plain_folder_serves_too(tmp_path):
    """A folder that no kubelet keeps, as on a laptop, is read as well, and so is its change."""
    (tmp_path / "cluster.json").write_text(text_of(1))
    view_file = ViewFile(tmp_path, 0)
    first = view_file.read()
    (tmp_path / "new").write_text(text_of(2))
    (tmp_path / "new").rename(tmp_path / "cluster.json")

    assert [first.view.epoch, view_file.read().view.epoch] == [1, 2]


@pytest.mark.parametrize("prepare", [lambda _: None, lambda folder: (folder / "..data").symlink_to("gone")])
def test_missing_view_is_named(tmp_path, prepare):
    """Without a view the error names the folder and the files, and is a FileNotFoundError."""
    prepare(tmp_path)

    with pytest.raises(errors.ViewNotFoundError, match=rf"task-7\.json, cluster\.json is in {tmp_path}") as caught:
        ViewFile(tmp_path, 7).read()

    assert isinstance(caught.value, FileNotFoundError)


def test_unreadable_view_is_named(tmp_path):
    """A view that cannot be opened gives an error with its path and the system's reason."""
    (tmp_path / "cluster.json").mkdir()

    with pytest.raises(errors.ViewUnreadableError, match=r"cluster\.json: Is a directory"):
        ViewFile(tmp_path, None).read()


def test_newer_view_is_told_from_a_malformed_one(mount):
    """A view of a later version asks for an update of the package."""
    mount.swap(cluster_json=text_of(1).replace('"version":1', '"version":2'))

    with pytest.raises(errors.UnsupportedViewError, match="update tfcluster"):
        ViewFile(mount.folder, None).read()


MALFORMED = {
    "nothing": "",
    "half a file": text_of(1)[:40],
    "a list": "[]",
    "nested too deeply": "[" * 100_000,
    "not UTF-8": "\udcff",
    "an index of five thousand digits": text_of(1).replace('{"2":', '{"' + "9" * 5000 + '":'),
    "an index with a leading zero": text_of(1).replace('{"2":', '{"02":'),
    "an address that is a number": text_of(1).replace('"b:1"', "3"),
    "an epoch that is text": text_of(7).replace('"epoch":7', '"epoch":"7"'),
    "an epoch below zero": text_of(7).replace('"epoch":7', '"epoch":-7'),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_view_is_named(tmp_path, text):
    """A file that is no view gives an error with its path."""
    (tmp_path / "cluster.json").write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(errors.MalformedViewError, match=r"cluster\.json is not a view"):
        ViewFile(tmp_path, None).read()


def test_reader_recovers_from_a_malformed_view(mount):
    """After a malformed view the next good one is read."""
    mount.swap(cluster_json="{")
    view_file = ViewFile(mount.folder, None)
    with pytest.raises(errors.MalformedViewError):
        view_file.read()

    mount.swap(cluster_json=text_of(5))

    assert view_file.read().view.epoch == 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["version", "cluster", "epoch", "rpcLayer", "jobs", "deviceFilters", "accelerators", "leaving", "incarnations"]
RANGES = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: tuple(sorted(pair)))


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_document_is_a_view_or_refused(replaced):
    """Whatever stands in place of a key of a view, it is read as a view or refused as a ContractError."""
    document = contract.json.loads(text_of(1)) | replaced

    try:
        view = contract.load(contract.json.dumps(document))
    except contract.ContractError:
        return
    assert contract.load(contract.dump(view)) == view


@given(
    st.builds(
        contract.View,
        name=st.text(),
        namespace=st.text(),
        uid=st.text(),
        epoch=st.integers(0, 2**40),
        rpc_layer=st.text(),
        jobs=st.dictionaries(
            st.text(), st.lists(st.text()).map(tuple) | st.dictionaries(st.integers(0, 10**9), st.text())
        ),
        device_filters=st.dictionaries(
            st.text(),
            st.lists(
                st.builds(lambda of, texts: contract.FilterRange(*of, texts), RANGES, st.lists(st.text()).map(tuple))
            ).map(tuple),
        ),
        leaving=st.dictionaries(st.text(), st.lists(RANGES).map(tuple)),
        incarnations=st.dictionaries(st.text(), st.dictionaries(st.integers(0, 10**9), st.text())),
    )
)
def test_view_survives_its_spelling(view):
    """What is dumped is loaded as the same view."""
    assert contract.load(contract.dump(view)) == view
