"""Skipped tests are counted: a skip that ``tests/expected_skips.txt`` does not expect fails the run.

A test that skips itself looks like one that holds.  This pytest plugin compares each skip, and each expected failure,
with a list that reviews see; it works under pytest-xdist too, and for modules that skip themselves while collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

_LIST: Final = "expected_skips.txt"
_NAME: Final = "expected-skips"
#: Under this name a worker of pytest-xdist sends what it skipped while it collected: its reports of that are dropped.
_SENT: Final = "skipped_at_collection"


@dataclass(frozen=True, slots=True)
class Skip:
    """One skipped test or module.

    Args:
        test: its node ID, from the folder of the list on.
        reason: what it said.
    """

    test: str
    reason: str

    def __str__(self) -> str:
        return f"{self.test} | {self.reason}"


def read_expected(text: str) -> tuple[Skip, ...]:
    """Read a list of expected skips.

    Args:
        text: one skip a line, ``TEST | REASON``; each half may hold ``*``; what follows ``#`` is a comment.

    Raises:
        ValueError: a line has no reason.
    """
    found = []
    for line in text.splitlines():
        if content := line.partition("#")[0].strip():
            test, separator, reason = content.partition(" | ")
            if not separator:
                raise ValueError(f"{content!r} has no reason: write TEST | REASON")
            found.append(Skip(test.strip(), reason.strip()))
    return tuple(found)


class ExpectedSkips:
    """Collects the skips of a run and judges them at its end.

    Args:
        folder: where the list lies, and where node IDs begin.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._expected = read_expected((folder / _LIST).read_text(encoding="utf-8"))
        self._skipped: set[Skip] = set()

    def pytest_configure(self, config: pytest.Config) -> None:
        # Node IDs begin at the root of the run, which is above the folder, or in it.
        root = config.rootpath
        self._above = f"{self._folder.relative_to(root)}/" if self._folder.is_relative_to(root) else ""
        self._below = f"{root.relative_to(self._folder)}/" if root.is_relative_to(self._folder) else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that skipped itself, or that failed as was said."""
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that skipped itself."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped:
            told = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            reason = getattr(report, "wasxfail", "") or told.removeprefix("Skipped: ")
            test = f"{self._below}{report.nodeid}".removeprefix(self._above)
            self._skipped.add(Skip(test, reason))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over what a worker skipped while it collected."""
        sent = getattr(node, "workeroutput", {}).get(_SENT, [])
        self._skipped.update(Skip(test, reason) for test, reason in sent)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run if a skip was not expected; a worker leaves the verdict to the run it is part of."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output[_SENT] = [(skip.test, skip.reason) for skip in self._skipped]
        elif self.unexpected() and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count the skips, and name those that fail the run."""
        unexpected = self.unexpected()
        if self._skipped:
            count, wrong = len(self._skipped), len(unexpected)
            terminalreporter.section(f"{count} skipped: {count - wrong} expected, {wrong} not", red=bool(wrong))
        for skip in unexpected:
            terminalreporter.line(f"UNEXPECTED SKIP {skip}", red=True)
        if unexpected:
            terminalreporter.line(f"make them run, or write them into tests/{_LIST}")

    def unexpected(self) -> list[Skip]:
        """List the skips that no line expects, in order."""
        return sorted(
            (
                skip
                for skip in self._skipped
                if not any(
                    fnmatchcase(skip.test, e.test) and fnmatchcase(skip.reason, e.reason) for e in self._expected
                )
            ),
            key=str,
        )


def pytest_configure(config: pytest.Config) -> None:
    """Put the plugin to work."""
    if not config.pluginmanager.has_plugin(_NAME):
        plugin = ExpectedSkips(Path(__file__).resolve().parent.parent)
        config.pluginmanager.register(plugin, _NAME)
