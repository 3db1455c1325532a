"""ClusterSpec without TensorFlow, above all where it departs from TensorFlow's; tests/tensorflow compares the rest."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from tfcluster_resolver import ClusterSpec, _protobuf
from tfcluster_resolver.errors import ArgumentError, ArgumentTypeError

MESSAGES = _protobuf.messages("a test")


def definition(*jobs: tuple[str, dict[int, str]]):
    """Make a ClusterDef."""
    return MESSAGES.ClusterDef(job=[MESSAGES.JobDef(name=name, tasks=tasks) for name, tasks in jobs])


def spelled(message) -> list[tuple[str, dict[int, str]]]:
    """Spell a ClusterDef out."""
    return [(job.name, dict(job.tasks)) for job in message.job]


def test_dense_jobs_are_lists_and_sparse_ones_maps():
    """``as_dict`` keeps the order of the jobs, and gives a list, a map or, for no tasks, an empty map."""
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": {"1": "d:4", 0: "c:3"}, "s": {7: "e:5", 2: "f:6"}, "none": []})

    assert spec.as_dict() == {"w": ["a:1", "b:2"], "ps": ["c:3", "d:4"], "s": {2: "f:6", 7: "e:5"}, "none": {}}
    assert spec.jobs == ["w", "ps", "s", "none"]
    assert (
        repr(spec) == "ClusterSpec({'none': {}, 'ps': ['c:3', 'd:4'], 's': {2: 'f:6', 7: 'e:5'}, 'w': ['a:1', 'b:2']})"
    )
    assert spec.job_tasks("s") == [None, None, "f:6", *[None] * 4, "e:5"]
    assert (spec.num_tasks("s"), spec.task_indices("s"), spec.task_address("s", 7)) == (2, [2, 7], "e:5")


def test_message_of_a_dict_is_sorted():
    """The ClusterDef of a dict has its jobs sorted by name, and text for bytes."""
    spec = ClusterSpec({b"w": [bytearray(b"a:1")], b"ps": {3: "b:2"}})

    assert spelled(spec.as_cluster_def()) == [("ps", {3: "b:2"}), ("w", {0: "a:1"})]
    assert spec.jobs == [b"w", b"ps"]


def test_copy_of_a_spec_is_text_in_the_messages_order():
    """A ClusterSpec made from another has text, and the order of the other's ClusterDef."""
    copied = ClusterSpec(ClusterSpec({b"w": [b"a:1"], b"ps": []}))

    assert copied.as_dict() == {"ps": {}, "w": ["a:1"]}
    assert copied.jobs == ["ps", "w"]
    assert ClusterSpec(ClusterSpec(definition(("w", {}), ("ps", {})))).jobs == ["w", "ps"]


def test_message_makes_a_spec_in_its_order():
    """A ClusterDef's order of jobs stays, in the dict view and in the message."""
    message = definition(("w", {1: "a:1"}), ("ps", {0: "b:2"}))
    spec = ClusterSpec(message)

    assert spec.as_dict() == {"w": {1: "a:1"}, "ps": ["b:2"]}
    assert spec.jobs == ["w", "ps"]
    assert spec.as_cluster_def() == message


def test_messages_are_not_shared():
    """Neither a change of the ClusterDef that it was made from nor of the one that it gave changes a ClusterSpec."""
    given = definition(("w", {0: "a:1"}))
    spec = ClusterSpec(given)
    given.job[0].tasks[0] = "z:9"
    spec.as_cluster_def().job[0].tasks[0] = "z:9"

    assert spelled(spec.as_cluster_def()) == [("w", {0: "a:1"})]
    assert spec.as_cluster_def() is not spec.as_cluster_def()


def test_unknown_fields_of_a_message_are_dropped():
    """What a ClusterDef holds beside jobs and tasks is no part of a ClusterSpec."""
    spec = ClusterSpec(MESSAGES.ClusterDef.FromString(b"\xa0\x06\x01"))

    assert spec.as_cluster_def().SerializeToString() == b""


def test_job_named_twice_is_refused():
    """A ClusterDef that names a job twice is refused: only one of both could be seen."""
    with pytest.raises(ValueError, match="names the job 'w' twice"):
        ClusterSpec(definition(("w", {0: "a:1"}), ("ps", {}), ("w", {0: "b:2"})))


@pytest.mark.parametrize(
    "tasks", [{-1: "a:1"}, {-1: "a:1", 1: "b:2"}, {"-2": "a:1", 1: "b:2"}, {-5: "a:1", 1: "b:2"}, {-(2**31): "a:1"}]
)
def test_negative_indices_are_refused(tasks):
    """A negative index is an error, in a dict and in a ClusterDef."""
    with pytest.raises(ValueError, match="of job 'w' is below 0"):
        ClusterSpec({"w": tasks})
    with pytest.raises(ValueError, match="of job 'w' is below 0"):
        ClusterSpec(definition(("w", {int(index): address for index, address in tasks.items()})))


def test_list_of_a_job_without_tasks_is_refused_in_words():
    """``job_tasks`` of a job without tasks is a ValueError, as in TensorFlow, that says so."""
    with pytest.raises(ValueError, match="job 'w' has no tasks"):
        ClusterSpec({"w": []}).job_tasks("w")


@pytest.mark.parametrize("cluster", [{("a", "b"): ["a:1"]}, {("a", "b"): 3}, {"w": [("a", "b")]}])
def test_tuples_are_refused_in_words(cluster):
    """A tuple for a name or an address is a TypeError, as in TensorFlow, that shows it."""
    with pytest.raises(TypeError, match=r"\('a', 'b'\)"):
        ClusterSpec(cluster)


@pytest.mark.parametrize("job", ["none", b"w", None, 3])
def test_unknown_job_is_told_with_the_known_ones(job):
    """Asking for an unknown job is a ValueError that lists those there are."""
    spec = ClusterSpec({"w": ["a:1"], "ps": ["b:2"]})

    for ask in (spec.num_tasks, spec.task_indices, spec.job_tasks, lambda name: spec.task_address(name, 0)):
        with pytest.raises(ValueError, match=r"only \['w', 'ps'\]"):
            ask(job)


def test_unknown_task_is_told():
    """Asking for an unknown index is a ValueError that names it and the job."""
    with pytest.raises(ValueError, match="job 'w' has no task with index '0'"):
        ClusterSpec({"w": ["a:1"]}).task_address("w", "0")


@pytest.mark.parametrize(
    ("cluster", "error", "words"),
    [
        (None, TypeError, "not from NoneType"),
        ([("w", ["a:1"])], TypeError, "not from list"),
        (MESSAGES.JobDef(), TypeError, "not from JobDef"),
        (MESSAGES.ClusterDef, TypeError, "not from"),
        ({"w": "a:1"}, TypeError, "tasks of job 'w' must be"),
        ({"w": iter(["a:1"])}, TypeError, "tasks of job 'w' must be"),
        ({"w": [1]}, TypeError, "address 1 of task 0"),
        ({3: []}, TypeError, "job name 3 must be text"),
        ({"w": [], b"w": []}, TypeError, "must all be text, or all bytes"),
        ({"w": {"x": "a:1"}}, ValueError, "'x'"),
        ({"w": {2**31: "a:1"}}, ValueError, "not between 0 and 2147483647"),
        ({"w": {float("inf"): "a:1"}}, ValueError, "index inf of job 'w' is no whole number"),
        ({"w": [b"\xff"]}, ValueError, "address .* is not UTF-8"),
        ({"\ud800": []}, ValueError, "job name .* is not UTF-8"),
    ],
)
def test_wrong_input_is_told(cluster, error, words):
    """Each wrong input is an error of this package and of Python's usual type, with a text that names what is wrong."""
    with pytest.raises(error, match=words) as refused:
        ClusterSpec(cluster)
    assert isinstance(refused.value, ArgumentError)


def test_what_cannot_name_a_job_is_told():
    """Asking for a list as a job, or as an index, is a TypeError of this package."""
    spec = ClusterSpec({"w": ["a:1"]})

    for ask in (spec.num_tasks, spec.job_tasks, lambda name: spec.task_address("w", name)):
        with pytest.raises(ArgumentTypeError, match="names no job and no task"):
            ask([])


def test_signature_is_tensorflows():
    """It takes exactly one argument, whose name is ``cluster``."""
    assert list(inspect.signature(ClusterSpec).parameters) == ["cluster"]


def test_equality():
    """It equals a ClusterSpec of the same tasks, or their normal form, and nothing else; the order is no matter."""
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": []})

    assert spec == ClusterSpec({"ps": {}, "w": {1: "b:2", 0: "a:1"}})
    assert spec == {"w": {0: "a:1", 1: "b:2"}, "ps": {}}
    assert spec != {"w": ["a:1", "b:2"], "ps": []}
    assert spec != spec.as_cluster_def()
    assert spec != ClusterSpec({"w": [b"a:1", b"b:2"], "ps": []})
    with pytest.raises(TypeError):
        hash(spec)


def test_truth():
    """A cluster without jobs is false; one whose job has no tasks is true."""
    assert not ClusterSpec({})
    assert ClusterSpec({"w": []})


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - our own bytes
)
def test_copies_are_equal(duplicate):
    """A copied, deep-copied or pickled ClusterSpec tells the same, its message's order included."""
    spec = ClusterSpec(definition(("w", {3: "a:1"}), ("ps", {0: "b:2"})))

    assert duplicate(spec) == spec
    assert duplicate(spec).as_cluster_def() == spec.as_cluster_def()


def test_answers_are_copies():
    """Changing what a ClusterSpec gave, or was made from, changes nothing in it."""
    tasks = {"w": ["a:1"], "s": {3: "b:2"}}
    spec = ClusterSpec(tasks)
    tasks["w"].append("c:3")
    tasks["s"][4] = "d:4"
    spec.as_dict()["w"].append("c:3")
    spec.as_dict()["s"][4] = "d:4"
    spec.jobs.append("x")
    spec.job_tasks("w").append("c:3")

    assert spec.as_dict() == {"w": ["a:1"], "s": {3: "b:2"}}


def test_truth_has_both_names_of_tensorflow():
    """``__nonzero__``, which TensorFlow's pages list, says what ``bool()`` says: whether there is a job."""
    assert [ClusterSpec(jobs).__nonzero__() for jobs in ({}, {"worker": []})] == [False, True]
