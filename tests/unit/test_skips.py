"""A skip that nobody expects fails the run; the expected ones are counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.skips import Skip, read_expected

pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[1]
CONFTEST = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(TESTS)!r})
from support.skips import ExpectedSkips


def pytest_configure(config):
    config.pluginmanager.register(ExpectedSkips(Path(__file__).parent))
"""
SOME = """
import pytest

def test_that_runs():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_that_needs_root(number):
    pytest.skip("needs root")
"""
SKIPPED_WHOLE = "import pytest\npytest.importorskip('no_such_module')\n"
EXPECTED_TO_FAIL = """
import pytest

@pytest.mark.xfail(reason="some day")
def test_that_fails():
    raise AssertionError
"""
ROOT = "unit/test_1.py::test_that_needs_root* | needs root  # not everybody is\n"


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Runs test files in tests/unit against a list of expected skips."""

    def run(expected: str, *programs: str) -> pytest.RunResult:
        folder = pytester.mkdir("tests")
        (folder / "unit").mkdir()
        (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
        (folder / "expected_skips.txt").write_text(expected, encoding="utf-8")
        for number, program in enumerate(programs, start=1):
            (folder / "unit" / f"test_{number}.py").write_text(program, encoding="utf-8")
        return pytester.runpytest_inprocess("--rootdir=.", "tests/unit")

    return run


@pytest.mark.parametrize(
    ("program", "expected", "named"),
    [
        (SOME, "", "unit/test_1.py::test_that_needs_root?2? | needs root"),
        (SOME, ROOT.replace("needs root", "needs a GPU"), "unit/test_1.py::test_that_needs_root?1? | needs root"),
        (SKIPPED_WHOLE, ROOT, "unit/test_1.py | could not import 'no_such_module'*"),
        (EXPECTED_TO_FAIL, ROOT, "unit/test_1.py::test_that_fails | some day"),
    ],
    ids=["a new one", "for another reason", "a whole module", "an expected failure"],
)
def test_skip_that_nobody_expects_fails_the_run(run, program, expected, named):
    result = run(expected, program)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"UNEXPECTED SKIP {named}"])


def test_committed_list_names_tests_that_exist():
    """Every line of the list still means a file, so that what runs again leaves the list."""
    expected = read_expected((TESTS / "expected_skips.txt").read_text(encoding="utf-8"))
    assert Skip("e2e/*", "no node of this cluster offers two nvidia.com/gpu") in expected
    assert [e for e in expected if not list(TESTS.glob(e.test.partition("::")[0]))] == []
