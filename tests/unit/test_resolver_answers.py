"""What the resolver answers, where there is no TensorFlow."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace

import pytest

from tfcluster_resolver import ClusterSpec, TFClusterResolver, accelerators, contract
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import (
    AcceleratorMismatchWarning,
    ArgumentTypeError,
    ArgumentValueError,
    MalformedViewError,
    NoSuchTaskError,
    TaskIdentityError,
)

GPU = "nvidia.com/gpu"
VIEW = contract.View(
    name="c",
    namespace="n",
    uid="u",
    epoch=4,
    rpc_layer="grpc",
    jobs={"chief": ("c0:1",), "worker": tuple(f"w{i}:1" for i in range(12)), "ps": {1: "p1:1", 3: "p3:1"}},
    device_filters={"worker": (contract.FilterRange(0, 2, ("/job:ps",)), contract.FilterRange(2, 4, ("/job:chief",)))},
    accelerators={
        "worker": contract.JobAccelerators(limits={GPU: 2, "vendor.example/nic": 1}, tasks={1: {GPU: 1}, 10: {GPU: 0}}),
        "evaluator": contract.JobAccelerators(limits={"amd.com/gpu": 1, "gpu.intel.com/i915": 2, "google.com/tpu": 4}),
    },
)


@pytest.fixture(autouse=True)
def visible(monkeypatch):
    """Sets which accelerators the pod shows; nothing can be told until it does."""
    monkeypatch.setattr(accelerators, "_warned", set())
    monkeypatch.setattr(accelerators, "visible_accelerators", lambda: None)
    return lambda **counts: monkeypatch.setattr(accelerators, "visible_accelerators", lambda: counts)


@pytest.fixture
def speak_as(tmp_path, monkeypatch):
    """Makes the resolver of a task, or of no task, with a view."""

    def speak(task: str | None = None, *, view: contract.View = VIEW, **arguments) -> TFClusterResolver:
        (tmp_path / "cluster.json").write_text(contract.dump(view))
        monkeypatch.setenv(contract.ENV_DIRECTORY, str(tmp_path))
        job, _, index = (task or "").partition("-")
        names = (contract.ENV_JOB, contract.ENV_TASK_INDEX, contract.ENV_ADDRESS)
        for name, value in zip(names, (job, index, f"own-{job}-{index}:1"), strict=True):
            if task is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return TFClusterResolver(**arguments)

    return speak


def test_spec_is_the_view(speak_as):
    """A task that its view shows adds nothing; a sparse job stays an index map."""
    spec = speak_as("worker-3").cluster_spec()

    assert isinstance(spec, ClusterSpec)
    assert spec.as_dict() == {
        "chief": ["c0:1"],
        "worker": [f"w{i}:1" for i in range(12)],
        "ps": {1: "p1:1", 3: "p3:1"},
    }


@pytest.mark.parametrize(
    ("task", "job"),
    [
        ("ps-0", {0: "own-ps-0:1", 1: "p1:1", 3: "p3:1"}),
        ("ps-9", {1: "p1:1", 3: "p3:1", 9: "own-ps-9:1"}),
        ("worker-12", [*(f"w{i}:1" for i in range(12)), "own-worker-12:1"]),
        ("lonely-0", ["own-lonely-0:1"]),
        ("lonely-2", {2: "own-lonely-2:1"}),
    ],
)
def test_hidden_task_sees_itself(speak_as, task, job):
    """A task that is not in its view is in its own ClusterSpec, densely where that leaves no gap."""
    assert speak_as(task).cluster_spec().as_dict()[task.partition("-")[0]] == job


def test_evaluator_is_in_its_own_spec_alone(speak_as):
    """An evaluator sees the cluster and itself, so that a strategy finds it; no other task sees it."""
    resolver = speak_as("evaluator-0")

    assert sorted(resolver.cluster_spec().jobs) == ["chief", "evaluator", "ps", "worker"]
    assert (resolver.task_type, resolver.task_id) == ("evaluator", 0)
    assert resolver.master() == f"grpc://{resolver.cluster_spec().task_address('evaluator', 0)}"
    assert speak_as("worker-0").cluster_spec().jobs == ["chief", "ps", "worker"]


def test_empty_cluster_is_false(speak_as):
    """Outside its pods, a cluster without tasks is an empty ClusterSpec."""
    assert not speak_as(view=replace(VIEW, jobs={})).cluster_spec()


def test_answers_are_fresh(speak_as):
    """Spec, epoch and rpc layer follow the file; a snapshot keeps what it had."""
    resolver = speak_as("chief-0")
    frozen = resolver.snapshot()
    speak_as("chief-0", view=replace(VIEW, epoch=5, rpc_layer="grpc+loas", jobs={"chief": ("c0:2",)}))

    assert (resolver.epoch, resolver.rpc_layer, resolver.master()) == (5, "grpc+loas", "grpc+loas://c0:2")
    assert (frozen.epoch, frozen.rpc_layer, frozen.master()) == (4, "grpc", "grpc://c0:1")
    assert frozen.snapshot().cluster_spec() == frozen.cluster_spec() != resolver.cluster_spec()


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ((), "grpc://w1:1"),
        (("worker", 10), "grpc://w10:1"),
        (("worker", 0), "grpc://w0:1"),
        (("ps", 3), "grpc://p3:1"),
        ((None, 11), "grpc://w11:1"),
        (("chief", 0, "http"), "http://c0:1"),
        (("chief", 0, ""), "c0:1"),
    ],
)
def test_master_is_the_named_task(speak_as, arguments, url):
    """``master()`` gives the URL of exactly the task that is named, its own by default."""
    assert speak_as("worker-1").master(*arguments) == url


@pytest.mark.parametrize("arguments", [("worker", 12), ("worker", -1), ("ps", 0), ("none", 0)])
def test_unknown_task_is_refused(speak_as, arguments):
    """A task that the view does not show has no URL and no accelerators; the error is a ValueError."""
    resolver = speak_as("worker-1")

    for ask in (resolver.master, resolver.num_accelerators):
        with pytest.raises(NoSuchTaskError, match="n/c, epoch 4") as caught:
            ask(*arguments)
        assert isinstance(caught.value, ValueError)


def test_master_is_never_empty(speak_as):
    """Where there is no own task ``master()`` raises: TensorFlow takes "" as nothing to connect to."""
    with pytest.raises(NoSuchTaskError):
        speak_as(None).master()


def test_what_is_set_counts(speak_as):
    """Task and rpc layer that are given or set go before those of the pod and the view."""
    resolver = speak_as("worker-1", task_type="ps", task_id=1, rpc_layer="http")
    assert resolver.master() == "http://p1:1"

    resolver.task_type, resolver.task_id, resolver.rpc_layer = "chief", 0, None

    assert (resolver.task_type, resolver.task_id, resolver.master()) == ("chief", 0, "grpc://c0:1")


def test_environment_is_empty(speak_as):
    """As in TensorFlow's resolvers outside of Google, the environment is the empty text."""
    assert speak_as("worker-0").environment == ""


@pytest.mark.parametrize(
    ("task", "arguments", "counts"),
    [
        ("worker-0", (), {"GPU": 2}),
        ("worker-1", (), {"GPU": 1}),
        ("chief-0", ("worker", 1), {"GPU": 1}),
        ("chief-0", ("worker", 10), {"GPU": 0}),
        ("chief-0", ("worker", 11), {"GPU": 2}),
        ("chief-0", (), {}),
        ("evaluator-0", (), {"GPU": 3, "TPU": 4}),
        (None, (), {"GPU": 10 * 2 + 1}),
    ],
)
def test_accelerators_are_the_tasks_own(speak_as, task, arguments, counts):
    """Healthy devices are counted for exactly the task, by TensorFlow's device type; task 1 is not task 10."""
    assert speak_as(task).num_accelerators(*arguments) == counts


def test_accelerators_of_any_other_type_are_zero(speak_as):
    """As from TensorFlow's resolvers, a type that the task does not hold counts zero."""
    assert speak_as("worker-0").num_accelerators()["TPU"] == 0


def mismatches(resolver: TFClusterResolver, *task: object) -> list[str]:
    """Count a task's accelerators and give the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resolver.num_accelerators(*task)
    assert all(one.category is AcceleratorMismatchWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_mismatch_of_accelerators_names_both_numbers(speak_as, visible):
    """Where the process can use another number than the view grants, a warning names both."""
    visible(GPU=1)

    (message,) = mismatches(speak_as("worker-0"))

    assert message.startswith("/job:worker/task:0 has 2 healthy GPU devices by the view of n/c, and 1 can be used")


@pytest.mark.filterwarnings("ignore::tfcluster_resolver.errors.AcceleratorMismatchWarning")
@pytest.mark.parametrize(
    ("shown", "counted"),
    [({}, {"GPU": 0, "TPU": 0}), ({"GPU": 1, "TPU": 4}, {"GPU": 1, "TPU": 4}), ({"GPU": 8}, {"GPU": 3, "TPU": 0})],
)
def test_own_accelerators_are_what_is_granted_and_can_be_used(speak_as, visible, shown, counted):
    """Of the own task the smaller number counts, so that no strategy puts a replica where no device is."""
    visible(**shown)
    resolver = speak_as("evaluator-0")

    assert resolver.num_accelerators() == resolver.num_accelerators("evaluator", 0) == counted
    assert resolver.snapshot().num_accelerators() == counted
    assert resolver.num_accelerators("worker", 0) == {"GPU": 2}


def test_mismatch_is_told_once_for_each_pair(speak_as, visible):
    """The same two numbers warn once, also through another resolver; other numbers warn again."""
    visible(GPU=1)
    assert len(mismatches(speak_as("worker-0"))) == 1
    assert mismatches(speak_as("worker-0").snapshot(), "worker", 0) == []

    visible(GPU=3)
    assert len(mismatches(speak_as("worker-0"))) == 1


@pytest.mark.parametrize(
    ("task", "asked", "shown"),
    [
        ("worker-0", (), {"GPU": 2}),
        ("worker-1", (), {"GPU": 1}),
        ("chief-0", (), {}),
        ("worker-0", ("worker", 1), {"GPU": 7}),
        (None, ("worker", 0), {"GPU": 7}),
        ("evaluator-0", (), {"GPU": 3, "TPU": 4}),
    ],
)
def test_agreement_and_other_tasks_are_no_mismatch(speak_as, visible, task, asked, shown):
    """Nothing is said where both agree, and nothing of tasks whose pod this is not."""
    visible(**shown)

    assert mismatches(speak_as(task), *asked) == []


def test_accelerators_that_no_limit_names_count_as_far_as_they_are_seen(speak_as, visible):
    """A DRA claim or a share of a GPU is in no limit that is known here: what the process sees counts, and is told."""
    visible(GPU=8)
    resolver = speak_as("chief-0")

    assert ["has 0 healthy GPU" in one and "Those count" in one for one in mismatches(resolver)] == [True]
    assert resolver.num_accelerators() == {"GPU": 8}
    assert resolver.num_accelerators("worker", 10) == {"GPU": 0}


def test_nothing_to_see_is_no_mismatch(speak_as):
    """Where nothing can be told of the pod's devices, nothing is said."""
    assert mismatches(speak_as("worker-0")) == []


@pytest.mark.parametrize(("task", "job"), [(None, "worker"), ("worker-1", "chief"), ("worker-1", "ps")])
def test_half_a_task_is_refused(speak_as, task, job):
    """A job without an index names no task: the own index is one of the own job only."""
    resolver = speak_as(task)

    for ask in (resolver.master, resolver.num_accelerators):
        with pytest.raises(NoSuchTaskError, match="half a task"):
            ask(job)


def test_resolver_of_half_a_task_is_refused(speak_as):
    """A pod that speaks for another job says for which task of it; for its own job it speaks for itself."""
    with pytest.raises(ArgumentValueError, match=r"half a task: task_type is 'chief'.* this pod is /job:worker/task:1"):
        speak_as("worker-1", task_type="chief")

    assert speak_as("worker-1", task_type="worker").master() == "grpc://w1:1"
    assert speak_as("worker-1", task_id=3).master() == "grpc://w3:1"


class Number:
    """A whole number of another library, such as NumPy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("job", ["worker", "ps"], ids=["dense", "sparse"])
def test_tasks_are_named_by_text_and_whole_number(speak_as, job):
    """Dense or sparse, an index is any whole number and nothing else, and a job is text: errors are ours."""
    resolver = speak_as("chief-0")

    assert resolver.master(job, Number(3)) == resolver.master(job, 3)
    for ask in (resolver.master, resolver.num_accelerators, resolver.membership().address_of):
        for index in ("1", 3e9, 1.0, True, b"1", [], {}):
            with pytest.raises(ArgumentTypeError, match=r"index|task_id"):
                ask(job, index)
        for index in (3 * 10**9, -1):
            with pytest.raises(NoSuchTaskError):
                ask(job, index)
        with pytest.raises(ArgumentValueError):
            ask(job, 10**5000)
        for name in (b"worker", 1, [], object()):
            with pytest.raises(ArgumentTypeError, match=r"job|task_type"):
                ask(name, 0)
        with pytest.raises(ArgumentValueError, match="Unicode"):
            ask("\ud800", 0)


@pytest.mark.parametrize("arguments", [{"task_type": 1}, {"task_id": "1"}, {"rpc_layer": b"grpc"}, {"directory": 3}])
def test_arguments_of_the_resolver_are_checked(speak_as, arguments):
    """What is no job, index, rpc layer or folder is refused at once; so is setting it later."""
    with pytest.raises(ArgumentTypeError, match=next(iter(arguments))) as caught:
        speak_as("worker-1", **arguments)
    assert isinstance(caught.value, TypeError)

    for name, value in arguments.items() - {("directory", 3)}:
        with pytest.raises(ArgumentTypeError, match=name):
            setattr(speak_as("worker-1"), name, value)


@pytest.mark.parametrize("timeout", ["1", True, [], 1j])
def test_timeout_of_a_watch_is_a_number(speak_as, timeout):
    """What is no number of seconds is refused before anything is waited for."""
    with pytest.raises(ArgumentTypeError, match="timeout"):
        speak_as("worker-1").watch(timeout)
    for nonsense in (float("nan"), 10**400):
        with pytest.raises(ArgumentValueError, match="timeout"):
            speak_as("worker-1").watch(nonsense)


def test_unreadable_view_has_a_text(speak_as, tmp_path):
    """A debugger that shows a resolver meets no error, whatever became of the view."""
    resolver = speak_as("worker-1")
    (tmp_path / "cluster.json").unlink()

    assert repr(resolver) == "<TFClusterResolver (ViewNotFoundError), /job:worker/task:1>"


def test_view_cannot_be_changed(speak_as):
    """What a resolver gives away is read-only, however deep: nobody's change reaches another's answer."""
    view = speak_as("chief-0").membership().view
    held = view.accelerators["worker"]

    for mapping, key in ((view.jobs, "ps"), (view.jobs["ps"], 1), (view.device_filters, "ps"), (held.limits, GPU)):
        with pytest.raises(TypeError):
            mapping[key] = ()
    with pytest.raises(TypeError):
        held.tasks[1][GPU] = 7


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 - our own bytes
def test_memberships_can_be_copied(speak_as, duplicate):
    """Read-only as it is, a membership can be copied and sent to another process."""
    membership = speak_as("worker-1").membership()

    assert duplicate(membership) == membership


def test_filters_without_end_are_refused():
    """Filters of two thousand million tasks, which no operator writes, are an error and not the end of the memory."""
    view = replace(VIEW, device_filters={"worker": (contract.FilterRange(0, 2 * 10**9, ("/job:ps",)),)})

    with pytest.raises(MalformedViewError, match="over 100000 tasks"):
        Membership(view=view, own=None).device_filters()


def test_filters_are_spelled_out(speak_as):
    """The filters of a range of tasks become those of each task."""
    assert speak_as("chief-0").membership().device_filters() == {
        "worker": {0: ("/job:ps",), 1: ("/job:ps",), 2: ("/job:chief",), 3: ("/job:chief",)}
    }


def test_filters_are_ours_without_tensorflow(speak_as):
    """Without TensorFlow the filters are our own class; where none are declared there are none."""
    filters = speak_as("chief-0").device_filters()

    assert filters.as_dict() == {"worker": {0: ["/job:ps"], 1: ["/job:ps"], 2: ["/job:chief"], 3: ["/job:chief"]}}
    assert speak_as("chief-0", view=replace(VIEW, device_filters={})).device_filters() is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({contract.ENV_JOB: "worker"}, "has TFCLUSTER_JOB, but not TFCLUSTER_TASK_INDEX and TFCLUSTER_ADDRESS"),
        (
            {contract.ENV_JOB: "worker", contract.ENV_TASK_INDEX: "one", contract.ENV_ADDRESS: "a:1"},
            "TFCLUSTER_TASK_INDEX='one' is not a task index",
        ),
        (
            {contract.ENV_JOB: "worker", contract.ENV_TASK_INDEX: "1" * 5000, contract.ENV_ADDRESS: "a:1"},
            "is not a task index",
        ),
        (
            {contract.ENV_JOB: "\udcff", contract.ENV_TASK_INDEX: "1", contract.ENV_ADDRESS: "a:1"},
            r"TFCLUSTER_JOB='\\udcff' is not UTF-8",
        ),
    ],
)
def test_wrong_identity_is_named(speak_as, monkeypatch, names, message):
    """An environment that names the own task by halves or wrongly is refused with the variable's name."""
    speak_as()
    for name, value in names.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(TaskIdentityError, match=message):
        TFClusterResolver()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 - our own bytes
def test_copies_answer_the_same(speak_as, duplicate):
    """A copied, deep-copied or pickled resolver speaks for the same task of the same view."""
    resolver = speak_as("worker-1")

    assert repr(duplicate(resolver)) == repr(resolver) == "<TFClusterResolver n/c epoch 4, /job:worker/task:1>"


def test_membership_leaves_the_view_alone():
    """Putting the own task in changes no list or map of the view."""
    before = contract.dump(VIEW)

    Membership(view=VIEW, own=Task("ps", 0, "own:1")).jobs()["worker"].clear()

    assert contract.dump(VIEW) == before
