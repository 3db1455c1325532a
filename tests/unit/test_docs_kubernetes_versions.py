"""docs/kubernetes-versions.md names the versions that are built for tests, and all that these tests leave out."""

from __future__ import annotations

import re
from pathlib import Path

from local_kubernetes import binaries

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "kubernetes-versions.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.splitlines() if line.startswith("| ")]


def test_every_version_that_is_built_is_named():
    """The first table has the version of the node and of each older control plane."""
    minors = {binaries.kubernetes_version().removeprefix("v").rpartition(".")[0], *binaries.older_minors()}

    named = {minor for what, *rest in ROWS if len(rest) == 1 and rest != ["nothing"] for minor in what.split(", ")}

    assert minors <= named


def test_every_test_that_is_left_out_has_a_row():
    """What a test says that it needs is in the second table, with the version that brought it."""
    needed = {
        found
        for path in (ROOT / "tests").rglob("*.py")
        for found in re.findall(r'require_kubernetes\("([\d.]+)", "([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    rows = [(since, what) for what, since, *rest in (row for row in ROWS if len(row) == 3) if rest]

    assert needed
    assert [(s, w) for s, w in needed if not any(since == s and w in what for since, what in rows)] == []


def test_modules_of_older_kubernetes_follow_its_version():
    """Every module of an older Kubernetes' own tree is pinned to the release that goes with k8s.io/kubernetes."""
    for minor in binaries.older_minors():
        version = binaries.kubernetes_version(minor)
        text = (binaries.OLDER_SOURCE / f"{minor}.mod").read_text(encoding="utf-8")
        replaced = [line.split() for line in text.splitlines() if " => " in line]

        assert version.startswith(f"v{minor}.")
        assert len(replaced) >= 30
        assert {(words[0] == words[2], words[3]) for words in replaced} == {(True, "v0." + version.removeprefix("v1."))}
