"""Device filters: what is not one, and the tasks that they show; test_crd_filter_rules.py has the canonical texts."""

from __future__ import annotations

import pytest

from tfcluster_operator.declaration.filters import parse


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
