"""Rejected releases, release notes, and the merge of images of several architectures."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile

import pytest
from release_world import EPOCH, ROOT, copy_tree

PLATFORMS = {"amd64": b"one", "arm64": b"two"}


@pytest.fixture
def checkout(tmp_path):
    """A separate checkout whose files are all tracked."""
    copy_tree(tmp_path / "checkout")
    commands = (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"])
    for command in commands:
        subprocess.run(["git", *command], cwd=tmp_path / "checkout", check=True)

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        command = [sys.executable, "-m", "scripts.release", *arguments]
        return subprocess.run(
            command, cwd=tmp_path / "checkout", env=inherited | environment, check=False, capture_output=True, text=True
        )

    run.folder = tmp_path / "checkout"
    return run


def test_changelog_contains_all_fragments(checkout, version):
    fragments = [path.read_text().strip() for path in (ROOT / "changelog.d").glob("+*.md")]
    assert len(fragments) == len([path for path in (ROOT / "changelog.d").iterdir() if path.name != "README.md"])

    draft = checkout("changelog", "--draft").stdout
    assert [text for text in fragments if text not in draft] == []
    assert (checkout.folder / "CHANGELOG.md").read_text() == (ROOT / "CHANGELOG.md").read_text()

    assert checkout("changelog", SOURCE_DATE_EPOCH=str(EPOCH)).returncode == 0
    written = (checkout.folder / "CHANGELOG.md").read_text()
    assert f"\n## {version} (2026-01-01)\n" in written
    assert [text for text in fragments if text not in written] == []
    assert [path.name for path in (checkout.folder / "changelog.d").iterdir()] == ["README.md"]

    done = checkout("check", f"v{version}")
    assert (done.returncode, done.stdout) == (0, re.split(r"^## .*\n", written, flags=re.MULTILINE)[1].strip() + "\n")


@pytest.mark.parametrize(("tag", "why"), [("v9.9.9", "the version is"), (None, "changelog.d still has")])
def test_mismatched_tag_is_rejected(checkout, version, tag, why):
    (checkout.folder / "changelog.d" / "+x.added.md").write_text("Something.\n")

    done = checkout("check", tag or f"v{version}")

    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr


def test_time_is_that_of_the_commit(checkout):
    """The files have the commit's time, or SOURCE_DATE_EPOCH if it is set; outside of git it must be set."""
    program = "from scripts.release import source; print(source.epoch(), source.revision())"

    def told(**environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, cwd=checkout.folder, env=inherited | environment, check=False, capture_output=True, text=True
        )

    commit = subprocess.run(
        ["git", "log", "-1", "--format=%ct %H"], cwd=checkout.folder, check=True, capture_output=True, text=True
    ).stdout
    assert told().stdout == commit
    assert told(SOURCE_DATE_EPOCH="5").stdout == f"5 {commit.split()[1]}\n"
    (checkout.folder / "LICENSE").write_text("changed")
    assert told().stdout.strip().endswith("-dirty")
    (checkout.folder / ".git").rename(checkout.folder / "no-git")
    assert "set SOURCE_DATE_EPOCH" in told(GIT_CEILING_DIRECTORIES="/").stderr


def write_blob(folder, value) -> dict:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (folder / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


@pytest.fixture
def layouts(tmp_path):
    """Images of two architectures, in the format of buildah."""
    for architecture, layer in PLATFORMS.items():
        folder = tmp_path / architecture
        config = write_blob(folder, {"architecture": architecture, "os": "linux"})
        manifest = write_blob(folder, {"config": config, "layers": [write_blob(folder, layer)]})
        entry = manifest | {"mediaType": "application/vnd.oci.image.manifest.v1+json", "annotations": {"x": "y"}}
        (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    return [tmp_path / architecture for architecture in PLATFORMS]


def test_images_of_two_architectures_become_one(layouts, tmp_path):
    """The merged image has both, each with its platform; the archive is reproducible, and has its digest."""
    from scripts.release import image
    from scripts.release.archives import files_below, write_tar

    for name in ("first", "second"):
        image.write_layout(tmp_path / name, layouts, name="r.example/op:1.0")
        write_tar(tmp_path / f"{name}.tar", files_below(tmp_path / name), epoch=EPOCH)

    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()
    with tarfile.open(tmp_path / "first.tar") as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "r.example/op:1.0"
    assert image.digest_of(tmp_path / "first.tar") == entry["digest"]
    index = json.loads(files[f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}"])
    assert [found["platform"] for found in index["manifests"]] == [
        {"architecture": architecture, "os": "linux"} for architecture in PLATFORMS
    ]
    for name, content in files.items():
        assert not name.startswith("blobs/") or hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
    assert set(PLATFORMS.values()) <= set(files.values())
