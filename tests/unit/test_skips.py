"""An unexpected skip fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.skips import EXPECTED

pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "program",
    [
        "import pytest\ndef test_it(): pytest.skip('needs root')",
        "import pytest\npytest.importorskip('no_such_module')",
        "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False",
    ],
    ids=["a test", "a module", "an expected failure"],
)
def test_unexpected_skip_fails_the_run(pytester: pytest.Pytester, program: str):
    pytester.makeconftest(f"import sys\nsys.path.insert(0, {str(TESTS)!r})\npytest_plugins = ['support.skips']")
    pytester.makepyfile(program)
    result = pytester.runpytest_inprocess()
    result.stdout.fnmatch_lines(["*UNEXPECTED SKIP test_*"])
    assert result.ret != pytest.ExitCode.OK


def test_every_expected_skip_is_of_a_test_that_exists():
    assert [test for test, _ in EXPECTED if not list(TESTS.glob(test.partition("::")[0]))] == []
