"""ClusterSpec and ClusterDeviceFilters without TensorFlow, in particular their differences from TensorFlow's."""

from collections import UserList, deque

import pytest
from resolver.resolver_world import DUPLICATES, Index

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
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": {"1": "d:4", 0: "c:3"}, "s": {7: "e:5", 2: "f:6"}, "none": []})
    assert spec.as_dict() == {"w": ["a:1", "b:2"], "ps": ["c:3", "d:4"], "s": {2: "f:6", 7: "e:5"}, "none": {}}
    assert spec.jobs == ["w", "ps", "s", "none"]
    text = "ClusterSpec({'none': {}, 'ps': ['c:3', 'd:4'], 's': {2: 'f:6', 7: 'e:5'}, 'w': ['a:1', 'b:2']})"
    assert repr(spec) == text
    assert spec.job_tasks("s") == [None, None, "f:6", *[None] * 4, "e:5"]
    assert (spec.num_tasks("s"), spec.task_indices("s"), spec.task_address("s", 7)) == (2, [2, 7], "e:5")


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
        (MESSAGES.ClusterDeviceFilters(), TypeError, "not from ClusterDeviceFilters"),
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


def test_equality():
    spec = ClusterSpec({"w": ["a:1", "b:2"], "ps": []})
    assert spec == ClusterSpec({"ps": {}, "w": {1: "b:2", 0: "a:1"}})
    assert spec == {"w": {0: "a:1", 1: "b:2"}, "ps": {}}
    assert spec != {"w": ["a:1", "b:2"], "ps": []}


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
NOT_A_JOB = {"my-worker": "position 2", "1w": "position 0", "": "position 0", "w ": "position 1", b"\xff": "not UTF-8"}


@pytest.mark.parametrize(
    ("job", "index", "texts", "error", "words"),
    [
        *(("worker", 0, texts, TypeError, "/job:worker/task:0") for texts in TEXTS + ITERATORS + OTHERS),
        *(("worker", 0, ["/", text], TypeError, "must be text") for text in (b"/job:ps", None, 3, ["/job:ps"])),
        ("worker", 0, ["/job:ps", "/job:my-worker"], DeviceFilterError, r"'/job:my-worker': at position 7 is '-'"),
        ("worker", 0, ["/task:4294967296"], DeviceFilterError, "at most 2147483647"),
        *((job, 0, ["/"], DeviceNameError, words) for job, words in NOT_A_JOB.items()),
        *((job, 0, ["/"], DeviceNameError, "a letter") for job in ("*", "a/task:1", "a/job:b")),
        *((job, 0, ["/"], TypeError, "must be text") for job in (None, 3)),
        *(("worker", index, ["/"], ValueError, "task index") for index in (-1, 2**31)),
        *(("worker", index, ["/"], TypeError, "task index") for index in (True, "1", 1.0, None)),
    ],
)
def test_invalid_filters_are_rejected_and_change_nothing(job, index, texts, error, words):
    """Also what TensorFlow accepts and ignores, splits into characters, or reads as another task."""
    filters = filters_of(("worker", 0, ["/job:ps"]))
    with pytest.raises(error, match=words):
        filters.set_device_filters(job, index, texts)
    assert filters == filters_of(("worker", Index(0), ["/job:ps"]))


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
