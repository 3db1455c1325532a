"""The exit codes of the example programs after SIGTERM."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import GUARD

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_HANDLER = re.compile(r"signal\.signal\(signal\.SIGTERM, (lambda .*\))\)(?:  #.*)?$", re.MULTILINE)


def handlers() -> dict[str, str]:
    found = {path.name: path.read_text() for path in sorted(EXAMPLES.iterdir()) if path.suffix in {".py", ".yaml"}}
    return {name: _HANDLER.findall(text)[0] for name, text in found.items() if "signal.signal(signal.SIGTERM" in text}


@pytest.mark.parametrize(("example", "handler"), handlers().items(), ids=handlers())
def test_terminated_example_exits_with_the_signal_code(example, handler):
    """An evicted chief must not make its cluster Succeeded: the exit code is that of the signal, never 0."""
    program = f"import os, signal, sys\nsignal.signal(signal.SIGTERM, {handler})\nos.kill(os.getpid(), signal.SIGTERM)"
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=GUARD)
    assert ended.returncode == 143, example


def test_examples_that_listen_are_found():
    assert {"train_digits.py", "gpu.yaml"} <= handlers().keys()
