"""Our device filters show and reject the same as a real TensorFlow runtime."""

import json
import os
from pathlib import Path

import pytest
from fork_server import ENVIRONMENT, run
from loopback_cluster import DEADLINE, ROOT, free_ports

from tfcluster_resolver import ClusterDeviceFilters, device_filter_matches
from tfcluster_resolver.errors import DeviceFilterError

PROGRAM = Path(__file__).parent / "visibility_program.py"
SERVERS = 6
#: Every kind of filter that TensorFlow accepts.
READABLE = [
    *("", "/", "/job:*", "/job:ps", "/job:worker", "/job:work", "/job:worker2", "/job:PS", "/job:nosuch"),
    *("/job:worker/task:0", "/job:worker/task:00", "/job:worker/task:1", "/job:worker/task:10", "/task:1"),
    *("/job:*/task:1", "/job:ps/task:*", "/replica:0", "/replica:*", "/job:worker/replica:0/task:0"),
    *("/job:worker/replica:1/task:0", "/device:CPU", "/device:CPU:*", "/device:*", "/device:*:1", "/device:CPU:0"),
    *("/device:CPU:1", "/device:GPU:0", "/job:ps/device:cpu:0", "/job:ps/device:CPU:1", "/cpu:0", "/cpu:1", "/CPU:1"),
    *("/CPU:*", "/gpu:0", "/GPU:*", "/job:ps/job:worker", "/job:worker/job:ps/task:1", "/job:ps/job:*"),
    *("/task:0/task:1", "/task:1/job:worker", "/device:CPU:1/job:ps", "/device:CPU:1/cpu:0", "/cpu:1/device:CPU"),
    *("/gpu:0/device:*", "/job:localhost", "/job:worker/task:99999999999", "/job:worker/task:4294967296"),
    *("/job:worker/task:4294967297", "/task:18446744073709551615"),
]
#: Every kind that it rejects.
UNREADABLE = [
    *("ps", "job:ps", "/job:my-worker", "/job:1ps", "/job:", "/job:ps/", "//", "/job:ps//task:0", "/job:*ps"),
    *("/job:ps/task:-1", "/task:", "/task:1x", "/task:18446744073709551616", "CPU:0", "/CPU", "/CPU:", "/Cpu:0"),
    *("/tpu:0", "/device:", "/device::0", "/device:CPU:", "/device:CPU:0:1", " /job:ps", "/job:ps "),
    *("/job:ps,/job:worker", "/job:pß", "/job:ps\n", "/job:ps\0", "/JOB:ps"),
]


@pytest.fixture(scope="module")
def asked() -> dict[str, list]:
    lists = [[text] for text in READABLE]
    lists += [[], ["/job:ps", "/job:worker"], ["/task:1", "/device:CPU:1"], ["/job:nosuch", "/cpu:0"]]
    return {"ports": free_ports(SERVERS), "lists": lists, "texts": UNREADABLE}


@pytest.fixture(scope="module")
def told(asked) -> dict[str, object]:
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(ROOT / "resolver")}
    done = run([str(PROGRAM)], input=json.dumps(asked), env=environment, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout)


def test_filters_show_what_the_runtime_shows(asked, told):
    assert len(told["devices"]) == 2 * SERVERS + 1
    wrong = []
    for texts, job, index, seen in told["seen"]:
        own = f"/job:{job}/replica:0/task:{index}/"
        expected = {
            device
            for device in told["devices"]
            if device.startswith(own) or not texts or any(device_filter_matches(text, device) for text in texts)
        }
        if expected != set(seen):
            wrong.append((texts, own, expected ^ set(seen)))

    assert not wrong
    assert [texts for texts, *_ in told["seen"]] == asked["lists"]
    kept = [len(seen) for _, _, _, seen in told["seen"]]
    assert min(kept) == 2
    assert max(kept) == len(told["devices"])
    assert len(set(kept)) >= 8


def test_filters_that_the_runtime_rejects_are_rejected(told):
    assert told["refused"] == {
        # The message ends at the end of a C string.
        text: "Invalid filter: " + text.partition("\0")[0]
        for text in UNREADABLE
    }
    for text in UNREADABLE:
        with pytest.raises(DeviceFilterError) as refused:
            ClusterDeviceFilters().set_device_filters("worker", 0, [text])
        assert 0 <= refused.value.position <= len(text)
        with pytest.raises(DeviceFilterError):
            device_filter_matches(text, "/job:ps/replica:0/task:0/device:CPU:0")
