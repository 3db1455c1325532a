"""A pytest plugin: a skip that ``tests/expected_skips.txt`` does not list is a failure."""

from collections.abc import Generator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

_TESTS: Final = Path(__file__).resolve().parents[1]
_LINES: Final = (line.partition("#")[0] for line in (_TESTS / "expected_skips.txt").read_text().splitlines())
#: The test and the reason of each expected skip, both as patterns.
EXPECTED: Final = [tuple(part.strip() for part in line.split(" | ")) for line in _LINES if line.strip()]


def _judge(node: pytest.Collector | pytest.Item, report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped:
        return
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    reason = getattr(report, "wasxfail", "") or told.removeprefix("Skipped: ")
    path = node.path.relative_to(_TESTS) if node.path.is_relative_to(_TESTS) else node.path.name
    test = f"{path}::{node.nodeid.partition('::')[2]}"
    if not any(fnmatchcase(test, one) and fnmatchcase(reason, why) for one, why in EXPECTED):
        vars(report).pop("wasxfail", None)  # pytest does not count a failure with it
        report.outcome = "failed"
        report.longrepr = f"UNEXPECTED SKIP {test} | {reason}: make it run, or list it in tests/expected_skips.txt"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Check a test that was skipped, or that failed as expected."""
    report = yield
    _judge(item, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Check a module that was skipped."""
    report = yield
    _judge(collector, report)
    return report
