"""Sources of the resolver's view: the mounted file, a written ClusterSpec, any file."""

import os
import pickle
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resolver.resolver_world import DUPLICATES, Kubelet, be_no_task, be_task, publish, view_of
from support.waiting import GUARD

from tfcluster_resolver import ClusterSpec, TFClusterResolver, accelerators, contract
from tfcluster_resolver.errors import (
    ArgumentValueError,
    MalformedViewError,
    NoSuchTaskError,
    UnsupportedViewError,
    ViewNotFoundError,
    ViewUnreadableError,
)
from tfcluster_resolver.views.file import ViewFile
from tfcluster_resolver.views.kubernetes import fullest

VIEW = view_of({"worker": ("w0:1",), "chief": ("c0:1",)}, epoch=3, rpc_layer="grpc+x")
FILTERS = {"worker": {0: ("/job:ps",), 2: ("/job:ps", "/job:chief")}}
JOBS = {"worker": ["w0:1", "w1:1"], "ps": {1: "p1:1", 5: "p5:1"}}


@pytest.fixture(autouse=True)
def _in_a_pod_of_another_cluster(monkeypatch, tmp_path):
    """The environment is that of another cluster's task: these sources must not use it."""
    be_task(monkeypatch, "other", 7, "other:1", tmp_path / "nowhere")


@pytest.mark.parametrize("cluster", [JOBS, ClusterSpec(JOBS)], ids=["dict", "ClusterSpec"])
def test_given_spec_is_returned_unchanged(cluster):
    resolver = TFClusterResolver.from_spec(cluster, "worker", 1)
    assert resolver.cluster_spec().as_dict() == JOBS
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer, resolver.epoch) == ("worker", 1, "grpc", 0)
    assert (resolver.master(), resolver.master("ps", 5)) == ("grpc://w1:1", "grpc://p5:1")
    assert repr(resolver) == "<TFClusterResolver of a given ClusterSpec, /job:worker/task:1>"
    assert TFClusterResolver.from_spec(cluster, "worker", 0, rpc_layer="").master() == "w0:1"


@pytest.mark.parametrize(
    ("cluster", "jobs"),
    [
        (ClusterSpec({"w": ["a:1", "b:1"]}).as_cluster_def(), {"w": ["a:1", "b:1"]}),
        ({b"w": [b"a:1"]}, {"w": ["a:1"]}),
        ({"chief": ["c:1"], "evaluator": ["e:1"]}, {"chief": ["c:1"], "evaluator": ["e:1"]}),
    ],
    ids=["ClusterDef", "bytes", "evaluator"],
)
def test_what_tensorflow_takes_is_read(cluster, jobs):
    assert TFClusterResolver.from_spec(cluster).cluster_spec().as_dict() == jobs


def test_unknown_task_of_a_written_spec_is_named():
    """The error does not mention a view; the master is undefined, and TensorFlow would take it as empty."""
    with pytest.raises(NoSuchTaskError, match=r"no task 9 of job 'worker' in the given ClusterSpec$"):
        TFClusterResolver.from_spec(JOBS).master("worker", 9)
    with pytest.raises(NoSuchTaskError):
        TFClusterResolver.from_spec(JOBS).master()


@pytest.mark.parametrize(
    "declared",
    [
        FILTERS,
        {"worker": {0: ["/job:ps"], 1: [], 2: ["/job:ps", "/job:chief"]}},
        TFClusterResolver.from_spec(JOBS, device_filters=FILTERS).device_filters(),
    ],
    ids=["mapping", "with an empty list", "our class"],
)
def test_filters_of_a_written_spec_are_kept(declared):
    """TensorFlow's class and message are in tests/tensorflow/test_connect_targets.py."""
    assert TFClusterResolver.from_spec(JOBS, device_filters=declared).membership().device_filters() == FILTERS


@pytest.mark.parametrize(
    ("cluster", "filters", "kind"),
    [
        (None, None, TypeError),
        (JOBS, "/job:ps", TypeError),
        (JOBS, {"worker": ["/job:ps"]}, TypeError),
        (JOBS, {"worker": {0: ["job:ps"]}}, ValueError),
    ],
)
def test_invalid_spec_is_rejected(cluster, filters, kind):
    """Invalid clusters and filters raise immediately; TensorFlow would take a string as filters that show all."""
    with pytest.raises(kind):
        TFClusterResolver.from_spec(cluster, device_filters=filters)


def test_own_accelerators_of_a_written_spec_are_the_visible_ones(monkeypatch):
    """A laptop's own task has the accelerators that the process sees; those of other tasks are unknown."""
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: {"GPU": 3})
    resolver = TFClusterResolver.from_spec(JOBS, "worker", 0)
    assert resolver.num_accelerators() == resolver.num_accelerators("worker", 0) == {"GPU": 3}
    assert resolver.num_accelerators("worker", 1) == {}
    assert resolver.snapshot().num_accelerators()["GPU"] == 3
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: None)
    assert resolver.num_accelerators() == {}


@DUPLICATES
def test_copies_of_every_source_answer_the_same(tmp_path, duplicate):
    publish(tmp_path, VIEW)
    of_file = TFClusterResolver.from_file(tmp_path / "cluster.json", "worker", 0)
    for resolver in (TFClusterResolver.from_spec(JOBS, "worker", 0), of_file, of_file.snapshot()):
        answers = [(repr(one), one.cluster_spec(), one.master()) for one in (resolver, duplicate(resolver))]
        assert answers[0] == answers[1]
    assert duplicate(of_file.membership()) == of_file.membership()
    assert repr(of_file) == "<TFClusterResolver n/c epoch 3, /job:worker/task:0>"
    (tmp_path / "cluster.json").unlink()
    assert repr(duplicate(of_file)) == "<TFClusterResolver (ViewNotFoundError), /job:worker/task:0>"


def test_subclasses_of_users_are_kept(tmp_path):
    class Mine(TFClusterResolver):
        environment = "mine"

        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named)
            self.asked: list[str] = []

        def master(self, *arguments, **named) -> str:
            self.asked.append("master")
            return super().master(*arguments, **named)

    publish(tmp_path, VIEW)

    for one in (Mine.from_spec(JOBS, "worker", 0), Mine.from_file(tmp_path / "cluster.json", "worker", 0)):
        assert (type(one), type(one.snapshot()), one.snapshot().environment) == (Mine, Mine, "mine")
        assert (one.master(), one.snapshot().master()) == (one.master(), one.master())
        assert len(one.asked) == 4


class Counting:
    """A user's own source: each read is another epoch."""

    interval = 0.001

    def __init__(self) -> None:
        self.looks = 0

    def view(self) -> contract.View:
        self.looks += 1
        return replace(VIEW, epoch=self.looks)


def test_source_of_a_user_is_taken():
    """An object with views and an interval can be a resolver's source; its snapshots stay and its watches follow."""
    resolver = TFClusterResolver("worker", 0, source=Counting())
    now = resolver.snapshot()
    assert now.epoch == now.epoch < resolver.epoch
    assert next(now.watch(timeout=GUARD)).epoch > now.epoch
    assert now.master() == "grpc+x://w0:1"


def test_file_of_a_relative_path_stays_the_same_file(tmp_path, monkeypatch):
    """The path is resolved once, for any name, also a folder's, and for a copy."""
    publish(tmp_path, VIEW)
    (tmp_path / "copied").write_text(contract.dump(VIEW))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    be_no_task(monkeypatch)
    made = [TFClusterResolver.from_file("copied"), TFClusterResolver(directory=".")]
    monkeypatch.chdir(tmp_path / "elsewhere")

    for resolver in (*made, *(pickle.loads(pickle.dumps(one)) for one in made)):  # noqa: S301 - our own bytes
        assert resolver.epoch == 3
        assert list(resolver.snapshot().watch(timeout=0)) == []


PATHS = ["", "a\0b", "\ud800", b"\0"]
NAMES = ["", "Upper", "a,b", "a in (b)", "../a", "-a", "a" * 254, "\ud800"]


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (TFClusterResolver.from_file, PATHS),
        (lambda path: TFClusterResolver.from_kubernetes("c", kubeconfig=path), PATHS),
        (TFClusterResolver.from_kubernetes, NAMES),
        (lambda namespace: TFClusterResolver.from_kubernetes("c", namespace), NAMES),
    ],
    ids=["file", "kubeconfig", "name", "namespace"],
)
def test_invalid_path_or_name_is_rejected(make, values):
    """A name becomes a part of a path and of a selector, so only names that the API server allows are accepted."""
    for value in values:
        with pytest.raises(ArgumentValueError):
            make(value)


def test_missing_and_endless_files_are_named(tmp_path):
    with pytest.raises(ViewNotFoundError, match=r"none\.json"):
        TFClusterResolver.from_file(tmp_path / "none.json")
    with pytest.raises(MalformedViewError, match="/dev/zero is not a view: it has more than the 4194304 bytes"):
        TFClusterResolver.from_file("/dev/zero")


# several views combined


def test_newest_whole_job_counts():
    """The newest of the views that show a whole job, also with fewer tasks; a partial view removes nothing."""
    views = [
        view_of({"worker": ("w0:1",), "ps": {1: "p1:1"}}, epoch=5),
        view_of({"worker": ("w0:1", "w1:1"), "ps": ("p0:1", "p1:1")}, epoch=4),
    ]
    merged = fullest(views)
    assert (merged.jobs, merged.epoch) == ({"worker": ("w0:1",), "ps": ("p0:1", "p1:1")}, 5)


def test_filters_come_with_the_tasks():
    def filters(start: int, stop: int, text: str) -> tuple[contract.FilterRange]:
        return (contract.FilterRange(start, stop, (text,)),)

    merged = fullest(
        [
            view_of({"worker": ("w0:1",)}, epoch=1, device_filters={"worker": filters(0, 2, "/job:ps")}),
            view_of({"worker": ("w0:1",)}, epoch=2),
            view_of({"ps": {0: "p0:1"}}, epoch=3, device_filters={"ps": filters(0, 1, "/job:a")}),
            view_of({"ps": {2: "p2:1"}}, epoch=3, device_filters={"ps": filters(2, 3, "/job:b")}),
        ]
    )

    assert merged.jobs["ps"] == {0: "p0:1", 2: "p2:1"}
    assert merged.device_filters == {"ps": filters(0, 1, "/job:a") + filters(2, 3, "/job:b")}


@given(st.integers(1, 6), st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5))
def test_merged_parts_are_all_that_is_seen(count, parts):
    seen = [{index for index in part if index < count} for part in parts]
    whole = tuple(f"w{i}:1" for i in range(count))
    shown = [whole if len(part) == count else {i: whole[i] for i in part} for part in seen]
    tasks = fullest([view_of({"worker": part}) for part in shown]).jobs["worker"]
    assert sorted(range(len(tasks)) if isinstance(tasks, tuple) else tasks) == sorted(set().union(*seen))


# the mounted view: swaps, missing and malformed files


SHARED, OWN = contract.VIEW_FILE, contract.task_view_file(3)
SWAPS = 3000
NEWER = '{"version":2,"jobs":"in another form"}'


@pytest.fixture
def mount(tmp_path) -> Kubelet:
    return Kubelet(tmp_path)


def text_of(epoch: int, **changes) -> str:
    return contract.dump(replace(VIEW, epoch=epoch, **changes))


def test_slow_thread_does_not_restore_an_old_view(mount, monkeypatch):
    mount.swap({SHARED: text_of(1)})
    view_file = ViewFile(mount.folder, None)
    old = view_file.read()
    old_stamp = view_file._stamp()
    mount.swap({SHARED: text_of(2)})

    class Stamp(tuple):
        """The stamp of the new view; during its comparison, the slow thread stores its old read."""

        __slots__ = ()

        def __ne__(self, other: object) -> bool:
            view_file._last = (old_stamp, old)
            return tuple.__ne__(self, other)

    stamp = Stamp(view_file._stamp())
    monkeypatch.setattr(view_file, "_stamp", lambda: stamp)

    assert [view_file.read()[0].epoch for _ in range(3)] == [2, 2, 2]


def test_reader_never_sees_a_torn_view(mount):
    """While the kubelet swaps as fast as it can, every read is one of the whole views, and epochs only grow."""
    addresses = {epoch: tuple(f"{epoch}:{task}" for task in range(epoch % 7)) for epoch in range(SWAPS)}
    texts = [text_of(epoch, jobs={"worker": seen}) for epoch, seen in addresses.items()]
    mount.swap({SHARED: texts[0]})
    view_file = ViewFile(mount.folder, 3)

    def write() -> None:
        for epoch in range(1, SWAPS):
            mount.swap({OWN if epoch % 3 == 0 else SHARED: texts[epoch]})

    writer = threading.Thread(target=write)
    writer.start()
    seen = [0]
    while seen[-1] < SWAPS - 1:
        view = view_file.read()[0]
        assert view.jobs["worker"] == addresses[view.epoch]
        seen.append(view.epoch)
    writer.join()

    assert seen == sorted(seen)
    assert len(set(seen)) > 10


def test_own_view_goes_before_the_shared_one(mount):
    """A task with its own filters reads its own file, which can appear and disappear; others the shared one."""
    view_file = ViewFile(mount.folder, 3)
    seen = []
    for files in ({SHARED: text_of(1)}, {OWN: text_of(2), SHARED: text_of(1)}) * 2:
        mount.swap(files)
        seen.append(view_file.read()[0].epoch)
    assert seen == [1, 2, 1, 2]
    assert [ViewFile(mount.folder, index).read()[0].epoch for index in (3, 4, None)] == [2, 1, 1]


def test_unchanged_view_is_not_parsed_again(mount, monkeypatch):
    mount.swap({SHARED: text_of(1)})
    view_file = ViewFile(mount.folder, None)
    first = view_file.read()
    calls = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **kwargs: calls.append(args) or real(*args, **kwargs))
    monkeypatch.setattr(contract, "load", None)

    assert view_file.read() is first
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("prepare", "kind", "words"),
    [
        (lambda _: None, FileNotFoundError, r"task-7\.json, cluster\.json is in /"),
        (
            lambda folder: (folder / "..data").symlink_to("gone"),
            ViewNotFoundError,
            r"task-7\.json, cluster\.json is in /",
        ),
        (lambda folder: (folder / "cluster.json").mkdir(), ViewUnreadableError, r"cluster\.json: Is a directory$"),
        (lambda folder: publish(folder, NEWER), UnsupportedViewError, "version 2 is newer than 1.*update tfcluster"),
    ],
    ids=["none", "a dead link", "a folder", "a newer version"],
)
def test_view_that_cannot_be_had_is_named(tmp_path, prepare, kind, words):
    prepare(tmp_path)
    with pytest.raises(kind, match=words):
        ViewFile(tmp_path, 7).read()


@pytest.mark.parametrize("content", [b"", text_of(1)[:40].encode(), b"\xff", b"[" * 100_000])
def test_malformed_view_is_named_and_the_next_good_one_read(mount, content):
    """test_contract.py lists what is malformed."""
    mount.write(VIEW)
    view_file = ViewFile(mount.folder, None)
    (mount.folder / "cluster.json").write_bytes(content)
    with pytest.raises(MalformedViewError, match=r"cluster\.json is not a view"):
        view_file.read()
    mount.swap({SHARED: text_of(5)})
    assert view_file.read()[0].epoch == 5
