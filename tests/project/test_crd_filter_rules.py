"""The canonical form of device filters in the CRD, compared with the operator's parser.

The API server evaluates the rules in CEL; here their patterns run on far more texts than a server could check. The
admission tests check that the server has the same result.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfcluster_operator.declaration.spec import DeviceFilter, parse_filter

SOURCE = Path(__file__).resolve().parents[2] / "crds" / "sources" / "filter_rules.py"


def load() -> ModuleType:
    """Import the rules from the generator's folder, which is not a package."""
    spec = importlib.util.spec_from_file_location("crd_filter_rules", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


RULES = load()
FORM = re.compile(RULES.FORM.removeprefix("^").removesuffix("$"), re.ASCII)
NOT_A_NUMBER = re.compile(RULES.NOT_A_NUMBER)

JOBS = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
NUMBERS = st.integers(min_value=0, max_value=9999).map(str)
DEVICES = st.sampled_from(["/device:GPU", "/device:CPU:0", "/device:TPU_SYSTEM:0", "/cpu:0", "/gpu:7"])


def admitted(text: str) -> bool:
    """Apply the three rules to one filter as the API server does."""
    return bool(FORM.fullmatch(text)) and text not in RULES.EVERYTHING and not NOT_A_NUMBER.search(text)


@st.composite
def canonical(draw: st.DrawFn) -> tuple[str, str | None, int | None]:
    job = draw(st.none() | JOBS)
    task = draw(st.none() | NUMBERS)
    device = draw(DEVICES | st.just("") if job or task else DEVICES)
    replica = draw(st.sampled_from(["", "/replica:0"]))
    text = (f"/job:{job}" if job else "") + replica + (f"/task:{task}" if task else "") + device
    return text, job, None if task is None else int(task)


@given(canonical())
def test_canonical_filters_are_admitted_and_read_alike(drawn: tuple[str, str | None, int | None]) -> None:
    text, job, task = drawn
    assert admitted(text)
    assert parse_filter(text) == DeviceFilter(job=job, task=task)


PARTS = st.sampled_from(
    ["/", "job", "task", "replica", "device", "cpu", "gpu", "CPU", "GPU", ":", "*", "0", "1", "00", "ps", "-", " ", "_"]
)


@given(st.lists(PARTS, max_size=9).map("".join))
@example("/job:ps/task:0/")
@example("/job:ps\n")
def test_what_is_admitted_is_understood_by_the_operator(text: str) -> None:
    if admitted(text):
        assert parse_filter(text) is not None


@given(canonical(), st.integers(min_value=0), st.sampled_from("/:*- ,\nA\u0431"))
def test_one_stray_character_is_noticed_or_still_canonical(
    drawn: tuple[str, str | None, int | None], place: int, stray: str
) -> None:
    """A typo in a filter is rejected, unless the result is canonical too."""
    text, _, _ = drawn
    place %= len(text) + 1
    slipped = text[:place] + stray + text[place:]
    if admitted(slipped):
        assert parse_filter(slipped) is not None
        assert stray == "A"


@pytest.mark.parametrize("text", RULES.EVERYTHING)
def test_filter_that_matches_everything_is_not_admitted(text: str) -> None:
    """A filter without a job, task or device would match everything."""
    assert not admitted(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "//", "job:ps", "/job:", "/job:PS", "/job:p-s", "/job:0ps", "/job:ps/", "/job:ps/task:", "/Job:ps"),
        *("/job:ps/task:01", "/job:ps/task:-1", "/job:ps/task:*", "/job:ps/task:1/task:2", "/task:1/job:ps", "/gpu"),
        *("/job:ps/replica:1", "/job:ps /task:0", " /job:ps", "/job:ps\n", "/device:", "/device:GPU:", "/tpu:0"),
        *("/device:GPU:01", "/job:ps/task:٣", "/job:ps,/job:worker"),
    ],
)
def test_filter_in_another_form_is_rejected(text: str) -> None:
    """A text that TensorFlow would parse differently, or reject, is not a filter."""
    assert parse_filter(text) is None


def test_every_rule_gives_advice() -> None:
    rules = RULES.of_one_list() + RULES.of_the_cluster()
    advice = [check.advice for check in (*RULES.OF_ONE_FILTER, *RULES.OF_THE_CLUSTER)]
    for rule in rules:
        assert any(words in rule["message"] and words in rule["messageExpression"] for words in advice)
    assert len(rules) == len(RULES.OF_ONE_FILTER) + 2 * len(RULES.OF_THE_CLUSTER)
