"""TensorFlow's device names, parsed without TensorFlow.

tests/tensorflow compares which filter shows which device with a real runtime.
"""

import pytest

from tfcluster_resolver import device_filter_matches, device_names
from tfcluster_resolver.device_names import DeviceName
from tfcluster_resolver.errors import DeviceFilterError, DeviceNameError

PS_0 = "/job:ps/replica:0/task:0/device:CPU:0"
WORKER_1_GPU = "/job:worker/replica:0/task:1/device:GPU:1"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", DeviceName()),
        ("/", DeviceName()),
        ("/job:*", DeviceName()),
        ("/device:*:*", DeviceName()),
        (WORKER_1_GPU, DeviceName("worker", 0, 1, "GPU", 1)),
        ("/device:GPU:1/task:1/job:worker", DeviceName(job="worker", task=1, type="GPU", id=1)),
        ("/job:ps/job:worker", DeviceName(job="worker")),
        ("/job:ps/job:*", DeviceName()),
        ("/device:GPU:1/device:CPU", DeviceName(type="CPU")),
        ("/device:CPU:1/device:*", DeviceName()),
        ("/device:*:1", DeviceName(id=1)),
        ("/cpu:0", DeviceName(type="CPU", id=0)),
        ("/GPU:*", DeviceName(type="GPU")),
        ("/device:cpu:0", DeviceName(type="cpu", id=0)),
        ("/task:007", DeviceName(task=7)),
        ("/task:4294967297", DeviceName(task=1)),
        ("/task:2147483648", DeviceName(task=-(2**31))),
        ("/task:6442450944", DeviceName(task=-(2**31))),
        ("/task:" + "0" * 5000 + "3", DeviceName(task=3)),
    ],
)
def test_parts_of_a_name(text, parts):
    assert device_names.parse(text) == parts
    assert device_names.parse(text, DeviceFilterError) == parts


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("ps", 0, "/job:"),
        (" /job:ps", 0, "/job:"),
        ("//", 0, "/job:"),
        ("/tpu:0", 0, "/job:"),
        ("/job:", 5, "job's name"),
        ("/job:1ps", 5, "job's name"),
        ("/job:my-worker", 7, "the next part"),
        ("/job:ps ", 7, "the next part"),
        ("/job:*ps", 6, "the next part"),
        ("/job:pß", 6, "the next part"),
        ("/job:ps/", 7, "/job:"),
        ("/job:ps/task:-1", 13, "a number"),
        ("/job:ps/task:1x", 14, "the next part"),
        ("/cpu:", 5, "a number"),
        ("/device::0", 8, "a device type"),
        ("/device:CPU:", 12, "a device type"),
        ("/device:CPU:0:1", 13, "the next part"),
        ("/job:a/task:18446744073709551616", 12, "a smaller number"),
        ("/task:" + "9" * 5000, 6, "a smaller number"),
    ],
)
def test_unreadable_names_tell_where(text, position, expected):
    for read, kind, word in (
        (device_names.parse, DeviceNameError, "name"),
        (lambda text: device_names.parse(text, DeviceFilterError), DeviceFilterError, "filter"),
        (device_names.parse_exact_filter, DeviceFilterError, "filter"),
    ):
        with pytest.raises(kind, match=f"device {word}") as refused:
            read(text)
        assert refused.value.position == position
        assert type(refused.value) is kind
        assert f"at position {position} " in str(refused.value)
        assert expected in str(refused.value).partition("expected")[2]


@pytest.mark.parametrize(
    ("text", "position"), [("/task:2147483648", 6), ("/job:a/cpu:4294967296", 11), ("/device:CPU:002147483648", 12)]
)
def test_numbers_that_would_wrap_are_not_exact(text, position):
    with pytest.raises(DeviceFilterError, match="wrap") as refused:
        device_names.parse_exact_filter(text)
    assert refused.value.position == position
    assert device_names.parse_exact_filter("/task:2147483647") == DeviceName(task=2**31 - 1)
    assert device_names.parse_exact_filter("/task:00000000000000000001") == DeviceName(task=1)


@pytest.mark.parametrize("text", [None, b"/job:ps", 3, ["/job:ps"]])
def test_filter_and_name_must_be_strings(text):
    with pytest.raises(TypeError, match="filter is a text"):
        device_filter_matches(text, PS_0)
    with pytest.raises(TypeError, match="name is a text"):
        device_filter_matches("/", text)


def test_part_that_a_device_leaves_out_fits():
    assert device_filter_matches("/device:GPU:0", "/job:ps/task:0")
    assert not device_filter_matches("/job:worker", "/job:ps/task:0")
    assert [device_filter_matches("/task:1", device) for device in (PS_0, WORKER_1_GPU)] == [False, True]
    with pytest.raises(ValueError, match="device name 'ps'"):
        device_filter_matches("/job:ps", "ps")
