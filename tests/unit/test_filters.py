"""Device filters: what is not one, and the tasks that they show; test_crd_filter_rules.py has the canonical texts."""

from __future__ import annotations

import pytest

from tfcluster_operator.declaration.filters import Visible, parse, visible


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
        *(((text,), (0, 1, 2)) for text in ("/CPU:0", "/GPU:1", "/device:XLA_GPU")),
        (("/job:ps/task:0", "/job:worker/task:2"), (2,)),
        (("/job:worker/task:0", "/device:GPU:0"), (0, 1, 2)),
    ],
)
def test_filters_show_the_union_of_what_each_shows(texts, seen):
    assert seen == visible(texts, "worker").within(3)


def test_everything_is_within_any_count():
    assert Visible(everything=True, indices=frozenset()).within(0) == ()
