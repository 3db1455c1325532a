"""Device filters: the canonical texts, and the tasks that they show."""

from __future__ import annotations

import pytest

from tfcluster_operator.declaration.filters import DeviceFilter, Visible, parse, visible


@pytest.mark.parametrize(
    ("text", "job", "task"),
    [
        ("/job:ps", "ps", None),
        ("/job:ps/task:0", "ps", 0),
        ("/job:ps/replica:0/task:12", "ps", 12),
        ("/job:data_loader2", "data_loader2", None),
        ("/task:3", None, 3),
        ("/replica:0", None, None),
        ("/job:ps/device:GPU:0", "ps", None),
        ("/job:ps/device:XLA_GPU", "ps", None),
        ("/job:ps/task:1/cpu:0", "ps", 1),
        ("/gpu:1", None, None),
        ("/CPU:0", None, None),
        ("/device:GPU:10", None, None),
    ],
)
def test_a_canonical_filter_is_read(text, job, task):
    assert DeviceFilter(job=job, task=task) == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "//", "job:ps", "/job:", "/job:PS", "/job:p-s", "/job:0ps", "/job:ps/", "/job:ps/task:", "/Job:ps"),
        *("/job:ps/task:01", "/job:ps/task:-1", "/job:ps/task:*", "/job:ps/task:1/task:2", "/task:1/job:ps", "/gpu"),
        *("/job:ps/replica:1", "/job:ps /task:0", " /job:ps", "/job:ps\n", "/device:", "/device:GPU:", "/tpu:0"),
        *("/device:GPU:01", "/job:ps/task:٣", "/job:ps,/job:worker"),
    ],
)
def test_filter_in_another_form_is_rejected(text):
    """A text that TensorFlow would parse differently, or reject, is not a filter."""
    assert None is parse(text)


@pytest.mark.parametrize(
    ("texts", "seen"),
    [
        ((), (0, 1, 2)),
        (("/job:ps",), ()),
        (("/job:worker",), (0, 1, 2)),
        (("/job:worker/task:1",), (1,)),
        (("/job:worker/task:2", "/job:worker/task:0"), (0, 2)),
        (("/job:worker/task:7",), ()),
        (("/task:1",), (1,)),
        (("/job:ps/task:0", "/job:worker/task:2"), (2,)),
        (("/job:worker/task:0", "/device:GPU:0"), (0, 1, 2)),
    ],
)
def test_filters_show_the_union_of_what_each_shows(texts, seen):
    assert seen == visible(texts, "worker").within(3)


def test_everything_is_within_any_count():
    assert Visible(everything=True, indices=frozenset()).within(0) == ()
