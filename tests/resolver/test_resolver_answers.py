"""The resolver's results without TensorFlow."""

import warnings
from dataclasses import replace

import pytest
from resolver.resolver_world import GPU, IDENTITY, Index, be_no_task, be_task, publish, view_of

from tfcluster_resolver import ClusterSpec, TFClusterResolver, accelerators, contract
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import (
    AcceleratorMismatchWarning,
    ArgumentTypeError,
    ArgumentValueError,
    NoSuchTaskError,
    TaskIdentityError,
)

VIEW = view_of(
    {"chief": ("c0:1",), "worker": tuple(f"w{i}:1" for i in range(12)), "ps": {1: "p1:1", 3: "p3:1"}},
    epoch=4,
    device_filters={"worker": (contract.FilterRange(0, 2, ("/job:ps",)), contract.FilterRange(2, 4, ("/job:chief",)))},
    accelerators={
        "worker": contract.JobAccelerators(limits={GPU: 2, "vendor.example/nic": 1}, tasks={1: {GPU: 1}, 10: {GPU: 0}}),
        "evaluator": contract.JobAccelerators(limits={"amd.com/gpu": 1, "gpu.intel.com/i915": 2, "google.com/tpu": 4}),
    },
)


@pytest.fixture(autouse=True)
def visible(monkeypatch):
    monkeypatch.setattr(accelerators, "_warned", set())
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: None)
    return lambda **counts: monkeypatch.setattr(accelerators, "visible_accelerators", lambda: counts)


@pytest.fixture
def speak_as(tmp_path, monkeypatch):
    def speak(task: str | None = None, *, view: contract.View = VIEW, **arguments) -> TFClusterResolver:
        publish(tmp_path, view)
        monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path))
        if task is None:
            be_no_task(monkeypatch)
        else:
            job, _, index = task.partition("-")
            be_task(monkeypatch, job, int(index), f"own-{task}:1")
        return TFClusterResolver(**arguments)

    return speak


def test_spec_is_the_view_and_the_own_task(speak_as):
    """A sparse job stays an index map; a task that the view hides, such as an evaluator, is only in its own spec."""
    jobs = {"chief": ["c0:1"], "worker": [f"w{i}:1" for i in range(12)], "ps": {1: "p1:1", 3: "p3:1"}}

    assert isinstance(speak_as("worker-3").cluster_spec(), ClusterSpec)
    assert speak_as("worker-3").cluster_spec().as_dict() == jobs
    assert speak_as("ps-0").cluster_spec().as_dict() == {**jobs, "ps": {0: "own-ps-0:1", 1: "p1:1", 3: "p3:1"}}
    evaluator = speak_as("evaluator-0")
    assert evaluator.cluster_spec().as_dict() == {**jobs, "evaluator": ["own-evaluator-0:1"]}
    assert (evaluator.task_type, evaluator.task_id, evaluator.environment) == ("evaluator", 0, "")
    assert evaluator.master() == "grpc://own-evaluator-0:1"
    assert not speak_as(view=replace(VIEW, jobs={})).cluster_spec()


def test_answers_are_fresh(speak_as):
    resolver = speak_as("chief-0")
    frozen = resolver.snapshot()
    speak_as("chief-0", view=replace(VIEW, epoch=5, rpc_layer="grpc+loas", jobs={"chief": ("c0:2",)}))
    assert (resolver.epoch, resolver.rpc_layer, resolver.master()) == (5, "grpc+loas", "grpc+loas://c0:2")
    assert (frozen.epoch, frozen.rpc_layer, frozen.master()) == (4, "grpc", "grpc://c0:1")
    assert frozen.snapshot().cluster_spec() == frozen.cluster_spec() != resolver.cluster_spec()


def test_master_is_the_named_task(speak_as):
    master = speak_as("worker-1").master
    assert (master(), master(None, 11)) == ("grpc://w1:1", "grpc://w11:1")
    workers = [master("worker", index) for index in (10, 0, Index(3))]
    assert workers == ["grpc://w10:1", "grpc://w0:1", "grpc://w3:1"]
    assert master("ps", 3) == master("ps", Index(3)) == "grpc://p3:1"
    assert (master("chief", 0, "http"), master("chief", 0, "")) == ("http://c0:1", "c0:1")


NO_INDICES = ("1", 3e9, 1.0, True, b"1", [], {})


@pytest.mark.parametrize(
    ("task", "error", "words"),
    [
        *((("worker", index), NoSuchTaskError, "n/c, epoch 4") for index in (12, -1, 3 * 10**9)),
        *((("ps", index), NoSuchTaskError, "n/c, epoch 4") for index in (0, -1, 3 * 10**9)),
        (("none", 0), NoSuchTaskError, "n/c, epoch 4"),
        *(((job, index), ArgumentTypeError, r"index|task_id") for job in ("worker", "ps") for index in NO_INDICES),
        *(((job, 10**5000), ArgumentValueError, r"index|task_id") for job in ("worker", "ps")),
        *(((job, 0), ArgumentTypeError, r"job|task_type") for job in (b"worker", 1, [], object())),
        (("\ud800", 0), ArgumentValueError, "Unicode"),
    ],
)
def test_invalid_job_or_index_is_rejected(speak_as, task, error, words):
    """For dense and sparse jobs, an index is an integer of the view, and a job is a string."""
    resolver = speak_as("chief-0")
    for ask in (resolver.master, resolver.num_accelerators, resolver.membership().address_of):
        with pytest.raises(error, match=words) as caught:
            ask(*task)
        assert isinstance(caught.value, TypeError if error is ArgumentTypeError else ValueError)


@pytest.mark.parametrize(("task", "job"), [(None, "worker"), ("worker-1", "chief"), ("worker-1", "ps")])
def test_job_without_an_index_is_rejected(speak_as, task, job):
    resolver = speak_as(task)
    for ask in (resolver.master, resolver.num_accelerators):
        with pytest.raises(NoSuchTaskError, match="give both or neither"):
            ask(job)
    with pytest.raises(NoSuchTaskError):  # TensorFlow uses "" for no connection
        speak_as(None).master()


def test_resolver_for_another_job_needs_a_task_id(speak_as):
    with pytest.raises(
        ArgumentValueError, match=r"task_type 'chief' was given without task_id, and this pod is /job:worker/task:1"
    ):
        speak_as("worker-1", task_type="chief")
    assert speak_as("worker-1", task_type="worker").master() == "grpc://w1:1"
    assert speak_as("worker-1", task_id=3).master() == "grpc://w3:1"


def test_what_is_set_counts(speak_as):
    resolver = speak_as("worker-1", task_type="ps", task_id=1, rpc_layer="http")
    assert resolver.master() == "http://p1:1"
    resolver.task_type, resolver.task_id, resolver.rpc_layer = "chief", 0, None
    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("chief", 0, "grpc://c0:1")


def accelerators_of(resolver: TFClusterResolver, *task: object) -> tuple[dict[str, int], str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        counts = resolver.num_accelerators(*task)
    assert all(one.category is AcceleratorMismatchWarning and one.filename == __file__ for one in caught)
    return counts, " ".join(str(one.message) for one in caught)


@pytest.mark.parametrize(
    ("asked", "shown", "found"),
    [
        (("worker-0",), None, ({"GPU": 2}, [])),
        (("chief-0", "worker", 1), None, ({"GPU": 1}, [])),
        (("chief-0", "worker", 10), None, ({"GPU": 0}, [])),
        (("evaluator-0",), None, ({"GPU": 3, "TPU": 4}, [])),
        ((None,), None, ({"GPU": 10 * 2 + 1}, [])),
        (("worker-0",), {"GPU": 2}, ({"GPU": 2}, [])),
        (("worker-1",), {"GPU": 1}, ({"GPU": 1}, [])),
        (("chief-0",), {}, ({}, [])),
        (("worker-0", "worker", 1), {"GPU": 7}, ({"GPU": 1}, [])),
        (("chief-0", "worker", 10), {"GPU": 8}, ({"GPU": 0}, [])),
        ((None, "worker", 0), {"GPU": 7}, ({"GPU": 2}, [])),
        (("evaluator-0",), {"GPU": 3, "TPU": 4}, ({"GPU": 3, "TPU": 4}, [])),
        (("evaluator-0",), {}, ({"GPU": 0, "TPU": 0}, ["has 3 healthy GPU", "has 4 healthy TPU"])),
        (("evaluator-0", "evaluator", 0), {"GPU": 1, "TPU": 4}, ({"GPU": 1, "TPU": 4}, ["3 healthy GPU", "1 can be"])),
        (("evaluator-0",), {"GPU": 8}, ({"GPU": 3, "TPU": 0}, ["3 healthy GPU", "8 can be used"])),
        (("chief-0",), {"GPU": 8}, ({"GPU": 8}, ["has 0 healthy GPU", "Those count"])),
    ],
)
def test_own_accelerators_are_what_is_granted_and_can_be_used(speak_as, visible, asked, shown, found):
    """For the own task the smaller number counts, and a warning has both; without a limit, the visible ones count."""
    if shown is not None:
        visible(**shown)

    counted, warning = accelerators_of(speak_as(asked[0]), *asked[1:])

    counts, words = found
    assert (counted, bool(warning)) == (counts, bool(words))
    assert [word for word in words if word not in warning] == []
    assert counted["FPGA"] == 0
    assert accelerators_of(speak_as(asked[0]).snapshot(), *asked[1:]) == (counts, "")


def test_mismatch_of_accelerators_is_a_warning_for_each_pair(speak_as, visible):
    for count in (1, 3):
        visible(GPU=count)
        assert (
            f"has 2 healthy GPU devices by the view of n/c, and {count} can" in accelerators_of(speak_as("worker-0"))[1]
        )
        assert accelerators_of(speak_as("worker-0"))[1] == ""


@pytest.mark.parametrize("arguments", [{"task_type": 1}, {"task_id": "1"}, {"rpc_layer": b"grpc"}, {"directory": 3}])
def test_arguments_of_the_resolver_are_checked(speak_as, arguments):
    with pytest.raises(ArgumentTypeError, match=next(iter(arguments))):
        speak_as("worker-1", **arguments)
    for name, value in arguments.items() - {("directory", 3)}:
        with pytest.raises(ArgumentTypeError, match=name):
            setattr(speak_as("worker-1"), name, value)
    with pytest.raises(ArgumentTypeError, match="timeout"):
        speak_as("worker-1").watch("1")


def test_view_cannot_be_changed(speak_as):
    view = speak_as("chief-0").membership().view
    held = view.accelerators["worker"]

    for mapping, key in ((view.jobs, "ps"), (view.jobs["ps"], 1), (view.device_filters, "ps"), (held.limits, GPU)):
        with pytest.raises(TypeError):
            mapping[key] = ()
    with pytest.raises(TypeError):
        held.tasks[1][GPU] = 7
    before = contract.dump(VIEW)
    Membership(view=VIEW, own=Task("ps", 0, "own:1")).jobs()["worker"].clear()
    assert contract.dump(VIEW) == before


def test_filters_are_spelled_out(speak_as):
    resolver = speak_as("chief-0")
    spelled = {0: ("/job:ps",), 1: ("/job:ps",), 2: ("/job:chief",), 3: ("/job:chief",)}
    assert resolver.membership().device_filters() == {"worker": spelled}
    assert resolver.device_filters().as_dict() == {"worker": {index: list(texts) for index, texts in spelled.items()}}
    assert speak_as("chief-0", view=replace(VIEW, device_filters={})).device_filters() is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("worker",), "has TFCLUSTER_JOB, but not TFCLUSTER_TASK_INDEX and TFCLUSTER_ADDRESS"),
        (("worker", "one", "a:1"), "TFCLUSTER_TASK_INDEX='one' is not a task index"),
        (("worker", "1" * 5000, "a:1"), "is not a task index"),
        (("\udcff", "1", "a:1"), r"TFCLUSTER_JOB='\\udcff' is not UTF-8"),
    ],
    ids=["half", "no index", "long index", "no text"],
)
def test_wrong_identity_is_named(speak_as, monkeypatch, values, message):
    speak_as()
    for name, value in zip(IDENTITY, values, strict=False):
        monkeypatch.setenv(name, value)
    with pytest.raises(TaskIdentityError, match=message):
        TFClusterResolver()
