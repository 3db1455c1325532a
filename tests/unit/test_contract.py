"""The contract of cluster.json: its exact spelling, and that whatever is malformed is named by its place."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from tfcluster_resolver import contract
from tfcluster_resolver.contract import ContractError, FilterRange, JobAccelerators, View

VIEW = View(
    name="demo",
    namespace="default",
    uid="u",
    epoch=3,
    rpc_layer="grpc",
    jobs={"worker": {10: "w10:1", 2: "w2:1"}, "chief": ("c0:1",)},
    device_filters={"worker": (FilterRange(0, 5, ("/job:chief", "/job:ps")),)},
    accelerators={
        "worker": JobAccelerators(limits={"nvidia.com/gpu": 2}, tasks={10: {"nvidia.com/gpu": 1}, 2: {}}),
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
    """Make a smallest view as JSON; a change of None leaves the key out."""
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
    """Sorted keys, no spaces, one newline: the same view always gives the same bytes."""
    assert contract.dump(VIEW) == TEXT


def test_isolation_is_spelled_only_where_there_is_one():
    """The views of a cluster without isolation have the bytes that an older operator gave them."""
    isolated = replace(VIEW, isolation="Cluster")

    assert contract.dump(isolated) == TEXT.replace('"jobs":', '"isolation":"Cluster","jobs":')
    assert contract.load(contract.dump(isolated)) == isolated


def test_what_leaves_is_spelled_only_where_something_does():
    """Tasks that leave, and which pod each task is, as JSON; the views of all other clusters keep their bytes."""
    told = replace(VIEW, leaving={"worker": ((3, 5), (7, 8))}, incarnations={"worker": {10: "0a1b2c3d", 2: "9f"}})

    spelled = contract.dump(told)

    assert spelled == TEXT.replace('"jobs":', '"incarnations":{"worker":{"10":"0a1b2c3d","2":"9f"}},"jobs":').replace(
        '"rpcLayer":', '"leaving":{"worker":[[3,5],[7,8]]},"rpcLayer":'
    )
    assert contract.load(spelled) == told
    assert contract.dump(replace(told, leaving={}, incarnations={})) == TEXT


def test_a_view_is_read_as_it_was_written():
    """Reading gives the view back, from text and from bytes."""
    assert VIEW == contract.load(TEXT) == contract.load(TEXT.encode())


def test_optional_parts_may_be_missing():
    """A view without filters and accelerators has none; keys that are not known are left out."""
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
def test_what_is_no_document_is_refused(text, place):
    """Anything but a JSON object with a version is told as such."""
    with pytest.raises(ContractError, match=place):
        contract.load(text)


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"version": "1"}, "version must be a whole number of 0 or more, not '1'"),
    ({"version": True}, "version must be a whole number of 0 or more, not True"),
    ({"version": -1}, "version must be a whole number of 0 or more, not -1"),
    ({"version": 1.0}, "version must be a whole number of 0 or more, not 1.0"),
    ({"cluster": None}, "cluster must be an object, not NoneType"),
    ({"cluster": []}, "cluster must be an object, not list"),
    ({"cluster": {"namespace": "n", "uid": "u"}}, "cluster.name must be a string, not NoneType"),
    ({"cluster": {"name": "n", "uid": "u"}}, "cluster.namespace must be a string, not NoneType"),
    ({"cluster": {"name": "n", "namespace": "n", "uid": 5}}, "cluster.uid must be a string, not int"),
    ({"epoch": None}, "epoch must be a whole number of 0 or more, not None"),
    ({"epoch": 1.5}, "epoch must be a whole number of 0 or more, not 1.5"),
    ({"rpcLayer": None}, "rpcLayer must be a string, not NoneType"),
    ({"isolation": 1}, "isolation must be a string, not int"),
    ({"jobs": None}, "jobs must be an object, not NoneType"),
    ({"jobs": ["c0:1"]}, "jobs must be an object, not list"),
    (
        {"jobs": {"worker": "c0:1"}},
        "jobs.worker (a list of addresses, or a map from index to address) must be an object, not str",
    ),
    ({"jobs": {"worker": ["a:1", 2]}}, "jobs.worker[1] must be a string, not int"),
    ({"jobs": {"worker": {"0": 2}}}, "jobs.worker.0 must be a string, not int"),
    ({"jobs": {"worker": {"one": "a:1"}}}, "jobs.worker has the key 'one', which is not a task index"),
    ({"jobs": {"worker": {"01": "a:1"}}}, "jobs.worker has the key '01', which is not a task index"),
    ({"jobs": {"worker": {"-1": "a:1"}}}, "jobs.worker has the key '-1', which is not a task index"),
    ({"jobs": {"worker": {"٣": "a:1"}}}, "jobs.worker has the key '٣', which is not a task index"),
    ({"jobs": {"worker": {"": "a:1"}}}, "jobs.worker has the key '', which is not a task index"),
    ({"deviceFilters": []}, "deviceFilters must be an object, not list"),
    ({"deviceFilters": {"ps": {}}}, "deviceFilters.ps must be a list, not dict"),
    ({"deviceFilters": {"ps": ["x"]}}, "deviceFilters.ps[0] must be an object, not str"),
    ({"deviceFilters": {"ps": [{}]}}, "deviceFilters.ps[0].tasks must be a list, not NoneType"),
    (
        {"deviceFilters": {"ps": [{"tasks": [1], "filters": []}]}},
        "deviceFilters.ps[0].tasks must be [start, stop], not [1]",
    ),
    (
        {"deviceFilters": {"ps": [{"tasks": ["0", 1], "filters": []}]}},
        "deviceFilters.ps[0].tasks[0] must be a whole number of 0 or more, not '0'",
    ),
    (
        {"deviceFilters": {"ps": [{"tasks": [0, None], "filters": []}]}},
        "deviceFilters.ps[0].tasks[1] must be a whole number of 0 or more, not None",
    ),
    ({"deviceFilters": {"ps": [{"tasks": [0, 1]}]}}, "deviceFilters.ps[0].filters must be a list, not NoneType"),
    (
        {"deviceFilters": {"ps": [{"tasks": [0, 1], "filters": ["/job:ps", 1]}]}},
        "deviceFilters.ps[0].filters[1] must be a string, not int",
    ),
    ({"accelerators": []}, "accelerators must be an object, not list"),
    ({"accelerators": {"ps": 1}}, "accelerators.ps must be an object, not int"),
    ({"accelerators": {"ps": {"limits": []}}}, "accelerators.ps.limits must be an object, not list"),
    (
        {"accelerators": {"ps": {"limits": {"nvidia.com/gpu": "1"}}}},
        "accelerators.ps.limits.nvidia.com/gpu must be a whole number of 0 or more, not '1'",
    ),
    ({"accelerators": {"ps": {"tasks": []}}}, "accelerators.ps.tasks must be an object, not list"),
    (
        {"accelerators": {"ps": {"tasks": {"x": {}}}}},
        "accelerators.ps.tasks has the key 'x', which is not a task index",
    ),
    ({"accelerators": {"ps": {"tasks": {"0": 1}}}}, "accelerators.ps.tasks.0 must be an object, not int"),
    (
        {"accelerators": {"ps": {"tasks": {"0": {"a/b": -1}}}}},
        "accelerators.ps.tasks.0.a/b must be a whole number of 0 or more, not -1",
    ),
    ({"leaving": []}, "leaving must be an object, not list"),
    ({"leaving": {"ps": {}}}, "leaving.ps must be a list, not dict"),
    ({"leaving": {"ps": [1]}}, "leaving.ps[0] must be a list, not int"),
    ({"leaving": {"ps": [[1, 2, 3]]}}, "leaving.ps[0] must be [start, stop], not [1, 2, 3]"),
    ({"leaving": {"ps": [[2, 1]]}}, "leaving.ps[0] must be [start, stop], not [2, 1]"),
    ({"leaving": {"ps": [[0, "1"]]}}, "leaving.ps[0][1] must be a whole number of 0 or more, not '1'"),
    ({"incarnations": []}, "incarnations must be an object, not list"),
    ({"incarnations": {"ps": ["a"]}}, "incarnations.ps must be an object, not list"),
    ({"incarnations": {"ps": {"x": "a"}}}, "incarnations.ps has the key 'x', which is not a task index"),
    ({"incarnations": {"ps": {"0": 1}}}, "incarnations.ps.0 must be a string, not int"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_a_malformed_part_is_named_by_its_place(changes, message):
    """The message says where, what was expected and what stands there."""
    with pytest.raises(ContractError) as error:
        contract.load(json.dumps(document(**changes)))

    assert message in str(error.value)


def test_a_newer_version_says_what_to_do():
    """A view of a newer operator is refused before anything else of it is read."""
    with pytest.raises(contract.UnsupportedVersionError, match=r"version 2 is newer than 1.*update tfcluster"):
        contract.load('{"version":2,"jobs":"in another form"}')


def test_an_index_of_thousands_of_digits_is_refused():
    """A key that int() itself would refuse is a malformed view like any other."""
    with pytest.raises(ContractError, match="not a task index"):
        contract.load(json.dumps(document(jobs={"worker": {"9" * 5000: "a:1"}})))


def filtered(start: int, stop: int, times: int = 1) -> dict[str, Any]:
    """Make the device filters of one job, the same range as often as told."""
    return {"ps": [{"tasks": [start, stop], "filters": []}] * times}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"deviceFilters": filtered(0, 2**31)}, "deviceFilters names 2147483648 tasks, more than the 100000"),
        ({"deviceFilters": filtered(0, 9_000, 12)}, "deviceFilters names 108000 tasks, more than the 100000"),
        ({"leaving": {"ps": [[0, 2_000_000_000]]}}, "leaving names 2000000000 tasks, more than the 100000"),
        ({"leaving": {"ps": [[2**31, 2**31 + 1]]}}, "leaving.ps[0] must be [start, stop], not [2147483648, "),
        ({"deviceFilters": filtered(2**31, 2**31 + 1)}, "ps[0].tasks must be [start, stop], not [2147483648, "),
        ({"jobs": {"ps": {"3000000000": "a:1"}}}, "jobs.ps has the key '3000000000', which is not a task index"),
        ({"jobs": {"ps": {str(2**31): "a:1"}}}, "jobs.ps has the key '2147483648', which is not a task index"),
        ({"epoch": 2**63}, "epoch must be 9223372036854775807 at most, not 9223372036854775808"),
    ],
    ids=str,
)
def test_numbers_that_no_reader_could_use_are_refused(changes, message):
    """An index beyond TensorFlow's, or ranges that take gigabytes when they are spelled out, are a malformed view."""
    with pytest.raises(ContractError, match=re.escape(message)):
        contract.load(json.dumps(document(**changes)))


def test_the_largest_numbers_are_read():
    """The bounds themselves still are numbers: TensorFlow's last index, and the ranges of ten of the largest jobs."""
    last = 2**31 - 1
    ranges = filtered(last + 1 - 100_000, last + 1)

    view = contract.load(json.dumps(document(jobs={"ps": {str(last): "a:1"}}, deviceFilters=ranges)))

    assert view.jobs == {"ps": {last: "a:1"}}
    assert view.device_filters["ps"][0].stop == last + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster": {"name": "\ud800", "namespace": "n", "uid": "u"}},
        {"rpcLayer": "\udfff"},
        {"jobs": {"ps": ["\ud800"]}},
        {"jobs": {"\ud800": ["a:1"]}},
        {"jobs": {"ps": {"\ud800": "a:1"}}},
        {"deviceFilters": {"ps": [{"tasks": [0, 1], "filters": ["\ud800"]}]}},
        {"accelerators": {"ps": {"limits": {"\ud800": 1}}}},
        {"incarnations": {"ps": {"0": "\ud800"}}},
        {"later": {"\ud800": 1}, "\udc00": 1},
    ],
    ids=str,
)
def test_half_a_character_is_refused(changes):
    """JSON can spell what is no text: it would fail only where somebody prints or sends it."""
    with pytest.raises(ContractError, match="must be Unicode") as error:
        contract.load(json.dumps(document(**changes)))

    assert str(error.value).encode()


def test_whatever_the_text_no_other_error_comes():
    """Each nesting up to what the interpreter takes, at each place: not only the reader of JSON gives up there."""
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


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("nvidia.com/gpu", "GPU"),
        ("nvidia.com/gpu.shared", "GPU"),
        ("nvidia.com/mig-1g.5gb", "GPU"),
        ("amd.com/gpu", "GPU"),
        ("gpu.intel.com/i915", "GPU"),
        ("gpu.intel.com/xe", "GPU"),
        ("google.com/tpu", "TPU"),
        ("gpu.intel.com/millicores", None),
        ("gpu.intel.com/memory.max", None),
        ("gpu.intel.com/tiles", None),
        ("gpu.intel.com/i915_monitoring", None),
        ("gpu.intel.com/xe_monitoring", None),
        ("amd.com/mig-1", None),
        ("nvidia.com/gpumem", None),
        ("rdma/hca", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_a_resource_is_a_device_of_tensorflows_or_none(resource, device):
    """GPUs of every vendor and their slices are GPUs, TPUs are TPUs, a network card or a share of a GPU is nothing."""
    assert device == contract.device_type(resource)


def test_intels_shares_of_a_device_are_no_devices():
    """With fractional resources a container asks for one device and for parts of it: TensorFlow gets one."""
    asked = {"gpu.intel.com/i915": 1, "gpu.intel.com/millicores": 500, "gpu.intel.com/memory.max": 4_000_000_000}

    assert sum(count for resource, count in asked.items() if contract.device_type(resource)) == 1


def test_the_file_that_releases_a_task_is_named_after_its_port():
    """Two tasks on one machine are told apart."""
    assert contract.released_file(2222) == "/tmp/tfcluster-released-2222"  # noqa: S108 - a name; nothing is made


def test_a_tasks_own_file_is_named_after_its_index():
    """The file beside cluster.json that one task reads instead."""
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
    """Dense jobs are lists, whoever completes them; all others are maps in the order of the indices."""
    found = contract.jobs_of(VIEW, (job, index, "own:1"))

    assert found == {"worker": {2: "w2:1", 10: "w10:1"}, "chief": ["c0:1"], job: tasks}
    assert list(found[job]) == list(tasks)
    spelled = json.loads(contract.tf_config(VIEW, job=job, index=index, address="own:1"))
    assert spelled["cluster"][job] == (tasks if isinstance(tasks, list) else {str(k): v for k, v in tasks.items()})
