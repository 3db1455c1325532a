"""The source of a release: its version, its commit, and the time that is written into every file."""

import os
import re
import subprocess
from typing import Final

from scripts.images import ROOT

#: The version is defined only here; pyproject.toml reads it too.
_VERSION_FILE: Final = ROOT / "resolver" / "tfcluster_resolver" / "__init__.py"


class ReleaseError(Exception):
    """A release cannot be built or published; the message says why and what to do."""


def version() -> str:
    """Read the version."""
    found = re.search(r'^__version__: Final = "([^"]+)"$', _VERSION_FILE.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ReleaseError(f"{_VERSION_FILE} has no line __version__")
    return found[1]


def epoch() -> int:
    """Return the timestamp of the files, in seconds since 1970.

    Returns:
        ``SOURCE_DATE_EPOCH`` if it is set (https://reproducible-builds.org/specs/source-date-epoch), else the commit's
        time.
    """
    said = os.environ.get("SOURCE_DATE_EPOCH")
    return int(said) if said else int(_git("log", "-1", "--format=%ct"))


def revision() -> str:
    """Return the commit; ``unknown`` outside of a checkout, with ``-dirty`` at its end if files were changed."""
    try:
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except ReleaseError:
        return "unknown"


def refuse_unready(tag: str) -> None:
    """Reject a tag that does not match the release.

    Raises:
        ReleaseError: the tag is not that of the version, or the change log is not that of the version.
    """
    if tag != f"v{version()}":
        raise ReleaseError(
            f"the tag is {tag}, and the version is {version()}: tag v{version()}, or edit {_VERSION_FILE}"
        )
    left = [path.name for path in (ROOT / "changelog.d").glob("+*.md")]
    if left:
        raise ReleaseError(
            f"changelog.d still has {', '.join(sorted(left))}: run `make changelog`, commit, and tag that"
        )
    if f"## {version()} (" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise ReleaseError(f"CHANGELOG.md has no section for {version()}: run `make changelog`, commit, and tag that")


def notes() -> str:
    """Return the section of the change log for this version, without its heading."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version())} \([^)]*\)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section for {version()}")
    return found[1].strip() + "\n"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True)  # noqa: S607 - the user's git
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.strip()}; outside of a checkout, set SOURCE_DATE_EPOCH")
    return done.stdout.strip()
