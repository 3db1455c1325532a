"""The examples: each is told of in the docs, and the Dockerfile among them makes what the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
DOCKERFILE = (ROOT / "examples" / "custom-image" / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_is_in_the_docs_and_says_how_to_run_it(example: Path) -> None:
    """Each has a row in docs/examples.md, and begins with what it shows and the command that applies it."""
    listed = re.findall(r"^\| \[([\w.-]+)\]", (ROOT / "docs" / "examples.md").read_text(encoding="utf-8"), re.MULTILINE)
    comment = re.match(r"(?:#.*\n)+", example.read_text(encoding="utf-8"))

    assert listed.count(example.name) == 1
    assert f"kubectl apply -f examples/{example.name}" in comment[0]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_programs_of_an_example_are_there(example: Path) -> None:
    """Each program that a manifest starts from /opt/examples is in the folder that the image is made from."""
    for program in re.findall(r"/opt/examples/([\w.]+)", example.read_text(encoding="utf-8")):
        assert (ROOT / "examples" / program).is_file(), program


def test_custom_image_is_made_of_what_there_is() -> None:
    """What the Dockerfile copies exists in the folder that it is built in, and its manifest's program is among it."""
    copied = re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert [name for name, _ in copied if not (ROOT / "examples" / name).is_file()] == []

    manifest = yaml.safe_load((ROOT / "examples" / "custom-image.yaml").read_text(encoding="utf-8"))
    (container,) = manifest["spec"]["jobs"]["worker"]["template"]["spec"]["containers"]
    assert container["command"][1] in {place + name for name, place in copied}


def test_custom_image_has_the_versions_of_the_tests() -> None:
    """It installs what the image of the end-to-end tests is pinned to, and runs as a user that is a number."""
    wanted = (ROOT / "examples" / "custom-image" / "requirements.txt").read_text(encoding="utf-8").split()
    tested = (ROOT / "requirements" / "tensorflow.in").read_text(encoding="utf-8").split()

    assert set(wanted) <= set(tested)
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)[-1] == "65532:65532"
