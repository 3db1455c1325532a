"""ClusterSpec and ClusterDeviceFilters without TensorFlow, in particular their differences from TensorFlow's."""

from __future__ import annotations

import inspect
from collections import UserList, deque

import pytest
from support.resolver_fuzz import Index
from unit.resolver_world import DUPLICATES

from tfcluster_resolver import ClusterDeviceFilters, ClusterSpec, _protobuf
from tfcluster_resolver.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceFilterError,
    DeviceNameError,
    TensorFlowNotFoundError,
)

MESSAGES = _protobuf.messages("a test")


def definition(*jobs: tuple[str, dict[int, str]]):
    return MESSAGES.ClusterDef(job=[{"name": name, "tasks": tasks} for name, tasks in jobs])


def spelled(message) -> list[tuple[str, dict[int, str]]]:
    return [(job.name, dict(job.tasks)) for job in message.job]


def test_dense_jobs_are_lists_and_sparse_ones_maps():
    """``as_dict`` keeps the order of the jobs, and returns a list, a map or, without tasks, an empty map."""
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": {"1": "d:4", 0: "c:3"}, "s": {7: "e:5", 2: "f:6"}, "none": []})
    assert spec.as_dict() == {"w": ["a:1", "b:2"], "ps": ["c:3", "d:4"], "s": {2: "f:6", 7: "e:5"}, "none": {}}
    assert spec.jobs == ["w", "ps", "s", "none"]
    text = "ClusterSpec({'none': {}, 'ps': ['c:3', 'd:4'], 's': {2: 'f:6', 7: 'e:5'}, 'w': ['a:1', 'b:2']})"
    assert repr(spec) == text
    assert spec.job_tasks("s") == [None, None, "f:6", *[None] * 4, "e:5"]
    assert (spec.num_tasks("s"), spec.task_indices("s"), spec.task_address("s", 7)) == (2, [2, 7], "e:5")


def test_order_of_the_jobs():
    """A dict is sorted in the message, with str for bytes; a message, or a copy, keeps its order."""
    of_bytes = ClusterSpec({b"w": [bytearray(b"a:1")], b"ps": {3: "b:2"}})
    message = definition(("w", {1: "a:1"}), ("ps", {0: "b:2"}))
    of_message = ClusterSpec(message)

    assert spelled(of_bytes.as_cluster_def()) == [("ps", {3: "b:2"}), ("w", {0: "a:1"})]
    assert of_bytes.jobs == [b"w", b"ps"]
    assert of_message.as_dict() == {"w": {1: "a:1"}, "ps": ["b:2"]}
    assert (of_message.jobs, of_message.as_cluster_def()) == (["w", "ps"], message)
    copied = ClusterSpec(of_bytes)
    assert (copied.as_dict(), copied.jobs) == ({"ps": {3: "b:2"}, "w": ["a:1"]}, ["ps", "w"])
    assert ClusterSpec(of_message).jobs == ["w", "ps"]


def test_messages_are_not_shared():
    given = definition(("w", {0: "a:1"}))
    spec = ClusterSpec(given)
    given.job[0].tasks[0] = "z:9"
    spec.as_cluster_def().job[0].tasks[0] = "z:9"
    assert spelled(spec.as_cluster_def()) == [("w", {0: "a:1"})]
    unknown_field = MESSAGES.ClusterDef.FromString(b"\xa0\x06\x01")
    assert ClusterSpec(unknown_field).as_cluster_def().SerializeToString() == b""


TWICE = definition(("w", {0: "a:1"}), ("ps", {}), ("w", {0: "b:2"}))
NEGATIVE = [{-1: "a:1"}, {-1: "a:1", 1: "b:2"}, {-5: "a:1", 1: "b:2"}, {-(2**31): "a:1"}]
TUPLES = [{("a", "b"): ["a:1"]}, {("a", "b"): 3}, {"w": [("a", "b")]}]


@pytest.mark.parametrize(
    ("cluster", "error", "words"),
    [
        (None, TypeError, "not from NoneType"),
        ([("w", ["a:1"])], TypeError, "not from list"),
        (definition(("w", {})).job[0], TypeError, "not from JobDef"),
        (MESSAGES.ClusterDef, TypeError, "not from"),
        ({"w": "a:1"}, TypeError, "tasks of job 'w' must be"),
        ({"w": iter(["a:1"])}, TypeError, "tasks of job 'w' must be"),
        ({"w": [1]}, TypeError, "address 1 of task 0"),
        ({3: []}, TypeError, "job name 3 must be text"),
        ({"w": [], b"w": []}, TypeError, "must all be text, or all bytes"),
        *((cluster, TypeError, r"\('a', 'b'\)") for cluster in TUPLES),
        ({"w": {"x": "a:1"}}, ValueError, "'x'"),
        ({"w": {2**31: "a:1"}}, ValueError, "not between 0 and 2147483647"),
        ({"w": {float("inf"): "a:1"}}, ValueError, "index inf of job 'w' is not a whole number"),
        *(({"w": tasks}, ValueError, "of job 'w' is below 0") for tasks in [*NEGATIVE, {"-2": "a:1", 1: "b:2"}]),
        *((definition(("w", tasks)), ValueError, "of job 'w' is below 0") for tasks in NEGATIVE),
        ({"w": [b"\xff"]}, ValueError, "address .* is not UTF-8"),
        ({"\ud800": []}, ValueError, "job name .* is not UTF-8"),
        (TWICE, ValueError, "names the job 'w' twice"),
    ],
)
def test_wrong_input_is_named(cluster, error, words):
    """Each wrong input raises an error of this package and of Python's usual type, with a message that names it."""
    with pytest.raises(error, match=words) as refused:
        ClusterSpec(cluster)
    assert isinstance(refused.value, ArgumentError)


@pytest.mark.parametrize("job", ["none", b"w", None, 3])
def test_unknown_job_is_named_with_the_known_ones(job):
    spec = ClusterSpec({"w": ["a:1"], "ps": ["b:2"]})
    for ask in (spec.num_tasks, spec.task_indices, spec.job_tasks, lambda name: spec.task_address(name, 0)):
        with pytest.raises(ValueError, match=r"only \['w', 'ps'\]"):
            ask(job)


def test_unknown_task_is_named():
    """So is a job without tasks, and an invalid job or index."""
    spec = ClusterSpec({"w": ["a:1"], "empty": []})

    with pytest.raises(ValueError, match="job 'w' has no task with index '0'"):
        spec.task_address("w", "0")
    with pytest.raises(ValueError, match="job 'empty' has no tasks"):
        spec.job_tasks("empty")
    for ask in (spec.num_tasks, spec.job_tasks, lambda name: spec.task_address("w", name)):
        with pytest.raises(ArgumentTypeError, match="cannot name a job or a task"):
            ask([])


def test_signature_is_tensorflows():
    assert list(inspect.signature(ClusterSpec).parameters) == ["cluster"]


def test_equality():
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": []})

    assert spec == ClusterSpec({"ps": {}, "w": {1: "b:2", 0: "a:1"}})
    assert spec == {"w": {0: "a:1", 1: "b:2"}, "ps": {}}
    assert spec != {"w": ["a:1", "b:2"], "ps": []}
    assert spec != spec.as_cluster_def()
    assert spec != ClusterSpec({"w": [b"a:1", b"b:2"], "ps": []})
    with pytest.raises(TypeError):
        hash(spec)
    for one in (ClusterSpec({}), spec):  # TensorFlow's documentation lists the name of Python 2, too
        assert bool(one) == one.__nonzero__() == (one is spec)


@DUPLICATES
def test_copies_are_equal(duplicate):
    spec = ClusterSpec(definition(("w", {3: "a:1"}), ("ps", {0: "b:2"})))
    assert duplicate(spec) == spec
    assert duplicate(spec).as_cluster_def() == spec.as_cluster_def()


def test_answers_are_copies():
    tasks = {"w": ["a:1"], "s": {3: "b:2"}}
    spec = ClusterSpec(tasks)
    tasks["w"].append("c:3")
    tasks["s"][4] = "d:4"
    spec.as_dict()["w"].append("c:3")
    spec.as_dict()["s"][4] = "d:4"
    spec.jobs.append("x")
    spec.job_tasks("w").append("c:3")

    assert spec.as_dict() == {"w": ["a:1"], "s": {3: "b:2"}}


# device filters


def filters_of(*calls: tuple) -> ClusterDeviceFilters:
    filters = ClusterDeviceFilters()
    for job, index, texts in calls:
        filters.set_device_filters(job, index, texts)
    return filters


@pytest.mark.parametrize("kind", [list, tuple, deque, UserList])
def test_any_sequence_of_texts_sets_filters(kind):
    texts = kind(["/job:ps", "/job:chief"])
    filters = filters_of(("worker", 1, texts))
    if not isinstance(texts, tuple):
        texts.append("/")
    assert filters.as_dict() == {"worker": {1: ["/job:ps", "/job:chief"]}}


def test_second_call_replaces():
    filters = filters_of(("b", 1, ["/job:a"]), ("b", 1, ["/"]), ("b", 0, []), (b"a", 2, [""]))
    assert repr(filters) == "ClusterDeviceFilters({'a': {2: ['']}, 'b': {0: [], 1: ['/']}})"


TEXTS = ["/job:ps", "", b"/job:ps", bytearray(b"/"), memoryview(b"/")]
ITERATORS = [iter(["/job:ps"]), (text for text in ["/job:ps"]), map(str, [])]
OTHERS = [None, 3, {"/job:ps"}, {"/job:ps": 1}, {}.keys(), range(1)]


@pytest.mark.parametrize("texts", TEXTS + ITERATORS + OTHERS, ids=lambda value: type(value).__name__)
def test_invalid_filter_sequence_is_rejected(texts):
    """A string, bytes, an iterator or a non-sequence raises TypeError, and the task keeps its filters."""
    filters = filters_of(("worker", 0, ["/job:ps"]))
    with pytest.raises(TypeError, match="/job:worker/task:0"):
        filters.set_device_filters("worker", 0, texts)
    assert filters == filters_of(("worker", 0, ["/job:ps"]))


def test_filter_that_is_not_text_is_rejected():
    for text in (b"/job:ps", None, 3, ["/job:ps"]):
        with pytest.raises(TypeError, match="must be text"):
            filters_of(("worker", 0, ["/", text]))


def test_invalid_filter_is_rejected_with_its_position():
    """A filter that TensorFlow would reject on connection, or read as task 0, is rejected; the call changes nothing."""
    filters = ClusterDeviceFilters()

    with pytest.raises(DeviceFilterError, match=r"'/job:my-worker': at position 7 is '-'") as refused:
        filters.set_device_filters("worker", 0, ["/job:ps", "/job:my-worker"])
    with pytest.raises(DeviceFilterError, match="at most 2147483647"):
        filters.set_device_filters("worker", 0, ["/task:4294967296"])

    assert refused.value.position == 7
    assert filters == ClusterDeviceFilters()


@pytest.mark.parametrize(
    ("job", "error", "words"),
    [
        ("my-worker", DeviceNameError, "position 2"),
        ("1w", DeviceNameError, "position 0"),
        ("", DeviceNameError, "position 0"),
        ("*", DeviceNameError, "a letter"),
        ("a/task:1", DeviceNameError, "a letter"),
        ("a/job:b", DeviceNameError, "a letter"),
        ("w ", DeviceNameError, "position 1"),
        (b"\xff", DeviceNameError, "not UTF-8"),
        (None, TypeError, "must be text"),
        (3, TypeError, "must be text"),
    ],
)
def test_invalid_job_is_rejected(job, error, words):
    """A job name that no task of a runtime can have is rejected; TensorFlow accepts and ignores it."""
    with pytest.raises(error, match=words):
        filters_of((job, 0, ["/"]))


def test_index_is_a_whole_number_of_a_task():
    """Of any library."""
    assert filters_of(("w", Index(2), ["/"])) == filters_of(("w", 2, ("/",)))
    for index in (-1, 2**31, True, "1", 1.0, None):
        error = ValueError if type(index) is int else TypeError
        with pytest.raises(error, match="task index"):
            filters_of(("worker", index, ["/"]))


def test_equal_filters_are_equal():
    """The filters of each task are compared; their order counts, that of the tasks does not."""
    one = filters_of(("a", 0, ["/job:b", "/job:c"]), ("b", 0, []))
    assert one == filters_of(("b", 0, []), ("a", 0, ("/job:b", "/job:c")))
    assert one != filters_of(("b", 0, []), ("a", 0, ("/job:c", "/job:b")))
    assert one != filters_of(("a", 0, ["/job:b", "/job:c"]))
    assert one != one.as_dict()
    with pytest.raises(TypeError):
        hash(one)


@DUPLICATES
def test_copies_are_apart(duplicate):
    one = filters_of(("a", 0, ["/job:b"]))
    other = duplicate(one)
    assert other == one
    other.set_device_filters("a", 0, [])
    one.as_dict()["a"][0].append("/")
    assert one == filters_of(("a", 0, ["/job:b"]))


def test_message_holds_the_filters():
    message = filters_of(("b", 3, ["/job:a", "/"]), ("a", 0, [])).as_cluster_device_filters()
    assert message.DESCRIPTOR.full_name == "tensorflow.ClusterDeviceFilters"
    found = [
        (job.name, {index: list(task.device_filters) for index, task in job.tasks.items()}) for job in message.jobs
    ]
    assert found == [("a", {}), ("b", {3: ["/job:a", "/"]})]


def test_tensorflows_class_needs_tensorflow():
    with pytest.raises(TensorFlowNotFoundError, match="as_tensorflow"):
        ClusterDeviceFilters().as_tensorflow()
