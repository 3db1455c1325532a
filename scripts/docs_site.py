"""A hook of MkDocs: files outside of docs/ that pages link to become pages; notes to the tests are removed from fences.

It converts the Markdown that GitHub shows to the Markdown of the site; mkdocs.yml has all other settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the hook runs in the environment of the docs, and its tests elsewhere
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
#: The folder of the site with the files of the repository.
SOURCE: Final = "source"
#: A link, in the text or as a definition; its target without the heading.
_LINK: Final = re.compile(r"(?P<before>\]\(|^\[[^\]]+\]: )(?P<target>[^)#\s]+)(?=[)#\s]|$)", re.MULTILINE)
#: The start of a fence with a note on where a test runs it, which MkDocs would not recognize.
_NOTED_FENCE: Final = re.compile(r"^(\s*```\w+) (?!title=)\S+$", re.MULTILINE)
#: Languages by the endings of files, as Pygments knows them.
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".sh": "bash"}


def linked(text: str, place: str) -> Iterator[str]:
    """Find the files of the repository that a text links to."""
    for match in _LINK.finditer(text):
        path = _in_repository(match["target"], place)
        if path is not None:
            yield path


def relinked(text: str, place: str, page: str) -> str:
    """Point the links of a text that leave docs/ to their pages of the site."""

    def target(match: re.Match[str]) -> str:
        path = _in_repository(match["target"], place)
        return match[0] if path is None else match["before"] + relpath(page_of(path), dirname(page) or ".")

    return _LINK.sub(target, text)


def without_notes(text: str) -> str:
    """Remove the notes to the tests from fences; a title stays."""
    return _NOTED_FENCE.sub(r"\1", text)


def page_of(path: str) -> str:
    """Return the page of a repository file in the site, relative to docs/."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"{SOURCE}/{path}/index.md"
    # MkDocs would use a page from a README.md as the index of its section.
    path = re.sub(r"README\.md$", "readme.md", path)
    return f"{SOURCE}/{path}" if path.endswith(".md") else f"{SOURCE}/{path}.md"


def place_of(page: str) -> str:
    """Return the Markdown file of a page: the inverse of :func:`page_of` for Markdown."""
    if not page.startswith(f"{SOURCE}/"):
        return f"docs/{page}"
    return re.sub(r"readme\.md$", "README.md", page.removeprefix(f"{SOURCE}/"))


def shown(path: str) -> str:
    """Return the Markdown that shows a file or a folder of the repository."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(one.relative_to(ROOT).as_posix() for one in file.iterdir() if one.name[0] not in "._")
        # Do not follow Markdown from here: a fragment of the changelog has links that are valid in CHANGELOG.md.
        links = (f"`{name}`" if name.endswith(".md") else f"[{name}]({relpath(name, path)})" for name in names)
        listed = "\n".join(f"* {link}" for link in links)
        return f"# {path}\n\n{listed}\n"
    text = file.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    fence = "`" * max(4, *(len(ticks) + 1 for ticks in re.findall(r"`{3,}", text) or ["```"]))
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    return f"{hidden}# {path}\n\n{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"


def _in_repository(target: str, place: str) -> str | None:
    """Return the path of a link's target, if that is a file or folder of the repository."""
    if ":" in target or target.startswith("/"):
        return None
    path = normpath(join(dirname(place), target))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


# --- the hooks that MkDocs calls


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that a page links to, and for those that these link to."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - where the tests run there is none

    texts = [(place_of(one.src_uri), one.content_string) for one in files.documentation_pages()]
    wanted = [path for entry in _entries(config.nav) if (path := place_of(entry)) and not path.startswith("docs/")]
    wanted += [path for place, text in texts for path in linked(text, place)]
    made: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in made or path.startswith("docs/"):
            continue
        made.add(path)
        text = shown(path)
        files.append(File.generated(config, page_of(path), content=text))
        if path.endswith(".md") or (ROOT / path).is_dir():
            wanted += linked(text, path if path.endswith(".md") else f"{path}/index.md")
    return files


#: Before the plugins, which process the existing files; it is what mkdocs.plugins.event_priority sets.
on_files.mkdocs_priority = 100  # type: ignore[attr-defined]  # a function has no such attribute of its own


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Convert a page's text to the form of the site."""
    uri = page.file.src_uri
    if uri.startswith(f"{SOURCE}/") and not (ROOT / place_of(uri)).is_file() and not uri.endswith("/index.md"):
        return markdown  # a file as it is
    return without_notes(relinked(markdown, place_of(uri), uri))


def on_page_content(html: str, **_: object) -> str:
    """Remove the roles of names in docstrings, which mkdocstrings does not support."""
    return re.sub(r":(?:class|data|exc|func|meth|mod):(?=<code>)", "", html).replace(
        "::</p>\n<div class", ":</p>\n<div class"
    )


def _entries(nav: object) -> Iterator[str]:
    """Return the pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for one in nav.values():
            yield from _entries(one)
    elif isinstance(nav, list):
        for one in nav:
            yield from _entries(one)
