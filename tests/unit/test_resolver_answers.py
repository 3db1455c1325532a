"""What the resolver answers, where there is no TensorFlow."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace

import pytest

from tfcluster_resolver import ClusterSpec, TFClusterResolver, accelerators, contract
from tfcluster_resolver.cluster import Membership, Task
from tfcluster_resolver.errors import AcceleratorMismatchWarning, NoSuchTaskError, TaskIdentityError

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


def test_evaluator_is_not_in_the_spec(speak_as):
    """An evaluator sees the cluster and is no job of it."""
    resolver = speak_as("evaluator-0")

    assert resolver.cluster_spec().jobs == ["chief", "ps", "worker"]
    assert (resolver.task_type, resolver.task_id) == ("evaluator", 0)


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


@pytest.mark.parametrize("task", [None, "evaluator-0"])
def test_master_is_never_empty(speak_as, task):
    """Where there is no own task in the cluster ``master()`` raises: TensorFlow takes "" as nothing to connect to."""
    with pytest.raises(NoSuchTaskError):
        speak_as(task).master()


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
    """Where the pod shows another number than the view grants, a warning names both; the view's number is answered."""
    visible(GPU=1)
    resolver = speak_as("worker-0")

    (message,) = mismatches(resolver)

    assert message.startswith("/job:worker/task:0 has 2 healthy GPU devices by the view of n/c, and 1 are visible")
    assert resolver.num_accelerators() == {"GPU": 2}


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


def test_accelerator_that_nobody_granted_is_a_mismatch(speak_as, visible):
    """A pod that shows devices without having asked for any is told."""
    visible(GPU=8)

    assert ["has 0 healthy GPU" in one for one in mismatches(speak_as("chief-0"))] == [True]


def test_nothing_to_see_is_no_mismatch(speak_as):
    """Where nothing can be told of the pod's devices, nothing is said."""
    assert mismatches(speak_as("worker-0")) == []


def test_half_a_task_is_refused(speak_as):
    """A job without an index names no task."""
    with pytest.raises(NoSuchTaskError, match="half a task"):
        speak_as().num_accelerators("worker")


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
        ({contract.ENV_JOB: "worker"}, "TFCLUSTER_TASK_INDEX, TFCLUSTER_ADDRESS not set"),
        (
            {contract.ENV_JOB: "worker", contract.ENV_TASK_INDEX: "one", contract.ENV_ADDRESS: "a:1"},
            "TFCLUSTER_TASK_INDEX='one' is not a task index",
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
