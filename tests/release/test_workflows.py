"""GitHub's workflows: valid for their linters, pinned, and with only steps that also run on any machine."""

import re
import shlex
import subprocess

import pytest
import yaml
from release_world import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: Additional actions that a workflow can run: logging in, signing, publishing, and root for the base of the image.
ALLOWED = (
    "docker login ghcr.io",
    "cosign sign",
    "cosign sign-blob",
    "gh release create",
    "sudo apt-get install",
    "cat dist/published",
    "rm dist/published",
)


def steps(name: str) -> list[dict]:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text())
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_actionlint_passes():
    from scripts.release import tools

    done = subprocess.run([tools.actionlint(), *WORKFLOWS], cwd=ROOT, check=False, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


def test_zizmor_passes():
    """No injection, no broad permission, no left credential, nothing unpinned; the check works offline."""
    from scripts.release import tools

    command = [tools.python_tools() / "zizmor", "--offline", "--persona=pedantic", "--quiet", ROOT / ".github"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_make_targets_alone(workflow):
    """A workflow runs targets of the Makefile, which work here too, and otherwise only logs in and signs."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = [line for step in steps(workflow.name) if "run" in step for line in step["run"].strip().splitlines()]
    matrix = yaml.safe_load(workflow.read_text())["jobs"].get("kubernetes", {}).get("strategy", {}).get("matrix", {})
    chosen = {row["target"] for row in matrix.get("include", [])}

    made = set()
    for line in run:
        words = [word for word in shlex.split(line) if not word.startswith("--")]
        words = words[1:] if words[:2] == ["sudo", "make"] else words
        if words[0] != "make":
            assert line.replace(" --yes", "").startswith(ALLOWED), line
        else:
            made |= chosen if words[1] == "$TARGET" else {words[1]}
    assert made
    assert made - targets == set()


def test_tests_run_on_three_minors():
    """The nodes of kind are of three minors, each with a digest, and one of them runs all tests."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    rows = workflow["jobs"]["kubernetes"]["strategy"]["matrix"]["include"]

    assert [row["target"] for row in rows].count("test") == 1
    assert len({row["kubernetes"] for row in rows}) == 3
    for row in rows:
        assert re.fullmatch(rf"kindest/node:v{re.escape(row['kubernetes'])}\.\d+@sha256:[0-9a-f]{{64}}", row["node"])
