"""Texts that a YAML reader parses as something else if they are not quoted."""

import io
from collections.abc import Iterator
from typing import Any

import yaml
from ruamel.yaml import YAML

from tfcluster.manifest.yaml import documents

ODD_TEXTS = [
    *("y", "n", "Y", "N", "yes", "no", "Yes", "NO", "on", "off", "On", "true", "False", "null", "Null", "~", ""),
    *("0", "-1", "+1", "0644", "0o7", "0x1f", "0b1", "1_000", "1e3", ".5", "1.", "-.inf", ".NaN", "1:30", "12:30:45"),
    *("2026-01-01", "2026-01-01T00:00:00Z", "9" * 50, "=", "<<", "- a", "a: b", "#", "a #b", "&a", "*a", "!a", "%a"),
    *(
        "@a",
        "`a",
        "{a",
        "[a",
        "a\nb",
        "a\n",
        "\na",
        " a",
        "a ",
        "a\tb",
        "a\n ",
        "\ta\nb",
        "  a\nb\n",
        ":0",
        "ä",
        "\u2028",
    ),
    *("\x85", "-", "---", "?"),
    *("\N{GRINNING FACE}", "a\n\N{GRINNING FACE}\n", "\ufeff", "a\r\nb"),
]


def readings(text: str) -> Iterator[list[Any]]:
    """Parse the documents of a text as Kubernetes does, as YAML 1.1 and as YAML 1.2."""
    yield [one.value for one in documents(text.encode())]
    yield list(yaml.safe_load_all(text))
    yield list(YAML(typ="safe", pure=True).load_all(io.StringIO(text)))
