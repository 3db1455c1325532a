"""The contract of cluster.json: its exact bytes, and errors that name the path of a malformed value."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from resolver.resolver_world import GPU, view_of

from tfcluster_resolver import contract
from tfcluster_resolver.contract import ContractError, FilterRange, JobAccelerators

VIEW = view_of(
    {"worker": {10: "w10:1", 2: "w2:1"}, "chief": ("c0:1",)},
    name="demo",
    namespace="default",
    epoch=3,
    device_filters={"worker": (FilterRange(0, 5, ("/job:chief", "/job:ps")),)},
    accelerators={
        "worker": JobAccelerators(limits={GPU: 2}, tasks={10: {GPU: 1}, 2: {}}),
        "chief": JobAccelerators(limits={"google.com/tpu": 4}),
    },
)
TEXT = (
    '{"accelerators":{"chief":{"limits":{"google.com/tpu":4}},'
    '"worker":{"limits":{"nvidia.com/gpu":2},"tasks":{"10":{"nvidia.com/gpu":1},"2":{}}}},'
    '"cluster":{"name":"demo","namespace":"default","uid":"u"},'
    '"deviceFilters":{"worker":[{"filters":["/job:chief","/job:ps"],"tasks":[0,5]}]},'
    '"epoch":3,'
    '"jobs":{"chief":["c0:1"],"worker":{"10":"w10:1","2":"w2:1"}},'
    '"rpcLayer":"grpc","version":1}\n'
)


def document(**changes: Any) -> dict[str, Any]:
    whole = {
        "version": 1,
        "cluster": {"name": "demo", "namespace": "default", "uid": "u"},
        "epoch": 1,
        "rpcLayer": "grpc",
        "jobs": {},
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def test_a_view_is_spelled_in_one_way():
    """Sorted keys, no spaces, one newline: the same view always gives the same bytes, and can be parsed again."""
    assert contract.dump(VIEW) == TEXT
    assert VIEW == contract.load(TEXT) == contract.load(TEXT.encode())


def test_what_few_clusters_have_is_spelled_only_there():
    """Isolation, leaving tasks, and the pod of each task; the views of all other clusters keep their bytes."""
    leaving = {"leaving": {"worker": ((3, 5), (7, 8))}, "incarnations": {"worker": {10: "0a1b2c3d", 2: "9f"}}}
    view = replace(VIEW, isolation="Cluster", **leaving)
    incarnations = '"incarnations":{"worker":{"10":"0a1b2c3d","2":"9f"}},'
    wanted = TEXT.replace('"jobs":', f'{incarnations}"isolation":"Cluster","jobs":')
    wanted = wanted.replace('"rpcLayer":', '"leaving":{"worker":[[3,5],[7,8]]},"rpcLayer":')

    assert contract.dump(view) == wanted
    assert contract.load(wanted) == view
    assert contract.dump(replace(view, isolation=None, leaving={}, incarnations={})) == TEXT


def test_optional_parts_can_be_missing():
    view = contract.load(json.dumps(document(later={"a": 1})))
    assert (view.jobs, view.device_filters, view.accelerators) == ({}, {}, {})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 200_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[]", "the document must be an object, not list"),
        ("null", "the document must be an object, not NoneType"),
        ("{}", "version must be a whole number of 0 or more, not None"),
    ],
    ids=["empty", "cut short", "too deep", "no text", "a list", "null", "no version"],
)
def test_invalid_document_is_rejected(text, place):
    with pytest.raises(ContractError, match=place):
        contract.load(text)


WHOLE = "must be a whole number of 0 or more, not"
INDEX = "which is not a task index"
OBJECTS = ("cluster", "jobs", "deviceFilters", "accelerators", "leaving", "incarnations")
NO_INDICES = ("one", "01", "-1", "٣", "", "3000000000", str(2**31))


def filtered(tasks: Sequence[Any], filters: Sequence[Any] = (), times: int = 1) -> dict[str, Any]:
    return {"ps": [{"tasks": tasks, "filters": filters}] * times}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({"version": value}, f"version {WHOLE} {value!r}") for value in ("1", True, -1, 1.0)),
        *(({key: None}, f"{key} must be an object, not NoneType") for key in ("cluster", "jobs")),
        *(({key: []}, f"{key} must be an object, not list") for key in OBJECTS),
        *(({key: {"ps": {}}}, f"{key}.ps must be a list, not dict") for key in ("deviceFilters", "leaving")),
        ({"cluster": {"namespace": "n", "uid": "u"}}, "cluster.name must be a string, not NoneType"),
        ({"cluster": {"name": "n", "uid": "u"}}, "cluster.namespace must be a string, not NoneType"),
        ({"cluster": {"name": "n", "namespace": "n", "uid": 5}}, "cluster.uid must be a string, not int"),
        ({"epoch": None}, f"epoch {WHOLE} None"),
        ({"epoch": 1.5}, f"epoch {WHOLE} 1.5"),
        ({"rpcLayer": None}, "rpcLayer must be a string, not NoneType"),
        ({"isolation": 1}, "isolation must be a string, not int"),
        (
            {"jobs": {"worker": "c0:1"}},
            "a list of addresses, or a map from index to address) must be an object, not str",
        ),
        ({"jobs": {"worker": ["a:1", 2]}}, "jobs.worker[1] must be a string, not int"),
        ({"jobs": {"worker": {"0": 2}}}, "jobs.worker.0 must be a string, not int"),
        *(({"jobs": {"ps": {key: "a:1"}}}, f"jobs.ps has the key '{key}', {INDEX}") for key in NO_INDICES),
        ({"deviceFilters": {"ps": ["x"]}}, "deviceFilters.ps[0] must be an object, not str"),
        ({"deviceFilters": {"ps": [{}]}}, "deviceFilters.ps[0].tasks must be a list, not NoneType"),
        ({"deviceFilters": filtered([1])}, "deviceFilters.ps[0].tasks must be [start, stop], not [1]"),
        ({"deviceFilters": filtered(["0", 1])}, f"deviceFilters.ps[0].tasks[0] {WHOLE} '0'"),
        ({"deviceFilters": filtered([0, None])}, f"deviceFilters.ps[0].tasks[1] {WHOLE} None"),
        ({"deviceFilters": {"ps": [{"tasks": [0, 1]}]}}, "deviceFilters.ps[0].filters must be a list, not NoneType"),
        ({"deviceFilters": filtered([0, 1], ["/job:ps", 1])}, "ps[0].filters[1] must be a string, not int"),
        ({"accelerators": {"ps": 1}}, "accelerators.ps must be an object, not int"),
        ({"accelerators": {"ps": {"limits": []}}}, "accelerators.ps.limits must be an object, not list"),
        ({"accelerators": {"ps": {"limits": {"nvidia.com/gpu": "1"}}}}, f"ps.limits.nvidia.com/gpu {WHOLE} '1'"),
        ({"accelerators": {"ps": {"tasks": []}}}, "accelerators.ps.tasks must be an object, not list"),
        ({"accelerators": {"ps": {"tasks": {"x": {}}}}}, f"accelerators.ps.tasks has the key 'x', {INDEX}"),
        ({"accelerators": {"ps": {"tasks": {"0": 1}}}}, "accelerators.ps.tasks.0 must be an object, not int"),
        ({"accelerators": {"ps": {"tasks": {"0": {"a/b": -1}}}}}, f"accelerators.ps.tasks.0.a/b {WHOLE} -1"),
        ({"leaving": {"ps": [1]}}, "leaving.ps[0] must be a list, not int"),
        ({"leaving": {"ps": [[1, 2, 3]]}}, "leaving.ps[0] must be [start, stop], not [1, 2, 3]"),
        ({"leaving": {"ps": [[2, 1]]}}, "leaving.ps[0] must be [start, stop], not [2, 1]"),
        ({"leaving": {"ps": [[0, "1"]]}}, f"leaving.ps[0][1] {WHOLE} '1'"),
        ({"incarnations": {"ps": ["a"]}}, "incarnations.ps must be an object, not list"),
        ({"incarnations": {"ps": {"x": "a"}}}, f"incarnations.ps has the key 'x', {INDEX}"),
        ({"incarnations": {"ps": {"0": 1}}}, "incarnations.ps.0 must be a string, not int"),
        # Numbers that no reader could use: an index beyond TensorFlow's, ranges that need gigabytes when expanded.
        ({"deviceFilters": filtered([0, 2**31])}, "deviceFilters names 2147483648 tasks, more than the 100000"),
        ({"deviceFilters": filtered([0, 9_000], times=12)}, "deviceFilters names 108000 tasks, more than the 100000"),
        ({"leaving": {"ps": [[0, 2_000_000_000]]}}, "leaving names 2000000000 tasks, more than the 100000"),
        ({"leaving": {"ps": [[2**31, 2**31 + 1]]}}, "leaving.ps[0] must be [start, stop], not [2147483648, "),
        ({"deviceFilters": filtered([2**31, 2**31 + 1])}, "ps[0].tasks must be [start, stop], not [2147483648, "),
        ({"jobs": {"ps": {"9" * 5000: "a:1"}}}, f"{INDEX}"),
        ({"epoch": 2**63}, "epoch must be 9223372036854775807 at most, not 9223372036854775808"),
        # JSON can contain half a character, which would fail only where it is printed or sent.
        ({"cluster": {"name": "\ud800", "namespace": "n", "uid": "u"}}, "must be Unicode"),
        ({"jobs": {"\ud800": ["a:1"]}}, "must be Unicode"),
        ({"later": {"\ud800": 1}, "\udc00": 1}, "must be Unicode"),
    ],
)
def test_a_malformed_part_is_named_by_its_place(changes, message):
    with pytest.raises(ContractError, match=re.escape(message)) as error:
        contract.load(json.dumps(document(**changes)))
    assert str(error.value).encode()


def test_the_largest_numbers_are_read():
    """The limits are valid: TensorFlow's last index, and the ranges of ten of the largest jobs."""
    last = 2**31 - 1
    ranges = filtered([last + 1 - 100_000, last + 1])
    view = contract.load(json.dumps(document(jobs={"ps": {str(last): "a:1"}}, deviceFilters=ranges)))
    assert view.jobs == {"ps": {last: "a:1"}}
    assert view.device_filters["ps"][0].stop == last + 1


def test_whatever_the_text_no_other_error_comes():
    """Every nesting up to the interpreter's limit, at each place: not only the JSON parser raises an error there."""
    shallow, deep = 1, sys.getrecursionlimit()
    for depth in (shallow, *range(deep - 120, deep)):
        nested = "[" * depth + "]" * depth
        for text in (
            nested,
            f'{{"version":{nested}}}',
            json.dumps(document(leaving={"ps": ["@"]})).replace('"@"', nested),
            json.dumps(document(leaving={"ps": ["@", "@"]})).replace('"@"', f"[{nested},1]"),
            json.dumps(document(leaving={"ps": ["@"]})).replace('"@"', '{"a":' * depth + "1" + "}" * depth),
        ):
            with pytest.raises(ContractError):
                contract.load(text)


GPUS = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu"]
INTELS = ["gpu.intel.com/i915", "gpu.intel.com/xe"]
#: With fractional resources, a container requests one device and parts of it from Intel's plugin: TensorFlow gets one.
SHARES = ["millicores", "memory.max", "tiles", "i915_monitoring", "xe_monitoring"]
OTHERS = ["amd.com/mig-1", "nvidia.com/gpumem", "rdma/hca", "cpu", ""]


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        *((resource, "GPU") for resource in GPUS + INTELS),
        ("google.com/tpu", "TPU"),
        *((f"gpu.intel.com/{share}", None) for share in SHARES),
        *((resource, None) for resource in OTHERS),
    ],
)
def test_a_resource_is_a_device_of_tensorflows_or_none(resource, device):
    """GPUs of every vendor and their slices are GPUs, TPUs are TPUs; network cards and shares of a GPU are ignored."""
    assert device == contract.device_type(resource)


def test_files_are_named_after_the_task():
    """The release file of a task has its port, which differs for two on one machine; its view has its index."""
    assert contract.released_file(2222) == "/tmp/tfcluster-released-2222"  # noqa: S108 - a name; nothing is made
    assert contract.task_view_file(12) == "task-12.json"


@pytest.mark.parametrize(
    ("job", "index", "tasks"),
    [
        ("worker", 2, {10: "w10:1", 2: "w2:1"}),
        ("worker", 0, {0: "own:1", 2: "w2:1", 10: "w10:1"}),
        ("chief", 0, ["c0:1"]),
        ("chief", 1, ["c0:1", "own:1"]),
        ("chief", 2, {0: "c0:1", 2: "own:1"}),
        ("ps", 0, ["own:1"]),
        ("ps", 1, {1: "own:1"}),
    ],
)
def test_own_task_is_put_in_where_the_view_hides_it(job, index, tasks):
    """Dense jobs are lists, also if the own task completes them; all others are maps in the order of the indices."""
    found = contract.jobs_of(VIEW, (job, index, "own:1"))
    assert found == {"worker": {2: "w2:1", 10: "w10:1"}, "chief": ["c0:1"], job: tasks}
    assert list(found[job]) == list(tasks)
    spelled = json.loads(contract.tf_config(VIEW, job=job, index=index, address="own:1"))
    assert spelled["cluster"][job] == (tasks if isinstance(tasks, list) else {str(k): v for k, v in tasks.items()})
