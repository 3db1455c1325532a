"""The log as text and as JSON, and how server messages are redacted in it."""

import json
import logging
import re
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest
from support.log_section import documented_fields, section_on_logs

from tfcluster_operator import logs
from tfcluster_operator.kube.client import masked


def record(message: str = "replaced %d pods", *, exc_info: Any = None, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("tfcluster_operator.x", logging.INFO, "x.py", 1, message, (2,), exc_info)
    made.created = 1_800_000_000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_text_and_json_hold_the_same():
    """Time, level, logger, message, and the fields in order; a line break in a message does not end the line."""
    fields = {"cluster": "team/c", "generation": 3, "reasons": ["PodFailed", "Created"], "objects": {"PodFailed": 2}}

    assert logs.Text().format(record(fields=fields)) == (
        "2027-01-15T08:00:00.250Z INFO    tfcluster_operator.x: replaced 2 pods "
        "cluster=team/c generation=3 reasons=PodFailed,Created objects=PodFailed:2"
    )
    line = logs.Json().format(record("%d\nlines", fields=fields))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "info",
        "logger": "tfcluster_operator.x",
        "message": "2\nlines",
        **fields,
    }


def test_traceback_is_in_both():
    try:
        raise ValueError("a bug")  # noqa: TRY301 - it is to be caught
    except ValueError:
        failed = record(exc_info=sys.exc_info())

    assert logs.Text().format(failed).splitlines()[-1] == "ValueError: a bug"
    shown = json.loads(logs.Json().format(failed))
    assert shown["message"] == "replaced 2 pods"
    assert shown["exception"].startswith("Traceback")
    assert shown["exception"].endswith("ValueError: a bug")


SAYS = """
import logging, warnings
from tfcluster_operator import logs
logs.begin({level!r}, {form!r})
for name in ("tfcluster_operator", "kopf", "asyncio"):
    logging.getLogger(name).debug("quiet")
    logging.getLogger(name).error("loud")
warnings.warn("old")
"""


@pytest.mark.parametrize(
    ("level", "loggers"),
    [
        ("debug", ["tfcluster_operator"] * 2 + ["kopf"] * 2 + ["asyncio"] * 2 + ["py.warnings"]),
        ("info", ["tfcluster_operator", "asyncio", "py.warnings"]),
        ("error", ["tfcluster_operator", "asyncio"]),
    ],
)
def test_all_lines_of_the_process_are_in_one_format(level, loggers):
    """Libraries and Python's warnings are lines of JSON; kopf, which repeats the operator's lines, logs at debug."""
    program = SAYS.format(level=level, form="json")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [json.loads(line)["logger"] for line in ended.stderr.splitlines()] == loggers


MASKED = {
    'pods "c-0" is forbidden: exceeded quota: pods=1': 'pods "…" is forbidden: exceeded quota: pods=1',
    'Invalid value: "a\\"SECRET": no': 'Invalid value: "…": no',
    "it doesn't match 'SECRET' or `SECRET`": 'it doesn\'t match "…" or "…"',
    "two\n  lines": "two lines",
    "x" * 400: "x" * 299 + "…",
    "": "",
}


@pytest.mark.parametrize("words", MASKED, ids=lambda words: words[:20])
def test_words_of_a_server_lose_what_is_quoted(words):
    """A server quotes the values that it rejects, and one of them can be a secret."""
    assert masked(words) == MASKED[words]


def test_example_in_the_documentation_is_a_real_line():
    """The line of JSON in operating.md is a real line of the operator, and also shown as text."""
    (example,) = re.findall(r"```json\n(.+)\n```", section_on_logs())
    shown = json.loads(example)
    written = record("%s", fields={name: shown[name] for name in shown if name in documented_fields()})
    written.args, written.name = (shown["message"],), shown["logger"]
    written.created = datetime.fromisoformat(shown["time"]).timestamp()
    assert logs.Json().format(written) == example
    assert logs.Text().format(written) in section_on_logs().splitlines()
