"""An earlier version of the project, from the Git history."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "838ee09e65f7d9964890f15ec3f5308073f5a4f3"


def unpack(folder: Path, *wanted: str) -> Path:
    found = subprocess.run(["git", "archive", COMMIT, *wanted], cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.fail(f"commit {COMMIT} is not here: fetch the whole history (git fetch --unshallow)", pytrace=False)
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
