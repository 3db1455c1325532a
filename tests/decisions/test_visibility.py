"""Filters and views against TensorFlow's own definition, evaluated device by device and task by task."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from decisions.in_memory import views_for
from decisions.strategies import clusters
from hypothesis import given, settings
from hypothesis import strategies as st

from tfcluster_operator.declaration.spec import EVALUATOR, Job, Task, TFCluster, seen_with
from tfcluster_resolver import contract

MANY = settings(max_examples=150, deadline=None)

_PART = re.compile(r"/(job|replica|task|device|cpu|gpu|CPU|GPU):([^/]+)")


def shows(text: str, *, job: str, index: int) -> bool:
    """Match field by field, as TensorFlow does, whether one filter shows some device of a task."""
    return all(
        {"job": value == job, "replica": value == "0", "task": value == str(index)}.get(part, True)
        for part, value in _PART.findall(text)
    )


def sees(texts: tuple[str, ...], task: Task) -> bool:
    """Return whether a task with these filters has another task in its view."""
    if task.job.name == EVALUATOR:
        return False
    return not texts or any(shows(text, job=task.job.name, index=task.index) for text in texts)


def audiences(cluster: TFCluster) -> Iterator[tuple[Job, str, tuple[str, ...]]]:
    """Return every file that must exist, with the filters of its readers."""
    for job in cluster.jobs:
        yield job, contract.VIEW_FILE, job.filters
        for index, texts in job.task_filters.items():
            yield job, contract.task_view_file(index), texts


def published(cluster: TFCluster) -> dict[tuple[str, str], contract.View]:
    """Return every parsed file of a new cluster."""
    wanted = views_for(cluster)
    return {(of.job.name, name): contract.load(file.text) for of in wanted for name, file in of.files.items()}


FILTER_TEXTS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "/job:ps", "/job:worker", "/job:worker2"]),
        st.sampled_from(["", "/replica:0"]),
        st.sampled_from(["", "/task:0", "/task:1", "/task:10"]),
        st.sampled_from(["", "/device:GPU:0", "/device:XLA_CPU", "/cpu:0", "/GPU:3"]),
    ),
).filter(bool)


@MANY
@given(
    texts=st.lists(FILTER_TEXTS, max_size=4).map(tuple),
    job=st.sampled_from(["ps", "worker", "chief"]),
    count=st.integers(0, 12),
)
def test_a_filter_shows_what_field_wise_matching_shows(texts, job, count):
    """For every job and size, the visible indices are those that some filter matches field by field."""
    expected = tuple(i for i in range(count) if not texts or any(shows(text, job=job, index=i) for text in texts))

    assert expected == seen_with(texts, job).within(count)


@MANY
@given(cluster=clusters)
def test_a_task_is_in_a_view_exactly_when_it_is_visible(cluster):
    """Over all files together: an address is in a file if and only if the reader's filters show its task."""
    found = published(cluster)

    assert {(job.name, name) for job, name, _ in audiences(cluster)} == set(found)
    for viewer, name, texts in audiences(cluster):
        jobs = found[viewer.name, name].jobs
        listed = {
            (job, index): address
            for job, tasks in jobs.items()
            for index, address in (tasks.items() if isinstance(tasks, Mapping) else enumerate(tasks))
        }
        assert {
            (task.job.name, task.index): cluster.address_of(task) for task in cluster.tasks() if sees(texts, task)
        } == listed
        for job in cluster.jobs:
            if job.name in jobs:
                assert isinstance(jobs[job.name], Mapping) == (len(jobs[job.name]) < job.replicas)


@MANY
@given(cluster=clusters)
def test_filter_ranges_give_each_visible_task_its_own_filters(cluster):
    """Up to maxReplicas each visible task with filters is in exactly one range, with its filters; no other task is."""
    found = published(cluster)

    for viewer, name, texts in audiences(cluster):
        spelled = [
            (job, index, tuple(one.filters))
            for job, ranges in found[viewer.name, name].device_filters.items()
            for one in ranges
            for index in range(one.start, one.stop)
        ]
        assert sorted(
            (job.name, index, job.filters_of(index))
            for job in cluster.jobs
            for index in range(job.max_replicas)
            if job.filters_of(index) and sees(texts, Task(job, index))
        ) == sorted(spelled)


@MANY
@given(cluster=clusters)
def test_equal_neighbours_share_one_range(cluster):
    """No two adjacent ranges have the same filters, so the number of ranges is minimal."""
    for view in published(cluster).values():
        for ranges in view.device_filters.values():
            assert all(
                one.stop < other.start or (one.stop == other.start and one.filters != other.filters)
                for one, other in itertools.pairwise(ranges)
            )


_NAMES = st.text("abc_", min_size=1, max_size=5)
_TEXTS = st.text(max_size=8)
_RANGES = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: tuple(sorted(pair)))
_COUNTS = st.dictionaries(_TEXTS, st.integers(0, 9), max_size=3)
_VIEWS = st.builds(
    contract.View,
    name=_TEXTS,
    namespace=_TEXTS,
    uid=_TEXTS,
    epoch=st.integers(0, 2**40),
    rpc_layer=_TEXTS,
    jobs=st.dictionaries(
        _NAMES,
        st.lists(_TEXTS, max_size=3).map(tuple)
        | st.dictionaries(st.integers(0, 10**6), _TEXTS, min_size=1, max_size=3),
        max_size=3,
    ),
    device_filters=st.dictionaries(
        _NAMES,
        st.lists(
            st.builds(
                lambda of, texts: contract.FilterRange(*of, texts), _RANGES, st.lists(_TEXTS, max_size=2).map(tuple)
            ),
            max_size=2,
        ).map(tuple),
        max_size=2,
    ),
    accelerators=st.dictionaries(
        _NAMES,
        st.builds(
            contract.JobAccelerators,
            limits=_COUNTS,
            tasks=st.dictionaries(st.integers(0, 99), _COUNTS, max_size=2),
        ),
        max_size=2,
    ),
    leaving=st.dictionaries(_NAMES, st.lists(_RANGES, max_size=2).map(tuple), max_size=2),
    incarnations=st.dictionaries(_NAMES, st.dictionaries(st.integers(0, 99), _TEXTS, max_size=2), max_size=2),
)


@MANY
@given(view=_VIEWS)
def test_a_view_survives_being_written_and_read(view):
    text = contract.dump(view)

    assert view == contract.load(text)
    assert text == contract.dump(contract.load(text))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
_PATHS = st.lists(
    st.sampled_from(
        [
            *("version", "cluster", "uid", "epoch", "jobs", "deviceFilters", "accelerators", "leaving", "incarnations"),
            *("worker", 0, "0"),
        ]
    ),
    min_size=1,
    max_size=4,
)


@MANY
@given(view=_VIEWS, path=_PATHS, value=_JSON)
def test_modified_view_is_read_or_rejected(view, path, value):
    document = json.loads(contract.dump(view))
    *way, last = path
    part = document
    for step in way:
        inner = part.get(str(step))
        part = inner if isinstance(inner, dict) else part
    part[str(last)] = value

    with suppress(contract.ContractError):
        assert isinstance(contract.load(json.dumps(document)), contract.View)
