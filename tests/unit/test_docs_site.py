"""The docs site: what its hook makes of links and fences, and that its navigation has no page that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import docs_site

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("life.md#backup-and-restore", "life.md#backup-and-restore"),
        ("../examples/gpu.yaml", "source/examples/gpu.yaml.md"),
        ("../examples", "source/examples/index.md"),
        ("../CONTRIBUTING.md", "source/CONTRIBUTING.md"),
        ("../charts/tfcluster-operator/README.md", "source/charts/tfcluster-operator/readme.md"),
        ("https://kubernetes.io", "https://kubernetes.io"),
        ("#here", "#here"),
        ("../no/such/file", "../no/such/file"),
    ],
)
def test_links_out_of_the_docs_lead_to_pages(target: str, page: str) -> None:
    """A link to a file of the repository leads to its page, and every other stays as it is for MkDocs to judge."""
    assert docs_site.relinked(f"[text]({target})", "docs/conditions.md", "conditions.md") == f"[text]({page})"
    defined = docs_site.relinked(f"[text]: {target}\n", "docs/conditions.md", "conditions.md")
    assert defined == f"[text]: {page}\n"


def test_links_of_files_elsewhere_lead_back() -> None:
    """A page that is made from a file outside of docs/ links to pages from where it is."""
    place = "charts/tfcluster-operator/README.md"
    page = docs_site.page_of(place)

    assert docs_site.place_of(page) == place
    assert docs_site.relinked("[x](../../docs/operating.md)", place, page) == "[x](../../../operating.md)"


def test_fences_lose_their_notes_and_keep_titles() -> None:
    """What a fence tells a test is not shown; a title is."""
    text = '```console e2e=test_x\n$ ls\n```\n```yaml title="a.yaml"\na: 1\n```\n'
    assert docs_site.without_notes(text) == '```console\n$ ls\n```\n```yaml title="a.yaml"\na: 1\n```\n'


def test_a_file_with_fences_is_shown_whole() -> None:
    """The fence around a file is longer than any in it."""
    shown = docs_site.shown("tests/support/guide.py")
    assert re.search(r"^`{4,}python\n", shown, re.MULTILINE)
    assert shown.count("\n````") == 2


def test_every_page_is_in_the_navigation() -> None:
    """Each page of docs/ is in mkdocs.yml, and each page that mkdocs.yml names is there."""
    nav = re.search(r"^nav:\n((?: .*\n)+)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    named = re.findall(r"([\w/.-]+\.md)$", nav, re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]

    assert sorted(name for name in named if not name.startswith("source/")) == sorted(pages)
    assert [name for name in named if not (ROOT / docs_site.place_of(name)).is_file()] == []
