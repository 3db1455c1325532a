"""Resolvers of other sources than the mounted view: a written ClusterSpec, a file."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import GUARD

from tfcluster_resolver import ClusterSpec, TFClusterResolver, accelerators, contract
from tfcluster_resolver.device_filters import ClusterDeviceFilters
from tfcluster_resolver.errors import ArgumentValueError, MalformedViewError, NoSuchTaskError, ViewNotFoundError
from tfcluster_resolver.views.fullest import fullest
from tfcluster_resolver.views.watch import PollingNotice

VIEW = contract.View(
    name="c", namespace="n", uid="u", epoch=3, rpc_layer="grpc+x", jobs={"worker": ("w0:1",), "chief": ("c0:1",)}
)
FILTERS = {"worker": {0: ("/job:ps",), 2: ("/job:ps", "/job:chief")}}


@pytest.fixture(autouse=True)
def _in_a_pod_of_another_cluster(monkeypatch, tmp_path):
    """The environment is that of a task of another cluster: none of these sources may look at it."""
    monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path / "nowhere"))
    monkeypatch.setenv(contract.ENV_JOB, "other")
    monkeypatch.setenv(contract.ENV_TASK_INDEX, "7")
    monkeypatch.setenv(contract.ENV_ADDRESS, "other:1")


def cluster_def(jobs) -> SimpleNamespace:
    """Make what has the fields of a ClusterDef message."""
    listed = [SimpleNamespace(name=name, tasks=dict(enumerate(tasks))) for name, tasks in jobs.items()]
    return SimpleNamespace(job=listed, SerializeToString=None)


JOBS = {"worker": ["w0:1", "w1:1"], "ps": {1: "p1:1", 5: "p5:1"}}


@pytest.mark.parametrize("cluster", [JOBS, ClusterSpec(JOBS)], ids=["dict", "ClusterSpec"])
def test_written_spec_is_told_as_it_is(cluster):
    """The spec, its addresses and the given task come back; the environment's task is nowhere."""
    resolver = TFClusterResolver.from_spec(cluster, "worker", 1)

    assert resolver.cluster_spec().as_dict() == JOBS
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer, resolver.epoch) == ("worker", 1, "grpc", 0)
    assert (resolver.master(), resolver.master("ps", 5)) == ("grpc://w1:1", "grpc://p5:1")
    assert repr(resolver) == "<TFClusterResolver of a given ClusterSpec, /job:worker/task:1>"


def test_cluster_def_is_read():
    """A ClusterDef message gives its jobs."""
    assert TFClusterResolver.from_spec(cluster_def({"w": ["a:1", "b:1"]})).cluster_spec().as_dict() == {
        "w": ["a:1", "b:1"]
    }


def test_bytes_become_text():
    """Names and addresses in bytes, which TensorFlow takes, are told as text."""
    assert TFClusterResolver.from_spec({b"w": [b"a:1"]}).cluster_spec().as_dict() == {"w": ["a:1"]}


def test_written_spec_is_not_shared():
    """A later change of the caller's dict changes no answer."""
    jobs = {"worker": ["w0:1"]}
    resolver = TFClusterResolver.from_spec(jobs)
    jobs["worker"].append("w1:1")

    assert resolver.cluster_spec().num_tasks("worker") == 1


def test_written_spec_without_a_task_has_no_master():
    """Without a task there is no master; TensorFlow takes an empty one as nothing to connect to."""
    with pytest.raises(NoSuchTaskError):
        TFClusterResolver.from_spec(JOBS).master()


def test_unknown_task_of_a_written_spec_is_named():
    """The error of a task that is not there does not speak of a view."""
    with pytest.raises(NoSuchTaskError, match=r"no task 9 of job 'worker' in the given ClusterSpec$"):
        TFClusterResolver.from_spec(JOBS).master("worker", 9)


def test_rpc_layer_of_a_written_spec_can_be_none():
    """An empty rpc layer gives addresses alone."""
    assert TFClusterResolver.from_spec(JOBS, "worker", 0, rpc_layer="").master() == "w0:1"


def test_evaluator_in_a_written_spec_stays():
    """TensorFlow's specs may have an evaluator; it stays, with its address."""
    resolver = TFClusterResolver.from_spec({"chief": ["c:1"], "evaluator": ["e:1"]}, "evaluator", 0)

    assert resolver.cluster_spec().jobs == ["chief", "evaluator"]
    assert resolver.master() == "grpc://e:1"


def filters_message(filters) -> SimpleNamespace:
    """Make what has the fields of a ClusterDeviceFilters message."""
    jobs = [
        SimpleNamespace(name=job, tasks={i: SimpleNamespace(device_filters=list(f)) for i, f in tasks.items()})
        for job, tasks in filters.items()
    ]
    return SimpleNamespace(jobs=jobs, SerializeToString=None)


def our_filters() -> ClusterDeviceFilters:
    filters = ClusterDeviceFilters()
    for index, texts in FILTERS["worker"].items():
        filters.set_device_filters("worker", index, list(texts))
    return filters


@pytest.mark.parametrize(
    "declared",
    [
        FILTERS,
        {"worker": {0: ["/job:ps"], 1: [], 2: ["/job:ps", "/job:chief"]}},
        filters_message(FILTERS),
        SimpleNamespace(_as_cluster_device_filters=lambda: filters_message(FILTERS)),
        our_filters(),
    ],
    ids=["mapping", "with an empty list", "message", "TensorFlow's class", "our class"],
)
def test_filters_of_a_written_spec_are_kept(declared):
    """Device filters are taken as a mapping, as the protobuf message, or as a class that has one."""
    assert TFClusterResolver.from_spec(JOBS, device_filters=declared).membership().device_filters() == FILTERS


@pytest.mark.parametrize(
    ("cluster", "filters", "kind"),
    [
        (None, None, TypeError),
        (["w0:1"], None, TypeError),
        ("worker", None, TypeError),
        ({"worker": "w0:1"}, None, TypeError),
        ({"worker": [1]}, None, TypeError),
        ({"worker": {-1: "w0:1"}}, None, ValueError),
        (JOBS, "/job:ps", TypeError),
        (JOBS, {"worker": ["/job:ps"]}, TypeError),
        (JOBS, {"worker": {0: "/job:ps"}}, TypeError),
        (JOBS, {"worker": {0: iter(["/job:ps"])}}, TypeError),
        (JOBS, {"worker": {0: [b"/job:ps"]}}, TypeError),
        (JOBS, {"worker": {"0": ["/job:ps"]}}, TypeError),
        (JOBS, {"worker": {True: ["/job:ps"]}}, TypeError),
        (JOBS, {"worker": {-1: ["/job:ps"]}}, ValueError),
        (JOBS, {"worker": {0: ["job:ps"]}}, ValueError),
        (JOBS, {"my-worker": {0: ["/job:ps"]}}, ValueError),
    ],
)
def test_what_is_no_spec_is_refused(cluster, filters, kind):
    """What is no cluster or no filters is refused at once: a text of filters would show everything in TensorFlow."""
    with pytest.raises(kind):
        TFClusterResolver.from_spec(cluster, device_filters=filters)


def test_own_accelerators_of_a_written_spec_are_the_visible_ones(monkeypatch):
    """A laptop's own task has the accelerators that the process sees; of other tasks nothing is known."""
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: {"GPU": 3})
    resolver = TFClusterResolver.from_spec(JOBS, "worker", 0)

    assert resolver.num_accelerators() == {"GPU": 3}
    assert resolver.num_accelerators("worker", 0) == {"GPU": 3}
    assert resolver.num_accelerators("worker", 1) == {}
    assert resolver.snapshot().num_accelerators()["GPU"] == 3


def test_accelerators_that_cannot_be_told_are_none(monkeypatch):
    """Where nothing can be told of devices, none are counted."""
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: None)

    assert TFClusterResolver.from_spec(JOBS, "worker", 0).num_accelerators() == {}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 - our own bytes
def test_copies_of_every_source_answer_the_same(tmp_path, duplicate):
    """Copies, deep copies and pickles of resolvers of a spec, a file and a snapshot answer the same."""
    (tmp_path / "mine").write_text(contract.dump(VIEW))
    of_file = TFClusterResolver.from_file(tmp_path / "mine", "worker", 0)

    for resolver in (TFClusterResolver.from_spec(JOBS, "worker", 0), of_file, of_file.snapshot()):
        other = duplicate(resolver)
        assert (repr(other), other.cluster_spec(), other.master()) == (
            repr(resolver),
            resolver.cluster_spec(),
            resolver.master(),
        )


def test_subclasses_of_users_are_kept(tmp_path):
    """What a class method makes is of the class that it was called on."""

    class Mine(TFClusterResolver):
        environment = "mine"

    (tmp_path / "mine").write_text(contract.dump(VIEW))

    for one in (Mine.from_spec(JOBS), Mine.from_file(tmp_path / "mine")):
        assert (type(one), type(one.snapshot()), one.snapshot().environment) == (Mine, Mine, "mine")


def test_constructor_of_a_subclass_is_run(tmp_path):
    """What a subclass sets up is there however the resolver is made, and in its copies."""

    class Mine(TFClusterResolver):
        def __init__(self, *arguments, **named) -> None:
            super().__init__(*arguments, **named)
            self.asked: list[str] = []

        def master(self, *arguments, **named) -> str:
            self.asked.append("master")
            return super().master(*arguments, **named)

    (tmp_path / "mine").write_text(contract.dump(VIEW))

    for one in (Mine.from_spec(JOBS, "worker", 0), Mine.from_file(tmp_path / "mine", "worker", 0)):
        assert (one.master(), one.snapshot().master()) == (one.master(), one.master())
        assert len(one.asked) == 4


class Counting:
    """A source of a user's own: each look is another epoch."""

    def __init__(self) -> None:
        self.looks = 0

    def view(self) -> contract.View:
        self.looks += 1
        return replace(VIEW, epoch=self.looks)

    def notice(self) -> PollingNotice:
        return PollingNotice(0.001)


def test_source_of_a_user_is_taken():
    """What gives views and notices can be a resolver's source; its snapshots stay and its watches follow."""
    resolver = TFClusterResolver("worker", 0, source=Counting())
    now = resolver.snapshot()

    assert now.epoch == now.epoch < resolver.epoch
    assert next(now.watch(timeout=GUARD)).epoch > now.epoch
    assert now.master() == "grpc+x://w0:1"


def test_file_is_read_anew(tmp_path):
    """A view file of any name is read at each call; the environment's task is not in it."""
    path = tmp_path / "copied.json"
    path.write_text(contract.dump(VIEW))
    resolver = TFClusterResolver.from_file(path, "worker", 0)
    before = resolver.snapshot()
    (tmp_path / "new").write_text(contract.dump(contract.load(contract.dump(VIEW).replace('"w0:1"', '"w0:2"'))))
    (tmp_path / "new").rename(path)

    assert resolver.cluster_spec().as_dict() == {"worker": ["w0:2"], "chief": ["c0:1"]}
    assert (resolver.epoch, resolver.rpc_layer, resolver.master()) == (3, "grpc+x", "grpc+x://w0:2")
    assert before.master() == "grpc+x://w0:1"


def test_file_of_a_relative_path_is_read(tmp_path, monkeypatch):
    """A bare file name is one of the present folder."""
    (tmp_path / "copied.json").write_text(contract.dump(VIEW))
    monkeypatch.chdir(tmp_path)

    assert TFClusterResolver.from_file("copied.json").epoch == 3


def test_file_of_a_relative_path_stays_the_same_file(tmp_path, monkeypatch):
    """The path is that of the moment, wherever the program goes: also a folder's, and that of a copy."""
    (tmp_path / "cluster.json").write_text(contract.dump(VIEW))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(contract.ENV_JOB)
    monkeypatch.delenv(contract.ENV_TASK_INDEX)
    monkeypatch.delenv(contract.ENV_ADDRESS)
    made = [TFClusterResolver.from_file("cluster.json"), TFClusterResolver(directory=".")]
    monkeypatch.chdir(tmp_path / "elsewhere")

    for resolver in (*made, *(pickle.loads(pickle.dumps(one)) for one in made)):  # noqa: S301 - our own bytes
        assert resolver.epoch == 3
        assert list(resolver.snapshot().watch(timeout=0)) == []


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", b"\0"])
def test_what_can_be_no_path_is_refused(path):
    """What can be the name of no file is told as that, and not as a missing view."""
    for make in (TFClusterResolver.from_file, lambda one: TFClusterResolver.from_kubernetes("c", kubeconfig=one)):
        with pytest.raises(ArgumentValueError):
            make(path)


@pytest.mark.parametrize("name", ["", "Upper", "a,b", "a in (b)", "../a", "-a", "a" * 254, "\ud800"])
def test_what_can_be_no_name_in_kubernetes_is_refused(name):
    """A name becomes a part of a path and of a selector, so only what the API server allows is taken."""
    for arguments in ((name,), ("c", name)):
        with pytest.raises(ArgumentValueError):
            TFClusterResolver.from_kubernetes(*arguments)


def test_file_in_a_mount_is_followed_through_its_swap(tmp_path):
    """A path in a mounted folder follows the kubelet's swap."""
    for number, epoch in enumerate((3, 4)):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "cluster.json").write_text(
            contract.dump(VIEW).replace('"epoch":3', f'"epoch":{epoch}')
        )
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "cluster.json").symlink_to("..data/cluster.json")
    resolver = TFClusterResolver.from_file(tmp_path / "cluster.json")
    assert resolver.epoch == 3

    (tmp_path / "..data_tmp").symlink_to("..1")
    (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    assert resolver.epoch == 4


def test_file_without_end_is_no_view():
    """No more of a file is read than a view can have."""
    with pytest.raises(MalformedViewError, match="/dev/zero is not a view: it has more than the 4194304 bytes"):
        TFClusterResolver.from_file("/dev/zero")


def test_missing_and_malformed_files_are_named(tmp_path):
    """A file that is not there, or is no view, is named at once."""
    with pytest.raises(ViewNotFoundError, match=r"none\.json"):
        TFClusterResolver.from_file(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(MalformedViewError, match=r"bad\.json is not a view: version"):
        TFClusterResolver.from_file(tmp_path / "bad.json")


def view(epoch: int, jobs, **parts) -> contract.View:
    return contract.View(name="c", namespace="n", uid="u", epoch=epoch, rpc_layer="grpc", jobs=jobs, **parts)


def test_newest_whole_job_counts():
    """Of two views that show a whole job the newer one counts, also where it shows fewer tasks."""
    merged = fullest([view(5, {"worker": ("w0:1",)}), view(4, {"worker": ("w0:1", "w1:1"), "ps": ("p:1",)})])

    assert merged.jobs == {"worker": ("w0:1",), "ps": ("p:1",)}
    assert merged.epoch == 5


def test_whole_job_goes_before_its_parts():
    """A view that shows a part of a job takes nothing from one that shows it whole, however old."""
    merged = fullest([view(2, {"worker": ("w0:1", "w1:1")}), view(9, {"worker": {1: "w1:1"}})])

    assert merged.jobs == {"worker": ("w0:1", "w1:1")}


def test_filters_come_with_the_tasks():
    """The filters of a job are those of the view that shows it, not of an older one."""
    ranges = (contract.FilterRange(0, 2, ("/job:ps",)),)
    merged = fullest(
        [
            view(1, {"worker": ("w0:1",)}, device_filters={"worker": ranges}),
            view(2, {"worker": ("w0:1",)}),
            view(3, {"ps": {0: "p0:1"}}, device_filters={"ps": (contract.FilterRange(0, 1, ("/job:a",)),)}),
            view(3, {"ps": {2: "p2:1"}}, device_filters={"ps": (contract.FilterRange(2, 3, ("/job:b",)),)}),
        ]
    )

    assert merged.jobs["ps"] == {0: "p0:1", 2: "p2:1"}
    assert merged.device_filters == {
        "ps": (contract.FilterRange(0, 1, ("/job:a",)), contract.FilterRange(2, 3, ("/job:b",)))
    }


@given(st.integers(1, 6), st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5))
def test_merged_parts_are_all_that_is_seen(count, parts):
    """Whatever parts of a job are seen, the merged view has exactly the tasks that somebody sees."""
    seen = [{index for index in part if index < count} for part in parts]
    views = [
        view(
            1,
            {"worker": tuple(f"w{i}:1" for i in range(count)) if len(part) == count else {i: f"w{i}:1" for i in part}},
        )
        for part in seen
    ]

    tasks = TFClusterResolver.from_spec(
        {job: list(t) if isinstance(t, tuple) else dict(t) for job, t in fullest(views).jobs.items()}
    ).cluster_spec()

    assert tasks.task_indices("worker") == sorted(set().union(*seen))
