"""ClusterDeviceFilters without TensorFlow: what may be set, and what is refused at once."""

from __future__ import annotations

import copy
import pickle
from collections import UserList, deque

import pytest

from tfcluster_resolver import ClusterDeviceFilters
from tfcluster_resolver.errors import DeviceFilterError, DeviceNameError, TensorFlowNotFoundError


def filters_of(*calls: tuple) -> ClusterDeviceFilters:
    """Make filters by calls of ``set_device_filters``."""
    filters = ClusterDeviceFilters()
    for job, index, texts in calls:
        filters.set_device_filters(job, index, texts)
    return filters


@pytest.mark.parametrize("kind", [list, tuple, deque, UserList])
def test_any_sequence_of_texts_sets_filters(kind):
    """A list, a tuple or another sequence of texts is taken, and copied."""
    texts = kind(["/job:ps", "/job:chief"])
    filters = filters_of(("worker", 1, texts))
    if not isinstance(texts, tuple):
        texts.append("/")

    assert filters.as_dict() == {"worker": {1: ["/job:ps", "/job:chief"]}}


def test_second_call_replaces():
    """Setting a task's filters again replaces them, and no filters at all may be set."""
    filters = filters_of(("b", 1, ["/job:a"]), ("b", 1, ["/"]), ("b", 0, []), (b"a", 2, [""]))

    assert repr(filters) == "ClusterDeviceFilters({'a': {2: ['']}, 'b': {0: [], 1: ['/']}})"


@pytest.mark.parametrize(
    "texts",
    [
        *(
            "/job:ps",
            "",
            b"/job:ps",
            bytearray(b"/"),
            memoryview(b"/"),
            None,
            3,
            {"/job:ps"},
            {"/job:ps": 1},
            {}.keys(),
        ),
        *(iter(["/job:ps"]), (text for text in ["/job:ps"]), map(str, []), range(1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_sequence_of_texts_is_refused(texts):
    """A plain text, bytes, an iterator or no sequence is a TypeError, and the task keeps what it had."""
    filters = filters_of(("worker", 0, ["/job:ps"]))

    with pytest.raises(TypeError, match="/job:worker/task:0"):
        filters.set_device_filters("worker", 0, texts)

    assert filters == filters_of(("worker", 0, ["/job:ps"]))


@pytest.mark.parametrize("text", [b"/job:ps", None, 3, ["/job:ps"]])
def test_filter_that_is_no_text_is_refused(text):
    """Each filter is a text: bytes are none."""
    with pytest.raises(TypeError, match="must be text"):
        filters_of(("worker", 0, ["/", text]))


def test_unreadable_filter_is_refused_with_its_position():
    """A filter that TensorFlow would refuse when it connects is refused now; nothing of the call is kept."""
    filters = ClusterDeviceFilters()

    with pytest.raises(DeviceFilterError, match=r"'/job:my-worker': at position 7 is '-'") as refused:
        filters.set_device_filters("worker", 0, ["/job:ps", "/job:my-worker"])

    assert refused.value.position == 7
    assert filters == ClusterDeviceFilters()


def test_number_that_would_wrap_is_refused():
    """A filter for task 4294967296 would be one for task 0 to TensorFlow."""
    with pytest.raises(DeviceFilterError, match="at most 2147483647"):
        filters_of(("worker", 0, ["/task:4294967296"]))


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
def test_wrong_job_is_refused(job, error, words):
    """A job's name that no task of a runtime can have is refused, where TensorFlow takes it and never uses it."""
    with pytest.raises(error, match=words):
        filters_of((job, 0, ["/"]))


@pytest.mark.parametrize(
    ("index", "error"),
    [(-1, ValueError), (2**31, ValueError), (True, TypeError), ("1", TypeError), (1.0, TypeError), (None, TypeError)],
)
def test_wrong_index_is_refused(index, error):
    """A task index is a whole number from 0 to 2**31 - 1."""
    with pytest.raises(error, match="task index"):
        filters_of(("worker", index, ["/"]))


def test_index_of_another_number_type_is_one():
    """What can serve as an index of a list can serve as a task index."""

    class Two:
        def __index__(self) -> int:
            return 2

    assert filters_of(("w", Two(), ["/"])) == filters_of(("w", 2, ("/",)))


def test_equal_filters_are_equal():
    """Equality is that of the filters of each task; order counts among filters, and not among tasks."""
    one = filters_of(("a", 0, ["/job:b", "/job:c"]), ("b", 0, []))

    assert one == filters_of(("b", 0, []), ("a", 0, ("/job:b", "/job:c")))
    assert one != filters_of(("b", 0, []), ("a", 0, ("/job:c", "/job:b")))
    assert one != filters_of(("a", 0, ["/job:b", "/job:c"]))
    assert one != one.as_dict()
    with pytest.raises(TypeError):
        hash(one)


@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))],  # noqa: S301 - our own bytes
)
def test_copies_are_apart(duplicate):
    """A copy is equal, and changing it does not change the original."""
    one = filters_of(("a", 0, ["/job:b"]))
    other = duplicate(one)

    assert other == one
    other.set_device_filters("a", 0, [])
    assert one == filters_of(("a", 0, ["/job:b"]))


def test_dictionary_is_a_copy():
    """Changing what ``as_dict`` gave changes nothing else."""
    one = filters_of(("a", 0, ["/job:b"]))
    one.as_dict()["a"][0].append("/")

    assert one.as_dict() == {"a": {0: ["/job:b"]}}


def test_message_holds_the_filters():
    """The protobuf message holds each task that has filters; a task without any appears as its job alone."""
    message = filters_of(("b", 3, ["/job:a", "/"]), ("a", 0, [])).as_cluster_device_filters()

    assert message.DESCRIPTOR.full_name == "tensorflow.ClusterDeviceFilters"
    told = [(job.name, {index: list(task.device_filters) for index, task in job.tasks.items()}) for job in message.jobs]
    assert told == [("a", {}), ("b", {3: ["/job:a", "/"]})]


def test_tensorflows_class_needs_tensorflow():
    """Where TensorFlow is not installed, ``as_tensorflow`` says so."""
    with pytest.raises(TensorFlowNotFoundError, match="as_tensorflow"):
        ClusterDeviceFilters().as_tensorflow()
