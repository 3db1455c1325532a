"""The generated pages of the docs are up to date, and have every field that is ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tfcluster_resolver
from scripts import reference

DEFINITION = yaml.safe_load(reference.CRD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [reference.API, reference.COMMANDS], ids=lambda path: path.name)
def test_generated_page_is_up_to_date(page: Path) -> None:
    """What is in docs/ is what `make reference` makes now."""
    assert reference.same(page.read_text(encoding="utf-8"), reference.pages()[page])


def test_another_word_makes_a_page_stale() -> None:
    """A changed word is seen, another line break is not."""
    assert reference.same("one two\n", "one\ntwo\n")
    assert not reference.same("one two\n", "one three\n")


def described(schema: dict[str, Any]) -> Iterator[str]:
    """Give the description of every field, without those of Kubernetes' own schemas and of what is internal."""
    for name, part in schema.get("properties", {}).items():
        yield part["description"]
        # PodSpec has containers, LabelSelector matchLabels.
        if name != "internal" and not {"containers", "matchLabels"} & part.get("properties", {}).keys():
            yield from described(part)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from described(inner)


def test_every_field_of_ours_is_on_the_page() -> None:
    """Each field that spec and status have in the CRD is described on the page in the same words."""
    root = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    page = reference.API.read_text(encoding="utf-8").replace("\\|", "|").replace("&lt;", "<")

    fields = [words for part in ("spec", "status") for words in described(root[part])]

    assert len(fields) > 50
    assert [words for words in fields if words not in page] == []


def test_every_public_name_is_on_the_page_of_the_python_api() -> None:
    """Each name that the package shows has its docstring there, from the module where it is."""
    page = (reference.ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^::: (?:tfcluster_resolver\.(?:[\w.]+\.)?)(\w+)()$", page, re.MULTILINE))

    assert set(tfcluster_resolver.__all__) - {"__version__"} == set(shown)


def test_every_command_is_on_the_page() -> None:
    """Each command that the resolver's --help names has a part of its own."""
    page = reference.COMMANDS.read_text(encoding="utf-8")
    listed = page.partition("positional arguments:")[2].partition("options:")[0]

    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == sorted(
        re.findall(r"^ {4}(\w+) ", listed, re.MULTILINE), key=reference.ORDER.index
    )
