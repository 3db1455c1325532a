"""Our ClusterSpec returns the same as TensorFlow's for every input; deliberate differences have a known cause."""

import copy
import os
import pickle
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tfcluster_resolver import _protobuf
from tfcluster_resolver.cluster_spec import ClusterSpec
from tfcluster_resolver.errors import ArgumentError

# Inputs for a ClusterSpec, ordinary and malformed, and all results of a ClusterSpec.


class Pair(NamedTuple):
    first: Any
    second: Any


NAMES = st.sampled_from(["ps", "worker", "chief", "w", "", "é", np.str_("np")]) | st.text(max_size=3)
BYTES_NAMES = st.sampled_from([b"ps", b"worker", b"w", b"", "é".encode()])
ODD_NAMES = st.sampled_from([None, 3, 1.5, True, b"w", b"\xff", "w", "\ud800", (), ("a",), ("a", "b"), frozenset()])
ADDRESSES = st.sampled_from(["a:1", "b:2", b"c:3", bytearray(b"d:4"), "", np.bytes_(b"e:5")]) | st.text(max_size=4)
ODD_ADDRESSES = st.sampled_from(
    [None, 3, 1.5, True, ["a:1"], {}, ("a", "b"), ("a",), b"\xff", bytearray(b"\xff"), "\ud800"]
)
INDICES = st.integers(0, 5) | st.sampled_from(
    ["0", "1", " 2 ", b"3", "1_0", "+1", True, 1.9, -0.5, np.int64(2), 2**31 - 1]
)
BELOW = st.integers(-6, -1) | st.sampled_from(["-1", -1.5, np.int64(-2), -(2**31)])
ODD_INDICES = st.sampled_from(
    ["a", "", "1.0", None, (1,), float("nan"), float("inf"), 2**31, 2**63, 2**70, -(2**31) - 1]
)


def _tasks(addresses: st.SearchStrategy, indices: st.SearchStrategy) -> st.SearchStrategy:
    few = st.lists(addresses, max_size=4)
    sparse = st.dictionaries(indices, addresses, max_size=4)
    return st.one_of(
        few,
        few.map(tuple),
        st.tuples(addresses, addresses).map(lambda both: Pair(*both)),
        sparse,
        sparse.map(OrderedDict),
        sparse.map(lambda tasks: defaultdict(str, tasks)),
    )


ODD_TASKS = st.one_of(
    st.sampled_from([None, 3, "a:1", b"a:1", {"a:1"}, frozenset(), range(2), deque(["a:1"]), UserDict({0: "a:1"})]),
    st.sampled_from([np.array(["a:1"]), {0: "a:1"}.values(), MappingProxyType({0: "a:1"})]),
    st.builds(iter, st.just(["a:1"])),
)
GOOD = st.dictionaries(NAMES, _tasks(ADDRESSES, INDICES), max_size=4)
GOOD_BYTES = st.dictionaries(BYTES_NAMES, _tasks(ADDRESSES, INDICES), max_size=3)
MIXED = st.dictionaries(
    NAMES | BYTES_NAMES | ODD_NAMES,
    _tasks(ADDRESSES, INDICES) | _tasks(ADDRESSES | ODD_ADDRESSES, INDICES | BELOW | ODD_INDICES) | ODD_TASKS,
    max_size=3,
)
ONE_WRONG = st.one_of(
    st.dictionaries(NAMES, _tasks(ODD_ADDRESSES, INDICES), min_size=1, max_size=2),
    st.dictionaries(NAMES, _tasks(ADDRESSES, ODD_INDICES | INDICES), min_size=1, max_size=2),
    st.dictionaries(NAMES, _tasks(ADDRESSES, BELOW | INDICES), min_size=1, max_size=2),
    st.dictionaries(NAMES, ODD_TASKS, min_size=1, max_size=2),
    st.dictionaries(ODD_NAMES, _tasks(ADDRESSES, INDICES), min_size=1, max_size=3),
)
NO_CLUSTERS = st.sampled_from(
    [
        *(None, [], "w", b"w", 3, (), [("w", ["a"])], MappingProxyType({"w": ["a"]}), UserDict({"w": ["a"]}), dict, tf),
        *(tf.train.JobDef(name="w"), tf.train.ServerDef(), tf.train.ClusterDef, tf.train.ClusterSpec, object()),
    ]
)
DICTS = GOOD | GOOD_BYTES | MIXED | ONE_WRONG | GOOD.map(OrderedDict) | GOOD.map(lambda jobs: defaultdict(list, jobs))

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
_JOBS = st.sampled_from(["ps", "worker", "w", ""]) | _TEXT


def _definition(jobs: list[tuple[str, dict[int, str]]]) -> tf.train.ClusterDef:
    return tf.train.ClusterDef(job=[tf.train.JobDef(name=name, tasks=tasks) for name, tasks in jobs])


DEFINITIONS = st.lists(
    st.tuples(
        _JOBS,
        st.dictionaries(st.integers(0, 5) | st.integers(0, 9) | st.just(2**31 - 1), _TEXT, max_size=4)
        | st.dictionaries(st.integers(-3, 5), _TEXT, max_size=3),
    ),
    max_size=4,
).map(_definition)


def in_our_pool(definition: tf.train.ClusterDef) -> Any:
    return _protobuf.own_messages("a test").ClusterDef.FromString(definition.SerializeToString())


PROBES = (0, 1, 5, -1, True, 1.0, "0", None, 2**31 - 1, [])
JOB_PROBES = ("no such job", "w", b"w", None, 3, [])


def observed(spec: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "jobs": spec.jobs,
        "truth": (bool(spec), spec.__nonzero__()),
        "dict": spec.as_dict(),
        "repr": repr(spec),
        "message": _spelled(spec.as_cluster_def()),
        "hash": _outcome(hash, spec),
        "equal itself": (spec == spec, spec != spec),  # noqa: PLR0124 - what it says of itself is asked
        "equal its dict": (spec == spec.as_dict(), spec != spec.as_dict()),
        "equal its normal form": spec
        == {j: {i: spec.task_address(j, i) for i in spec.task_indices(j)} for j in spec.jobs},
        "equal others": [(spec == one, spec != one) for one in (None, {}, [], 0, "w", spec.as_cluster_def())],
    }
    for name, make in _COPIES.items():
        other = make(spec)
        told[name] = (type(other) is type(spec), spec == other, other.as_dict(), _spelled(other.as_cluster_def()))
    for job in (*spec.jobs, *JOB_PROBES):
        told[f"count {job!r}"] = _outcome(spec.num_tasks, job)
        told[f"indices {job!r}"] = indices = _outcome(spec.task_indices, job)
        known = isinstance(indices, list)
        # The list of a job with one huge index is huge.
        if not known or max(indices, default=0) < 1000:
            told[f"tasks {job!r}"] = _outcome(spec.job_tasks, job)
        for index in PROBES if known else PROBES[:1]:
            told[f"address {job!r} {index!r}"] = _outcome(spec.task_address, job, index)
    return told


_COPIES: dict[str, Callable[[Any], Any]] = {
    "constructed": lambda spec: type(spec)(spec),
    "copied": copy.copy,
    "deep-copied": copy.deepcopy,
    "pickled": lambda spec: pickle.loads(pickle.dumps(spec)),  # noqa: S301 - our own bytes
}


def _spelled(definition: Any) -> list[tuple[str, dict[int, str]]]:
    assert type(definition) is tf.train.ClusterDef
    return [(job.name, dict(job.tasks)) for job in definition.job]


def _outcome(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except Exception as error:  # noqa: BLE001 - which one it is is the question
        return error


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Return the differences; an exception equals one of the same type or of a base of it."""
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not _agree(ours[name], theirs[name])]


def _agree(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, Exception):
        return isinstance(ours, type(theirs))
    return not isinstance(ours, Exception) and type(ours) is type(theirs) and ours == theirs


# The comparison.

#: The number of compared inputs of each kind.
EXAMPLES = {DICTS: 4300, DEFINITIONS: 700, NO_CLUSTERS: 60}
#: TensorFlow raises a plain ValueError here, but ours does not.
PLAIN_VALUE_ERRORS = (UnicodeError, OverflowError)
#: The same inputs in every run, so that each kind of error occurs.
SAME: dict[str, Any] = {
    "phases": (Phase.generate, Phase.shrink),
    "derandomize": os.environ.get("HYPOTHESIS") != "random",
    "deadline": None,
    "database": None,
}


def made(kind, cluster):
    try:
        return kind(cluster)
    except Exception as error:  # noqa: BLE001 - which one it is is the question
        return error


def deliberate(ours, theirs) -> str | None:
    if not isinstance(theirs, tf.train.ClusterSpec) or not isinstance(ours, ValueError):
        return None
    if any(index < 0 for job in theirs.jobs for index in theirs.task_indices(job)):
        return "a negative index"
    names = [job.name for job in theirs.as_cluster_def().job]
    return "a job named twice" if len(names) > len(set(names)) else None


def compare(ours, theirs, seen: Counter[str]) -> None:
    """Compare two ClusterSpecs, or their exceptions, and count their kinds."""
    cause = deliberate(ours, theirs)
    if cause is not None:
        seen[cause] += 1
    elif isinstance(theirs, Exception):
        kind = ValueError if isinstance(theirs, PLAIN_VALUE_ERRORS) else type(theirs)
        assert isinstance(ours, kind), (ours, theirs)
        assert isinstance(ours, ArgumentError), (ours, theirs)
        seen[f"{type(theirs).__name__} by both"] += 1
    else:
        assert not isinstance(ours, Exception), (ours, theirs)
        told, expected = observed(ours), observed(theirs)
        wrong = differences(told, expected)
        assert not wrong, {name: (told[name], expected[name]) for name in wrong}
        assert (ours == theirs, theirs == ours, ours != theirs, theirs != ours) == (True, True, False, False)
        seen["equal"] += 1


@pytest.mark.parametrize("share", [0.2, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_specs_agree_on_every_input(share):
    seen: Counter[str] = Counter()
    compared = 0
    for inputs, count in EXAMPLES.items():

        @settings(max_examples=int(share * count), **SAME)
        @given(inputs)
        def check(cluster):
            nonlocal compared
            compared += 1
            theirs = made(tf.train.ClusterSpec, cluster)
            compare(made(ClusterSpec, cluster), theirs, seen)
            if isinstance(cluster, tf.train.ClusterDef):
                compare(made(ClusterSpec, in_our_pool(cluster)), theirs, seen)
            elif isinstance(theirs, tf.train.ClusterSpec):
                compare(made(ClusterSpec, theirs), tf.train.ClusterSpec(theirs), seen)

        check()

    print(f"{compared} inputs, compared: {dict(seen)}")  # noqa: T201 - the count is the report
    assert compared >= share * 5000
    kinds = {"equal", "a negative index", "a job named twice"}
    assert kinds | {f"{name} by both" for name in ("TypeError", "ValueError", "OverflowError")} <= set(seen)


def test_our_spec_is_taken_by_tensorflow_as_a_dict_or_message():
    """TensorFlow's class accepts the dict and the message of ours, but not ours itself; ours accepts TensorFlow's."""
    ours = ClusterSpec({"w": {1: "a:1"}})
    with pytest.raises(TypeError):
        tf.train.ClusterSpec(ours)
    assert tf.train.ClusterSpec(ours.as_dict()) == tf.train.ClusterSpec(ours.as_cluster_def()) == ours
    assert ClusterSpec(tf.train.ClusterSpec({"w": {1: "a:1"}})) == ours
