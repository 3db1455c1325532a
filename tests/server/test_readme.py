"""The README's manifest becomes a cluster."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _manifest() -> str:
    return re.search(r"```yaml\n(.*?)```", README, re.DOTALL).group(1)


def test_the_first_manifest_fits_thirty_lines() -> None:
    assert len(_manifest().splitlines()) <= 30


def test_every_wait_of_the_readme_ends() -> None:
    waits = re.findall(r"kubectl wait .*", README)
    name = yaml.safe_load(_manifest())["metadata"]["name"]
    assert waits
    assert [line for line in waits if "--timeout=" not in line or f"tfcluster/{name}" not in line] == []


def test_every_command_of_the_readme_is_a_target() -> None:
    named = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)", README))
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named <= targets
